// Norm, SiLU, attention and the draw on the device against plain host code.
#include <array>
#include <bit>
#include <random>

#include "base/exp32.h"
#include "decode/sampler.h"
#include "formats/bf16.h"
#include "formats/e4m3.h"
#include "kernels/cuda/cuda_support.h"
#include "kernels/registry.h"

namespace halfbyte::cuda::testing {
namespace {

std::vector<float> normals(size_t count, uint32_t seed, float width = 1.0f) {
  std::mt19937 rng(seed);
  std::normal_distribution<float> normal;
  std::vector<float> out(count);
  for (float& v : out) v = normal(rng) * width;
  return out;
}

std::vector<float> from_bf16(const std::vector<uint16_t>& bits) {
  std::vector<float> out;
  for (const uint16_t b : bits) out.push_back(BF16::decode(b));
  return out;
}

// y as one slot a column: [M][rows].
SlotView plain_slots(const DeviceBuffer& y, int rows, int columns) {
  SlotView v;
  v.partial = y.as<float>();
  v.rows = rows;
  v.columns = columns;
  return v;
}

TEST(CudaRows, NormAddsAndNorms) {
  HB_NEED_DEVICE();
  for (const int k : {80, 576, 4096, 5120}) {
    const int rows = 3, columns = 4;
    auto y = normals(static_cast<size_t>(columns * k), 1), residual = normals(static_cast<size_t>(kMaxRows * k), 2);
    const auto weight = normals(static_cast<size_t>(k), 3);
    const DeviceBuffer dy = upload(y), dr = upload(residual), dw = upload(weight);
    const DeviceBuffer positions = upload(std::vector<int32_t>{5, -1, 7, -1});
    const DeviceBuffer out = device_bytes(static_cast<size_t>(columns * k) * 2);
    NormRows args;
    args.y = plain_slots(dy, k, columns);
    args.positions = positions.as<int32_t>();
    args.residual = dr.as<float>();
    args.weight = dw.as<float>();
    args.k = k;
    args.out = {RowMode::kBf16Rows, 0.0f, out.as<void>(), nullptr};
    HB_OK(norm_rows(args, rows, {}));
    const auto got = from_bf16(download<uint16_t>(out, static_cast<size_t>(columns * k)));
    const auto after = download<float>(dr, residual.size());
    for (const int m : {0, 2}) {
      std::vector<float> sum(static_cast<size_t>(k)), expected(sum.size());
      for (int i = 0; i < k; ++i)
        sum[static_cast<size_t>(i)] = residual[static_cast<size_t>(m * k + i)] + y[static_cast<size_t>(m * k + i)];
      vector_kernels(Isa::kRef).rmsnorm(sum.data(), weight.data(), 1e-6f, 1, k, expected.data());
      for (int i = 0; i < k; ++i) {
        ASSERT_EQ(after[static_cast<size_t>(m * k + i)], sum[static_cast<size_t>(i)]) << "residual";
        ASSERT_NEAR(got[static_cast<size_t>(m * k + i)], expected[static_cast<size_t>(i)],
                    std::abs(expected[static_cast<size_t>(i)]) * 0.0041f);
      }
    }
    for (int i = 0; i < k; ++i)
      ASSERT_EQ(after[static_cast<size_t>(k + i)], residual[static_cast<size_t>(k + i)])
          << "a row that is not there changed";
  }
}

TEST(CudaRows, SiluMultiplies) {
  HB_NEED_DEVICE();
  for (const int k : {72, 1536, 25600}) {
    const int rows = 2;
    const auto y = normals(static_cast<size_t>(rows * 2 * k), 4, 3.0f);
    const DeviceBuffer dy = upload(y), out = device_bytes(static_cast<size_t>(rows * k) * 2);
    SiluRows args{plain_slots(dy, 2 * k, rows), nullptr, k, {RowMode::kBf16Rows, 0.0f, out.as<void>(), nullptr}};
    HB_OK(silu_rows(args, rows, {}));
    const auto got = download<uint16_t>(out, static_cast<size_t>(rows * k));
    std::vector<float> expected(static_cast<size_t>(k));
    for (int m = 0; m < rows; ++m) {
      vector_kernels(Isa::kRef).silu_mul(y.data() + m * 2 * k, y.data() + m * 2 * k + k, k, expected.data());
      for (int i = 0; i < k; ++i)
        ASSERT_EQ(got[static_cast<size_t>(m * k + i)], BF16::encode(expected[static_cast<size_t>(i)]));
    }
  }
}

struct Heads {
  int heads, kv_heads, dim;
  bool norms;
  bool fp8 = false;
};
constexpr float kKeyScale = 0.05f, kValueScale = 0.03f;  // of an FP8 cache

// A small paged cache, host side.
struct Problem {
  Heads h;
  std::vector<int32_t> positions;
  int page_tokens = 32, table_stride = 0, pages = 0;
  std::vector<int32_t> tables;
  std::vector<uint16_t> cache;  // [page][K, V][kv_heads][page_tokens][dim], BF16 or E4M3 codes
  std::vector<float> qkv, q_norm, k_norm, cos, sin;

