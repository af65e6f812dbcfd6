// Norm, rope, SiLU, BF16 rounding and attention of every instruction set: against the golden vectors of the definition,
// and against the reference on odd sizes. All bit for bit.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include "base/exp32.h"
#include "formats/bf16.h"
#include "kernels/linear_support.h"

namespace halfbyte::testing {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

::testing::AssertionResult same(const std::vector<float>& expected, const std::vector<float>& actual) {
  if (expected.size() != actual.size()) return ::testing::AssertionFailure() << "sizes differ";
  for (size_t i = 0; i < expected.size(); ++i) {
    if (std::isnan(expected[i]) && std::isnan(actual[i])) continue;
    if (std::bit_cast<uint32_t>(expected[i]) == std::bit_cast<uint32_t>(actual[i])) continue;
    return ::testing::AssertionFailure() << "element " << i << ": expected " << expected[i] << ", got " << actual[i];
  }
  return ::testing::AssertionSuccess();
}

std::vector<float> normal_values(int64_t n, unsigned seed, float factor = 1.0f) {
  std::mt19937 rng(seed);
  std::normal_distribution<float> normal;
  std::vector<float> x(static_cast<size_t>(n));
  for (float& v : x) v = factor * normal(rng);
  return x;
}

class Vector : public ::testing::TestWithParam<Isa> {
 protected:
  void SetUp() override {
    if (!isa_runs_here(GetParam())) GTEST_SKIP() << "needs a CPU with " << isa_name(GetParam());
  }
  const VectorKernels& fast() const { return vector_kernels(GetParam()); }
  const VectorKernels& ref() const { return vector_kernels(Isa::kRef); }
};

TEST_P(Vector, SaysWhoRuns) {
  EXPECT_EQ(fast().isa, GetParam());
  EXPECT_EQ(fast().rmsnorm == ref().rmsnorm, GetParam() == Isa::kRef);
  EXPECT_EQ(fast().attention == ref().attention, GetParam() == Isa::kRef);
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

TEST_P(Vector, ToBf16) {
  std::vector<float> x = normal_values(1003, 7, 1e10f);
  for (float v : {kNan, -kNan, kInf, -kInf, std::numeric_limits<float>::max(), 1e-45f, -0.0f}) x.push_back(v);
  x.push_back(std::bit_cast<float>(0x7F800001u));  // a NaN whose payload lies in the dropped bits
  x.push_back(std::bit_cast<float>(0x7FFFFFFFu));
  for (uint32_t low : {0x7FFFu, 0x8000u, 0x8001u}) {
    x.push_back(std::bit_cast<float>(0x3F800000u | low));
    x.push_back(std::bit_cast<float>(0x3F810000u | low));
  }
  for (size_t n : {size_t{0}, size_t{1}, size_t{15}, size_t{16}, size_t{17}, x.size()}) {
    std::vector<uint16_t> out(n + 1, 0xABCD);
    fast().to_bf16(x.data() + x.size() - n, static_cast<int64_t>(n), out.data());
    for (size_t i = 0; i < n; ++i) EXPECT_EQ(out[i], BF16::encode(x[x.size() - n + i])) << x[x.size() - n + i];
    EXPECT_EQ(out[n], 0xABCD);
  }
}

// A paged cache of one layer, filled from [positions, kv_heads, head_dim].
class Cache {
 public:
  Cache(const std::vector<float>& k, const std::vector<float>& v, int64_t kv_heads, int64_t head_dim,
        int64_t page_tokens, bool bf16)
      : head_dim_(head_dim) {
    const int64_t row = kv_heads * head_dim, positions = static_cast<int64_t>(k.size()) / row;
    const size_t element = bf16 ? 2 : 4;
    for (int64_t first = 0; first < positions; first += page_tokens) {
      buffers_.push_back(Buffer::allocate(static_cast<size_t>(2 * page_tokens * row) * element));
    }
    for (int64_t p = 0; p < positions; ++p) {
      std::byte* page = buffers_[static_cast<size_t>(p / page_tokens)].mutable_bytes().data();
      for (int64_t h = 0; h < 2 * kv_heads; ++h) {
        const float* from = (h < kv_heads ? k : v).data() + p * row + h % kv_heads * head_dim;
        const int64_t at = (h * page_tokens + p % page_tokens) * head_dim;
        for (int64_t d = 0; d < head_dim; ++d) {
          const uint16_t code = BF16::encode(from[d]);
          if (bf16)
            std::memcpy(page + (at + d) * 2, &code, 2);
          else
            std::memcpy(page + (at + d) * 4, from + d, 4);
        }
      }
    }
    // Pages lie in no order of their own, as in a real pool.
    for (Buffer& b : buffers_) pages_.push_back(b.bytes().data());
    view_ = {pages_.data(), page_tokens, kv_heads, head_dim, bf16};
  }

  std::vector<float> attend(const VectorKernels& kernels, const std::vector<float>& q, int64_t kv_head,
                            int64_t position) const {
    const int64_t group = static_cast<int64_t>(q.size()) / head_dim_;
    std::vector<float> out(q.size(), 777.0f),
        scratch(static_cast<size_t>(attention_scratch_floats(group, head_dim_)) + 1, 777.0f);
    const auto scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(head_dim_)));
    kernels.attention(q.data(), view_, kv_head, group, position, scale, scratch.data(), out.data());
    EXPECT_EQ(scratch.back(), 777.0f) << "wrote behind its scratch";
    return out;
  }

