// One linear out of a source. The numbered pitfalls are those of real checkpoints and loaders.
#include "io/load_linear.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "support/expect_status.h"
#include "support/safetensors_file.h"
#include "support/temp_folder.h"
#include "tensor/quantize_tensor.h"

namespace halfbyte {
namespace {

using testing::bytes_of;
using testing::expect_failure;
using testing::SafetensorsFile;
using testing::TempFolder;

constexpr const char* kModule = "model.layers.0.mlp.up_proj";

QuantConfig says(ModuleQuant quant) {
  QuantConfig config;
  config.quantised = quant != ModuleQuant::kNone;
  config.file = "config.json";
  config.default_quant = quant;
  return config;
}

// A [2, 32] NVFP4 linear whose parts can be replaced or left out.
struct Packed {
  std::string weight = std::string(32, '\x21');  // codes 1, 2, 1, 2, ...: 0.5, 1
  std::string scales = std::string(4, '\x38');   // 1.0
  std::string scale2 = bytes_of<float>({0.5f});
  std::string scale2_type = "F32";
  std::vector<int64_t> scale2_shape = {};
  std::string input = bytes_of<float>({0.25f});
  std::vector<int64_t> weight_shape = {2, 16}, scales_shape = {2, 2};
  std::string scales_type = "F8_E4M3";
  bool with_scales = true, with_scale2 = true, with_input = true;
};

class LoadLinear : public ::testing::Test {
 protected:
  Result<QuantLinear> load(const SafetensorsFile& file, ModuleQuant listed, const char* module = kModule) {
    folder_.write("model.safetensors", file.str());
    auto source = open_tensor_source(folder_.path());
    if (!source.ok()) return source.status();
    warnings_.clear();
    return load_quant_linear(**source, says(listed), module, &warnings_);
  }
  Result<QuantLinear> load(const Packed& p, ModuleQuant listed = ModuleQuant::kNVFP4) {
    return load(file_of(p), listed);
  }

  static SafetensorsFile file_of(const Packed& p) {
    const std::string m = kModule;
    SafetensorsFile file;
    if (p.with_input) file.add(m + ".input_scale", "F32", {}, p.input);
    if (p.with_scale2) file.add(m + ".weight_scale_2", p.scale2_type, p.scale2_shape, p.scale2);
    file.add(m + ".weight", "U8", p.weight_shape, p.weight);
    if (p.with_scales) file.add(m + ".weight_scale", p.scales_type, p.scales_shape, p.scales);
    return file;
  }

