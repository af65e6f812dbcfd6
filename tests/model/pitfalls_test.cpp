// What has gone wrong with FP4 checkpoints in public: one test for each, on files that the tests write. The numbers are
// those of the list in docs/checkpoints.md; the first line of each says what happened elsewhere.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "formats/e4m3.h"
#include "formats/e8m0.h"
#include "halfbyte/model.h"
#include "model/load_plan.h"
#include "model/model_impl.h"
#include "support/expect_status.h"
#include "support/stored_model.h"

namespace halfbyte {
namespace {

using testing::bytes_of;
using ::testing::Contains;
using testing::expect_failure;
using testing::FileTensors;
using ::testing::HasSubstr;
using testing::StoredModel;
using testing::TempFolder;
using testing::Tool;

constexpr const char* kUp = "model.layers.0.mlp.up_proj";
constexpr const char* kGate = "model.layers.0.mlp.gate_proj";
constexpr auto kInvalid = StatusCode::kInvalidData;

class Pitfalls : public ::testing::Test {
 protected:
  explicit Pitfalls(WeightFormat format = WeightFormat::kNVFP4) : model(testing::stored_model(format)) {
    use(Tool::kModelOpt);
  }

  void use(Tool tool) {
    tensors = stored_tensors(model, tool);
    section = testing::quantization_section(model.linears.begin()->second.format, tool);
  }
  // W4A4: every linear gets an input scale.
  void with_input_scales() {
    for (const auto& [module, w] : model.linears)
      tensors[module + ".input_scale"] = {"F32", {}, bytes_of<float>({0.01f})};
    section = R"({"quant_method":"modelopt","quant_algo":"NVFP4","ignore":["lm_head"]})";
  }
  void make_plain(const std::string& module) {
    const QuantLinear& w = model.linears.at(module);
    tensors.erase(module + ".weight_scale");
    tensors.erase(module + ".weight_scale_2");
    tensors[module + ".weight"] = {
        "BF16", {w.n, w.k}, testing::bf16_bytes(testing::tiny_values(static_cast<size_t>(w.n * w.k), 5))};
  }
  void set_scalar(const std::string& name, float value) { tensors[name] = {"F32", {}, bytes_of<float>({value})}; }

  Result<std::shared_ptr<Model>> load(const std::string& plan = "") {
    write_stored_folder(folder, model.shape, tensors, section);
    LoadOptions options;
    options.threads = 1;
    if (!plan.empty()) options.plan = *parse_plan(plan);
    return Model::load(folder.path(), options);
  }
  // One linear of the files, in FP32.
  std::vector<float> values(const std::string& module) {
    write_stored_folder(folder, model.shape, tensors, section);
    const auto source = open_model_source(folder.path());
    EXPECT_TRUE(source.ok()) << source.status().message();
    const auto w = load_quant_linear(*source->tensors, source->quant, module);
    EXPECT_TRUE(w.ok()) << w.status().message();
    if (!w.ok()) return {};
    return dequantised(*w);
  }
  static std::vector<float> dequantised(const QuantLinear& w) {
    std::vector<float> out(static_cast<size_t>(w.n * w.k));
    for (int64_t r = 0; r < w.n; ++r)
      dequantize_row(w, r, std::span(out).subspan(static_cast<size_t>(r * w.k), static_cast<size_t>(w.k)));
    return out;
  }

