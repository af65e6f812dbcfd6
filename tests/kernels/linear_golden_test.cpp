// Every linear kernel against the golden vectors of the executable definition, bit for bit, in the order of sums that is
// the kernel's: "y", or "y_tiles" where its name says so (a16t).
#include <gtest/gtest.h>

#include <bit>

#include "kernels/linear_support.h"

namespace halfbyte::testing {
namespace {

class LinearGolden : public ::testing::TestWithParam<const LinearKernel*> {};

// "a16" of linear_nvfp4_a16_ref.
std::string form_of(const LinearKernel& kernel) {
  const size_t begin = kernel.name.find('_', std::string_view("linear_").size()) + 1;
  return std::string(kernel.name.substr(begin, kernel.name.rfind('_') - begin));
}

// Whether the kernel adds in the tile order (docs/numerics.md 3.5).
bool in_tile_order(const LinearKernel& kernel) {
  return form_of(kernel).ends_with('t');
}

// The names of golden modes that a kernel computes: "a4" covers static and per-token scales.
std::vector<std::string> modes_of(const LinearKernel& kernel, const GoldenFile& golden, const std::string& path) {
  std::string form = form_of(kernel);
  if (in_tile_order(kernel)) form.pop_back();
  std::vector<std::string> modes;
  for (const std::string& child : golden.children(path)) {
    if (child == form || child == form + "_static" || child == form + "_per_token") modes.push_back(child);
  }
  return modes;
}

::testing::AssertionResult same_bits(const std::vector<float>& expected, const std::vector<float>& actual, int64_t n) {
  if (expected.size() != actual.size()) return ::testing::AssertionFailure() << "sizes differ";
  for (size_t i = 0; i < expected.size(); ++i) {
    if (std::bit_cast<uint32_t>(expected[i]) == std::bit_cast<uint32_t>(actual[i])) continue;
    return ::testing::AssertionFailure() << "row " << i / n << ", output " << i % n << ": expected " << expected[i]
                                         << ", got " << actual[i];
  }
  return ::testing::AssertionSuccess();
}

TEST_P(LinearGolden, EqualsTheDefinition) {
  const LinearKernel& kernel = *GetParam();
  if (!isa_runs_here(kernel.isa)) GTEST_SKIP() << kernel.name << " needs a CPU with " << isa_name(kernel.isa);
  const GoldenFile golden = open_golden("linear");
  const std::string y = in_tile_order(kernel) ? "/y_tiles" : "/y";
  int cases = 0;
  for (const std::string& shape : golden.children("")) {
    const int64_t k = golden.dims(shape + "/x")[1];
    const auto x = golden.get<float>(shape + "/x");
    std::vector<float> bias;
    if (golden.has(shape + "/bias")) bias = golden.get<float>(shape + "/bias");
    const float* bias_or_null = bias.empty() ? nullptr : bias.data();

    if (kernel.weights == WeightFormat::kFP8) {  // the file has BF16 x
      if (kernel.activations != ActivationMode::kA16) continue;
      const std::string path = shape + "/fp8";
      const auto codes = golden.get<uint8_t>(path + "/codes");
      const auto scales = golden.get<float>(path + "/scales");
      const auto n = static_cast<int64_t>(scales.size());
      const QuantLinear w = make_linear(kernel.weights, n, k, codes.data(), scales.data(), 1.0f);
      EXPECT_TRUE(same_bits(golden.get<float>(path + y), run_linear(kernel, w, x, 0.0f, bias_or_null), n)) << path;
      ++cases;
      continue;
    }
    if (block_size(kernel.weights) == 1) {
      const bool bf16 = kernel.weights == WeightFormat::kBF16;
      // The file has BF16 weights with BF16 x and FP32 with FP32; the other two mixtures have tests of their own.
      if (bf16 != (kernel.activations == ActivationMode::kA16)) continue;
      const std::string path = shape + (bf16 ? "/bf16" : "/f32");
      const int64_t n = golden.dims(path + "/w")[0];
      const QuantLinear w =
          bf16 ? make_linear(kernel.weights, n, k, golden.get<uint16_t>(path + "/w").data(), nullptr, 1.0f)
               : make_linear(kernel.weights, n, k, golden.get<float>(path + "/w").data(), nullptr, 1.0f);
      EXPECT_TRUE(same_bits(golden.get<float>(path + y), run_linear(kernel, w, x, 0.0f, bias_or_null), n)) << path;
      ++cases;
      continue;
    }
    const std::string path = shape + (kernel.weights == WeightFormat::kNVFP4 ? "/nvfp4" : "/mxfp4");
    const auto codes = golden.get<uint8_t>(path + "/w_codes");
    const auto scales = golden.get<uint8_t>(path + "/w_scales");
    const int64_t n = golden.dims(path + "/w_scales")[0];
    const QuantLinear w =
        make_linear(kernel.weights, n, k, codes.data(), scales.data(), golden.scalar<float>(path + "/w_alpha"));
    for (const std::string& mode : modes_of(kernel, golden, path)) {
      const float alpha = mode.ends_with("_static") ? golden.scalar<float>(shape + "/input_scale") : 0.0f;
      EXPECT_TRUE(same_bits(golden.get<float>(path + "/" + mode + y), run_linear(kernel, w, x, alpha, bias_or_null), n))
          << path << "/" << mode;
      ++cases;
    }
  }
  const bool mixture = kernel.name.starts_with("linear_f32_a16") || kernel.name.starts_with("linear_bf16_f32") ||
                       kernel.name.starts_with("linear_fp8_f32");
  EXPECT_EQ(cases == 0, mixture) << "no golden case ran for " << kernel.name;
}

std::vector<const LinearKernel*> kernels() {
  std::vector<const LinearKernel*> all;
  for (const LinearKernel& k : all_linear_kernels()) all.push_back(&k);
  return all;
}

INSTANTIATE_TEST_SUITE_P(All, LinearGolden, ::testing::ValuesIn(kernels()),
                         [](const auto& param) { return std::string(param.param->name); });

}  // namespace
}  // namespace halfbyte::testing
