// Prompt rows on the device: the matrix product against the decode kernel, which the reference holds, and attention against
// plain host code; bit for bit the same whatever rows come along, and in whatever tiles.
#include <cstring>

#include "base/thread_pool.h"
#include "formats/bf16.h"
#include "formats/e4m3.h"
#include "kernels/cuda/cuda_support.h"
#include "kernels/cuda/prompt_layout.h"
#include "kernels/linear_support.h"
#include "kernels/registry.h"
#include "tensor/quantize_tensor.h"

namespace halfbyte::cuda::testing {
namespace {

struct Case {
  WeightFormat weights;
  ActivationMode activations;
  RowMode mode;
};
class CudaPromptLinear : public ::testing::TestWithParam<Case> {};

// y [rows][n]: rounds x [rows][k] for the linear and multiplies, in tiles of `tile` rows. dirty: into buffers of NaNs.
std::vector<float> run_prompt(const LinearStorage& storage, const std::vector<float>& x, int rows, RowMode mode,
                              int tile, bool dirty = false) {
  const Linear& v = storage.view;
  const int padded = padded_prompt_rows(rows);
  const DeviceBuffer dx = upload(x), rounded = device_bytes(prompt_x_bytes(v, rows), dirty),
                     scales = device_bytes(static_cast<size_t>(padded) * 4);
  SlotView in;
  in.partial = dx.as<float>();
  in.rows = v.k;
  in.columns = rows;
  const auto must = [](const Status& s) {
    if (!s.ok()) throw std::runtime_error(s.message());
  };
  must(cuda::round_rows({in, v.k, {mode, 0.0f, rounded.as<void>(), scales.as<float>(), prompt_layout_rows(v, rows)}},
                        rows, {}));
  const DeviceBuffer y = device_bytes(prompt_y_floats(v, rows) * 4, /*poison=*/true);
  must(run_prompt_linear(v, rows, rounded.as<void>(), y.as<float>(), {}, tile));
  const auto all = download<float>(y, prompt_y_floats(v, rows));
  const auto row_scales = download<float>(scales, static_cast<size_t>(padded));
  const auto factors = v.fp4 ? download<float>(storage.scales, static_cast<size_t>(v.rows)) : std::vector<float>();
  std::vector<float> out;
  for (int m = 0; m < rows; ++m) {
    for (int r = 0; r < v.n; ++r) {
      const float sum = all[static_cast<size_t>(m) * static_cast<size_t>(v.rows) + static_cast<size_t>(r)];
      out.push_back(v.fp4 ? sum * (factors[static_cast<size_t>(r)] * row_scales[static_cast<size_t>(m)]) : sum);
    }
  }
  return out;
}

TEST_P(CudaPromptLinear, EqualsReferenceAndDependsOnNothingElse) {
  HB_NEED_DEVICE();
  const auto [weights, activations, mode] = GetParam();
  const auto reference = find_linear_kernel(weights, activations, Isa::kRef);
  ASSERT_TRUE(reference.ok());
  struct Shape {
    int n, k;
  };
  for (const Shape shape : {Shape{80, 80}, {576, 576}, {331, 1536}, {192, 712}}) {
    const auto w = spread_normals(int64_t{shape.n} * shape.k, 5 + static_cast<uint32_t>(shape.n));
    ThreadPool pool(2);
    auto q = quantize_weight(weight_source("w", w.data(), shape.n, shape.k), {.format = weights}, pool);
    ASSERT_TRUE(q.ok()) << q.status().message();
    const auto storage = make_linear(
        {{q->format, q->n, q->k, q->codes.bytes().data(), q->block_scales.bytes().data(), q->tensor_scale, nullptr}},
        sms);
    ASSERT_TRUE(storage.ok()) << storage.status().message();
    constexpr int kMost = 300;
    const auto x = spread_normals(int64_t{kMost} * shape.k, 9);
    const auto all = run_prompt(*storage, x, kMost, mode, 0);
    const std::vector<float> some(x.begin(), x.begin() + std::ptrdiff_t{12} * shape.k);
    const auto expected = halfbyte::testing::run_linear(**reference, *q, some, 0.0f, nullptr);
    const std::vector<float> got(all.begin(), all.begin() + std::ptrdiff_t{12} * shape.n);
    EXPECT_LT(relative_error(got, expected), 1e-5) << shape.n << " x " << shape.k;
    const auto same = [&](const std::vector<float>& other, const std::string& what) {
      EXPECT_EQ(std::memcmp(other.data(), all.data(), other.size() * 4), 0)
          << what << ", " << shape.n << " x " << shape.k;
    };
    same(run_prompt(*storage, x, kMost, mode, 0), "a second run");
    for (const int tile : {64, 128, 256})
      same(run_prompt(*storage, x, kMost, mode, tile), "tiles of " + std::to_string(tile));
    for (const int rows : {1, 20, 64, 65, 130, 257}) {
      const std::vector<float> head(x.begin(), x.begin() + static_cast<std::ptrdiff_t>(rows) * shape.k);
      same(run_prompt(*storage, head, rows, mode, 0), std::to_string(rows) + " rows");
    }
    // What an earlier pass left beyond K and beyond the rows does no harm.
    const std::vector<float> head(x.begin(), x.begin() + std::ptrdiff_t{20} * shape.k);
    same(run_prompt(*storage, head, 20, mode, 0, /*dirty=*/true), "a used buffer");
  }
}

INSTANTIATE_TEST_SUITE_P(All, CudaPromptLinear,
                         ::testing::Values(Case{WeightFormat::kNVFP4, ActivationMode::kA16, RowMode::kA16},
                                           Case{WeightFormat::kNVFP4, ActivationMode::kA8, RowMode::kA8},
                                           Case{WeightFormat::kNVFP4, ActivationMode::kA4, RowMode::kA4},
                                           Case{WeightFormat::kMXFP4, ActivationMode::kA16, RowMode::kA16},
                                           Case{WeightFormat::kMXFP4, ActivationMode::kA8, RowMode::kMxA8},
                                           Case{WeightFormat::kMXFP4, ActivationMode::kA4, RowMode::kMxA4},
                                           Case{WeightFormat::kBF16, ActivationMode::kA16, RowMode::kBf16Rows}));

// The norm of prompt rows: residual, x^ and scales to the bit as decode's norm has them.
TEST(CudaPromptNorm, EqualsNormRows) {
  HB_NEED_DEVICE();
  for (const int k : {64, 576, 712, 2048, 4096, 5120, 12288}) {
    constexpr int kRows = 37;
    const int padded = padded_prompt_rows(kRows), stride = k + 128;
    const auto y = spread_normals(int64_t{kRows} * stride, 21), before = spread_normals(int64_t{kRows} * k, 22),
               weight = spread_normals(k, 23), scales = spread_normals(stride, 24), bias = spread_normals(stride, 25),
               x_scale = spread_normals(kRows, 26);
    std::vector<int32_t> tokens;
    std::vector<uint16_t> table;
    for (int m = 0; m < kRows; ++m) tokens.push_back(m * 7 % 11);
    for (const float v : spread_normals(int64_t{11} * k, 27)) table.push_back(BF16::encode(v));
    const DeviceBuffer dy = upload(y), dweight = upload(weight), dscales = upload(scales), dbias = upload(bias),
                       dx_scale = upload(x_scale), dtokens = upload(tokens), dtable = upload(table);
    for (const bool embeds : {false, true}) {
      for (const RowMode mode :
           {RowMode::kA16, RowMode::kA8, RowMode::kA4, RowMode::kMxA8, RowMode::kMxA4, RowMode::kBf16Rows}) {
        const auto bytes = static_cast<size_t>((k + 127) / 128 * 128 * 2 * padded);
        const auto run = [&](bool prompt) {
          const DeviceBuffer residual = upload(before), x = device_bytes(bytes),
                             out_scales = device_bytes(static_cast<size_t>(padded) * 4);
          NormRows norm;
          norm.y = {dy.as<float>(), nullptr, dscales.as<float>(), dbias.as<float>(), dx_scale.as<float>(),
                    stride,         kRows};
          if (embeds) {
            norm.embedding = dtable.as<void>();
            norm.tokens = dtokens.as<int32_t>();
          }
          norm.residual = residual.as<float>();
          norm.weight = dweight.as<float>();
          norm.k = k;
          norm.out = {mode, 0.0f, x.as<void>(), out_scales.as<float>(), padded};
          const Status status = prompt ? norm_prompt(norm, kRows, {}) : norm_rows(norm, kRows, {});
          EXPECT_TRUE(status.ok()) << status.message();
          auto all = download<uint32_t>(residual, before.size());
          const auto rounded = download<uint32_t>(x, bytes / 4);
          all.insert(all.end(), rounded.begin(), rounded.end());
          const auto kept = download<uint32_t>(out_scales, static_cast<size_t>(padded));
          all.insert(all.end(), kept.begin(), kept.end());
          return all;
        };
        EXPECT_EQ(run(true), run(false)) << "k " << k << ", mode " << static_cast<int>(mode) << ", embeds " << embeds;
      }
    }
  }
}

// Gate, up and SiLU in one kernel: the bits of the linear followed by silu_rows.
TEST(CudaPromptSilu, EqualsTheLinearAndTheRowOperation) {
  HB_NEED_DEVICE();
  if (!active_kernels().wgmma) GTEST_SKIP() << "no wgmma: the two always run apart";
  for (const WeightFormat format : {WeightFormat::kNVFP4, WeightFormat::kMXFP4, WeightFormat::kBF16}) {
    const RowMode out_mode = format == WeightFormat::kBF16 ? RowMode::kBf16Rows : RowMode::kA16;
    for (const bool with_bias : {false, true}) {
      constexpr int kOutputs = 384, kInputs = 576, kMost = 300;  // gate and up meet in the middle of a panel's run
      const auto w = spread_normals(int64_t{2 * kOutputs} * kInputs, 11);
      const auto bias = spread_normals(2 * kOutputs, 12);
      ThreadPool pool(2);
      auto q = quantize_weight(weight_source("w", w.data(), 2 * kOutputs, kInputs), {.format = format}, pool);
      ASSERT_TRUE(q.ok()) << q.status().message();
      const auto storage = make_linear({{q->format, q->n, q->k, q->codes.bytes().data(), q->block_scales.bytes().data(),
                                         q->tensor_scale, with_bias ? bias.data() : nullptr}},
                                       sms);
      ASSERT_TRUE(storage.ok()) << storage.status().message();
      const Linear& v = storage->view;
      ASSERT_TRUE(fuses_prompt_silu(v, kOutputs, out_mode));
      const auto x = spread_normals(int64_t{kMost} * kInputs, 13);
      for (const RowMode mode : {RowMode::kA16, RowMode::kA8, RowMode::kBf16Rows}) {
        if ((mode == RowMode::kBf16Rows) == v.fp4) continue;
        for (const int rows : {1, 64, 100, kMost}) {
          const int padded = padded_prompt_rows(rows);
          const DeviceBuffer dx = upload(x), rounded = device_bytes(prompt_x_bytes(v, rows)),
                             scales = device_bytes(static_cast<size_t>(padded) * 4),
                             y = device_bytes(prompt_y_floats(v, rows) * 4, true);
          SlotView in;
          in.partial = dx.as<float>();
          in.rows = v.k;
          in.columns = rows;
          const auto must = [](const Status& s) { ASSERT_TRUE(s.ok()) << s.message(); };
          must(cuda::round_rows({in, v.k, {mode, 0.0f, rounded.as<void>(), scales.as<float>(), padded}}, rows, {}));
          must(run_prompt_linear(v, rows, rounded.as<void>(), y.as<float>(), {}));
          const size_t bytes = static_cast<size_t>(kOutputs / kPromptK * padded * kPromptRowBytes);
          const DeviceBuffer expected = device_bytes(bytes),
                             expected_scale = device_bytes(static_cast<size_t>(padded) * 4);
          must(silu_rows({prompt_slots_of(v, rows, y.as<float>(), scales.as<float>()),
                          nullptr,
                          kOutputs,
                          {out_mode, 0.0f, expected.as<void>(), expected_scale.as<float>(), padded}},
                         rows, {}));
          const auto wanted = download<uint16_t>(expected, bytes / 2);
          for (const int tile : {0, 64, 128, 256}) {
            if (tile > padded) continue;
            const DeviceBuffer got = device_bytes(bytes, true),
                               got_scale = device_bytes(static_cast<size_t>(padded) * 4);
            must(run_prompt_silu(v, rows, rounded.as<void>(), scales.as<float>(),
                                 {out_mode, 0.0f, got.as<void>(), got_scale.as<float>(), padded}, {}, tile));
            const auto found = download<uint16_t>(got, bytes / 2);
            const auto row_scales = download<float>(got_scale, static_cast<size_t>(padded));
            for (int m = 0; m < rows; ++m) {
              ASSERT_EQ(row_scales[static_cast<size_t>(m)], 1.0f);
              for (int k = 0; k < kOutputs; k += 4) {
                const size_t at = prompt_offset(padded, m, k) / 2;
                ASSERT_EQ(std::memcmp(&found[at], &wanted[at], 8), 0)
                    << "row " << m << " of " << rows << ", output " << k << ", tile " << tile;
              }
            }
          }
        }
      }
    }
  }
}

struct Heads {
  int heads, kv_heads, dim;
  bool fp8;
};
class CudaPromptAttention : public ::testing::TestWithParam<Heads> {};

constexpr float kKeyScale = 0.75f, kValueScale = 1.3f;

// Rows at positions first .. first + count - 1 of a sequence whose cache holds random keys and values everywhere.
struct Sequence {
  Heads h;
  int page_tokens = 32, pages = 0;
  std::vector<int32_t> table;
  std::vector<uint16_t> cache;     // [page][K, V][kv_heads][page_tokens][dim] BF16, or
  std::vector<uint8_t> fp8_cache;  // E4M3
  std::vector<float> qkv;          // [position][width]
  std::vector<float> q_norm, cos, sin;