  size_t slot(int row, int which, int head, int position) const {
    const int page = tables[static_cast<size_t>(row * table_stride + position / page_tokens)];
    return (((static_cast<size_t>(page) * 2 + which) * h.kv_heads + head) * page_tokens + position % page_tokens) *
           h.dim;
  }
  float scale(int which) const { return !h.fp8 ? 1.0f : which == 0 ? kKeyScale : kValueScale; }
  uint16_t encode(int which, double v) const {
    return h.fp8 ? E4M3::encode(static_cast<float>(v) / scale(which)) : BF16::encode(static_cast<float>(v));
  }
  double decode(int which, uint16_t code) const {
    return static_cast<double>(h.fp8 ? E4M3::decode(static_cast<uint8_t>(code)) * scale(which) : BF16::decode(code));
  }
};

// spread: of the scores, whose running maximum is to move.
Problem make_problem(const Heads& h, const std::vector<int32_t>& positions, float spread = 1.0f) {
  Problem p;
  p.h = h;
  p.positions = positions;
  const int longest = *std::max_element(positions.begin(), positions.end()) + 1;
  p.table_stride = longest / p.page_tokens + 1;
  p.pages = p.table_stride * static_cast<int>(positions.size());
  for (int i = 0; i < p.pages; ++i) p.tables.push_back(i);
  std::mt19937 rng(8);
  std::shuffle(p.tables.begin(), p.tables.end(), rng);
  for (const float v : normals(static_cast<size_t>(p.pages) * 2 * h.kv_heads * p.page_tokens * h.dim, 5))
    p.cache.push_back(p.encode(0, static_cast<double>(v)));
  p.qkv = normals(positions.size() * static_cast<size_t>((h.heads + 2 * h.kv_heads) * h.dim), 6);
  if (h.norms) {
    p.q_norm = normals(static_cast<size_t>(h.dim), 7, spread);
    p.k_norm = normals(static_cast<size_t>(h.dim), 9);
  }
  for (int pos = 0; pos < longest; ++pos) {
    for (int i = 0; i < h.dim / 2; ++i) {
      const double angle = pos * std::pow(10000.0, -2.0 * i / h.dim);
      p.cos.push_back(static_cast<float>(std::cos(angle)));
      p.sin.push_back(static_cast<float>(std::sin(angle)));
    }
  }
  return p;
}

// One head's vector of the problem, normed and rotated, in double.
std::vector<double> head_vector(const Problem& p, int row, int head, const std::vector<float>& norm, bool rotate) {
  const int width = (p.h.heads + 2 * p.h.kv_heads) * p.h.dim, dim = p.h.dim;
  std::vector<double> v(static_cast<size_t>(dim));
  double squares = 0;
  for (int i = 0; i < dim; ++i) {
    v[static_cast<size_t>(i)] = static_cast<double>(p.qkv[static_cast<size_t>(row * width + head * dim + i)]);
    squares += v[static_cast<size_t>(i)] * v[static_cast<size_t>(i)];
  }
  if (!norm.empty())
    for (int i = 0; i < dim; ++i)
      v[static_cast<size_t>(i)] *= static_cast<double>(norm[static_cast<size_t>(i)]) / std::sqrt(squares / dim + 1e-6);
  if (!rotate) return v;
  std::vector<double> out(v.size());
  for (int i = 0; i < dim / 2; ++i) {
    const auto at = static_cast<size_t>(p.positions[static_cast<size_t>(row)] * (dim / 2) + i);
    const double c = static_cast<double>(p.cos[at]), s = static_cast<double>(p.sin[at]);
    const double a = v[static_cast<size_t>(i)], b = v[static_cast<size_t>(i + dim / 2)];
    out[static_cast<size_t>(i)] = a * c - b * s;
    out[static_cast<size_t>(i + dim / 2)] = b * c + a * s;
  }
  return out;
}

// The row's key and value go into p.cache; attention of every head in double.
std::vector<float> expected_attention(Problem& p) {
  std::vector<float> out;
  const int group = p.h.heads / p.h.kv_heads, dim = p.h.dim;
  for (int row = 0; row < static_cast<int>(p.positions.size()); ++row) {
    const int position = p.positions[static_cast<size_t>(row)];
    for (int kv = 0; kv < p.h.kv_heads; ++kv) {
      const auto key = head_vector(p, row, p.h.heads + kv, p.k_norm, true);
      const auto value = head_vector(p, row, p.h.heads + p.h.kv_heads + kv, {}, false);
      for (int i = 0; i < dim; ++i) {
        p.cache[p.slot(row, 0, kv, position) + static_cast<size_t>(i)] = p.encode(0, key[static_cast<size_t>(i)]);
        p.cache[p.slot(row, 1, kv, position) + static_cast<size_t>(i)] = p.encode(1, value[static_cast<size_t>(i)]);
      }
    }
    for (int head = 0; head < p.h.heads; ++head) {
      const auto q = head_vector(p, row, head, p.q_norm, true);
      std::vector<double> weights, sums(static_cast<size_t>(dim));
      double most = -1e300, total = 0;
      for (int j = 0; j <= position; ++j) {
        double s = 0;
        for (int i = 0; i < dim; ++i)
          s += q[static_cast<size_t>(i)] *
               p.decode(0, p.cache[p.slot(row, 0, head / group, j) + static_cast<size_t>(i)]);
        weights.push_back(s / std::sqrt(static_cast<double>(dim)));
        most = std::max(most, weights.back());
      }
      for (int j = 0; j <= position; ++j) {
        const double w = std::exp(weights[static_cast<size_t>(j)] - most);
        total += w;
        for (int i = 0; i < dim; ++i)
          sums[static_cast<size_t>(i)] +=
              w * p.decode(1, p.cache[p.slot(row, 1, head / group, j) + static_cast<size_t>(i)]);
      }
      for (const double s : sums) out.push_back(static_cast<float>(s / total));
    }
  }
  return out;
}

struct AttentionResult {
  std::vector<float> out;         // kBf16Rows
  std::vector<uint8_t> x;         // as the next linear reads it
  std::vector<uint32_t> x_scale;  // bits
  std::vector<uint16_t> cache;
};
// By attention_rows and merge_rows, or by attention_merged.
AttentionResult run_attention(const Problem& p, KvState state, bool merged = false, RowMode mode = RowMode::kBf16Rows,
                              float alpha = 0.0f) {
  const int rows = static_cast<int>(p.positions.size()), columns = padded_rows(rows), dim = p.h.dim;
  const int width = (p.h.heads + 2 * p.h.kv_heads) * dim;
  std::vector<float> slots(p.qkv);
  slots.resize(static_cast<size_t>(columns * width));
  std::vector<int32_t> positions(p.positions);
  positions.resize(kMaxRows, -1);
  const DeviceBuffer dqkv = upload(slots), dpos = upload(positions), dtables = upload(p.tables),
                     dcache = p.h.fp8 ? upload(std::vector<uint8_t>(p.cache.begin(), p.cache.end())) : upload(p.cache);
  const DeviceBuffer qn = upload(p.q_norm), kn = upload(p.k_norm), dcos = upload(p.cos), dsin = upload(p.sin);
  const size_t parts = static_cast<size_t>(columns * p.h.heads) * kMaxSplits;
  const DeviceBuffer dparts = device_bytes(parts * static_cast<size_t>(dim) * 4, true),
                     dstats = device_bytes(parts * 8, true);
  AttentionRows a;
  a.qkv = plain_slots(dqkv, width, columns);
  a.positions = dpos.as<int32_t>();
  a.q_norm = p.q_norm.empty() ? nullptr : qn.as<float>();
  a.k_norm = p.k_norm.empty() ? nullptr : kn.as<float>();
  a.cos = dcos.as<float>();
  a.sin = dsin.as<float>();
  a.kv = {dcache.as<uint8_t>(),
          static_cast<size_t>(2 * p.h.kv_heads * p.page_tokens * dim) * (p.h.fp8 ? 1 : 2),
          0,
          p.page_tokens,
          dtables.as<int32_t>(),
          p.table_stride,
          p.h.fp8,
          p.scale(0),
          p.scale(1)};
  a.heads = p.h.heads;
  a.kv_heads = p.h.kv_heads;
  a.head_dim = dim;
  a.scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(dim)));
  a.parts = dparts.as<float>();
  a.stats = dstats.as<float>();
  const auto must = [](const Status& s) {
    if (!s.ok()) throw std::runtime_error(s.message());
  };
  if (state == KvState::kAppended) must(append_rows(a, rows, {}));
  const int k_steps = (p.h.heads * dim + kStepK - 1) / kStepK;
  const DeviceBuffer x = device_bytes(static_cast<size_t>(k_steps * x_chunk_bytes(columns)), true),
                     x_scale = device_bytes(kMaxRows * sizeof(float), true);
  const RowOutput out{mode, alpha, x.as<void>(), x_scale.as<float>()};
  if (merged) {
    must(attention_merged(a, state, out, rows, {}));
  } else {
    must(attention_rows(a, state, rows, {}));
    must(merge_rows({a.parts, a.stats, a.positions, a.heads, dim, out}, rows, {}));
  }
  AttentionResult r;
  if (mode == RowMode::kBf16Rows) r.out = from_bf16(download<uint16_t>(x, static_cast<size_t>(rows * p.h.heads * dim)));
  r.x = download<uint8_t>(x, x.size());
  r.x_scale = download<uint32_t>(x_scale, kMaxRows);
  if (p.h.fp8) {
    const std::vector<uint8_t> codes = download<uint8_t>(dcache, p.cache.size());
    r.cache.assign(codes.begin(), codes.end());
  } else {
    r.cache = download<uint16_t>(dcache, p.cache.size());
  }
  return r;
}

