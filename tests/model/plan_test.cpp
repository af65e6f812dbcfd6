#include "halfbyte/plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>

#include "model/plan_fields.h"

namespace halfbyte {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

PrecisionPlan parse(std::string_view text) {
  auto plan = parse_plan(text);
  EXPECT_TRUE(plan.ok()) << plan.status().message();
  return plan.ok() ? *plan : PrecisionPlan{};
}

std::string parse_error(std::string_view text) {
  const auto plan = parse_plan(text);
  EXPECT_FALSE(plan.ok()) << text;
  return plan.status().message();
}

TEST(Plan, PresetsAreWhatTheirNamesSay) {
  EXPECT_EQ(plan_preset_names(), (std::vector<std::string>{"f32", "bf16", "w4a16", "w4a8", "w4a4", "w4a16-mxfp4",
                                                           "w4a8-mxfp4", "w4a4-mxfp4", "w8a16", "int4", "int3"}));
  for (const std::string& name : plan_preset_names()) EXPECT_EQ(parse(name).preset, name);
  EXPECT_EQ(parse("f32").linear.weights, WeightKind::kF32);
  EXPECT_EQ(parse("f32").kv, KvKind::kF32);
  EXPECT_EQ(parse("f32").embedding, WeightKind::kF32);
  EXPECT_EQ(parse("w4a16").linear.activations, ActivationKind::kBF16);
  EXPECT_EQ(parse("w4a8").linear.activations, ActivationKind::kFP8);
  EXPECT_EQ(parse("w4a4").linear.activations, ActivationKind::kFP4);
  EXPECT_EQ(parse("w4a4").linear.weights, WeightKind::kNVFP4);
  EXPECT_EQ(parse("w4a4-mxfp4").linear.weights, WeightKind::kMXFP4);
  EXPECT_EQ(parse("w4a4").head.weights, WeightKind::kBF16);
  EXPECT_EQ(parse("w8a16").linear.weights, WeightKind::kFP8);
  EXPECT_EQ(parse("w8a16").linear.activations, ActivationKind::kBF16);
  EXPECT_EQ(parse("w4a16,head.weights=fp8").head.weights, WeightKind::kFP8);
  EXPECT_EQ(parse("int3").linear.weights, WeightKind::kInt3);
  EXPECT_EQ(parse("int4").linear.activations, ActivationKind::kBF16);
  EXPECT_EQ(parse("w4a4").kv, KvKind::kBF16);
}

TEST(Plan, ATextHasOnlyWhatDiffersFromThePreset) {
  for (const std::string& name : plan_preset_names()) EXPECT_EQ(plan_to_text(parse(name)), name);
  for (const std::string text :
       {"w4a4,kv=fp8,layers.0.*:weights=bf16", "bf16,weights=nvfp4,activations=fp4,activation_scale=static,kv_scale=1",
        "w4a16,head.weights=mxfp4,head.activations=fp8,embedding=f32",
        "w4a8,layers.?.mlp.*:weights=mxfp4,layers.?.mlp.*:activations=fp4,lm_head:activation_scale=static"}) {
    EXPECT_EQ(plan_to_text(parse(text)), text);
    EXPECT_EQ(parse(plan_to_text(parse(text))), parse(text));
  }
  // Weights that take their activations along: said once.
  EXPECT_EQ(plan_to_text(parse("w4a4, weights=bf16, kv=bf16")), "w4a4,weights=bf16");
}

TEST(Plan, FieldsAndPatternsChangeAPreset) {
  const PrecisionPlan plan = parse(
      " w4a4, kv=f32, activation_scale=static, head.weights=nvfp4, layers.0.*:weights=bf16,"
      "layers.?.mlp.down_proj:activations=bf16");
  EXPECT_EQ(plan.kv, KvKind::kF32);
  EXPECT_EQ(plan.head.weights, WeightKind::kNVFP4);
  EXPECT_EQ(plan.linear_for("lm_head").weights, WeightKind::kNVFP4);
  const LinearPlan plain = plan.linear_for("layers.3.self_attn.q_proj");
  EXPECT_EQ(plain.weights, WeightKind::kNVFP4);
  EXPECT_EQ(plain.activations, ActivationKind::kFP4);
  EXPECT_EQ(plain.activation_scale, ActivationScale::kStatic);
  // bf16 weights have no fp4 activations: they follow.
  EXPECT_EQ(plan.linear_for("layers.0.mlp.up_proj").weights, WeightKind::kBF16);
  EXPECT_EQ(plan.linear_for("layers.0.mlp.up_proj").activations, ActivationKind::kBF16);
  EXPECT_EQ(plan.linear_for("layers.5.mlp.down_proj").activations, ActivationKind::kBF16);
  EXPECT_EQ(plan.linear_for("layers.15.mlp.down_proj").activations, ActivationKind::kFP4);  // ? is one character
  EXPECT_EQ(plan.linear_for("layers.10.mlp.up_proj").weights, WeightKind::kNVFP4);          // the dot is literal
}

TEST(Plan, LaterOverridesWinAndNeighboursMerge) {
  const PrecisionPlan plan = parse("w4a16,*:weights=mxfp4,*:activations=fp4,layers.1.*:weights=nvfp4");
  ASSERT_EQ(plan.overrides.size(), 2u);
  EXPECT_EQ(plan.overrides[0].fields, (std::vector<std::string>{"weights", "activations"}));
  EXPECT_EQ(plan.linear_for("layers.0.mlp.up_proj").weights, WeightKind::kMXFP4);
  EXPECT_EQ(plan.linear_for("layers.1.mlp.up_proj").weights, WeightKind::kNVFP4);
  EXPECT_EQ(plan.linear_for("layers.1.mlp.up_proj").activations, ActivationKind::kFP4);
  EXPECT_EQ(plan.linear_for("lm_head").weights, WeightKind::kMXFP4);
}

TEST(Plan, GlobsAreNotFooledByRepetition) {
  const PrecisionPlan plan = parse("w4a16,*a*a*b:weights=bf16");
  EXPECT_EQ(plan.linear_for("aaaaaaaaaaaaaaaaaaaaaaaac").weights, WeightKind::kNVFP4);
  EXPECT_EQ(plan.linear_for("xaxxaxxb").weights, WeightKind::kBF16);
}

TEST(Plan, MistakesAreNamed) {
  EXPECT_THAT(parse_error("w5"), HasSubstr("'w5' is not known, expected one of f32, bf16, w4a16"));
  EXPECT_THAT(parse_error(""), HasSubstr("expected one of"));
  EXPECT_THAT(parse_error("w4a4,kv"), HasSubstr("'kv' has no '='"));
  EXPECT_THAT(parse_error("w4a4,kv=int3"),
              HasSubstr("'kv' has value 'int3', expected one of f32, bf16, fp8, nvfp4, e1m2"));
  EXPECT_THAT(parse_error("w4a4,color=red"), HasSubstr("'color' is not known"));
  EXPECT_THAT(parse_error("w4a4,kv_scale=2"), HasSubstr("'kv_scale' has value '2', expected one of 1, checkpoint"));
  EXPECT_THAT(parse_error("w4a4,query=fp4"), HasSubstr("'query' cannot be chosen yet"));
  EXPECT_THAT(parse_error("w4a4,layers.0:kv=f32"), HasSubstr("'kv' is not one of a layer"));
  EXPECT_THAT(parse_error("w4a4,:weights=bf16"), HasSubstr("no layer pattern"));
  EXPECT_THAT(parse_error("bf16,activations=fp4"), HasSubstr("fp4 activations with bf16 weights"));
  EXPECT_THAT(parse_error("w4a4,x:weights=bf16,x:activations=fp4"),
              HasSubstr("plan: 'x': fp4 activations with bf16 weights"));
  EXPECT_THAT(parse_error("w4a4,embedding=nvfp4"), HasSubstr("expected f32 or bf16"));
}

TEST(PlanJson, WhatIsWrittenReadsBackEqual) {
  for (const char* text :
       {"f32", "w4a4", "w4a4,kv=e1m2", "bf16,kv=nvfp4,kv_scale=1",
        "w4a8-mxfp4,kv=f32,head.weights=mxfp4,head.activations=fp8",
        "w4a4,activation_scale=static,layers.0.*:weights=bf16,lm_head:weights=nvfp4,lm_head:activations=fp4"}) {
    const PrecisionPlan plan = parse(text);
    const auto back = plan_from_json(plan_to_json(plan), "halfbyte_plan.json");
    ASSERT_TRUE(back.ok()) << back.status().message();
    EXPECT_EQ(*back, plan) << plan_to_json(plan);
  }
  PrecisionPlan calibrated = parse("w4a4");
  calibrated.reset = ResetValues{0.5505, 0.1f};
  const auto back = plan_from_json(plan_to_json(calibrated), "halfbyte_plan.json");
  ASSERT_TRUE(back.ok()) << back.status().message();
  EXPECT_EQ(*back, calibrated);
  EXPECT_THAT(plan_to_json(calibrated), HasSubstr("\"t_low\": 0.1\n"));
}

// docs/plans.md shows a plan in both forms: they are the same plan, and the file is what we write.
TEST(PlanJson, TheDocumentedExampleIsWhatItSays) {
  std::ifstream file(HALFBYTE_SOURCE_DIR "/docs/plans.md");
  std::string line, json, option;
  while (std::getline(file, line)) {
    if (line.starts_with("    --plan ")) option = line.substr(11);
    if (line == "    {" || !json.empty()) json += line.substr(std::min<size_t>(4, line.size())) + "\n";
    if (line == "    }") break;
  }
  const auto plan = plan_from_json(json, "docs/plans.md");
  ASSERT_TRUE(plan.ok()) << plan.status().message();
  EXPECT_EQ(*plan, parse("w4a4,layers.0.*:weights=bf16"));
  EXPECT_EQ(parse(option).kv, KvKind::kF32);
  EXPECT_EQ(parse(option).overrides.size(), 2u);
}

// Written by hand: what is left out is the preset's, whatever the order.
TEST(PlanJson, APresetGivesWhatIsLeftOut) {
  const auto read = [](const char* text) { return plan_from_json(text, "p.json"); };
  for (const char* text : {R"({"version":1,"preset":"w4a4"})", R"({"preset":"w4a4"})"}) {
    const auto plan = read(text);
    ASSERT_TRUE(plan.ok()) << plan.status().message();
    EXPECT_EQ(*plan, parse("w4a4"));
  }
  const auto changed = read(R"({"kv":"fp8","linear":{"activations":"fp8"},"preset":"w4a4"})");
  ASSERT_TRUE(changed.ok()) << changed.status().message();
  EXPECT_EQ(plan_to_text(*changed), "w4a4,activations=fp8,kv=fp8");
  EXPECT_EQ(plan_to_text(*read(R"({"version":1})")), "bf16");
  EXPECT_THAT(read(R"({"preset":"zzz"})").status().message(),
              AllOf(HasSubstr("p.json: preset"), HasSubstr("'zzz'"), HasSubstr("w4a16")));
}

TEST(PlanJson, MistakesNameFileAndPath) {
  const auto error = [](std::string_view json) {
    return plan_from_json(json, "halfbyte_plan.json").status().message();
  };
  EXPECT_THAT(error(R"({"weight": 1})"), HasSubstr("halfbyte_plan.json: unknown key 'weight'"));
  EXPECT_THAT(error(R"({"linear": {"weights": "nvfp4", "colour": 1}})"), HasSubstr("linear: unknown key 'colour'"));
  EXPECT_THAT(error(R"({"linear": {"weights": "fp5"}})"),
              HasSubstr("linear.weights: plan field 'weights' has value 'fp5'"));
  EXPECT_THAT(error(R"({"overrides": [{"weights": "bf16"}]})"), HasSubstr("overrides[0]: no 'pattern'"));
  EXPECT_THAT(error(R"({"overrides": [{"pattern": "x", "kv": "f32"}]})"), HasSubstr("unknown key 'kv'"));
  EXPECT_THAT(error(R"({"reset": {"tau0": 0.5}})"), HasSubstr("reset: one of tau0 and t_low is missing"));
  EXPECT_THAT(error(R"({"reset": {"tau0": -1, "t_low": 0}})"), HasSubstr("reset.tau0: found -1, expected 0 to 100"));
  EXPECT_THAT(error(R"({"reset": {"tau0": 1, "t_high": 0}})"), HasSubstr("unknown key 't_high'"));
  EXPECT_THAT(error(R"({"version": 2})"), HasSubstr("version: plan version 2, expected 1"));
  EXPECT_THAT(error(R"({"linear": {"weights": "bf16", "activations": "fp4"}})"),
              HasSubstr("fp4 activations with bf16 weights"));
  EXPECT_THAT(error("[1]"), HasSubstr("halfbyte_plan.json"));
  EXPECT_THAT(error("{"), HasSubstr("halfbyte_plan.json"));
}

}  // namespace
}  // namespace halfbyte