  int width() const { return (h.heads + 2 * h.kv_heads) * h.dim; }
  float at(int which, int head, int position, int d) const {
    const auto page = static_cast<size_t>(table[static_cast<size_t>(position / page_tokens)]);
    const size_t part =
        (page * 2 + static_cast<size_t>(which)) * static_cast<size_t>(h.kv_heads) + static_cast<size_t>(head);
    const size_t row = part * static_cast<size_t>(page_tokens) + static_cast<size_t>(position % page_tokens);
    const size_t i = row * static_cast<size_t>(h.dim) + static_cast<size_t>(d);
    if (h.fp8) return E4M3::decode(fp8_cache[i]) * (which == 0 ? kKeyScale : kValueScale);
    return BF16::decode(cache[i]);
  }
};

Sequence make_sequence(const Heads& h, int length) {
  Sequence s;
  s.h = h;
  s.pages = length / s.page_tokens + 1;
  for (int i = 0; i < s.pages; ++i) s.table.push_back((i * 7 + 3) % s.pages);
  if (s.pages % 7 == 0)
    for (int i = 0; i < s.pages; ++i) s.table[static_cast<size_t>(i)] = i;
  for (const float v : spread_normals(int64_t{s.pages} * 2 * h.kv_heads * s.page_tokens * h.dim, 4))
    h.fp8 ? s.fp8_cache.push_back(E4M3::encode(v * 0.5f)) : s.cache.push_back(BF16::encode(v * 0.5f));
  s.qkv = spread_normals(int64_t{length} * s.width(), 6);
  s.q_norm = spread_normals(h.dim, 7);
  for (int p = 0; p < length; ++p) {
    for (int i = 0; i < h.dim / 2; ++i) {
      const double angle = p * std::pow(10000.0, -2.0 * i / h.dim);
      s.cos.push_back(static_cast<float>(std::cos(angle)));
      s.sin.push_back(static_cast<float>(std::sin(angle)));
    }
  }
  return s;
}

// The same attention, rounded for the next linear: its `out` through round_rows. The rows stand behind 3 others.
void expect_rounded(const AttentionRows& a, int count, const std::vector<float>& out) {
  constexpr int kBefore = 3;
  const int k = a.heads * a.head_dim, padded = padded_prompt_rows(count + kBefore);
  const auto bytes = static_cast<size_t>(k / kPromptK * padded * kPromptRowBytes);
  for (const RowMode mode : {RowMode::kA16, RowMode::kBf16Rows}) {
    const DeviceBuffer x = device_bytes(bytes, true), scales = device_bytes(static_cast<size_t>(padded) * 4),
                       expected = device_bytes(bytes), unused = device_bytes(static_cast<size_t>(padded) * 4);
    const RowOutput rounded{mode, 0.0f, x.as<void>(), scales.as<float>(), padded};
    std::vector<float> rows(static_cast<size_t>(kBefore * k), 0.0f);
    rows.insert(rows.end(), out.begin(), out.end());
    const DeviceBuffer in = upload(rows);
    SlotView view;
    view.partial = in.as<float>();
    view.rows = k;
    view.columns = padded;
    ASSERT_TRUE(attention_prompt(a, count, nullptr, &rounded, kBefore, {}).ok());
    ASSERT_TRUE(
        cuda::round_rows({view, k, {mode, 0.0f, expected.as<void>(), unused.as<float>(), padded}}, count + kBefore, {})
            .ok());
    const auto got = download<uint16_t>(x, bytes / 2), wanted = download<uint16_t>(expected, bytes / 2);
    const auto row_scales = download<float>(scales, static_cast<size_t>(padded));
    for (int m = kBefore; m < count + kBefore; ++m) {
      ASSERT_EQ(row_scales[static_cast<size_t>(m)], 1.0f);
      for (int i = 0; i < k; i += 4) {
        const size_t at = prompt_offset(padded, m, i) / 2;
        ASSERT_EQ(std::memcmp(&got[at], &wanted[at], 8), 0) << "row " << m << ", value " << i;
      }
    }
  }
}

std::vector<float> run_attention(const Sequence& s, int first, int count) {
  std::vector<int32_t> positions;
  for (int i = 0; i < count; ++i) positions.push_back(first + i);
  const std::vector<float> rows(s.qkv.begin() + static_cast<std::ptrdiff_t>(first) * s.width(),
                                s.qkv.begin() + static_cast<std::ptrdiff_t>(first + count) * s.width());
  const DeviceBuffer qkv = upload(rows), dpos = upload(positions), table = upload(s.table),
                     cache = s.h.fp8 ? upload(s.fp8_cache) : upload(s.cache), norm = upload(s.q_norm),
                     cos = upload(s.cos), sin = upload(s.sin);
  AttentionRows a;
  a.qkv.partial = qkv.as<float>();
  a.qkv.rows = s.width();
  a.qkv.columns = count;
  a.positions = dpos.as<int32_t>();
  a.q_norm = norm.as<float>();
  a.cos = cos.as<float>();
  a.sin = sin.as<float>();
  a.kv.base = cache.as<uint8_t>();
  a.kv.page_stride = static_cast<size_t>(2 * s.h.kv_heads * s.page_tokens * s.h.dim) * (s.h.fp8 ? 1 : 2);
  a.kv.page_tokens = s.page_tokens;
  a.kv.tables = table.as<int32_t>();
  if (s.h.fp8) {
    a.kv.fp8 = true;
    a.kv.key_scale = kKeyScale;
    a.kv.value_scale = kValueScale;
  }
  a.heads = s.h.heads;
  a.kv_heads = s.h.kv_heads;
  a.head_dim = s.h.dim;
  a.scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(s.h.dim)));
  const auto floats = static_cast<size_t>(count) * static_cast<size_t>(s.h.heads * s.h.dim);
  const DeviceBuffer out = device_bytes(floats * 4, /*poison=*/true);
  const DeviceBuffer queries = device_bytes(prompt_query_floats({s.h.heads, s.h.kv_heads, s.h.dim}, count) * 4, true);
  a.parts = queries.as<float>();
  const auto must = [](const Status& status) {
    if (!status.ok()) throw std::runtime_error(status.message());
  };
  must(prompt_heads(a, count, /*append=*/false, {}));
  must(attention_prompt(a, count, out.as<float>(), nullptr, 0, {}));
  const auto result = download<float>(out, floats);
  if (fuses_prompt_rounding(a, RowMode::kA16)) expect_rounded(a, count, result);
  return result;
}