// By one kernel, where the device has it, what attention_rows and merge_rows gave.
void expect_merged(const Problem& p, const AttentionResult& by_two) {
  if (!attention_merges(static_cast<int>(p.positions.size()))) return;
  for (const KvState state : {KvState::kOwnRow, KvState::kAppended}) {
    const AttentionResult merged = run_attention(p, state, true);
    EXPECT_EQ(by_two.out, merged.out) << "attention that merges its parts, rows: " << p.positions.size();
    EXPECT_EQ(by_two.cache, merged.cache);
  }
}

// Against attention in double; and a row's numbers do not depend on its company or on how its key came to the cache.
void expect_attention(Problem p) {
  const AttentionResult own = run_attention(p, KvState::kOwnRow), appended = run_attention(p, KvState::kAppended);
  EXPECT_EQ(own.out, appended.out) << "a prompt row and a decode row differ";
  EXPECT_EQ(own.cache, appended.cache);
  expect_merged(p, own);
  const size_t width = p.qkv.size() / p.positions.size();
  for (const size_t company : {1, 2, 3}) {  // the last row by itself, and with one and two others
    Problem few = p;
    const size_t first = p.positions.size() - company;
    few.positions.erase(few.positions.begin(), few.positions.begin() + static_cast<std::ptrdiff_t>(first));
    few.qkv.erase(few.qkv.begin(), few.qkv.begin() + static_cast<std::ptrdiff_t>(first * width));
    few.tables.erase(few.tables.begin(), few.tables.begin() + static_cast<std::ptrdiff_t>(first) * p.table_stride);
    const AttentionResult result = run_attention(few, KvState::kOwnRow);
    expect_merged(few, result);
    EXPECT_TRUE(std::equal(result.out.begin(), result.out.end(),
                           own.out.end() - static_cast<std::ptrdiff_t>(result.out.size())))
        << "a row depends on its company, " << company;
  }

  const auto expected = expected_attention(p);
  for (size_t i = 0; i < expected.size(); ++i)
    ASSERT_NEAR(own.out[i], expected[i], std::abs(expected[i]) * 0.0045f + 2e-4f) << "value " << i;
  int changed = 0;
  for (size_t i = 0; i < p.cache.size(); ++i) {
    const double wanted = p.decode(0, p.cache[i]);
    changed += std::abs(p.decode(0, own.cache[i]) - wanted) > (p.h.fp8 ? 0.13 : 0.01) * (1.0 + std::abs(wanted));
  }
  EXPECT_EQ(changed, 0) << "keys or values in the cache";
}