  TempFolder folder_;
  std::vector<std::string> warnings_;
};

TEST_F(LoadLinear, NVFP4) {
  Packed p;
  p.weight[0] = '\x2B';  // pitfall 7: k = 0 is the low nibble B (-1.5), k = 1 the high one 2 (1.0)
  p.scales = std::string("\x38\x40\x38\x38");
  HB_ASSERT_OK(const QuantLinear w, load(p));
  EXPECT_EQ(w.format, WeightFormat::kNVFP4);
  EXPECT_EQ(w.n, 2);
  EXPECT_EQ(w.k, 32);
  EXPECT_EQ(w.name, kModule);
  EXPECT_EQ(w.tensor_scale, 0.5f);
  EXPECT_EQ(w.input_scale, 0.25f);
  EXPECT_TRUE(w.codes.borrowed());
  EXPECT_TRUE(w.block_scales.borrowed());
  EXPECT_EQ(w.codes.size(), 32u);
  EXPECT_EQ(w.block_scales.size(), 4u);
  std::vector<float> row(32);
  dequantize_row(w, 0, row);
  EXPECT_EQ(row[0], -0.75f);
  EXPECT_EQ(row[1], 0.5f);
  EXPECT_EQ(row[2], 0.25f);
  EXPECT_EQ(row[16], 0.5f);  // second block, scale 2
  EXPECT_TRUE(warnings_.empty());
}

// Pitfalls 1 and 2: no input scale is the weight-only path, never a 0.
TEST_F(LoadLinear, MissingInputScaleIsWeightOnly) {
  Packed p;
  p.with_input = false;
  HB_ASSERT_OK(const QuantLinear w, load(p));
  EXPECT_EQ(w.input_scale, std::nullopt);
  ASSERT_EQ(warnings_.size(), 1u);
  EXPECT_EQ(warnings_[0],
            "model.layers.0.mlp.up_proj: config.json says NVFP4, the tensors are W4A16_NVFP4; using the tensors");
  EXPECT_TRUE(load(p, ModuleQuant::kNVFP4W4A16).ok());
  EXPECT_TRUE(warnings_.empty());
}

// Quark's name for it; both scales multiply.
TEST_F(LoadLinear, QuarksInputScale) {
  Packed p;
  p.with_input = false;
  const auto with = [&](const SafetensorsFile& file) { return load(file, ModuleQuant::kNVFP4); };
  const std::string name = std::string(kModule) + ".input_scale_2";
  HB_ASSERT_OK(const QuantLinear w, with(file_of(p).add(name, "F32", {}, bytes_of<float>({0.25f}))));
  EXPECT_EQ(w.input_scale, 0.25f);
  EXPECT_EQ(w.tensor_scale, 0.5f);
  EXPECT_TRUE(warnings_.empty());
  expect_failure(with(file_of(p).add(name, "F32", {}, bytes_of<float>({0.0f}))), StatusCode::kInvalidData,
                 {"input_scale_2'"});
  p.with_input = true;
  expect_failure(with(file_of(p).add(name, "F32", {}, bytes_of<float>({0.25f}))), StatusCode::kInvalidData,
                 {"input_scale'", "input_scale_2'", "means the same in another scheme"});
}

// Some W4A16 files carry input scales that mean nothing.
TEST_F(LoadLinear, WeightOnlyIgnoresInputScale) {
  Packed p;
  p.input = bytes_of<float>({0.0f});
  HB_ASSERT_OK(const QuantLinear w, load(p, ModuleQuant::kNVFP4W4A16));
  EXPECT_EQ(w.input_scale, std::nullopt);
  EXPECT_TRUE(warnings_.empty());
}

// Pitfalls 3, 9, 10, 14, 16: what the tensors are decides, the lists warn.
TEST_F(LoadLinear, TensorsDecide) {
  HB_ASSERT_OK(const QuantLinear packed, load(Packed{}, ModuleQuant::kNone));
  EXPECT_EQ(packed.format, WeightFormat::kNVFP4);
  ASSERT_EQ(warnings_.size(), 1u);
  EXPECT_THAT(warnings_[0], ::testing::HasSubstr("config.json says unquantised, the tensors are NVFP4"));
  HB_ASSERT_OK(
      const QuantLinear plain,
      load(SafetensorsFile().add_zeros(std::string(kModule) + ".weight", "BF16", {2, 32}), ModuleQuant::kNVFP4));
  EXPECT_EQ(plain.format, WeightFormat::kBF16);
  ASSERT_EQ(warnings_.size(), 1u);
  EXPECT_THAT(warnings_[0], ::testing::HasSubstr("config.json says NVFP4, the tensors are unquantised"));
}

TEST_F(LoadLinear, HalfASetIsAnError) {
  const auto invalid = StatusCode::kInvalidData;
  Packed no_scales;
  no_scales.with_scales = false;
  expect_failure(load(no_scales), invalid,
                 {"model.safetensors", "'model.layers.0.mlp.up_proj.weight'", "packed U8",
                  "no tensor 'model.layers.0.mlp.up_proj.weight_scale'", "incomplete"});
  Packed no_scale2;
  no_scale2.with_scale2 = false;
  expect_failure(load(no_scale2), invalid, {"packed U8", "no tensor 'model.layers.0.mlp.up_proj.weight_scale_2'"});
  for (const char* extra : {"weight_scale", "weight_scale_2", "input_scale"}) {
    SafetensorsFile file;
    file.add_zeros(std::string(kModule) + ".weight", "BF16", {2, 32})
        .add_zeros(std::string(kModule) + "." + extra, "F32", {});
    expect_failure(load(file, ModuleQuant::kNVFP4), invalid,
                   {"model.safetensors", extra, "is not packed ([2, 32] BF16)", "half a set"});
  }
  expect_failure(load(SafetensorsFile().add_zeros("x", "F32", {1}), ModuleQuant::kNone), StatusCode::kNotFound,
                 {"'model.layers.0.mlp.up_proj.weight'"});
}

// Pitfall 15: scales of half the size, and tensors nobody knows.
TEST_F(LoadLinear, Shapes) {
  const auto invalid = StatusCode::kInvalidData;
  Packed half;
  half.scales = std::string(2, '\x38');
  half.scales_shape = {2, 1};
  expect_failure(
      load(half), invalid,
      {"'model.layers.0.mlp.up_proj.weight_scale'", "[2, 1] F8_E4M3", "expected [2, 2] F8_E4M3", "weight of [2, 32]"});
  Packed type;
  type.scales_type = "I8";
  expect_failure(load(type), invalid, {"[2, 2] I8", "expected [2, 2] F8_E4M3"});
  Packed odd;
  odd.weight_shape = {4, 8};
  odd.scales_shape = {4, 1};
  EXPECT_TRUE(load(odd).ok());
  odd.weight_shape = {8, 4};  // k = 8
  odd.scales_shape = {4, 1};
  expect_failure(load(odd), invalid, {"[8, 4] U8", "multiple of 16"});
  Packed cube;
  cube.weight_shape = {1, 2, 16};  // pitfall 21
  expect_failure(load(cube), StatusCode::kUnsupported, {"[1, 2, 16] U8", "fused experts", "not supported"});
  SafetensorsFile vector;
  vector.add_zeros(std::string(kModule) + ".weight", "BF16", {32});
  expect_failure(load(vector, ModuleQuant::kNone), invalid, {"[32] BF16", "[n, k]"});
  SafetensorsFile bias;
  bias.add_zeros(std::string(kModule) + ".weight", "BF16", {2, 32})
      .add_zeros(std::string(kModule) + ".bias", "BF16", {3});
  expect_failure(load(bias, ModuleQuant::kNone), invalid, {"up_proj.bias'", "[3] BF16", "expected [2]"});
}

TEST_F(LoadLinear, UnknownAndForeignTensorsAreNamed) {
  const auto with = [&](const std::string& suffix) {
    return load(file_of(Packed{}).add_zeros(std::string(kModule) + "." + suffix, "F32", {}), ModuleQuant::kNVFP4);
  };
  expect_failure(with("weight_quantizer._double_scale"), StatusCode::kInvalidData,
                 {"'model.layers.0.mlp.up_proj.weight_quantizer._double_scale'", "expected one of weight, bias"});
  expect_failure(with("pre_quant_scale"), StatusCode::kInvalidData, {"pre_quant_scale'", "[] F32, expected [32]"});
  expect_failure(with("svdquant_lora_a"), StatusCode::kUnsupported, {"NVFP4_SVD"});
  expect_failure(with("weight_global_scale"), StatusCode::kInvalidData,
                 {"weight_scale_2'", "weight_global_scale'", "means the same in another scheme"});
  expect_failure(with("forward_hadamard_matrix"), StatusCode::kUnsupported, {"FP-Quant (rotated weights)"});
  EXPECT_TRUE(with("k_scale").ok());  // of the KV cache
  // A module whose name only begins the same way is another one.
  EXPECT_TRUE(
      load(file_of(Packed{}).add_zeros(std::string(kModule) + "_extra.foo", "F32", {}), ModuleQuant::kNVFP4).ok());
}

// Pitfall 8: NaN scale bytes from an unsaturated cast.
TEST_F(LoadLinear, NaNScales) {
  for (const char nan : {'\x7F', '\xFF'}) {
    Packed p;
    p.scales[3] = nan;
    expect_failure(load(p), StatusCode::kInvalidData,
                   {"'model.layers.0.mlp.up_proj.weight_scale'", "NaN scale", "row 1, block 1", "codes are not zero",
                    "export it again"});
    // Over a block of zeros (+0 and -0) it is a zero block.
    for (size_t i = 24; i < 32; ++i) p.weight[i] = i % 2 ? '\x80' : '\x08';
    HB_ASSERT_OK(const QuantLinear w, load(p));
    EXPECT_FALSE(w.block_scales.borrowed());
    std::vector<float> row(32);
    dequantize_row(w, 1, row);
    for (int i = 16; i < 32; ++i) EXPECT_EQ(row[i], 0.0f);
    EXPECT_EQ(row[1], 0.5f);
  }
}

// Pitfall 24.
TEST_F(LoadLinear, NegativeScales) {
  Packed p;
  p.scales[0] = '\xB8';  // -1
  expect_failure(load(p), StatusCode::kInvalidData, {"negative scale (byte 184)", "row 0, block 0"});
  p.scales[0] = '\x80';  // -0: the block is zero whatever its codes say
  HB_ASSERT_OK(const QuantLinear w, load(p));
  std::vector<float> row(32);
  dequantize_row(w, 0, row);
  EXPECT_EQ(row[0], 0.0f);
  EXPECT_FALSE(std::signbit(row[0]));
}

// Pitfalls 1, 19, 25: tensor scales.
TEST_F(LoadLinear, TensorScales) {
  const float bad[] = {0.0f,   -1.0f, std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(),
                       1e-39f, -0.0f};
  for (const float value : bad) {
    Packed p;
    p.scale2 = bytes_of<float>({value});
    expect_failure(
        load(p), StatusCode::kInvalidData,
        {"model.safetensors", "'model.layers.0.mlp.up_proj.weight_scale_2'", "above 0 whose reciprocal is finite"});
    Packed q;
    q.input = bytes_of<float>({value});
    expect_failure(load(q), StatusCode::kInvalidData, {"'model.layers.0.mlp.up_proj.input_scale'", "above 0"});
  }
  // BF16, F16 and F32, as [] or [1].
  const std::pair<const char*, std::string> types[] = {
      {"F32", bytes_of<float>({0.5f})}, {"BF16", bytes_of<uint16_t>({0x3F00})}, {"F16", bytes_of<uint16_t>({0x3800})}};
  for (const auto& [type, bytes] : types) {
    for (const auto& shape : {std::vector<int64_t>{}, std::vector<int64_t>{1}}) {
      Packed p;
      p.scale2 = bytes;
      p.scale2_type = type;
      p.scale2_shape = shape;
      HB_ASSERT_OK(const QuantLinear w, load(p));
      EXPECT_EQ(w.tensor_scale, 0.5f) << type;
    }
  }
  Packed two;
  two.scale2 = bytes_of<float>({1, 1});
  two.scale2_shape = {2};
  expect_failure(load(two), StatusCode::kInvalidData,
                 {"weight_scale_2", "[2] F32", "expected one F32, BF16 or F16 number"});
  Packed integer;
  integer.scale2_type = "I32";
  expect_failure(load(integer), StatusCode::kInvalidData, {"weight_scale_2", "[] I32"});
}

// ModelOpt gives a tensor of zeros the tensor scale 0 and NaN block scales.
TEST_F(LoadLinear, AllZeroTensor) {
  Packed p;
  p.weight = std::string(32, '\0');
  p.scales = std::string(4, '\x7F');
  p.scale2 = bytes_of<float>({0.0f});
  HB_ASSERT_OK(const QuantLinear w, load(p));
  EXPECT_EQ(w.tensor_scale, 1.0f);
  std::vector<float> row(32, 9.0f);
  dequantize_row(w, 1, row);
  EXPECT_EQ(row, std::vector<float>(32, 0.0f));
}

// One row of zeros inside a tensor, as pruned K projections have.
TEST_F(LoadLinear, ZeroRow) {
  Packed p;
  for (size_t i = 0; i < 16; ++i) p.weight[i] = '\0';
  p.scales = std::string("\x00\x00\x38\x38", 4);
  HB_ASSERT_OK(const QuantLinear w, load(p));
  std::vector<float> row(32, 9.0f);
  dequantize_row(w, 0, row);
  EXPECT_EQ(row, std::vector<float>(32, 0.0f));
  EXPECT_TRUE(w.block_scales.borrowed());  // scale 0 is a number
}

TEST_F(LoadLinear, PlainTypes) {
  const std::string m = std::string(kModule) + ".weight";
  std::vector<uint16_t> halves(64, 0x3C00);
  HB_ASSERT_OK(const QuantLinear f16, load(SafetensorsFile()
                                               .add(m, "F16", {2, 32}, bytes_of(halves))
                                               .add_f32(std::string(kModule) + ".bias", {2}, {1, 2}),
                                           ModuleQuant::kNone));
  EXPECT_EQ(f16.format, WeightFormat::kF32);
  EXPECT_EQ(f16.codes.as<float>()[63], 1.0f);
  EXPECT_EQ(f16.bias, (std::vector<float>{1, 2}));
  EXPECT_EQ(f16.input_scale, std::nullopt);
  HB_ASSERT_OK(const QuantLinear f32, load(SafetensorsFile().add_f32(m, {1, 2}, {3, 4}), ModuleQuant::kNone));
  EXPECT_EQ(f32.format, WeightFormat::kF32);
  EXPECT_EQ(f32.codes.as<float>()[1], 4.0f);
  std::vector<uint16_t> brains(64, 0x3F80);
  // At an even and at an odd address of the file: the second is copied to an aligned one.
  for (const size_t pad : {size_t{0}, size_t{1}}) {
    SafetensorsFile file;
    if (pad > 0) file.add_zeros("pad", "U8", {static_cast<int64_t>(pad)});
    const std::string text = file.add(m, "BF16", {2, 32}, bytes_of(brains)).str();
    HB_ASSERT_OK(const QuantLinear bf16, load(file, ModuleQuant::kNone));
    EXPECT_EQ(bf16.format, WeightFormat::kBF16);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(bf16.codes.as<uint16_t>()) % 2, 0u);
    EXPECT_EQ(bf16.codes.borrowed(), (text.size() - 128) % 2 == 0);
    EXPECT_EQ(bf16.codes.as<uint16_t>()[63], 0x3F80);
  }
}

TEST_F(LoadLinear, FactsReadNoWeights) {
  folder_.write("model.safetensors", file_of(Packed{}).str());
  HB_ASSERT_OK(const auto source, open_tensor_source(folder_.path()));
  HB_ASSERT_OK(const LinearFacts facts, linear_facts(*source, says(ModuleQuant::kNVFP4), kModule));
  EXPECT_EQ(facts.quant, ModuleQuant::kNVFP4);
  EXPECT_EQ(facts.n, 2);
  EXPECT_EQ(facts.k, 32);
  ASSERT_NE(facts.block_scales, nullptr);
  EXPECT_EQ(facts.block_scales->name, std::string(kModule) + ".weight_scale");
  EXPECT_EQ(facts.bias, nullptr);
}

}  // namespace
}  // namespace halfbyte
