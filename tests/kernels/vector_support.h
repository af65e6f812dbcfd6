// Float vectors for the tests of what lies between the linears.
#pragma once

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "kernels/emulated/kernels.h"
#include "kernels/registry.h"

namespace halfbyte::testing {

inline constexpr float kInf = std::numeric_limits<float>::infinity();
inline constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// The kernels of one instruction set; AVX-512 and AMX also in plain loops, so that they are tested everywhere.
struct VectorCase {
  Isa isa;
  bool emulated = false;

  std::string name() const { return std::string(isa_name(isa)) + (emulated ? "_emulated" : ""); }
};
inline void PrintTo(const VectorCase& c, std::ostream* out) {
  *out << c.name();
}

class VectorTest : public ::testing::TestWithParam<VectorCase> {
 protected:
  void SetUp() override {
    const Isa needed = GetParam().emulated ? Isa::kAvx2 : GetParam().isa;
    if (!isa_runs_here(needed)) GTEST_SKIP() << "needs a CPU with " << isa_name(needed);
  }
  const VectorKernels& fast() const {
    return GetParam().emulated ? emulated_vector_kernels(GetParam().isa) : vector_kernels(GetParam().isa);
  }
  const VectorKernels& ref() const { return vector_kernels(Isa::kRef); }
  bool is_ref() const { return GetParam().isa == Isa::kRef; }
};

inline auto vector_cases() {
  return ::testing::Values(VectorCase{Isa::kRef}, VectorCase{Isa::kAvx2}, VectorCase{Isa::kAvx512},
                           VectorCase{Isa::kAmx}, VectorCase{Isa::kAvx512, /*emulated=*/true},
                           VectorCase{Isa::kAmx, /*emulated=*/true});
}
inline std::string vector_case_name(const ::testing::TestParamInfo<VectorCase>& info) {
  return info.param.name();
}

// Bit for bit; every NaN equals every other.
inline ::testing::AssertionResult same(const std::vector<float>& expected, const std::vector<float>& actual) {
  if (expected.size() != actual.size()) return ::testing::AssertionFailure() << "sizes differ";
  for (size_t i = 0; i < expected.size(); ++i) {
    if (std::isnan(expected[i]) && std::isnan(actual[i])) continue;
    if (std::bit_cast<uint32_t>(expected[i]) == std::bit_cast<uint32_t>(actual[i])) continue;
    return ::testing::AssertionFailure() << "element " << i << ": expected " << expected[i] << ", got " << actual[i];
  }
  return ::testing::AssertionSuccess();
}

inline std::vector<float> normal_values(int64_t n, unsigned seed, float factor = 1.0f) {
  std::mt19937 rng(seed);
  std::normal_distribution<float> normal;
  std::vector<float> x(static_cast<size_t>(n));
  for (float& v : x) v = factor * normal(rng);
  return x;
}

}  // namespace halfbyte::testing
