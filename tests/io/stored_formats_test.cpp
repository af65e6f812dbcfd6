// Every way in which a quantised linear lies in a file, read into the same normal form.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>

#include "formats/e8m0.h"
#include "io/load_linear.h"
#include "support/expect_status.h"
#include "support/gguf_file.h"
#include "support/safetensors_file.h"
#include "support/temp_folder.h"

namespace halfbyte {
namespace {

using testing::bytes_of;
using testing::expect_failure;
using testing::SafetensorsFile;
using testing::TempFolder;

constexpr const char* kModule = "model.layers.0.mlp.up_proj";
constexpr int64_t kRows = 4, kWidth = 64;

QuantConfig says(ModuleQuant quant) {
  QuantConfig config;
  config.quantised = true;
  config.file = "config.json";
  config.default_quant = quant;
  return config;
}

// Codes of every value in every place, scales that differ from block to block.
std::string codes() {
  std::string out;
  for (int64_t i = 0; i < kRows * kWidth / 2; ++i) out.push_back(static_cast<char>(i * 37 + 11));
  return out;
}
std::string e4m3_scales(int64_t block = 16) {
  std::string out;
  for (int64_t i = 0; i < kRows * kWidth / block; ++i) out.push_back(static_cast<char>(0x30 + i));
  return out;
}
std::string e8m0_scales() {
  std::string out;
  for (int64_t i = 0; i < kRows * kWidth / 32; ++i) out.push_back(static_cast<char>(120 + i));
  return out;
}

class StoredFormats : public ::testing::Test {
 protected:
  std::string name(const char* suffix) const { return std::string(kModule) + "." + suffix; }

  Result<QuantLinear> load(const SafetensorsFile& file, const QuantConfig& quant) {
    folder_.write("model.safetensors", file.str());
    auto source = open_tensor_source(folder_.path());
    if (!source.ok()) return source.status();
    warnings_.clear();
    source_ = *source;
    auto facts = linear_facts(*source_, quant, kModule, &warnings_);
    if (!facts.ok()) return facts.status();
    facts_ = *facts;
    return load_quant_linear(*source_, facts_, kModule);
  }
  static std::vector<float> values(const QuantLinear& w) {
    std::vector<float> out(static_cast<size_t>(w.n * w.k));
    for (int64_t r = 0; r < w.n; ++r)
      dequantize_row(w, r, std::span(out).subspan(static_cast<size_t>(r * w.k), static_cast<size_t>(w.k)));
    return out;
  }
  // What rounding to another format reads.
  std::vector<float> rows() {
    const auto opened = open_linear_rows(*source_, facts_, kModule);
    EXPECT_TRUE(opened.ok()) << opened.status().message();
    std::vector<float> out(static_cast<size_t>(facts_.n * facts_.k));
    EXPECT_TRUE(opened->rows.read(0, facts_.n, out).ok());
    return out;
  }

  SafetensorsFile modelopt() const {
    return SafetensorsFile()
        .add(name("input_scale"), "F32", {}, bytes_of<float>({0.25f}))
        .add(name("weight"), "U8", {kRows, kWidth / 2}, codes())
        .add(name("weight_scale"), "F8_E4M3", {kRows, kWidth / 16}, e4m3_scales())
        .add(name("weight_scale_2"), "F32", {}, bytes_of<float>({0.125f}));
  }
  SafetensorsFile compressed(bool input = true) const {
    SafetensorsFile file;
    if (input) file.add(name("input_global_scale"), "F32", {1}, bytes_of<float>({4.0f}));
    return file.add(name("weight_global_scale"), "F32", {1}, bytes_of<float>({8.0f}))
        .add(name("weight_packed"), "U8", {kRows, kWidth / 2}, codes())
        .add(name("weight_scale"), "F8_E4M3", {kRows, kWidth / 16}, e4m3_scales());
  }

