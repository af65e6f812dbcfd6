// Every fast linear against the reference of the same form, bit for bit: odd sizes, adversarial values, every number of
// tokens, every way to cut the work. Each test runs a kernel taken from the registry by name; those for AVX-VNNI,
// AVX-512 and AMX run a second time in plain loops (emulated/), so that they are tested on machines without these
// instructions, too.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <random>

#include "base/thread_pool.h"
#include "formats/bf16.h"
#include "formats/mxfp4.h"
#include "formats/nvfp4.h"
#include "kernels/emulated/kernels.h"
#include "kernels/linear_support.h"

namespace halfbyte::testing {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// The reference that computes the same form: linear_nvfp4_a16i16_avx2 -> linear_nvfp4_a16i16_ref.
const LinearKernel& reference_of(const LinearKernel& kernel) {
  const std::string name = std::string(kernel.name.substr(0, kernel.name.rfind('_'))) + "_ref";
  const LinearKernel* found = find_linear_kernel_named(name);
  if (found == nullptr) throw std::runtime_error("no reference " + name);
  return *found;
}

// What the activations of one row look like.
enum class Rows { kPlain, kOutlier, kZeros, kTiny, kHuge, kExtremes, kMixed };
constexpr Rows kAllRows[] = {Rows::kPlain, Rows::kOutlier,  Rows::kZeros, Rows::kTiny,
                             Rows::kHuge,  Rows::kExtremes, Rows::kMixed};

class Source {
 public:
  explicit Source(uint64_t seed) : rng_(seed) {}
  float normal() { return normal_(rng_); }
  uint32_t integer(uint32_t below) { return static_cast<uint32_t>(rng_() % below); }

  std::vector<float> row(Rows kind, int64_t k) {
    std::vector<float> x(static_cast<size_t>(k));
    for (float& v : x) {
      switch (kind) {
        case Rows::kPlain: v = normal(); break;
        case Rows::kOutlier: v = integer(50) == 0 ? 3000.0f * normal() : 0.01f * normal(); break;
        case Rows::kZeros: v = integer(2) == 0 ? -0.0f : 0.0f; break;
        case Rows::kTiny: v = std::ldexp(normal(), -static_cast<int>(integer(150))); break;
        case Rows::kHuge: v = std::ldexp(normal(), 70); break;
        // The largest magnitudes that each form can hold, all of one sign or alternating: saturation would show.
        case Rows::kExtremes: v = (integer(8) == 0 ? -1.0f : 1.0f) * 1.9921875f; break;
        case Rows::kMixed: v = integer(3) == 0 ? 0.0f : std::ldexp(normal(), static_cast<int>(integer(40)) - 20); break;
      }
    }
    return x;
  }

  QuantLinear weights(WeightFormat format, int64_t n, int64_t k) {
    if (format == WeightFormat::kF32 || format == WeightFormat::kBF16) {
      std::vector<float> w = row(Rows::kMixed, n * k);
      std::vector<uint16_t> bf16(w.size());
      for (size_t i = 0; i < w.size(); ++i) bf16[i] = BF16::encode(w[i]);
      return format == WeightFormat::kF32 ? make_linear(format, n, k, w.data(), nullptr, 1.0f)
                                          : make_linear(format, n, k, bf16.data(), nullptr, 1.0f);
    }
    if (format == WeightFormat::kFP8) {  // any number's code, and scales from tiny to large
      std::vector<uint8_t> codes(static_cast<size_t>(n * k));
      for (uint8_t& code : codes) {
        do code = static_cast<uint8_t>(integer(256));
        while ((code & 0x7F) == 0x7F);
      }
      std::vector<float> scales(static_cast<size_t>(n));
      for (float& scale : scales) scale = std::ldexp(1.0f + std::fabs(normal()), static_cast<int>(integer(60)) - 50);
      return make_linear(format, n, k, codes.data(), scales.data(), 1.0f);
    }
    // Arbitrary codes, -0 among them, and arbitrary finite scales: subnormal, zero and negative E4M3; E8M0 within
    // 2^+-40 and its ends. Rows of only the largest code, of either sign.
    const bool nvfp4 = format == WeightFormat::kNVFP4;
    const int64_t row_codes = code_bytes_per_row(format, k), blocks = blocks_per_row(format, k);
    std::vector<uint8_t> codes(static_cast<size_t>(n * row_codes)), scales(static_cast<size_t>(n * blocks));
    for (int64_t r = 0; r < n; ++r) {
      const uint32_t kind = integer(6);
      for (int64_t i = 0; i < row_codes; ++i) {
        const auto random = static_cast<uint8_t>(integer(256));
        codes[static_cast<size_t>(r * row_codes + i)] = kind == 0 ? 0x77 : kind == 1 ? 0xFF : kind == 2 ? 0x7F : random;
      }
      // Codes beyond k are zero.
      for (int64_t i = k; i < 2 * row_codes; ++i) {
        uint8_t& pair = codes[static_cast<size_t>(r * row_codes + i / 2)];
        pair = static_cast<uint8_t>(pair & (i % 2 == 0 ? 0xF0 : 0x0F));
      }
      for (int64_t b = 0; b < blocks; ++b) {
        uint8_t s = nvfp4 ? static_cast<uint8_t>(integer(256)) : static_cast<uint8_t>(87 + integer(80));
        if (nvfp4 && (s & 0x7F) == 0x7F) s = 1;
        if (integer(20) == 0) s = nvfp4 ? static_cast<uint8_t>(integer(8)) : integer(2) == 0 ? uint8_t{0} : uint8_t{1};
        scales[static_cast<size_t>(r * blocks + b)] = s;
      }
    }
    return make_linear(format, n, k, codes.data(), scales.data(), nvfp4 ? 0.00371f : 1.0f);
  }