  StoredModel model;
  FileTensors tensors;
  std::string section;
  TempFolder folder;
};

class MxPitfalls : public Pitfalls {
 protected:
  MxPitfalls() : Pitfalls(WeightFormat::kMXFP4) {}
};

// A missing input scale was read as 0, and 1 / 0 made NaN.
TEST_F(Pitfalls, P01_MissingOrZeroInputScale) {
  with_input_scales();
  tensors.erase(std::string(kUp) + ".input_scale");
  HB_ASSERT_OK(const auto loaded, load("w4a4,activation_scale=static"));
  EXPECT_EQ(loaded->impl().weights.layers[0].up.activation_scale, 0.0f);
  EXPECT_EQ(loaded->impl().weights.layers[0].gate.activation_scale, 0.01f);
  EXPECT_THAT(loaded->summary().notes, Contains(HasSubstr("1 linears have no input scale")));
  for (const float bad : {0.0f, -0.5f, std::numeric_limits<float>::quiet_NaN()}) {
    set_scalar(std::string(kUp) + ".input_scale", bad);
    expect_failure(load(), kInvalid, {"up_proj.input_scale'", "above 0"});
  }
}

// quant_algo NVFP4, but nothing was calibrated: memory that nobody had written became part of alpha.
TEST_F(Pitfalls, P02_W4A4WithoutInputScalesIsWeightOnly) {
  section = R"({"quant_method":"modelopt","quant_algo":"NVFP4","ignore":["lm_head"]})";
  HB_ASSERT_OK(const auto loaded, load());
  EXPECT_THAT(loaded->summary().notes, Contains(HasSubstr("config.json says NVFP4, the tensors are W4A16_NVFP4")));
  HB_ASSERT_OK(const auto asked, load("w4a4,activation_scale=static"));
  for (const LayerWeights& layer : asked->impl().weights.layers) EXPECT_EQ(layer.down.activation_scale, 0.0f);
}

// A BF16 layer that no ignore list named: its scales were never loaded.
TEST_F(Pitfalls, P03_UnlistedPlainLayer) {
  make_plain(kUp);
  HB_ASSERT_OK(const auto loaded, load());
  EXPECT_EQ(loaded->impl().weights.layers[0].up.kernel->weights, WeightFormat::kBF16);
  EXPECT_EQ(loaded->impl().weights.layers[0].gate.kernel->weights, WeightFormat::kNVFP4);
  EXPECT_THAT(loaded->summary().notes,
              Contains(HasSubstr("up_proj: config.json says W4A16_NVFP4, the tensors are unquantised")));
  set_scalar(std::string(kUp) + ".weight_scale_2", 1.0f);
  expect_failure(load(), kInvalid, {"weight_scale_2'", "half a set"});
}

// gate_up_proj fused on disk with one scale: the second slot was never filled.
TEST_F(Pitfalls, P04_FusedOnDisk) {
  const std::string fused = "model.layers.0.mlp.gate_up_proj";
  for (const char* suffix : {".weight", ".weight_scale", ".weight_scale_2"}) {
    tensors[fused + suffix] = tensors.at(kUp + std::string(suffix));
    tensors.erase(kUp + std::string(suffix));
    tensors.erase(kGate + std::string(suffix));
  }
  expect_failure(load(), StatusCode::kUnsupported, {"gate_up_proj.weight'", "fused", "gate_proj"});
}

// gate and up with different divisors: the largest of them was used for both.
TEST_F(Pitfalls, P05_EachPartKeepsItsOwnGlobalScale) {
  use(Tool::kCompressedTensors);
  tensors[std::string(kUp) + ".weight_global_scale"] = {"F32", {1}, bytes_of<float>({1024.0f})};
  tensors[std::string(kGate) + ".weight_global_scale"] = {"F32", {1}, bytes_of<float>({2048.0f})};
  HB_ASSERT_OK(const auto loaded, load());
  EXPECT_EQ(loaded->impl().weights.layers[0].up.tensor_scale, 1.0f / 1024);
  EXPECT_EQ(loaded->impl().weights.layers[0].gate.tensor_scale, 1.0f / 2048);
}

// A divisor taken for a multiplier; linear scales taken for swizzled ones.
TEST_F(Pitfalls, P06_DivisorsAndMultipliersGiveTheSameValues) {
  for (const auto& [module, w] : model.linears) {
    const std::vector<float> expected = dequantised(w);
    use(Tool::kModelOpt);
    EXPECT_EQ(values(module), expected);
    use(Tool::kCompressedTensors);
    EXPECT_EQ(values(module), expected);
  }
}

// The two codes of a byte swapped.
TEST_F(Pitfalls, P07_TheLowNibbleComesFirst) {
  tensors.at(std::string(kUp) + ".weight").bytes[0] = '\x2B';
  tensors.at(std::string(kUp) + ".weight_scale").bytes[0] = '\x38';
  set_scalar(std::string(kUp) + ".weight_scale_2", 1.0f);
  const std::vector<float> w = values(kUp);
  EXPECT_EQ(w[0], -1.5f);
  EXPECT_EQ(w[1], 1.0f);
}

// Scale bytes 0x7F from a cast that did not saturate.
TEST_F(Pitfalls, P08_NaNScaleBytes) {
  std::string& scales = tensors.at(std::string(kUp) + ".weight_scale").bytes;
  std::string& codes = tensors.at(std::string(kUp) + ".weight").bytes;
  scales[5] = '\x7F';  // row 1, block 1 of 4
  expect_failure(load(), kInvalid, {"up_proj.weight_scale'", "NaN scale", "row 1, block 1"});
  for (size_t i = 40; i < 48; ++i) codes[i] = '\0';
  const std::vector<float> w = values(kUp);
  for (size_t i = 80; i < 96; ++i) EXPECT_EQ(w[i], 0.0f);
  EXPECT_TRUE(load().ok());
}

// lm_head excluded by the list, and quantised all the same.
TEST_F(Pitfalls, P09_QuantisedHeadThatTheListExcludes) {
  ThreadPool pool(1);
  const std::vector<float> head = testing::tiny_values(48 * 64, 3);
  HB_ASSERT_OK(const QuantLinear w, quantize_weight(weight_source("h", head.data(), 48, 64), {}, pool));
  tensors["lm_head.weight"] = {"U8", {48, 32}, bytes_of(w.codes)};
  tensors["lm_head.weight_scale"] = {"F8_E4M3", {48, 4}, bytes_of(w.block_scales)};
  set_scalar("lm_head.weight_scale_2", w.tensor_scale);
  HB_ASSERT_OK(const auto loaded, load());
  EXPECT_EQ(loaded->impl().weights.head.kernel->weights, WeightFormat::kNVFP4);
  EXPECT_THAT(loaded->summary().notes,
              Contains(HasSubstr("lm_head: config.json says unquantised, the tensors are W4A16_NVFP4")));
}

// lm_head in BF16, which a rule with an empty prefix did not exclude.
TEST_F(Pitfalls, P10_PlainHeadInAQuantisedFile) {
  for (const char* ignore : {"[\"lm_head\"]", "[]"}) {
    section = std::string(R"({"quant_method":"modelopt","quant_algo":"W4A16_NVFP4","ignore":)") + ignore + "}";
    HB_ASSERT_OK(const auto loaded, load());
    EXPECT_EQ(loaded->impl().weights.head.kernel->weights, WeightFormat::kBF16);
  }
}

// A tied lm_head that is not in the file stayed random.
TEST_F(Pitfalls, P11_MissingHeadIsTheEmbedding) {
  tensors.erase("lm_head.weight");
  HB_ASSERT_OK(const auto loaded, load());
  EXPECT_TRUE(loaded->config().tied_head);
  EXPECT_THAT(loaded->summary().notes, Contains(HasSubstr("no lm_head")));
  tensors.erase("model.embed_tokens.weight");
  expect_failure(load(), StatusCode::kNotFound, {"model.embed_tokens.weight"});
}

// Keys and values with one scale between them: KeyError 'v'.
TEST_F(Pitfalls, P12_ValuesWithoutAScale) {
  set_scalar("model.layers.0.self_attn.k_proj.k_scale", 0.25f);
  HB_ASSERT_OK(const auto loaded, load("w4a16,kv=fp8"));
  EXPECT_EQ(loaded->impl().weights.layers[0].key_scale, 0.25f);
  EXPECT_EQ(loaded->impl().weights.layers[0].value_scale, 1.0f);
  EXPECT_THAT(loaded->summary().notes, Contains(HasSubstr("have no scale for the cache")));
}

// k_scale where nobody looked for it.
TEST_F(Pitfalls, P13_CacheScalesInEveryPlace) {
  for (const char* owner : {"k_proj.", "", "attn."}) {
    use(Tool::kModelOpt);
    const std::string name = std::string("model.layers.1.self_attn.") + owner + "k_scale";
    tensors[name] = {"BF16", {1}, testing::bf16_bytes({0.5f})};
    HB_ASSERT_OK(const auto loaded, load("w4a16,kv=fp8"));
    EXPECT_EQ(loaded->impl().weights.layers[1].key_scale, 0.5f) << name;
    EXPECT_TRUE(load().ok());  // a plan that has no use for it
  }
}

// Ignore lists with wildcards, or with names from before modules were fused or renamed.
TEST_F(Pitfalls, P14_WildcardsAndRenamedModules) {
  make_plain(kUp);
  make_plain("model.layers.1.mlp.up_proj");
  for (const char* ignore : {R"(["lm_head","model.layers.*.mlp.up_proj"])", R"(["lm_head","*up_proj*"])",
                             R"(["lm_head","model.layers.0.mlp.gate_up_proj","transformer.h.1.mlp.up"])"}) {
    section = std::string(R"({"quant_method":"modelopt","quant_algo":"W4A16_NVFP4","ignore":)") + ignore + "}";
    HB_ASSERT_OK(const auto loaded, load());
    EXPECT_EQ(loaded->impl().weights.layers[0].up.kernel->weights, WeightFormat::kBF16) << ignore;
    EXPECT_EQ(loaded->impl().weights.layers[0].gate.kernel->weights, WeightFormat::kNVFP4) << ignore;
  }
}

// An export with scales of half the size, and with the quantiser's own state.
TEST_F(Pitfalls, P15_HalfScalesAndLeakedState) {
  auto& scales = tensors.at(std::string(kUp) + ".weight_scale");
  scales.shape[1] /= 2;
  scales.bytes.resize(scales.bytes.size() / 2);
  expect_failure(load(), kInvalid, {"up_proj.weight_scale'", "[128, 2] F8_E4M3", "expected [128, 4]"});
  use(Tool::kModelOpt);
  set_scalar(std::string(kUp) + ".weight_quantizer._double_scale", 1.0f);
  expect_failure(load(), kInvalid, {"weight_quantizer._double_scale'", "expected one of"});
}

// A router missing from the list: "weights of size [128, 2048] to [128, 1024]".
TEST_F(Pitfalls, P16_PackedAndPlainSizesAreToldApart) {
  make_plain(kUp);
  HB_ASSERT_OK(const auto loaded, load());
  EXPECT_EQ(loaded->impl().weights.layers[0].up.k, 64);
  // Plain bytes where codes should be: the width is twice the model's.
  use(Tool::kModelOpt);
  auto& weight = tensors.at(std::string(kUp) + ".weight");
  weight.shape[1] *= 2;
  weight.bytes += weight.bytes;
  auto& scales = tensors.at(std::string(kUp) + ".weight_scale");
  scales.shape[1] *= 2;
  scales.bytes += scales.bytes;
  expect_failure(load(), kInvalid, {"up_proj.weight'", "[128, 128], expected [128, 64]"});
}

// Exponents with bias 125 were read with 127, or the other way round.
TEST_F(MxPitfalls, P17_ExponentsHaveBias127) {
  auto& scales = tensors.at(std::string(kUp) + ".weight_scale").bytes;
  tensors.at(std::string(kUp) + ".weight").bytes[0] = '\x02';  // 1.0
  for (const int byte : {127, 129, 125}) {
    scales[0] = static_cast<char>(byte);
    EXPECT_EQ(values(kUp)[0], std::ldexp(1.0f, byte - 127));
  }
}

// Subnormal E4M3 scales decoded wrongly, subnormal E8M0 ones flushed to zero.
TEST_F(Pitfalls, P18_EveryE4M3Scale) {
  auto& scales = tensors.at(std::string(kUp) + ".weight_scale").bytes;
  auto& codes = tensors.at(std::string(kUp) + ".weight").bytes;
  ASSERT_GE(scales.size(), 127u);
  for (size_t i = 0; i < 127; ++i) {
    scales[i] = static_cast<char>(i);
    codes[8 * i] = '\x02';  // 1.0
  }
  set_scalar(std::string(kUp) + ".weight_scale_2", 1.0f);
  const std::vector<float> w = values(kUp);
  for (size_t i = 0; i < 127; ++i) {
    const double mantissa = static_cast<double>(i % 8), exponent = static_cast<double>(i / 8);
    const double expected = i < 8 ? mantissa / 512 : (1 + mantissa / 8) * std::pow(2.0, exponent - 7);
    EXPECT_EQ(static_cast<double>(w[16 * i]), expected) << i;
  }
}
TEST_F(MxPitfalls, P18_EveryE8M0Scale) {
  auto& scales = tensors.at(std::string(kUp) + ".weight_scale").bytes;
  auto& codes = tensors.at(std::string(kUp) + ".weight").bytes;
  ASSERT_GE(scales.size(), 255u);
  for (size_t i = 0; i < 255; ++i) {
    scales[i] = static_cast<char>(i);
    codes[16 * i] = '\x02';
  }
  const std::vector<float> w = values(kUp);
  for (size_t i = 0; i < 255; ++i) EXPECT_EQ(w[32 * i], std::ldexp(1.0f, static_cast<int>(i) - 127)) << i;
}

// The input scale of an expert that never ran: a subnormal whose reciprocal is infinite.
TEST_F(Pitfalls, P19_SubnormalInputScale) {
  with_input_scales();
  set_scalar(std::string(kUp) + ".input_scale", 1e-39f);
  expect_failure(load(), kInvalid, {"up_proj.input_scale'", "reciprocal is finite"});
}

// A layout that one kernel wants was applied to data for another. Files are linear; layouts belong to kernels.
TEST_F(Pitfalls, P20_ScalesLieRowByRow) {
  const QuantLinear& w = model.linears.at(kUp);
  write_stored_folder(folder, model.shape, tensors, section);
  HB_ASSERT_OK(const auto source, open_model_source(folder.path()));
  HB_ASSERT_OK(const QuantLinear read, load_quant_linear(*source.tensors, source.quant, kUp));
  EXPECT_TRUE(std::ranges::equal(read.block_scales.bytes(), w.block_scales.bytes()));
  EXPECT_TRUE(std::ranges::equal(read.codes.bytes(), w.codes.bytes()));
}

// Fused experts in three dimensions, transposed.
TEST_F(Pitfalls, P21_ThreeDimensions) {
  auto& weight = tensors.at(std::string(kUp) + ".weight");
  weight.shape.insert(weight.shape.begin(), 1);
  expect_failure(load(), StatusCode::kUnsupported, {"up_proj.weight'", "[1, 128, 32] U8", "fused experts"});
}

// "Unknown quantization method" over a description of the KV cache.
TEST_F(Pitfalls, P22_KvCacheSchemeInEverySpelling) {
  for (const auto& [value, expected] : {std::pair{R"({"num_bits":8,"type":"float","dynamic":false})", "FP8"},
                                        {"\"NVFP4\"", "NVFP4"},
                                        {"\"FP8\"", "FP8"},
                                        {"null", ""}}) {
    section = std::string(
                  R"({"quant_method":"modelopt","quant_algo":"W4A16_NVFP4","ignore":["lm_head"],"kv_cache_scheme":)") +
              value + "}";
    EXPECT_TRUE(load().ok());
    HB_ASSERT_OK(const auto source, open_model_source(folder.path()));
    EXPECT_EQ(source.quant.kv_cache, expected);
  }
}

// gpt-oss interleaves the rows of gate and up; they were taken for halves. Its experts are refused by name.
TEST_F(MxPitfalls, P23_GptOssExpertsAreNamed) {
  section = R"({"quant_method":"mxfp4","modules_to_not_convert":["lm_head"]})";
  tensors["model.layers.0.mlp.experts.gate_up_proj_blocks"] = {"U8", {2, 4, 1, 16}, std::string(128, '\0')};
  expect_failure(load(), kInvalid, {"experts.gate_up_proj_blocks'", "belongs to no part of a qwen3 model"});
}

// Scale bytes with a sign.
TEST_F(Pitfalls, P24_NegativeScales) {
  std::string& scales = tensors.at(std::string(kUp) + ".weight_scale").bytes;
  scales[6] = static_cast<char>(scales[6] | '\x80');
  expect_failure(load(), kInvalid, {"up_proj.weight_scale'", "negative scale", "row 1, block 2"});
}
// Quark's exclude list named modules as they were called before they were renamed.
TEST_F(MxPitfalls, P24_QuarkExcludesAfterRenames) {
  use(Tool::kQuark);
  make_plain(kUp);
  section.replace(section.find("\"lm_head\""), 9, R"("lm_head","transformer.h.0.mlp.w3")");
  HB_ASSERT_OK(const auto loaded, load());
  EXPECT_EQ(loaded->impl().weights.layers[0].up.kernel->weights, WeightFormat::kBF16);
  EXPECT_EQ(loaded->impl().weights.layers[0].gate.kernel->weights, WeightFormat::kMXFP4);
}

// A tensor scale in BF16.
TEST_F(Pitfalls, P25_ScalarsOfEveryType) {
  const std::string name = std::string(kUp) + ".weight_scale_2";
  for (const auto& [dtype, bytes] : {std::pair<const char*, std::string>{"F32", bytes_of<float>({0.5f})},
                                     {"BF16", bytes_of<uint16_t>({0x3F00})},
                                     {"F16", bytes_of<uint16_t>({0x3800})}}) {
    for (const std::vector<int64_t>& shape : {std::vector<int64_t>{}, {1}}) {
      tensors[name] = {dtype, shape, bytes};
      HB_ASSERT_OK(const auto loaded, load());
      EXPECT_EQ(loaded->impl().weights.layers[0].up.tensor_scale, 0.5f) << dtype;
    }
  }
}
// Rows of zeros (pruned heads) and whole tensors of zeros gave NaN.
TEST_F(Pitfalls, P25_ZeroRowsAndZeroTensors) {
  for (const char* scale : {"\x38", "\x7E", "\x20", "\x7F"}) {  // ModelOpt's 1 and 448, compressed-tensors' .125, NaN
    use(Tool::kModelOpt);
    auto& weight = tensors.at("model.layers.0.self_attn.k_proj.weight").bytes;
    auto& scales = tensors.at("model.layers.0.self_attn.k_proj.weight_scale").bytes;
    weight.replace(0, 32, 32, '\0');
    scales.replace(0, 4, 4, scale[0]);
    const std::vector<float> w = values("model.layers.0.self_attn.k_proj");
    for (size_t i = 0; i < 64; ++i) EXPECT_EQ(w[i], 0.0f);
    EXPECT_TRUE(std::any_of(w.begin() + 64, w.begin() + 128, [](float v) { return v != 0.0f; }));
    std::fill(weight.begin(), weight.end(), '\0');
    std::fill(scales.begin(), scales.end(), scale[0]);
    set_scalar("model.layers.0.self_attn.k_proj.weight_scale_2", 0.0f);
    for (const float value : values("model.layers.0.self_attn.k_proj")) EXPECT_EQ(value, 0.0f);
    EXPECT_TRUE(load().ok());
  }
}

}  // namespace
}  // namespace halfbyte