  TempFolder folder_;
  std::shared_ptr<const TensorSource> source_;
  LinearFacts facts_;
  std::vector<std::string> warnings_;
};

// Pitfall 6: a divisor is not a multiplier.
TEST_F(StoredFormats, CompressedTensorsIsModelOptWithDivisors) {
  HB_ASSERT_OK(const QuantLinear a, load(modelopt(), says(ModuleQuant::kNVFP4)));
  const std::vector<float> expected = values(a);  // before the file is written anew
  HB_ASSERT_OK(const QuantLinear b, load(compressed(), says(ModuleQuant::kNVFP4)));
  EXPECT_TRUE(warnings_.empty());
  EXPECT_EQ(b.tensor_scale, 0.125f);
  EXPECT_EQ(b.input_scale, 0.25f);
  EXPECT_EQ(values(b), expected);
  EXPECT_EQ(rows(), expected);
  EXPECT_TRUE(b.codes.borrowed() && b.block_scales.borrowed());
  EXPECT_EQ(describe(facts_), "NVFP4, E4M3 a 16-block, weight_global_scale divides, input_global_scale divides");
  HB_ASSERT_OK(const QuantLinear a16, load(compressed(/*input=*/false), says(ModuleQuant::kNVFP4W4A16)));
  EXPECT_EQ(a16.input_scale, std::nullopt);
  EXPECT_TRUE(warnings_.empty());
  // The list says weight-only: the input scale means nothing.
  HB_ASSERT_OK(const QuantLinear ignored, load(compressed(), says(ModuleQuant::kNVFP4W4A16)));
  EXPECT_EQ(ignored.input_scale, std::nullopt);
  EXPECT_EQ(facts_.stored.size(), 4u);
}

TEST_F(StoredFormats, SchemesAreNotMixed) {
  const auto invalid = StatusCode::kInvalidData;
  SafetensorsFile divided = SafetensorsFile()
                                .add(name("weight"), "U8", {kRows, kWidth / 2}, codes())
                                .add(name("weight_global_scale"), "F32", {1}, bytes_of<float>({8.0f}))
                                .add(name("weight_scale"), "F8_E4M3", {kRows, kWidth / 16}, e4m3_scales());
  expect_failure(load(divided, says(ModuleQuant::kNVFP4)), invalid, {"weight_global_scale'", "taken for a divisor"});
  SafetensorsFile no_global = SafetensorsFile()
                                  .add(name("weight_packed"), "U8", {kRows, kWidth / 2}, codes())
                                  .add(name("weight_scale"), "F8_E4M3", {kRows, kWidth / 16}, e4m3_scales());
  expect_failure(load(no_global, says(ModuleQuant::kNVFP4)), invalid, {"no tensor", "weight_global_scale'"});
  SafetensorsFile both = compressed().add_zeros(name("weight"), "BF16", {kRows, kWidth});
  expect_failure(load(both, says(ModuleQuant::kNVFP4)), invalid, {"weight'", "weight_packed'", "means the same"});
}

TEST_F(StoredFormats, Mxfp4OfAllTools) {
  std::vector<float> first;
  for (const auto& [weight, type] : {std::pair{"weight", "U8"}, {"weight_packed", "U8"}, {"weight", "F8_E8M0"}}) {
    HB_ASSERT_OK(const QuantLinear w, load(SafetensorsFile()
                                               .add(name(weight), "U8", {kRows, kWidth / 2}, codes())
                                               .add(name("weight_scale"), type, {kRows, kWidth / 32}, e8m0_scales()),
                                           says(ModuleQuant::kMXFP4)));
    EXPECT_EQ(w.format, WeightFormat::kMXFP4);
    EXPECT_TRUE(w.codes.borrowed() && w.block_scales.borrowed());
    if (first.empty()) first = values(w);
    EXPECT_EQ(values(w), first);
    EXPECT_EQ(rows(), first);
    EXPECT_TRUE(warnings_.empty());
  }
  EXPECT_EQ(first[0], -1.5f * 0x1p-7f);  // code 0xB, scale 120
  // W4A8_MXFP4_FP8 has an input scale, which MXFP8 inputs have no use for.
  HB_ASSERT_OK(const QuantLinear w4a8, load(SafetensorsFile()
                                                .add(name("input_scale"), "F32", {}, bytes_of<float>({0.5f}))
                                                .add(name("weight"), "U8", {kRows, kWidth / 2}, codes())
                                                .add(name("weight_scale"), "U8", {kRows, kWidth / 32}, e8m0_scales()),
                                            says(ModuleQuant::kMXFP4)));
  EXPECT_EQ(w4a8.input_scale, std::nullopt);
}

TEST_F(StoredFormats, Mxfp4Scales) {
  std::string scales = e8m0_scales(), weight = codes();
  scales[3] = '\xFF';
  const auto file = [&] {
    return SafetensorsFile()
        .add(name("weight"), "U8", {kRows, kWidth / 2}, weight)
        .add(name("weight_scale"), "U8", {kRows, kWidth / 32}, scales);
  };
  expect_failure(load(file(), says(ModuleQuant::kMXFP4)), StatusCode::kInvalidData,
                 {"weight_scale'", "NaN scale (byte 255)", "row 1, block 1"});
  for (size_t i = 48; i < 64; ++i) weight[i] = i % 2 ? '\x80' : '\x08';
  HB_ASSERT_OK(const QuantLinear mended, load(file(), says(ModuleQuant::kMXFP4)));
  EXPECT_EQ(values(mended)[static_cast<size_t>(kWidth) + 40], 0.0f);
  scales[0] = '\xFE';  // 2^127: no NaN
  EXPECT_TRUE(load(file(), says(ModuleQuant::kMXFP4)).ok());
  expect_failure(load(SafetensorsFile()
                          .add(name("weight"), "U8", {kRows, kWidth / 2}, weight)
                          .add(name("weight_scale"), "U8", {kRows, kWidth / 16}, e4m3_scales()),
                      says(ModuleQuant::kMXFP4)),
                 StatusCode::kInvalidData, {"[4, 4] U8", "expected [4, 2] U8"});
  expect_failure(
      load(file().add(name("weight_scale_2"), "F32", {}, bytes_of<float>({1.0f})), says(ModuleQuant::kMXFP4)),
      StatusCode::kInvalidData, {"weight_scale_2'", "MXFP4"});
}

// W4A8_NVFP4_FP8: one E4M3 scale for 32 elements. Only the list tells it from a file with half its scales.
TEST_F(StoredFormats, WideNvfp4) {
  const SafetensorsFile file = SafetensorsFile()
                                   .add(name("input_scale"), "F32", {}, bytes_of<float>({0.75f}))
                                   .add(name("weight"), "U8", {kRows, kWidth / 2}, codes())
                                   .add(name("weight_scale"), "F8_E4M3", {kRows, kWidth / 32}, e4m3_scales(32))
                                   .add(name("weight_scale_2"), "F32", {}, bytes_of<float>({0.125f}));
  HB_ASSERT_OK(const QuantLinear w, load(file, says(ModuleQuant::kNVFP4Wide)));
  EXPECT_EQ(w.format, WeightFormat::kNVFP4);
  const auto* scales = w.block_scales.as<uint8_t>();
  EXPECT_EQ((std::vector<int>{scales[0], scales[1], scales[2], scales[3]}), (std::vector<int>{0x30, 0x30, 0x31, 0x31}));
  EXPECT_EQ(w.input_scale, 0.125f);  // amax / 448 in the file, amax / 2688 here
  EXPECT_TRUE(warnings_.empty());
  expect_failure(load(file, says(ModuleQuant::kNVFP4)), StatusCode::kInvalidData,
                 {"[4, 2] F8_E4M3", "expected [4, 4]"});
}

// Codes of E4M3 numbers below 2, none a NaN.
std::string fp8_codes() {
  std::string out;
  for (int64_t i = 0; i < kRows * kWidth; ++i) out.push_back(static_cast<char>((i * 29 + 3) & 0xBF));
  return out;
}

TEST_F(StoredFormats, Fp8ScalesOfEveryShape) {
  struct Case {
    const char* suffix;
    std::vector<int64_t> shape;
    std::vector<float> scales;
    int64_t height, width;  // of the block that a scale covers
    const char* described;
  };
  const Case cases[] = {
      {"weight_scale", {}, {0.5f}, kRows, kWidth, "FP8, one scale"},
      {"weight_scale", {1}, {0.5f}, kRows, kWidth, "FP8, one scale"},
      {"weight_scale", {kRows, 1}, {0.5f, 1, 2, 3}, 1, kWidth, "FP8, one scale a row"},
      {"weight_scale", {kRows}, {0.5f, 1, 2, 3}, 1, kWidth, "FP8, one scale a row"},
      {"weight_scale_inv", {2, 4}, {1, 2, 3, 4, 5, 6, 7, 8}, 2, 16, "FP8, one scale a block of [2, 16]"},
      {"weight_scale", {2, 1, 4, 1}, {1, 2, 3, 4, 5, 6, 7, 8}, 2, 16, "FP8, one scale a block of [2, 16]"}};
  QuantConfig quant = says(ModuleQuant::kFP8);
  quant.fp8_block_rows = 2;
  quant.fp8_block_columns = 16;
  for (const Case& c : cases) {
    HB_ASSERT_OK(const QuantLinear w, load(SafetensorsFile()
                                               .add(name("weight"), "F8_E4M3", {kRows, kWidth}, fp8_codes())
                                               .add(name(c.suffix), "F32", c.shape, bytes_of(c.scales)),
                                           quant));
    EXPECT_EQ(describe(facts_), c.described);
    EXPECT_EQ(w.format, WeightFormat::kF32);
    std::vector<float> plain(static_cast<size_t>(kRows * kWidth));
    ASSERT_TRUE(source_->read_rows(*facts_.weight, 0, kRows, plain).ok());
    for (int64_t i = 0; i < kRows * kWidth; ++i) {
      const int64_t row = i / kWidth, column = i % kWidth;
      plain[static_cast<size_t>(i)] *=
          c.scales[static_cast<size_t>(row / c.height * (kWidth / c.width) + column / c.width)];
    }
    EXPECT_EQ(values(w), plain) << c.described;
    EXPECT_EQ(rows(), plain);
    EXPECT_TRUE(warnings_.empty());
  }
  const auto invalid = StatusCode::kInvalidData;
  const auto with = [&](const std::vector<int64_t>& shape, const std::vector<float>& scales) {
    return load(SafetensorsFile()
                    .add(name("weight"), "F8_E4M3", {kRows, kWidth}, fp8_codes())
                    .add(name("weight_scale"), "F32", shape, bytes_of(scales)),
                quant);
  };
  expect_failure(with({3}, {1, 2, 3}), invalid, {"[3] F32", "one number, [4] or blocks [2, 4]"});
  expect_failure(with({4, 2}, {1, 2, 3, 4, 5, 6, 7, 8}), invalid, {"[4, 2] F32"});
  expect_failure(with({}, {-1}), invalid, {"weight_scale'", "is -1", "not below 0"});
  expect_failure(with({4}, {1, 2, NAN, 4}), invalid, {"element 2 is nan"});
  expect_failure(load(SafetensorsFile().add(name("weight"), "F8_E4M3", {kRows, kWidth}, fp8_codes()), quant), invalid,
                 {"FP8 weight", "no tensor"});
}

TEST_F(StoredFormats, Mxfp8) {
  HB_ASSERT_OK(const QuantLinear w, load(SafetensorsFile()
                                             .add(name("weight"), "F8_E4M3", {kRows, kWidth}, fp8_codes())
                                             .add(name("weight_scale"), "U8", {kRows, kWidth / 32}, e8m0_scales()),
                                         says(ModuleQuant::kMXFP8)));
  EXPECT_EQ(describe(facts_), "MXFP8, E8M0 a 32-block");
  std::vector<float> plain(static_cast<size_t>(kRows * kWidth));
  ASSERT_TRUE(source_->read_rows(*facts_.weight, 0, kRows, plain).ok());
  for (size_t i = 0; i < plain.size(); ++i) plain[i] *= E8M0::decode(static_cast<uint8_t>(120 + i / 32));
  EXPECT_EQ(values(w), plain);
  EXPECT_EQ(rows(), plain);
}

TEST_F(StoredFormats, PreQuantScale) {
  std::vector<float> scale(static_cast<size_t>(kWidth), 1.0f);
  scale[5] = 0.5f;
  const auto with = [&] { return modelopt().add(name("pre_quant_scale"), "F32", {kWidth}, bytes_of(scale)); };
  HB_ASSERT_OK(const QuantLinear w, load(with(), says(ModuleQuant::kNVFP4)));
  EXPECT_EQ(w.pre_scale, scale);
  EXPECT_TRUE(warnings_.empty());
  scale[7] = INFINITY;
  expect_failure(load(with(), says(ModuleQuant::kNVFP4)), StatusCode::kInvalidData, {"pre_quant_scale'", "element 7"});
}

// GGUF's NVFP4 and MXFP4 are the same formats with codes in another order: taken over bit for bit, also the rows of q
// and k, which the file keeps in another order.
TEST_F(StoredFormats, GgufBlocksAreTakenOver) {
  testing::TinyModel model;
  model.layers = 1;
  model.hidden = 64;
  model.intermediate = 64;
  for (const auto& [type, block_bytes, block] :
       {std::tuple{40u, size_t{36}, size_t{64}}, {39u, size_t{17}, size_t{32}}}) {
    testing::GgufBuilder file;
    testing::add_tiny_metadata(file, model);
    uint32_t seed = 1;
    const auto add = [&](const std::string& tensor, std::vector<uint64_t> dims) {
      const size_t count = dims.size() == 1 ? dims[0] : dims[0] * dims[1];
      if (dims.size() == 1 || tensor.starts_with("token")) {
        file.f32_tensor(tensor, dims, testing::tiny_values(count, seed++));
        return;
      }
      std::string bytes;
      for (size_t b = 0; b < count / block; ++b)
        for (size_t i = 0; i < block_bytes; ++i) {
          const bool scale = type == 40 ? i < 4 : i == 0;
          bytes.push_back(
              static_cast<char>(scale ? (type == 40 ? 0x30 : 120) + (b + i) % 8 : (b * 31 + i * 17 + seed)));
        }
      ++seed;
      file.tensor(tensor, dims, type, bytes);
      if (type == 40) file.f32_tensor(tensor.substr(0, tensor.size() - 6) + "scale", {1}, {0.3f});
    };
    const uint64_t q = 32, kv = 16, width = 64;
    add("token_embd.weight", {width, 24});
    add("blk.0.attn_norm.weight", {width});
    add("blk.0.attn_q.weight", {width, q});
    add("blk.0.attn_k.weight", {width, kv});
    add("blk.0.ffn_norm.weight", {width});
    add("blk.0.ffn_up.weight", {width, width});
    add("output_norm.weight", {width});
    const std::string path = folder_.write("m.gguf", file.str());
    HB_ASSERT_OK(source_, open_tensor_source(path));
    for (const char* module :
         {"model.layers.0.mlp.up_proj", "model.layers.0.self_attn.q_proj", "model.layers.0.self_attn.k_proj"}) {
      warnings_.clear();
      HB_ASSERT_OK(facts_, linear_facts(*source_, QuantConfig(), module, &warnings_));
      EXPECT_TRUE(warnings_.empty());
      EXPECT_EQ(facts_.quant, type == 40 ? ModuleQuant::kNVFP4W4A16 : ModuleQuant::kMXFP4);
      HB_ASSERT_OK(const QuantLinear w, load_quant_linear(*source_, facts_, module));
      EXPECT_EQ(w.tensor_scale, type == 40 ? 0.3f : 1.0f);
      std::vector<float> expected(static_cast<size_t>(w.n * w.k));
      ASSERT_TRUE(source_->read_rows(*facts_.weight, 0, w.n, expected).ok());
      EXPECT_EQ(values(w), expected) << module;
    }
  }
}

}  // namespace
}  // namespace halfbyte