 private:
  int64_t head_dim_;
  std::vector<Buffer> buffers_;
  std::vector<const std::byte*> pages_;
  KvView view_;
};

TEST_P(Vector, AttentionEqualsTheDefinition) {
  const GoldenFile golden = open_golden("attention");
  int cases = 0;
  for (const std::string& dim : golden.children("")) {
    const auto q = golden.get<float>(dim + "/q"), k = golden.get<float>(dim + "/k"), v = golden.get<float>(dim + "/v");
    const int64_t head_dim = golden.dims(dim + "/q")[1];
    for (const bool bf16 : {false, true}) {
      const std::string path = dim + (bf16 ? "/bf16/f32" : "/f32/f32");
      for (const int64_t page : {16, 64, 1024}) {
        const Cache cache(k, v, 1, head_dim, page, bf16);
        for (const std::string& n : golden.children(path)) {
          const int64_t positions = std::stoll(n.substr(1));
          EXPECT_TRUE(same(golden.get<float>(path + "/" + n + "/out"), cache.attend(fast(), q, 0, positions - 1)))
              << path << "/" << n << ", pages of " << page;
          ++cases;
        }
      }
    }
  }
  EXPECT_GT(cases, 20);
}

TEST_P(Vector, AttentionEqualsReference) {
  for (const int64_t head_dim : {8, 16, 40, 64, 128, 12}) {
    for (const int64_t group : {1, 2, 3, 6}) {
      const int64_t kv_heads = 2, positions = 530;
      const auto k = normal_values(positions * kv_heads * head_dim, 8),
                 v = normal_values(positions * kv_heads * head_dim, 9);
      const auto q = normal_values(group * head_dim, 10, 3.0f);
      for (const bool bf16 : {false, true}) {
        const Cache cache(k, v, kv_heads, head_dim, 32, bf16);
        for (const int64_t position : {0, 1, 6, 7, 8, 31, 254, 255, 256, 300, 529}) {
          ASSERT_TRUE(same(cache.attend(ref(), q, 1, position), cache.attend(fast(), q, 1, position)))
              << "head_dim " << head_dim << ", group " << group << ", position " << position << ", bf16 " << bf16;
        }
      }
    }
  }
}

// A head's result does not depend on the other heads of its group.
TEST_P(Vector, AttentionHeadsAreIndependent) {
  const int64_t head_dim = 64, positions = 300;
  const auto k = normal_values(positions * head_dim, 11), v = normal_values(positions * head_dim, 12);
  const auto q = normal_values(5 * head_dim, 13);
  const Cache cache(k, v, 1, head_dim, 16, true);
  const std::vector<float> together = cache.attend(fast(), q, 0, positions - 1);
  for (int64_t g = 0; g < 5; ++g) {
    const std::vector<float> one(q.begin() + g * head_dim, q.begin() + (g + 1) * head_dim);
    const std::vector<float> part(together.begin() + g * head_dim, together.begin() + (g + 1) * head_dim);
    EXPECT_TRUE(same(part, cache.attend(fast(), one, 0, positions - 1))) << g;
  }
}

// AVX-512 machines use the AVX2 forms of these, and say so.
TEST(VectorChoice, Avx512UsesAvx2) {
  EXPECT_EQ(vector_kernels(Isa::kAvx512).isa, Isa::kAvx2);
}

INSTANTIATE_TEST_SUITE_P(All, Vector, ::testing::Values(Isa::kRef, Isa::kAvx2),
                         [](const auto& param) { return std::string(isa_name(param.param)); });

}  // namespace
}  // namespace halfbyte::testing