class CudaAttention : public ::testing::TestWithParam<Heads> {};

TEST_P(CudaAttention, EqualsPlainAttention) {
  HB_NEED_DEVICE();
  expect_attention(make_problem(GetParam(), {0, 5, 63, 64, 200, 1029, 1500}));
}

INSTANTIATE_TEST_SUITE_P(All, CudaAttention,
                         ::testing::Values(Heads{32, 8, 128, true}, Heads{9, 3, 64, false}, Heads{10, 2, 128, true},
                                           Heads{16, 2, 128, true}, Heads{6, 1, 128, false}, Heads{4, 2, 128, true},
                                           Heads{14, 2, 64, false}, Heads{32, 8, 128, true, true},
                                           Heads{10, 2, 128, false, true}, Heads{9, 3, 64, true, true},
                                           Heads{14, 2, 64, false, true}));

// Several groups of positions a stream, and scores that raise the running maximum.
class CudaLongAttention : public ::testing::TestWithParam<Heads> {};

TEST_P(CudaLongAttention, EqualsPlainAttention) {
  HB_NEED_DEVICE();
  expect_attention(make_problem(GetParam(), {4127, 100, 3000, 7, 5135}, 6.0f));
}

INSTANTIATE_TEST_SUITE_P(All, CudaLongAttention,
                         ::testing::Values(Heads{4, 1, 128, true}, Heads{8, 1, 128, true}, Heads{3, 1, 64, true},
                                           Heads{4, 1, 128, true, true}, Heads{6, 1, 128, true, true},
                                           Heads{4, 1, 64, true, true}));