 private:
  std::mt19937_64 rng_;
  std::normal_distribution<float> normal_;
};

// Rows with which a kernel is sure to use its form for several rows: on AMX a few decode rows still run on AVX-512.
int64_t several_rows(const LinearKernel& kernel) {
  return kernel.isa == Isa::kAmx && !kernel.prompt_only ? 9 : 3;
}

// Bit equality; NaN equals NaN of any payload.
::testing::AssertionResult same(const std::vector<float>& expected, const std::vector<float>& actual, int64_t n) {
  if (expected.size() != actual.size()) return ::testing::AssertionFailure() << "sizes differ";
  for (size_t i = 0; i < expected.size(); ++i) {
    if (std::isnan(expected[i]) && std::isnan(actual[i])) continue;
    if (std::bit_cast<uint32_t>(expected[i]) == std::bit_cast<uint32_t>(actual[i])) continue;
    return ::testing::AssertionFailure() << "token " << i / static_cast<size_t>(n) << ", output "
                                         << i % static_cast<size_t>(n) << ": reference " << expected[i] << ", got "
                                         << actual[i];
  }
  return ::testing::AssertionSuccess();
}

struct Fast {
  const LinearKernel* kernel;
  bool emulated;
};

class FastLinear : public ::testing::TestWithParam<Fast> {
 protected:
  void SetUp() override {
    const auto [kernel, emulated] = GetParam();
    const Isa needed = emulated ? Isa::kAvx2 : kernel->isa;
    if (!isa_runs_here(needed)) GTEST_SKIP() << kernel->name << " needs a CPU with " << isa_name(needed);
    EXPECT_EQ(find_linear_kernel_named(kernel->name)->run == kernel->run, !emulated);
    EXPECT_NE(reference_of(*kernel).run, kernel->run) << "a fast kernel may not be its own reference";
  }
  const LinearKernel& kernel() const { return *GetParam().kernel; }
  bool emulated() const { return GetParam().emulated; }  // slow: fewer cases
};

TEST_P(FastLinear, EqualsReferenceOverSizes) {
  const LinearKernel& kernel = this->kernel();
  Source source(7);
  for (int64_t k : {1, 2, 15, 16, 17, 31, 32, 33, 63, 80, 127, 128, 129, 256, 257, 300, 576, 1040}) {
    for (int64_t n : {1, 2, 15, 16, 17, 33, 40, 163}) {
      if (n == 163 && k != 33 && k != 300) continue;
      const QuantLinear w = source.weights(kernel.weights, n, k);
      std::vector<float> x, bias = source.row(Rows::kPlain, n);
      constexpr Rows kKinds[] = {Rows::kPlain, Rows::kOutlier, Rows::kMixed};
      for (int64_t m = 0; m < several_rows(kernel); ++m) {
        const std::vector<float> row = source.row(kKinds[m % 3], k);
        x.insert(x.end(), row.begin(), row.end());
      }
      const float* b = n % 2 == 0 ? bias.data() : nullptr;
      ASSERT_TRUE(same(run_linear(reference_of(kernel), w, x, 0.0f, b), run_linear(kernel, w, x, 0.0f, b), n))
          << "n " << n << ", k " << k;
    }
  }
}

// The widths of SmolLM2, and one at which the k of a tile kernel comes in two blocks.
TEST_P(FastLinear, EqualsReferenceForEveryNumberOfTokens) {
  const LinearKernel& kernel = this->kernel();
  Source source(23);
  for (int64_t k : {576, 1536, 2090}) {
    const int64_t n = emulated() ? 19 : 37;
    const QuantLinear w = source.weights(kernel.weights, n, k);
    std::vector<float> x;
    for (int m = 0; m < 17; ++m) {
      const std::vector<float> row = source.row(m % 3 == 0 ? Rows::kMixed : Rows::kPlain, k);
      x.insert(x.end(), row.begin(), row.end());
    }
    const std::vector<float> expected = run_linear(reference_of(kernel), w, x, 0.0f, nullptr);
    for (int64_t m = 1; m <= 17; m += emulated() && m < 16 ? 5 : 1) {
      const std::vector<float> some(x.begin(), x.begin() + m * k), rows(expected.begin(), expected.begin() + m * n);
      ASSERT_TRUE(same(rows, run_linear(kernel, w, some, 0.0f, nullptr), n)) << m << " tokens, k " << k;
    }
  }
}

// Rows of every kind, one after the other.
std::vector<float> rows_of_all_kinds(Source& source, int64_t rows, int64_t k) {
  std::vector<float> x;
  for (int64_t m = 0; m < rows; ++m) {
    const std::vector<float> row = source.row(kAllRows[static_cast<size_t>(m) % std::size(kAllRows)], k);
    x.insert(x.end(), row.begin(), row.end());
  }
  return x;
}

TEST_P(FastLinear, EqualsReferenceOnAdversarialValues) {
  const LinearKernel& kernel = this->kernel();
  Source source(11);
  for (int64_t k : {16, 48, 330, 640}) {
    for (float alpha : {0.0f, 0.01f, 1e-30f}) {
      const QuantLinear w = source.weights(kernel.weights, 24, k);
      const std::vector<float> x = rows_of_all_kinds(source, 14, k);
      ASSERT_TRUE(
          same(run_linear(reference_of(kernel), w, x, alpha, nullptr), run_linear(kernel, w, x, alpha, nullptr), 24))
          << "k " << k << ", alpha " << alpha;
    }
  }
}

// All codes at +-6 and all activations at the ends of their form: where 16-bit lanes would saturate if they could.
TEST_P(FastLinear, DoesNotSaturate) {
  const LinearKernel& kernel = this->kernel();
  if (block_size(kernel.weights) == 1) return;  // floating-point sums: nothing that could saturate
  const int64_t k = 512;
  for (uint8_t code_byte : {uint8_t{0x77}, uint8_t{0xFF}, uint8_t{0x7F}, uint8_t{0x00}}) {
    const std::vector<uint8_t> codes(static_cast<size_t>(17 * k / 2), code_byte);
    const std::vector<uint8_t> scales(static_cast<size_t>(17 * blocks_per_row(kernel.weights, k)),
                                      kernel.weights == WeightFormat::kNVFP4 ? 0x7E : 130);
    const QuantLinear w = make_linear(kernel.weights, 17, k, codes.data(), scales.data(), 1.0f);
    std::vector<float> x;
    for (float value : {1.9921875f, -1.9921875f, 1.0f, -1.0f, 0.9921875f, 1.0078125f, 1.5f, -1.5f}) {
      for (int64_t i = 0; i < k; ++i) x.push_back(value * (i % 2 == 0 || value > 0 ? 1.0f : 0.50390625f));
    }
    for (int64_t i = 0; i < k; ++i)
      x.push_back(i % 4 < 2 ? 1.9921875f : -0.49609375f);  // hi and lo pieces at their ends
    ASSERT_TRUE(
        same(run_linear(reference_of(kernel), w, x, 0.0f, nullptr), run_linear(kernel, w, x, 0.0f, nullptr), 17))
        << "codes " << int{code_byte};
  }
}

TEST_P(FastLinear, ARowDoesNotDependOnItsCompanyNorOnTheCut) {
  const LinearKernel& kernel = this->kernel();
  Source source(13);
  for (int64_t k : {33, emulated() ? 160 : 576}) {
    const int64_t n = 5 * kernel.row_tile + 3, most = std::min<int64_t>(kernel.max_rows, 65);
    const QuantLinear w = source.weights(kernel.weights, n, k);
    const std::vector<float> x = rows_of_all_kinds(source, most + 3, k);
    const std::vector<float> alone = run_linear(kernel, w, x, 0.0f, nullptr, {.rows_a_pass = 1});
    for (int64_t pass : {2, 3, 4, 5, 6, 7, 8, 9, 15, 16, 17, 31, 32, 33, 48, 64, 65}) {
      if (pass > most) break;
      if (emulated() && pass % 8 > 1) continue;
      ASSERT_TRUE(same(alone, run_linear(kernel, w, x, 0.0f, nullptr, {.rows_a_pass = pass}), n))
          << pass << " tokens a pass";
    }
    for (int64_t tiles : {1, 2, 3}) {
      ASSERT_TRUE(same(alone, run_linear(kernel, w, x, 0.0f, nullptr, {.tiles_a_range = tiles}), n))
          << tiles << " tiles";
    }
  }
}

// A prompt row of a kernel for many rows, in chunks of up to 512.
TEST_P(FastLinear, APromptRowDoesNotDependOnTheChunk) {
  const LinearKernel& kernel = this->kernel();
  if (kernel.max_rows < 512) return;
  Source source(29);
  const int64_t n = emulated() ? 17 : 40, k = 80, rows = 520;
  const QuantLinear w = source.weights(kernel.weights, n, k);
  const std::vector<float> x = rows_of_all_kinds(source, rows, k);
  const std::vector<float> alone = run_linear(kernel, w, x, 0.0f, nullptr, {.rows_a_pass = 1});
  for (int64_t chunk : {19, 128, 255, 511, 512}) {
    ASSERT_TRUE(same(alone, run_linear(kernel, w, x, 0.0f, nullptr, {.rows_a_pass = chunk}), n)) << chunk << " a chunk";
  }
}

TEST_P(FastLinear, EqualOnAnyNumberOfThreads) {
  const LinearKernel& kernel = this->kernel();
  Source source(31);
  const int64_t n = 200, k = 320, rows = std::min<int64_t>(kernel.max_rows, 40);
  const QuantLinear w = source.weights(kernel.weights, n, k);
  const std::vector<float> x = rows_of_all_kinds(source, rows, k);
  const std::vector<float> expected = run_linear(kernel, w, x, 0.0f, nullptr);
  Buffer packed = Buffer::allocate(kernel.packed_bytes(n, k)),
         activations = Buffer::allocate(kernel.activation_bytes(k) * static_cast<size_t>(rows));
  for (int threads : {1, 2, 3, 8}) {
    ThreadPool pool(threads);
    pool.parallel_for(n, kernel.row_tile, [&](int64_t begin, int64_t end, int) {
      kernel.pack(w, begin, end, packed.mutable_bytes().data());
    });
    pool.parallel_for(rows, 1, [&](int64_t begin, int64_t end, int) {
      kernel.quantize(x.data() + begin * k, end - begin, k, 0.0f,
                      activations.mutable_bytes().data() + static_cast<size_t>(begin) * kernel.activation_bytes(k));
    });
    std::vector<float> y(static_cast<size_t>(rows * n));
    pool.parallel_for(n, kernel.row_tile, [&](int64_t begin, int64_t end, int) {
      kernel.run({packed.bytes().data(), w.tensor_scale, nullptr, n, k, activations.bytes().data(), rows, begin, end,
                  y.data(), n});
    });
    ASSERT_TRUE(same(expected, y, n)) << threads << " threads";
  }
}

// A row with a NaN or an infinity gives NaN in the FP4-weight modes; its neighbours do not notice.
TEST_P(FastLinear, NonFiniteRowsStayAlone) {
  const LinearKernel& kernel = this->kernel();
  Source source(17);
  const int64_t n = 20, k = 80;
  const QuantLinear w = source.weights(kernel.weights, n, k);
  for (float bad : {kNan, -kNan, kInf, -kInf, std::numeric_limits<float>::max()}) {
    std::vector<float> x;
    for (int64_t m = 0; m < several_rows(kernel); ++m) {
      const std::vector<float> row = source.row(Rows::kPlain, k);
      x.insert(x.end(), row.begin(), row.end());
    }
    const std::vector<float> clean = run_linear(kernel, w, x, 0.0f, nullptr);
    x[static_cast<size_t>(k + 37)] = bad;
    for (float alpha : {0.0f, 0.02f}) {
      const std::vector<float> y = run_linear(kernel, w, x, alpha, nullptr);
      ASSERT_TRUE(same(run_linear(reference_of(kernel), w, x, alpha, nullptr), y, n)) << bad << ", alpha " << alpha;
      if (alpha != 0.0f) continue;
      for (int64_t r = 0; r < n; ++r) {
        EXPECT_EQ(y[static_cast<size_t>(r)], clean[static_cast<size_t>(r)]);
        EXPECT_EQ(y[static_cast<size_t>(2 * n + r)], clean[static_cast<size_t>(2 * n + r)]);
        if (block_size(kernel.weights) != 1 && !std::isfinite(bad)) {
          EXPECT_TRUE(std::isnan(y[static_cast<size_t>(n + r)]));
        }
      }
    }
  }
}

// Activations near the end of FP32's range, beside weights whose scales bring the sums back or do not.
TEST_P(FastLinear, EqualsReferenceOnWideValues) {
  const LinearKernel& kernel = this->kernel();
  Source source(37);
  for (int exponent : {100, 117, 118, 119, 120, 124}) {
    const int64_t k = 96, n = 24;
    const QuantLinear w = source.weights(kernel.weights, n, k);
    std::vector<float> x;
    for (int64_t m = 0; m < several_rows(kernel); ++m) {
      const std::vector<float> row = source.row(Rows::kExtremes, k);
      for (float v : row) x.push_back(m == 1 ? v : std::ldexp(v, exponent));
    }
    ASSERT_TRUE(same(run_linear(reference_of(kernel), w, x, 0.0f, nullptr), run_linear(kernel, w, x, 0.0f, nullptr), n))
        << "2^" << exponent;
  }
}

std::vector<Fast> fast_kernels() {
  std::vector<Fast> all;
  for (const LinearKernel& k : all_linear_kernels()) {
    if (k.isa != Isa::kRef) all.push_back({&k, /*emulated=*/false});
  }
  for (const LinearKernel& k : emulated_linear_kernels()) all.push_back({&k, /*emulated=*/true});
  return all;
}

INSTANTIATE_TEST_SUITE_P(All, FastLinear, ::testing::ValuesIn(fast_kernels()), [](const auto& param) {
  return std::string(param.param.kernel->name) + (param.param.emulated ? "_emulated" : "");
});
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(FastLinear);

// How far a16i16 is from exact multiplication of the same BF16 values: the bound of docs/numerics.md 3.2 per block.
TEST(A16I16, StaysWithinItsBound) {
  Source source(19);
  const int64_t n = 16, k = 320;
  const LinearKernel& exact = *find_linear_kernel_named("linear_nvfp4_a16_ref");
  const LinearKernel& integer = *find_linear_kernel_named("linear_nvfp4_a16i16_ref");
  for (Rows kind : {Rows::kPlain, Rows::kOutlier, Rows::kMixed, Rows::kExtremes}) {
    const QuantLinear w = source.weights(WeightFormat::kNVFP4, n, k);
    const std::vector<float> x = source.row(kind, k);
    const std::vector<float> a = run_linear(exact, w, x, 0.0f, nullptr), b = run_linear(integer, w, x, 0.0f, nullptr);
    for (int64_t r = 0; r < n; ++r) {
      double bound = 0, magnitude = 0;  // of the block dots, and of the FP32 sums
      for (int64_t blk = 0; blk < k / 16; ++blk) {
        const double scale = std::fabs(E4M3::decode(w.block_scales.as<uint8_t>()[r * (k / 16) + blk])) * w.tensor_scale;
        float amax = 0;
        double sum_w = 0;
        for (int64_t i = blk * 16; i < blk * 16 + 16; ++i) {
          const double wi = std::fabs(E2M1::decode(E2M1::unpack(w.codes.as<uint8_t>() + r * k / 2, i)));
          amax = std::max(amax, std::fabs(BF16::round(x[static_cast<size_t>(i)])));
          sum_w += wi;
          magnitude += wi * scale * std::fabs(x[static_cast<size_t>(i)]);
        }
        bound += std::ldexp(1.0, (amax < 0x1p-64f ? -64 : std::ilogb(amax)) - 14) * sum_w * scale;
      }
      const double rounding = magnitude * 8 * std::numeric_limits<float>::epsilon();
      EXPECT_LE(std::fabs(double{a[static_cast<size_t>(r)]} - b[static_cast<size_t>(r)]), bound + rounding)
          << "output " << r;
    }
  }
}

// The tile order against the contract's: the same exact products, added otherwise. With u = 2^-24 either sum is within
// (terms + 20) u of the exact one, in units of the sum of magnitudes; docs/numerics.md 3.5.
TEST(TileOrder, StaysWithinItsBound) {
  Source source(37);
  const int64_t n = 24, k = 1100;
  const struct {
    const char *tile, *exact;
    WeightFormat format;
  } pairs[] = {{"linear_nvfp4_a16t_ref", "linear_nvfp4_a16_ref", WeightFormat::kNVFP4},
               {"linear_nvfp4_a8t_ref", "linear_nvfp4_a8_ref", WeightFormat::kNVFP4},
               {"linear_nvfp4_a4t_ref", "linear_nvfp4_a4_ref", WeightFormat::kNVFP4},
               {"linear_mxfp4_a16t_ref", "linear_mxfp4_a16_ref", WeightFormat::kMXFP4},
               {"linear_mxfp4_a8t_ref", "linear_mxfp4_a8_ref", WeightFormat::kMXFP4},
               {"linear_mxfp4_a4t_ref", "linear_mxfp4_a4_ref", WeightFormat::kMXFP4},
               {"linear_bf16_a16t_ref", "linear_bf16_a16_ref", WeightFormat::kBF16}};
  for (const auto& pair : pairs) {
    const LinearKernel &tile = *find_linear_kernel_named(pair.tile), &exact = *find_linear_kernel_named(pair.exact);
    const QuantLinear w = source.weights(pair.format, n, k);
    const std::vector<float> x = source.row(Rows::kPlain, k);
    const std::vector<float> a = run_linear(exact, w, x, 0.0f, nullptr), b = run_linear(tile, w, x, 0.0f, nullptr);
    // The same with |w| and |x| gives the sum of magnitudes, up to roundings of the activations' formats.
    QuantLinear magnitudes = w;
    magnitudes.codes = buffer_of(w.codes.bytes().data(), w.codes.size());
    if (pair.format == WeightFormat::kBF16) {
      for (int64_t i = 0; i < n * k; ++i) magnitudes.codes.mutable_as<uint16_t>()[i] &= 0x7FFF;
    } else {
      for (std::byte& codes : magnitudes.codes.mutable_bytes()) codes &= std::byte{0x77};
    }
    magnitudes.block_scales = buffer_of(w.block_scales.bytes().data(), w.block_scales.size());
    if (pair.format == WeightFormat::kNVFP4) {
      for (std::byte& scale : magnitudes.block_scales.mutable_bytes()) scale &= std::byte{0x7F};
    }
    std::vector<float> positive = x;
    for (float& v : positive) v = std::fabs(v);
    const std::vector<float> sums = run_linear(exact, magnitudes, positive, 0.0f, nullptr);
    double worst = 0;
    for (size_t r = 0; r < static_cast<size_t>(n); ++r) {
      const double bound =
          (static_cast<double>(k) / 32 + 20 + static_cast<double>(k) / 128 + 4) * 0x1p-24 * sums[r] * 1.01;
      const double error = std::fabs(double{a[r]} - b[r]);
      EXPECT_LE(error, bound) << pair.tile << ", output " << r;
      worst = std::max(worst, error);
    }
    EXPECT_GT(worst, 0) << pair.tile << " adds in the order of " << pair.exact << ": is it its own form?";
  }
}

}  // namespace
}  // namespace halfbyte::testing
