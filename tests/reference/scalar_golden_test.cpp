// The scalar formats, the generator and the shared functions against the numpy definition's golden files.
#include <gtest/gtest.h>

#include <functional>

#include "base/exp32.h"
#include "base/log64.h"
#include "base/rng.h"
#include "formats/bf16.h"
#include "formats/e1m2.h"
#include "formats/e8m0.h"
#include "formats/fp8.h"
#include "formats/mxfp4.h"
#include "formats/nvfp4.h"
#include "support/golden_file.h"
#include "support/temp_folder.h"

namespace halfbyte::testing {
namespace {

// Element by element, a NaN equal to any NaN.
template <class T>
void expect_same(const std::vector<T>& got, const std::vector<T>& expected, const std::string& name) {
  ASSERT_EQ(got.size(), expected.size()) << name;
  for (size_t i = 0; i < got.size(); ++i) {
    if (got[i] != got[i] && expected[i] != expected[i]) continue;
    ASSERT_EQ(got[i], expected[i]) << name << " [" << i << "]";
  }
}

template <class Format>
void expect_format(const std::string& name) {
  const GoldenFile golden = GoldenFile::open_topic("formats");
  std::vector<float> values(golden.get<float>(name + "/values").size());
  for (size_t i = 0; i < values.size(); ++i) values[i] = Format::decode(static_cast<uint8_t>(i));
  expect_same(values, golden.get<float>(name + "/values"), name + "/values");
  if (!golden.has(name + "/x")) return;
  std::vector<uint8_t> codes;
  if constexpr (requires { Format::encode(0.0f); }) {
    for (const float x : golden.get<float>(name + "/x")) codes.push_back(Format::encode(x));
  }
  expect_same(codes, golden.get<uint8_t>(name + "/codes"), name + "/codes");
}

TEST(ScalarGolden, EveryCodeAndRounding) {
  expect_format<E2M1>("e2m1");
  expect_format<E1M2>("e1m2");
  expect_format<E4M3>("e4m3");
  expect_format<E8M0>("e8m0");
  const GoldenFile golden = GoldenFile::open_topic("formats");
  std::vector<uint16_t> codes;
  for (const uint32_t bits : golden.get<uint32_t>("bf16/x_bits")) codes.push_back(BF16::encode(bits_float(bits)));
  expect_same(codes, golden.get<uint16_t>("bf16/codes"), "bf16");
}

// One way of quantising rows, as blocks.hbg names it.
struct Rows {
  std::vector<uint8_t> codes, scales;
  std::vector<float> alpha;
};

Rows quantize_rows(const std::string& form, const std::vector<float>& x, int64_t k, int64_t rows, float static_alpha,
                   const std::vector<float>& weight_alpha) {
  Rows out;
  const bool fp4 = form.starts_with("nvfp4") || form.starts_with("mxfp4"), nvfp4 = form.starts_with("nvfp4");
  const int64_t blocks = nvfp4 ? NVFP4::blocks(k) : MXFP4::blocks(k);
  const int64_t code_bytes = nvfp4 ? NVFP4::code_bytes(k) : fp4 ? MXFP4::code_bytes(k) : k;
  out.codes.resize(static_cast<size_t>(rows * code_bytes));
  if (!form.starts_with("fp8")) out.scales.resize(static_cast<size_t>(rows * blocks));
  for (int64_t r = 0; r < rows; ++r) {
    const float* row = x.data() + r * k;
    uint8_t* codes = out.codes.data() + r * code_bytes;
    uint8_t* scales = out.scales.data() + r * blocks;
    if (form == "nvfp4_weight") {
      out.alpha.push_back(weight_alpha[0]);
      NVFP4::quantize_weight_row(row, k, weight_alpha[0], codes, scales);
    } else if (nvfp4) {
      out.alpha.push_back(form == "nvfp4_static" ? static_alpha : NVFP4::tensor_scale(abs_max(row, k)));
      NVFP4::quantize_activation_row(row, k, out.alpha.back(), codes, scales);
    } else if (form == "mxfp8") {
      MXFP8::quantize_row(row, k, codes, scales);
    } else if (fp4) {
      const Mxfp4Rule rule = form == "mxfp4_floor"  ? Mxfp4Rule::kFloor
                             : form == "mxfp4_ceil" ? Mxfp4Rule::kCeil
                                                    : Mxfp4Rule::kRound74;
      MXFP4::quantize_row(row, k, rule, codes, scales);
    } else {
      out.alpha.push_back(FP8Row::quantize_row(row, k, form == "fp8_static" ? static_alpha : 0.0f, codes));
    }
  }
  return out;
}

std::vector<float> dequantized(const std::string& form, const Rows& q, int64_t k, int64_t rows) {
  std::vector<float> out(static_cast<size_t>(rows * k));
  for (int64_t r = 0; r < rows; ++r) {
    float* to = out.data() + r * k;
    if (form.starts_with("nvfp4")) {
      NVFP4::dequantize_row(q.codes.data() + r * NVFP4::code_bytes(k), q.scales.data() + r * NVFP4::blocks(k),
                            q.alpha[static_cast<size_t>(r)], k, to);
    } else {
      MXFP4::dequantize_row(q.codes.data() + r * MXFP4::code_bytes(k), q.scales.data() + r * MXFP4::blocks(k), k, to);
    }
  }
  return out;
}

TEST(ScalarGolden, QuantisedRowsOfEveryFormat) {
  const GoldenFile golden = GoldenFile::open_topic("blocks");
  int forms = 0;
  for (const std::string& group : golden.children("")) {
    const std::vector<float> x = golden.get<float>(group + "/x");
    const int64_t k = golden.dims(group + "/x")[1];
    const float static_alpha = golden.has(group + "/static_alpha") ? golden.scalar<float>(group + "/static_alpha") : 0;
    for (const std::string& form : golden.children(group)) {
      if (form == "x" || form == "static_alpha") continue;
      const std::string name = group + "/" + form;
      const int64_t rows = golden.dims(name + "/codes")[0];
      std::vector<float> alpha;
      if (golden.has(name + "/alpha")) alpha = golden.get<float>(name + "/alpha");
      if (form == "nvfp4_weight") {
        ASSERT_EQ(alpha[0], NVFP4::tensor_scale(abs_max(x.data(), rows * k))) << name;
      }
      const Rows got = quantize_rows(form, x, k, rows, static_alpha, alpha);
      expect_same(got.codes, golden.get<uint8_t>(name + "/codes"), name + "/codes");
      expect_same(got.alpha, alpha, name + "/alpha");
      if (golden.has(name + "/scales"))
        expect_same(got.scales, golden.get<uint8_t>(name + "/scales"), name + "/scales");
      if (golden.has(name + "/values")) {
        expect_same(dequantized(form, got, k, rows), golden.get<float>(name + "/values"), name + "/values");
      }
      ++forms;
    }
  }
  EXPECT_EQ(forms, 8 * 9 + 8 + 3) << "eight widths with weights, the rows that are not finite, the exponents' borders";
}

TEST(ScalarGolden, ExponentialAndLogarithm) {
  const GoldenFile golden = GoldenFile::open_topic("vector");
  std::vector<float> e;
  for (const float x : golden.get<float>("exp32/x")) e.push_back(exp32(x));
  expect_same(e, golden.get<float>("exp32/y"), "exp32");
  std::vector<double> l;
  for (const double x : golden.get<double>("log64/x")) l.push_back(log64(x));
  expect_same(l, golden.get<double>("log64/y"), "log64");
}

TEST(ScalarGolden, PhiloxBlocksAndDraws) {
  const GoldenFile golden = GoldenFile::open_topic("rng");
  const auto c = golden.get<uint32_t>("philox/counter"), k = golden.get<uint32_t>("philox/key");
  std::vector<uint32_t> words;
  for (size_t i = 0; i < k.size() / 2; ++i) {
    const PhiloxBlock out =
        philox4x32_10({c[4 * i], c[4 * i + 1], c[4 * i + 2], c[4 * i + 3]}, {k[2 * i], k[2 * i + 1]});
    words.insert(words.end(), out.begin(), out.end());
  }
  expect_same(words, golden.get<uint32_t>("philox/out"), "philox");
  const auto seed = golden.get<uint64_t>("draw/seed"), position = golden.get<uint64_t>("draw/position");
  const auto choice = golden.get<uint32_t>("draw/choice"), stream = golden.get<uint32_t>("draw/stream");
  std::vector<uint64_t> draws;
  for (size_t i = 0; i < seed.size(); ++i) draws.push_back(philox_draw(seed[i], choice[i], position[i], stream[i]));
  expect_same(draws, golden.get<uint64_t>("draw/out"), "draw");
}

std::string failure_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const std::runtime_error& e) {
    return e.what();
  }
  return "no failure";
}