// Attention that merges writes what two kernels write, byte for byte, whatever the rows, their number and the rounding; rows
// that are not there stay untouched.
TEST(CudaAttention, MergedEqualsRowsAndMerge) {
  HB_NEED_DEVICE();
  if (!attention_merges(2)) GTEST_SKIP() << "this device's attention leaves its parts to merge_rows";
  const std::vector<int32_t> positions{1100, 15, 16, 1047, 0, 640, -1, 79, 1023, 1024, 1025, 5, 900, 64, 63, 127};
  struct Rounding {
    RowMode mode;
    float alpha = 0.0f;
  };
  const std::vector<Rounding> few{{RowMode::kA16}, {RowMode::kBf16Rows}, {RowMode::kA4}};
  const std::vector<Rounding> all_roundings{{RowMode::kA16},        {RowMode::kBf16Rows},   {RowMode::kMxA4},
                                            {RowMode::kMxA8},       {RowMode::kA4, 0.015f}, {RowMode::kA4},
                                            {RowMode::kA8, 0.015f}, {RowMode::kA8}};
  for (const Heads h : {Heads{32, 8, 128, true}, Heads{64, 8, 128, false}, Heads{9, 3, 64, true},
                        Heads{40, 8, 128, true, true}, Heads{14, 2, 64, false, true}}) {
    const Problem all = make_problem(h, positions, 3.0f);
    for (const int rows : {2, 3, 4, 5, 7, 8, 11, 16}) {
      Problem p = all;
      p.positions.resize(static_cast<size_t>(rows));
      p.qkv.resize(all.qkv.size() / positions.size() * static_cast<size_t>(rows));
      for (const Rounding r : rows == 8 ? all_roundings : few) {
        const AttentionResult two = run_attention(p, KvState::kOwnRow, false, r.mode, r.alpha);
        const AttentionResult one = run_attention(p, KvState::kOwnRow, true, r.mode, r.alpha);
        ASSERT_TRUE(two.x == one.x) << h.heads << " heads, " << rows << " rows, mode " << static_cast<int>(r.mode)
                                    << ", " << r.alpha;
        ASSERT_EQ(two.x_scale, one.x_scale);
        ASSERT_TRUE(two.cache == one.cache);
      }
    }
  }
}

