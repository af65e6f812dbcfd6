#include "kernels/cpu/bf16_rows.h"

#include <cstring>

#include "formats/bf16.h"

namespace halfbyte::cpu {
namespace {

template <WeightFormat kFormat>
constexpr size_t kWeightBytes = kFormat == WeightFormat::kBF16  ? 2
                                : kFormat == WeightFormat::kFP8 ? 1
                                                                : 4;

template <WeightFormat kFormat>
size_t row_bytes(int64_t k) {
  return (static_cast<size_t>(k) * kWeightBytes<kFormat> + 63) / 64 * 64;
}

template <bool kRound>
float rounded(float x) {
  return kRound ? BF16::round(x) : x;
}

}  // namespace

template <WeightFormat kFormat>
size_t plain_packed_bytes(int64_t n, int64_t k) {
  const size_t scales = kFormat == WeightFormat::kFP8 ? sizeof(float) : 0;
  return static_cast<size_t>(n) * (row_bytes<kFormat>(k) + scales);
}

template <WeightFormat kFormat>
void pack_plain(const QuantLinear& w, int64_t n_begin, int64_t n_end, std::byte* packed) {
  const size_t from = static_cast<size_t>(w.k) * kWeightBytes<kFormat>, to = row_bytes<kFormat>(w.k);
  for (auto r = static_cast<size_t>(n_begin); r < static_cast<size_t>(n_end); ++r) {
    std::memcpy(packed + r * to, w.codes.bytes().data() + r * from, from);
    std::memset(packed + r * to + from, 0, to - from);
  }
  if constexpr (kFormat == WeightFormat::kFP8) {
    auto* scales = reinterpret_cast<float*>(packed + static_cast<size_t>(w.n) * to);
    for (int64_t r = n_begin; r < n_end; ++r) scales[r] = 256.0f * w.block_scales.as<float>()[r];
  }
}

size_t plain_activation_bytes(int64_t k) {
  return static_cast<size_t>(activation_stride(k)) * sizeof(float);
}

template <WeightFormat kFormat, bool kRound>
void arrange_plain(const float* x, int64_t rows, int64_t k, float, std::byte* out) {
  for (int64_t m = 0; m < rows; ++m, x += k) {
    auto* row = reinterpret_cast<float*>(out) + m * activation_stride(k);
    int64_t i = 0;
    for (; i + kRun <= k; i += kRun) {
      for (int64_t j = 0; j < 16; ++j) {
        const bool split = kFormat == WeightFormat::kBF16;
        row[i + j] = rounded<kRound>(x[i + (split ? 2 * j : j)]);
        row[i + 16 + j] = rounded<kRound>(x[i + (split ? 2 * j + 1 : 16 + j)]);
      }
    }
    for (; i < k; ++i) row[i] = rounded<kRound>(x[i]);
    for (; i < activation_stride(k); ++i) row[i] = 0.0f;
  }
}

template size_t plain_packed_bytes<WeightFormat::kF32>(int64_t, int64_t);
template size_t plain_packed_bytes<WeightFormat::kBF16>(int64_t, int64_t);
template size_t plain_packed_bytes<WeightFormat::kFP8>(int64_t, int64_t);
template void pack_plain<WeightFormat::kF32>(const QuantLinear&, int64_t, int64_t, std::byte*);
template void pack_plain<WeightFormat::kBF16>(const QuantLinear&, int64_t, int64_t, std::byte*);
template void pack_plain<WeightFormat::kFP8>(const QuantLinear&, int64_t, int64_t, std::byte*);
template void arrange_plain<WeightFormat::kF32, false>(const float*, int64_t, int64_t, float, std::byte*);
template void arrange_plain<WeightFormat::kF32, true>(const float*, int64_t, int64_t, float, std::byte*);
template void arrange_plain<WeightFormat::kBF16, false>(const float*, int64_t, int64_t, float, std::byte*);
template void arrange_plain<WeightFormat::kBF16, true>(const float*, int64_t, int64_t, float, std::byte*);
template void arrange_plain<WeightFormat::kFP8, false>(const float*, int64_t, int64_t, float, std::byte*);
template void arrange_plain<WeightFormat::kFP8, true>(const float*, int64_t, int64_t, float, std::byte*);

}  // namespace halfbyte::cpu