TEST(GoldenFileReader, SaysWhatIsWrong) {
  const GoldenFile rng = GoldenFile::open_topic("rng");
  EXPECT_NE(failure_of([&] { rng.get<float>("philox/key"); }).find("holds uint32, asked for float"), std::string::npos);
  EXPECT_NE(failure_of([&] { rng.get<float>("philox/none"); }).find("no array 'philox/none'"), std::string::npos);
  EXPECT_NE(failure_of([&] { rng.scalar<uint32_t>("philox/key"); }).find("expected 1"), std::string::npos);
  EXPECT_NE(failure_of([&] { GoldenFile("/nowhere.hbg"); }).find("cannot open"), std::string::npos);

  const TempFolder folder;
  const std::string bytes = read_file(rng.path());
  EXPECT_NE(failure_of([&] { GoldenFile(folder.write("a", "GGUF" + bytes.substr(4))); }).find("HBG1"),
            std::string::npos);
  EXPECT_NE(failure_of([&] { GoldenFile(folder.write("b", bytes + "x")); }).find("behind"), std::string::npos);
  for (size_t cut = 4; cut < bytes.size(); cut += 7) {
    ASSERT_NE(failure_of([&] { GoldenFile(folder.write("c", bytes.substr(0, cut))); }).find("ends inside"),
              std::string::npos)
        << cut;
  }
}

}  // namespace
}  // namespace halfbyte::testing