std::vector<double> expected_row(const Sequence& s, int position, int head) {
  const int dim = s.h.dim;
  std::vector<double> v(static_cast<size_t>(dim)), q(v.size()), sums(v.size());
  double squares = 0;
  for (int i = 0; i < dim; ++i) {
    v[static_cast<size_t>(i)] = static_cast<double>(
        s.qkv[static_cast<size_t>(position) * static_cast<size_t>(s.width()) + static_cast<size_t>(head * dim + i)]);
    squares += v[static_cast<size_t>(i)] * v[static_cast<size_t>(i)];
  }
  for (int i = 0; i < dim; ++i)
    v[static_cast<size_t>(i)] *=
        static_cast<double>(s.q_norm[static_cast<size_t>(i)]) / std::sqrt(squares / dim + 1e-6);
  for (int i = 0; i < dim / 2; ++i) {
    const auto at = static_cast<size_t>(position * (dim / 2) + i);
    const auto low = static_cast<size_t>(i), high = static_cast<size_t>(i + dim / 2);
    const double c = static_cast<double>(s.cos[at]), n = static_cast<double>(s.sin[at]);
    q[low] = v[low] * c - v[high] * n;
    q[high] = v[high] * c + v[low] * n;
  }
  const int kv = head / (s.h.heads / s.h.kv_heads);
  std::vector<double> scores;
  for (int j = 0; j <= position; ++j) {
    double sum = 0;
    for (int i = 0; i < dim; ++i) sum += q[static_cast<size_t>(i)] * static_cast<double>(s.at(0, kv, j, i));
    scores.push_back(sum / std::sqrt(static_cast<double>(dim)));
  }
  const double most = *std::max_element(scores.begin(), scores.end());
  double total = 0;
  for (int j = 0; j <= position; ++j) {
    const double w = std::exp(scores[static_cast<size_t>(j)] - most);
    total += w;
    for (int i = 0; i < dim; ++i) sums[static_cast<size_t>(i)] += w * static_cast<double>(s.at(1, kv, j, i));
  }
  for (double& x : sums) x /= total;
  return sums;
}