TEST(CudaAttention, RefusesOtherHeads) {
  HB_NEED_DEVICE();
  AttentionRows a;
  a.heads = 2;
  a.kv_heads = 1;
  a.head_dim = 80;
  a.kv.page_tokens = 32;
  const Status s = attention_rows(a, KvState::kOwnRow, 1, {});
  ASSERT_FALSE(s.ok());
  EXPECT_NE(s.message().find("80 dimensions"), std::string::npos) << s.message();
}

// A row for each rule, of logits [rows][vocab].
std::vector<Drawn> draw(const std::vector<float>& logits, int vocab, const std::vector<DrawRule>& rules,
                        const std::vector<int32_t>& positions) {
  const int rows = static_cast<int>(rules.size());
  const DeviceBuffer dl = upload(logits), dr = upload(rules), dp = upload(positions),
                     tokens = device_bytes(kMaxRows * 4), drawn = device_bytes(kMaxRows * sizeof(Drawn));
  DrawRows a;
  a.logits = plain_slots(dl, vocab, rows);
  a.vocab = vocab;
  a.rules = dr.as<DrawRule>();
  a.tokens = tokens.as<int32_t>();
  a.positions = dp.as<int32_t>();
  a.drawn = drawn.as<Drawn>();
  const Status s = draw_rows(a, rows, {});
  if (!s.ok()) throw std::runtime_error(s.message());
  return download<Drawn>(drawn, kMaxRows);
}

// Greedy, drawn, min-p and entropy equal the host's sampler bit for bit.
TEST(CudaDraw, EqualsHostSampler) {
  HB_NEED_DEVICE();
  for (const int vocab : {131, 4096, 49152, 151936}) {
    Sampler sampler(vocab);
    for (int round = 0; round < (vocab > 100000 ? 12 : 24); ++round) {
      const int rows = kMaxRows;
      const auto logits = normals(static_cast<size_t>(rows * vocab), static_cast<uint32_t>(round + vocab),
                                  0.5f + static_cast<float>(round % 6));
      std::vector<DrawRule> rules;
      std::vector<int32_t> positions;
      for (int m = 0; m < rows; ++m) {
        rules.push_back({m % 4 == 0 ? 0.0f : 0.6f + 0.1f * static_cast<float>(m % 5),
                         m % 3 == 0 ? 0.05f : 0.0f,
                         static_cast<uint64_t>(round * 100 + m),
                         static_cast<uint32_t>(m % 2),
                         true,
                         false,
                         {}});
        positions.push_back(m * 37 + round);
      }
      const auto got = draw(logits, vocab, rules, positions);
      for (int m = 0; m < rows; ++m) {
        std::vector<float> row(logits.begin() + static_cast<std::ptrdiff_t>(m) * vocab,
                               logits.begin() + static_cast<std::ptrdiff_t>(m + 1) * vocab);
        SamplingParams params;
        params.temperature = rules[static_cast<size_t>(m)].temperature;
        params.min_p = rules[static_cast<size_t>(m)].min_p;
        params.seed = rules[static_cast<size_t>(m)].seed;
        params.choice = rules[static_cast<size_t>(m)].choice;
        params.entropy = true;
        SampledToken expected;
        HB_OK(sampler.sample(row, params, nullptr, static_cast<uint64_t>(positions[static_cast<size_t>(m)]) + 1,
                             expected));
        ASSERT_EQ(got[static_cast<size_t>(m)].token, expected.token)
            << "vocab " << vocab << ", row " << m << ", round " << round;
        ASSERT_EQ(got[static_cast<size_t>(m)].entropy, expected.entropy) << "vocab " << vocab << ", row " << m;
      }
    }
  }
}

