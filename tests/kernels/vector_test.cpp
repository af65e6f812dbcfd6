// Norm, rope and SiLU of every instruction set: against the golden vectors of the definition, and
// against the reference on odd sizes. All bit for bit. Attention: attention_test.cpp.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>

#include "base/exp32.h"
#include "kernels/linear_support.h"
#include "kernels/vector_support.h"

namespace halfbyte::testing {
namespace {

class Vector : public VectorTest {};

TEST_P(Vector, SaysWhoRuns) {
  EXPECT_EQ(fast().isa, GetParam().isa);
  EXPECT_EQ(fast().rmsnorm == ref().rmsnorm, is_ref());
  for (const Isa other : {Isa::kRef, Isa::kAvx2, Isa::kAvx512})
    EXPECT_EQ(fast().silu_mul == vector_kernels(other).silu_mul,
              other == std::min(GetParam().isa, Isa::kAvx512) && !GetParam().emulated);
}

TEST_P(Vector, RmsNorm) {
  const GoldenFile golden = open_golden("vector");
  const float eps = golden.scalar<float>("rmsnorm/eps");
  for (const std::string& name : golden.children("rmsnorm")) {
    if (name == "eps") continue;
    const auto x = golden.get<float>("rmsnorm/" + name + "/x"),
               weight = golden.get<float>("rmsnorm/" + name + "/weight");
    const auto k = static_cast<int64_t>(weight.size());
    std::vector<float> y(x.size());
    fast().rmsnorm(x.data(), weight.data(), eps, static_cast<int64_t>(x.size()) / k, k, y.data());
    EXPECT_TRUE(same(golden.get<float>("rmsnorm/" + name + "/y"), y)) << name;
    std::vector<float> in_place = x;
    fast().rmsnorm(in_place.data(), weight.data(), eps, static_cast<int64_t>(x.size()) / k, k, in_place.data());
    EXPECT_TRUE(same(y, in_place)) << name << " in place";
  }
}

TEST_P(Vector, Rope) {
  const GoldenFile golden = open_golden("vector");
  for (const std::string& name : golden.children("rope")) {
    const std::string path = "rope/" + name;
    const auto x = golden.get<float>(path + "/x"), cos = golden.get<float>(path + "/cos"),
               sin = golden.get<float>(path + "/sin");
    const auto expected = golden.get<float>(path + "/y");
    const int64_t positions = golden.dims(path + "/cos")[0], heads = golden.dims(path + "/x")[0],
                  dim = golden.dims(path + "/x")[1];
    std::vector<float> all;
    for (int64_t p = 0; p < positions; ++p) {
      std::vector<float> y = x;
      fast().rope(y.data(), cos.data() + p * dim / 2, sin.data() + p * dim / 2, heads, dim);
      all.insert(all.end(), y.begin(), y.end());
    }
    EXPECT_TRUE(same(expected, all)) << path;
  }
  for (int64_t dim : {2, 6, 14, 16, 30}) {  // odd halves
    const auto cos = normal_values(dim / 2, 1), sin = normal_values(dim / 2, 2);
    std::vector<float> a = normal_values(3 * dim, 3), b = a;
    ref().rope(a.data(), cos.data(), sin.data(), 3, dim);
    fast().rope(b.data(), cos.data(), sin.data(), 3, dim);
    EXPECT_TRUE(same(a, b)) << dim;
  }
}

TEST_P(Vector, SiluMul) {
  const GoldenFile golden = open_golden("vector");
  const auto gate = golden.get<float>("silu_mul/gate"), up = golden.get<float>("silu_mul/up");
  std::vector<float> y(gate.size());
  fast().silu_mul(gate.data(), up.data(), static_cast<int64_t>(gate.size()), y.data());
  EXPECT_TRUE(same(golden.get<float>("silu_mul/y"), y));
  for (int64_t n = 1; n < 20; ++n) {
    const auto g = normal_values(n, 4, 30.0f), u = normal_values(n, 5);
    std::vector<float> a(g.size()), b(g.size());
    ref().silu_mul(g.data(), u.data(), n, a.data());
    fast().silu_mul(g.data(), u.data(), n, b.data());
    EXPECT_TRUE(same(a, b)) << n;
  }
  const std::vector<float> odd = {kNan, kInf, -kInf, -0.0f, 0.0f, 88.0f, -88.0f, -87.0f, 1e30f, -1e30f};
  const std::vector<float> ones(odd.size(), 1.0f);
  std::vector<float> a(odd.size()), b(odd.size());
  ref().silu_mul(odd.data(), ones.data(), static_cast<int64_t>(odd.size()), a.data());
  fast().silu_mul(odd.data(), ones.data(), static_cast<int64_t>(odd.size()), b.data());
  EXPECT_TRUE(same(a, b));
}

INSTANTIATE_TEST_SUITE_P(All, Vector, vector_cases(), vector_case_name);

}  // namespace
}  // namespace halfbyte::testing
