// The same weights written by every tool give the same logits, bit for bit where the format is the same.
#include <gtest/gtest.h>

#include <cmath>

#include "halfbyte/engine.h"
#include "kernels/registry.h"
#include "support/expect_status.h"
#include "support/stored_model.h"

namespace halfbyte {
namespace {

using testing::StoredModel;
using testing::TempFolder;
using testing::Tool;

// `plan` "": what the files keep.
std::vector<float> logits(const std::string& path, const std::string& plan, const std::string& kernels = "") {
  LoadOptions options;
  options.threads = 2;
  options.kernels = kernels;
  if (!plan.empty()) options.plan = *parse_plan(plan);
  const auto model = Model::load(path, options);
  EXPECT_TRUE(model.ok()) << model.status().message();
  if (!model.ok()) return {};
  if (plan.empty()) {
    EXPECT_TRUE((*model)->summary().notes.empty()) << (*model)->summary().notes[0];
  }
  EngineOptions engine_options;
  engine_options.threads = 2;
  const auto engine = Engine::create(*model, engine_options);
  EXPECT_TRUE(engine.ok()) << engine.status().message();
  ScoreOptions score_options;
  score_options.logits = true;
  const auto score = (*engine)->score(std::vector<int32_t>{1, 5, 40, 22, 22, 7, 30, 0, 44, 3}, score_options);
  EXPECT_TRUE(score.ok()) << score.status().message();
  return score->logits;
}

std::vector<float> of_folder(const StoredModel& model, Tool tool, const std::string& plan = "") {
  const TempFolder folder;
  const WeightFormat format = model.linears.begin()->second.format;
  write_stored_folder(folder, model.shape, stored_tensors(model, tool), testing::quantization_section(format, tool));
  return logits(folder.path(), plan);
}

std::vector<float> of_gguf(const StoredModel& model, const std::string& plan = "") {
  const TempFolder folder;
  return logits(folder.write("model.gguf", stored_gguf(model)), plan);
}

double relative_error(const std::vector<float>& a, const std::vector<float>& b) {
  double error = 0, size = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    error += std::pow(static_cast<double>(a[i]) - static_cast<double>(b[i]), 2);
    size += std::pow(static_cast<double>(b[i]), 2);
  }
  return std::sqrt(error / size);
}

TEST(StoredFormats, Nvfp4IsOneModelInEveryFile) {
  const StoredModel model = testing::stored_model(WeightFormat::kNVFP4);
  for (const char* plan : {"", "w4a4", "f32", "bf16"}) {
    const std::vector<float> expected = of_folder(model, Tool::kModelOpt, plan);
    ASSERT_EQ(expected.size(), 9u * 48);
    for (const float value : expected) ASSERT_TRUE(std::isfinite(value));
    EXPECT_EQ(of_folder(model, Tool::kCompressedTensors, plan), expected) << plan;
    EXPECT_EQ(of_gguf(model, plan), expected) << plan;
  }
}

// W4A4 files: the input scales are the same numbers, too.
TEST(StoredFormats, StaticInputScales) {
  StoredModel model = testing::stored_model(WeightFormat::kNVFP4);
  float divisor = 900;
  for (auto& [module, w] : model.linears) w.input_scale = 1.0f / (divisor += 13);
  const char* plan = "w4a4,activation_scale=static";
  const auto folder_logits = [&](Tool tool, const std::string& section) {
    const TempFolder folder;
    write_stored_folder(folder, model.shape, stored_tensors(model, tool), section);
    return logits(folder.path(), plan);
  };
  const std::vector<float> expected =
      folder_logits(Tool::kModelOpt, R"({"quant_method":"modelopt","quant_algo":"NVFP4","ignore":["lm_head"]})");
  EXPECT_EQ(
      folder_logits(
          Tool::kCompressedTensors,
          R"({"quant_method":"compressed-tensors","ignore":["lm_head"],"config_groups":{"group_0":{"targets":["Linear"],"weights":{"num_bits":4,"type":"float","group_size":16},"input_activations":{"num_bits":4,"type":"float","group_size":16,"dynamic":"local"}}}})"),
      expected);
  EXPECT_EQ(of_gguf(model, plan), expected);
  EXPECT_NE(of_gguf(model, "w4a4"), expected);
}

TEST(StoredFormats, Mxfp4IsOneModelInEveryFileAndFormat) {
  const StoredModel model = testing::stored_model(WeightFormat::kMXFP4), cast = testing::as_nvfp4(model);
  for (const char* plan : {"", "f32"}) {
    const std::vector<float> expected = of_folder(model, Tool::kModelOpt, plan);
    EXPECT_EQ(of_folder(model, Tool::kCompressedTensors, plan), expected) << plan;
    EXPECT_EQ(of_folder(model, Tool::kQuark, plan), expected) << plan;
    EXPECT_EQ(of_gguf(model, plan), expected) << plan;
    for (const std::vector<float>& nvfp4 : {of_folder(cast, Tool::kModelOpt, plan),
                                            of_folder(cast, Tool::kCompressedTensors, plan), of_gguf(cast, plan)}) {
      // NVFP4's blocks are shorter, so that its FP32 sums and the rounding of their inputs differ; f32 has neither.
      if (*plan != '\0') {
        EXPECT_EQ(nvfp4, expected);
      }
      EXPECT_LT(relative_error(nvfp4, expected), 2e-3);
    }
  }
}

// AWQ: the input times pre_quant_scale. A power of two in it and its inverse in the columns' codes cancel exactly.
TEST(StoredFormats, PreQuantScaleMultipliesTheInput) {
  const StoredModel model = testing::stored_model(WeightFormat::kNVFP4);
  auto tensors = stored_tensors(model, Tool::kModelOpt);
  const std::string section = testing::quantization_section(WeightFormat::kNVFP4, Tool::kModelOpt);
  const auto with = [&](const std::map<std::string, std::vector<float>>& scales, const std::string& plan) {
    auto changed = tensors;
    for (const auto& [module, scale] : scales)
      changed[module + ".pre_quant_scale"] = {"F32", {static_cast<int64_t>(scale.size())}, testing::bytes_of(scale)};
    const TempFolder folder;
    write_stored_folder(folder, model.shape, changed, section);
    return logits(folder.path(), plan);
  };
  const std::string layer = "model.layers.1.";
  const std::vector<float> ones(64, 1.0f), halves(64, 0.5f);
  for (const char* plan : {"w4a16", "w4a4", "f32"}) {
    const std::vector<float> plain = with({}, plan);
    EXPECT_EQ(with({{layer + "self_attn.q_proj", ones}, {layer + "mlp.up_proj", ones}}, plan), plain) << plan;
    const std::vector<float> scaled = with({{layer + "mlp.up_proj", halves}}, plan);
    EXPECT_NE(scaled, plain) << plan;
    // Half the input is half of up: the same as half of up's tensor scale.
    auto changed = tensors;
    const float half = model.linears.at(layer + "mlp.up_proj").tensor_scale / 2;
    changed[layer + "mlp.up_proj.weight_scale_2"] = {"F32", {}, testing::bytes_of<float>({half})};
    const TempFolder folder;
    write_stored_folder(folder, model.shape, changed, section);
    EXPECT_EQ(logits(folder.path(), plan), scaled) << plan;
  }
}

// A rounded linear keeps its pre-scale, and every kernel set that runs here applies it alike: bit for bit where
// docs/numerics.md holds the set to the reference's order. `amx` adds prompt rows in the tile order (3.5): W4A4's block
// dots are exact there too, so that what is left is FP32's rounding of sums, as long as it moves no code.
TEST(StoredFormats, PreQuantScaleOnEveryKernel) {
  constexpr double kTileOrderError = 5e-7;  // measured: 4e-8
  const StoredModel model = testing::stored_model(WeightFormat::kNVFP4);
  auto tensors = stored_tensors(model, Tool::kModelOpt);
  const std::string section = testing::quantization_section(WeightFormat::kNVFP4, Tool::kModelOpt);
  const TempFolder unscaled;
  write_stored_folder(unscaled, model.shape, tensors, section);
  std::vector<float> scale = testing::tiny_values(64, 99);
  for (float& v : scale) v = 1 + v / 2;
  for (const char* part : {"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "mlp.gate_proj"})
    tensors[std::string("model.layers.0.") + part + ".pre_quant_scale"] = {"F32", {64}, testing::bytes_of(scale)};
  const TempFolder folder;
  write_stored_folder(folder, model.shape, tensors, section);

  const std::vector<float> expected = logits(folder.path(), "w4a4", "ref");
  ASSERT_EQ(expected.size(), 9u * 48);
  // A set that left the scale out would be seen, in the tile order, too.
  EXPECT_GT(relative_error(logits(unscaled.path(), "w4a4", "ref"), expected), 1000 * kTileOrderError);
  std::vector<Isa> here;
  std::string names;
  for (const Isa isa : all_isas()) {
    if (!isa_runs_here(isa)) continue;
    here.push_back(isa);
    names += (names.empty() ? "" : ", ") + std::string(isa_name(isa));
  }
  RecordProperty("kernels", names);
  SCOPED_TRACE("kernel sets that run here: " + names);
  for (const Isa isa : here) {
    const std::string kernels = isa_name(isa);
    const std::vector<float> got = logits(folder.path(), "w4a4", kernels);
    ASSERT_EQ(got.size(), expected.size()) << kernels;
    const double error = relative_error(got, expected);
    if (isa == Isa::kAmx) {
      EXPECT_LT(error, kTileOrderError) << kernels;
    } else {
      EXPECT_EQ(got, expected) << kernels << ": relative error " << error << " against ref";
    }
  }
  // What runs when none is named is one of them.
  const std::string best = isa_name(*choose_isa(""));
  EXPECT_EQ(logits(folder.path(), "w4a4"), logits(folder.path(), "w4a4", best)) << best;
  EXPECT_LT(relative_error(logits(folder.path(), "bf16"), logits(folder.path(), "f32")), 0.05);
}

// FP8 linears beside NVFP4 ones (MIXED_PRECISION) become BF16 and say so.
TEST(StoredFormats, Fp8LayersInAMixedFile) {
  const StoredModel model = testing::stored_model(WeightFormat::kNVFP4);
  auto tensors = stored_tensors(model, Tool::kModelOpt);
  std::string layers;
  for (const auto& [module, w] : model.linears) {
    const bool fp8 = module.find("self_attn") != std::string::npos;
    layers += (layers.empty() ? "\"" : ",\"") + module + R"(":{"quant_algo":")" + (fp8 ? "FP8" : "W4A16_NVFP4") + "\"}";
    if (!fp8) continue;
    std::string codes;
    for (int64_t i = 0; i < w.n * w.k; ++i) codes.push_back(static_cast<char>((i * 29 + w.n) & 0xBF));
    tensors.erase(module + ".weight_scale_2");
    tensors[module + ".weight"] = {"F8_E4M3", {w.n, w.k}, codes};
    tensors[module + ".weight_scale"] = {"F32", {}, testing::bytes_of<float>({0.0625f})};
    tensors[module + ".input_scale"] = {"F32", {}, testing::bytes_of<float>({0.5f})};
  }
  const TempFolder folder;
  write_stored_folder(
      folder, model.shape, tensors,
      R"({"quant_method":"modelopt","quant_algo":"MIXED_PRECISION","quantized_layers":{)" + layers + "}}");
  LoadOptions options;
  options.threads = 1;
  HB_ASSERT_OK(const auto loaded, Model::load(folder.path(), options));
  EXPECT_EQ(loaded->plan().linear_for("layers.0.self_attn.q_proj").weights, WeightKind::kBF16);
  EXPECT_EQ(loaded->plan().linear_for("layers.0.mlp.up_proj").weights, WeightKind::kNVFP4);
  ASSERT_EQ(loaded->summary().notes.size(), 1u);
  EXPECT_EQ(loaded->summary().notes[0], "8 linears are stored in FP8 and were converted to the plan's formats");
  // E4M3 times a power of two is a BF16 number.
  EXPECT_LT(relative_error(logits(folder.path(), "bf16"), logits(folder.path(), "f32")), 0.05);
}

}  // namespace
}  // namespace halfbyte