// Top-k and top-p, whose borders many tokens share.
TEST(CudaDraw, TruncatesAsTheHostSampler) {
  HB_NEED_DEVICE();
  if (!active_kernels().clusters) GTEST_SKIP() << "top-k and top-p are the host's without clusters";
  constexpr int kRows = 8;
  for (const int vocab : {131, 9000}) {
    auto logits = normals(static_cast<size_t>(kRows * vocab), 5, 2.0f);
    for (float& v : logits) v = std::round(v * 4.0f) / 4.0f;
    std::vector<DrawRule> rules(kRows);
    for (int m = 0; m < kRows; ++m) {
      DrawRule& rule = rules[static_cast<size_t>(m)];
      rule.temperature = 0.7f;
      rule.seed = static_cast<uint64_t>(m);
      rule.top_k = std::array{0, 1, 20, 100, 40, 0, 100000, 3}[static_cast<size_t>(m)];
      rule.top_p = std::array{0.9f, 1.0f, 1.0f, 0.5f, 0.95f, 0.999f, 0.3f, 0.01f}[static_cast<size_t>(m)];
    }
    const auto got = draw(logits, vocab, rules, std::vector<int32_t>(kMaxRows, 41));
    Sampler sampler(vocab);
    for (int m = 0; m < kRows; ++m) {
      const DrawRule& rule = rules[static_cast<size_t>(m)];
      SamplingParams params;
      params.temperature = rule.temperature;
      params.seed = rule.seed;
      params.top_k = rule.top_k;
      params.top_p = rule.top_p;
      std::vector<float> row(logits.begin() + std::ptrdiff_t{m} * vocab,
                             logits.begin() + std::ptrdiff_t{m + 1} * vocab);
      SampledToken expected;
      HB_OK(sampler.sample(row, params, nullptr, 42, expected));
      EXPECT_EQ(got[static_cast<size_t>(m)].token, expected.token) << "vocab " << vocab << ", row " << m;
    }
  }
}

TEST(CudaDraw, ReportsBrokenLogits) {
  HB_NEED_DEVICE();
  std::vector<float> logits(1000, 1.0f);
  logits[77] = NAN;
  const DeviceBuffer dl = upload(logits), dr = upload(std::vector<DrawRule>(1)), dp = upload(std::vector<int32_t>{3}),
                     tokens = device_bytes(4), drawn = device_bytes(sizeof(Drawn));
  DrawRows a;
  a.logits = plain_slots(dl, 1000, 1);
  a.vocab = 1000;
  a.rules = dr.as<DrawRule>();
  a.tokens = tokens.as<int32_t>();
  a.positions = dp.as<int32_t>();
  a.drawn = drawn.as<Drawn>();
  HB_OK(draw_rows(a, 1, {}));
  EXPECT_EQ(download<Drawn>(drawn, 1)[0].token, -1);
}

}  // namespace
}  // namespace halfbyte::cuda::testing
