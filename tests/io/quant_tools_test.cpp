// The descriptions of compressed-tensors, Quark, transformers' own methods, and ModelOpt's other algorithms.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "io/quant_config.h"
#include "support/expect_status.h"

namespace halfbyte {
namespace {

using testing::expect_failure;
using ::testing::HasSubstr;
using enum ModuleQuant;

Result<QuantConfig> from_config(const std::string& section) {
  return parse_quant_config(R"({"model_type":"qwen3","quantization_config":)" + section + "}", "");
}
Result<QuantConfig> compressed(const std::string& groups, const std::string& more = "") {
  return from_config(R"({"quant_method":"compressed-tensors","format":"mixed-precision","version":"0.20.1",)" + more +
                     R"("config_groups":{)" + groups + "}}");
}

const std::string kNvfp4Weights =
    R"({"num_bits":4,"type":"float","symmetric":true,"strategy":"tensor_group","group_size":16,"dynamic":false,"actorder":null,"scale_dtype":"torch.float8_e4m3fn"})";
const std::string kMxfp4Weights =
    R"({"num_bits":4,"type":"float","strategy":"group","group_size":32,"scale_dtype":"torch.uint8"})";
const std::string kFp8Weights = R"({"num_bits":8,"type":"float","strategy":"channel","group_size":null})";

std::string group(const std::string& name, const std::string& targets, const std::string& weights,
                  const std::string& activations = "null") {
  return "\"" + name + R"(":{"targets":)" + targets + R"(,"weights":)" + weights + R"(,"input_activations":)" +
         activations + "}";
}

TEST(CompressedTensors, OneGroup) {
  HB_ASSERT_OK(const QuantConfig a4,
               compressed(group("group_0", R"(["Linear"])", kNvfp4Weights, kNvfp4Weights),
                          R"("ignore":["lm_head"],"kv_cache_scheme":{"num_bits":8,"type":"float"},)"));
  EXPECT_EQ(a4.scheme, "compressed-tensors");
  EXPECT_EQ(a4.producer, "compressed-tensors 0.20.1");
  EXPECT_EQ(a4.kv_cache, "FP8");
  EXPECT_EQ(a4.for_module("model.layers.0.mlp.up_proj"), kNVFP4);
  EXPECT_EQ(a4.for_module("lm_head"), kNone);
  EXPECT_EQ(a4.for_module("model.lm_head.x"), kNVFP4);  // an entry is a whole name
  EXPECT_EQ(compressed(group("g", R"(["Linear"])", kNvfp4Weights))->for_module("a"), kNVFP4W4A16);
  EXPECT_EQ(compressed(group("g", R"(["Linear"])", kMxfp4Weights))->for_module("a"), kMXFP4);
  EXPECT_EQ(compressed(group("g", R"(["Linear"])", kFp8Weights))->for_module("a"), kFP8);
  EXPECT_EQ(compressed(group("g", R"(["Linear"])",
                             R"({"num_bits":8,"type":"float","group_size":32,"scale_dtype":"torch.uint8"})"))
                ->for_module("a"),
            kMXFP8);
}

// Names before expressions, expressions in ascending order, classes last; ignore before all. As in Qwen3.8-27B-NVFP4,
// whose FP8 and NVFP4 groups overlap.
TEST(CompressedTensors, PrecedenceOfTargets) {
  HB_ASSERT_OK(
      const QuantConfig q,
      compressed(
          group("group_0", R"(["re:.*mlp.*","Linear"])", kNvfp4Weights) + "," +
              group("group_1", R"(["re:.*layers\\.(6|7)\\.mlp.*","re:.*self_attn.*","model.layers.5.mlp.up_proj"])",
                    kFp8Weights) +
              "," + group("group_2", R"(["re:.*self_attn$"])", "null", kFp8Weights),
          R"("ignore":["model.layers.1.mlp.up_proj","re:.*router"],)"));
  EXPECT_EQ(q.for_module("model.layers.0.mlp.up_proj"), kNVFP4W4A16);
  EXPECT_EQ(q.for_module("model.layers.6.mlp.up_proj"), kFP8);       // ".*layers" < ".*mlp"
  EXPECT_EQ(q.for_module("model.layers.5.mlp.up_proj"), kFP8);       // by name
  EXPECT_EQ(q.for_module("model.layers.1.mlp.up_proj"), kNone);      // ignored by name
  EXPECT_EQ(q.for_module("model.layers.1.mlp.router"), kNone);       // ignored by expression
  EXPECT_EQ(q.for_module("model.layers.3.self_attn.q_proj"), kFP8);  // from the start, not to the end
  EXPECT_EQ(q.for_module("lm_head"), kNVFP4W4A16);                   // class
}

// re.match: anchored at the start only.
TEST(CompressedTensors, ExpressionsAreAnchoredAtTheStart) {
  HB_ASSERT_OK(const QuantConfig q, compressed(group("g", R"(["re:mlp"])", kNvfp4Weights)));
  EXPECT_EQ(q.for_module("mlp.up_proj"), kNVFP4W4A16);
  EXPECT_EQ(q.for_module("model.mlp.up_proj"), kNone);
}

TEST(CompressedTensors, WhatIsRefusedIsNamed) {
  const auto unsupported = StatusCode::kUnsupported;
  expect_failure(compressed(group("group_0", R"(["Linear"])", R"({"num_bits":4,"type":"int","group_size":128})")),
                 unsupported, {"config.json", "group_0.weights", "4 bits", "'int'", "group size 128"});
  expect_failure(compressed(group("g", R"(["Linear"])", kNvfp4Weights),
                            R"("transform_config":{"config_groups":{"R1":{"type":"hadamard"}}},)"),
                 unsupported, {"transform_config", "rotates"});
  expect_failure(
      compressed(group("g", R"(["Linear"])", kNvfp4Weights), R"("sparsity_config":{"format":"sparse-24-bitmask"},)"),
      unsupported, {"sparsity_config", "'sparse-24-bitmask'"});
  EXPECT_TRUE(compressed(group("g", R"(["Linear"])", kNvfp4Weights),
                         R"("transform_config":{"config_groups":{}},"sparsity_config":{"format":"dense"},)")
                  .ok());
  const auto invalid = StatusCode::kInvalidData;
  expect_failure(compressed(group("g", R"(["re:("])", kNvfp4Weights)), invalid,
                 {"config.json", "targets[0]", "'('", "broken at byte"});
  expect_failure(compressed(group("g", "3", kNvfp4Weights)), invalid, {"targets"});
  expect_failure(compressed(R"("g":{"weights":{"num_bits":4}})"), unsupported, {"'int'"});
}

// Pitfall 17: files from before 2026 may hold exponents with another bias.
TEST(CompressedTensors, OldMxfp4FilesWarn) {
  const auto with_version = [](const std::string& version) {
    return from_config(R"({"quant_method":"compressed-tensors","format":"mxfp4-pack-quantized","version":")" + version +
                       R"(","config_groups":{)" + group("g", R"(["Linear"])", kMxfp4Weights) + "}}");
  };
  ASSERT_EQ(with_version("0.13.0")->warnings.size(), 1u);
  EXPECT_THAT(with_version("0.13.0")->warnings[0], HasSubstr("bias 125"));
  EXPECT_TRUE(with_version("0.14.0")->warnings.empty());
  EXPECT_TRUE(with_version("1.2.0")->warnings.empty());
}

TEST(Quark, Mxfp4AndFp8) {
  const std::string mxfp4 =
      R"({"weight":{"dtype":"fp4","qscheme":"per_group","group_size":32,"ch_axis":-1,"scale_format":"e8m0","scale_calculation_mode":"even"},"input_tensors":{"dtype":"fp4"}})";
  const std::string fp8 = R"({"weight":{"dtype":"fp8_e4m3","qscheme":"per_tensor"}})";
  HB_ASSERT_OK(const QuantConfig q,
               from_config(R"({"quant_method":"quark","global_quant_config":)" + mxfp4 +
                           R"(,"layer_quant_config":{"*.self_attn.*":)" + fp8 +
                           R"(},"exclude":["lm_head","re:.*\\.gate$"],"export":{"pack_method":"reorder"}})"));
  EXPECT_EQ(q.scheme, "Quark");
  EXPECT_EQ(q.for_module("model.layers.0.mlp.up_proj"), kMXFP4);
  EXPECT_EQ(q.for_module("model.layers.0.self_attn.q_proj"), kFP8);
  EXPECT_EQ(q.for_module("lm_head"), kNone);
  EXPECT_EQ(q.for_module("model.layers.0.mlp.gate"), kNone);
  EXPECT_EQ(q.for_module("model.layers.0.mlp.gate_proj"), kMXFP4);
  expect_failure(from_config(R"({"quant_method":"quark","global_quant_config":{"weight":{"dtype":"int4"}}})"),
                 StatusCode::kUnsupported, {"'int4'"});
  expect_failure(from_config(R"({"quant_method":"quark"})"), StatusCode::kInvalidData, {"global_quant_config"});
}

// As amd-quark 0.13 describes its scheme "nvfp4": the scales of the first stage are quantised by the second.
TEST(Quark, Nvfp4InTwoStages) {
  const std::string fp4 = R"({"dtype":"fp4","qscheme":"per_group","group_size":16,"scale_format":"float32"})";
  const std::string fp8 = R"({"dtype":"fp8_e4m3","qscheme":"per_tensor","is_scale_quant":true})";
  const auto read = [](const std::string& weight, const std::string& input) {
    return from_config(R"({"quant_method":"quark","global_quant_config":{"weight":)" + weight + R"(,"input_tensors":)" +
                       input + R"(},"exclude":["lm_head"]})");
  };
  const std::string stages = "[" + fp4 + "," + fp8 + "]";
  HB_ASSERT_OK(const QuantConfig both, read(stages, stages));
  EXPECT_EQ(both.for_module("model.layers.0.mlp.up_proj"), kNVFP4);
  EXPECT_EQ(both.for_module("lm_head"), kNone);
  HB_ASSERT_OK(const QuantConfig weights, read(stages, "null"));
  EXPECT_EQ(weights.for_module("model.layers.0.mlp.up_proj"), kNVFP4W4A16);
  expect_failure(read("[" + fp4 + "]", "null"), StatusCode::kUnsupported, {"1 stages"});
  expect_failure(read("[" + fp8 + "," + fp4 + "]", "null"), StatusCode::kUnsupported, {"'fp8_e4m3'"});
  expect_failure(read("[" + fp4 + R"(,{"dtype":"fp8_e5m3","qscheme":"per_tensor"}])", "null"), StatusCode::kUnsupported,
                 {"'fp8_e5m3'"});
}

TEST(PlainMethods, Mxfp4AndFp8) {
  HB_ASSERT_OK(
      const QuantConfig mx,
      from_config(R"({"quant_method":"mxfp4","modules_to_not_convert":["model.layers.*.self_attn","lm_head"]})"));
  EXPECT_EQ(mx.for_module("model.layers.3.self_attn.q_proj"), kNone);
  EXPECT_EQ(mx.for_module("model.layers.3.mlp.up_proj"), kMXFP4);
  HB_ASSERT_OK(const QuantConfig fp8, from_config(R"({"quant_method":"fp8","weight_block_size":[64,128]})"));
  EXPECT_EQ(fp8.for_module("a"), kFP8);
  EXPECT_EQ(fp8.fp8_block_rows, 64);
  expect_failure(from_config(R"({"quant_method":"fp8","weight_block_size":[64]})"), StatusCode::kInvalidData,
                 {"weight_block_size"});
}

TEST(FpQuant, IsNamedWithItsReason) {
  expect_failure(from_config(R"({"quant_method":"fp_quant","forward_dtype":"nvfp4","hadamard_group_size":128})"),
                 StatusCode::kUnsupported, {"config.json", "'fp_quant'", "rotated by a Hadamard matrix"});
}

TEST(ModelOpt, EveryAlgorithm) {
  const std::pair<const char*, ModuleQuant> algorithms[] = {
      {R"("NVFP4_AWQ","group_size":16,"has_zero_point":false,"pre_quant_scale":true)", kNVFP4},
      {R"("W4A8_NVFP4_FP8","group_size":32)", kNVFP4Wide},
      {R"("mxfp4","group_size":32)", kMXFP4},
      {R"("W4A8_MXFP4_FP8")", kMXFP4},
      {R"("FP8")", kFP8},
      {R"("FP8_PER_CHANNEL_PER_TOKEN")", kFP8},
      {R"("fp8_pb_wo")", kFP8},
      {R"("MXFP8","group_size":32)", kMXFP8}};
  for (const auto& [algorithm, quant] : algorithms) {
    HB_ASSERT_OK(const QuantConfig q,
                 parse_quant_config("", R"({"quantization":{"quant_algo":)" + std::string(algorithm) +
                                            R"(,"exclude_modules":["lm_head"]}})"));
    EXPECT_EQ(q.for_module("model.layers.0.mlp.up_proj"), quant) << algorithm;
    EXPECT_EQ(q.for_module("lm_head"), kNone);
  }
  expect_failure(parse_quant_config("", R"({"quantization":{"quant_algo":"MXFP4","group_size":16}})"),
                 StatusCode::kUnsupported, {"group_size", "16", "MXFP4 has 32"});
}

// Layers one by one, or by groups whose targets are names.
TEST(ModelOpt, MixedPrecisionOfEveryFormat) {
  const std::string layers =
      R"("quantized_layers":{"a.q":{"quant_algo":"FP8"},"a.up":{"quant_algo":"W4A16_NVFP4","group_size":16},"a.down":{"quant_algo":"NVFP4_AWQ","group_size":16}})";
  const std::string groups =
      R"("config_groups":{)" + group("group_0", R"(["a.q"])", R"({"num_bits":8,"type":"float"})") + "," +
      group("group_1", R"(["a.up"])", R"({"num_bits":4,"type":"float","group_size":16})") + "," +
      group("group_2", R"(["a.down"])", R"({"num_bits":4,"type":"float","group_size":16})", "{}") + "}";
  for (const std::string& list : {layers, groups}) {
    HB_ASSERT_OK(const QuantConfig q,
                 from_config(R"({"quant_method":"modelopt","quant_algo":"MIXED_PRECISION",)" + list + "}"));
    EXPECT_EQ(q.for_module("a.q"), kFP8);
    EXPECT_EQ(q.for_module("a.up"), kNVFP4W4A16);
    EXPECT_EQ(q.for_module("a.down"), kNVFP4);
    EXPECT_EQ(q.for_module("lm_head"), kNone);
  }
}

// Steps are bounded: what would take forever does not match.
TEST(NameRegex, WorkIsBounded) {
  HB_ASSERT_OK(const auto regex, NameRegex::compile("(a|aa)+$"));
  EXPECT_TRUE(regex->matches("aaaa"));
  EXPECT_FALSE(regex->matches(std::string(200, 'a') + "b"));
  expect_failure(NameRegex::compile(std::string(5000, 'a')), StatusCode::kInvalidData, {"5000 bytes"});
}

}  // namespace
}  // namespace halfbyte