TEST_P(CudaPromptAttention, EqualsPlainAttentionWhateverTheChunk) {
  HB_NEED_DEVICE();
  const Heads h = GetParam();
  constexpr int kLength = 333;
  const Sequence s = make_sequence(h, kLength);
  const auto all = run_attention(s, 0, kLength);
  const auto width = static_cast<size_t>(h.heads * h.dim);
  for (const int position : {0, 1, 31, 63, 64, 65, 200, kLength - 1}) {
    for (int head = 0; head < h.heads; ++head) {
      const auto expected = expected_row(s, position, head);
      for (int i = 0; i < h.dim; ++i) {
        const auto e = expected[static_cast<size_t>(i)];
        ASSERT_NEAR(
            static_cast<double>(all[static_cast<size_t>(position) * width + static_cast<size_t>(head * h.dim + i)]), e,
            std::abs(e) * 1e-3 + 2e-4)
            << "position " << position << ", head " << head << ", value " << i;
      }
    }
  }
  EXPECT_EQ(run_attention(s, 0, kLength), all) << "two runs differ";
  for (const int chunk : {1, 5, 50, 64, 170}) {
    for (int first = 0; first < kLength; first += chunk * (chunk < 20 ? 13 : 1)) {
      const int count = std::min(chunk, kLength - first);
      const auto part = run_attention(s, first, count);
      ASSERT_EQ(std::memcmp(part.data(), all.data() + static_cast<size_t>(first) * width, part.size() * 4), 0)
          << "rows " << first << " to " << first + count - 1 << " depend on their chunk";
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, CudaPromptAttention,
                         ::testing::Values(Heads{8, 2, 128, false}, Heads{9, 3, 64, false}, Heads{10, 2, 128, false},
                                           Heads{4, 2, 64, false}, Heads{7, 1, 64, false}, Heads{8, 1, 128, false},
                                           Heads{8, 2, 128, true}, Heads{9, 3, 64, true}));

}  // namespace
}  // namespace halfbyte::cuda::testing
