#include "tensor/round_rows.h"

#include <algorithm>
#include <array>
#include <bit>

#include "formats/bf16.h"
#include "formats/e4m3.h"
#include "formats/nvfp4.h"

namespace halfbyte {
namespace {

// Compared as integers, whose order is the same and whose maximum compilers vectorise.
float widest(const float* x, int64_t n) {
  int32_t bits = 0;
  for (int64_t i = 0; i < n; ++i) bits = std::max(bits, std::bit_cast<int32_t>(x[i]) & 0x7FFFFFFF);
  return std::bit_cast<float>(bits);
}

void nvfp4_weight(const float* x, int64_t k, float alpha, uint8_t* codes, uint8_t* scales) {
  NVFP4::quantize_weight_row(x, k, alpha, codes, scales);
}

void mxfp4(const float* x, int64_t k, Mxfp4Rule rule, uint8_t* codes, uint8_t* scales) {
  MXFP4::quantize_row(x, k, rule, codes, scales);
}

void fp8(const float* x, int64_t k, float scale, uint8_t* codes) {
  for (int64_t i = 0; i < k; ++i) codes[i] = E4M3::encode(x[i] / scale);
}

void bf16(const float* x, int64_t n, uint16_t* out) {
  for (int64_t i = 0; i < n; ++i) out[i] = BF16::encode(x[i]);
}

}  // namespace

const RowRounders kRowRoundersBaseline = {"baseline", widest, nvfp4_weight, mxfp4, fp8, bf16};

std::span<const RowRounders* const> row_rounders_here() {
#if defined(__x86_64__)
  static constexpr std::array<const RowRounders*, 2> kForms{&kRowRoundersBaseline, &kRowRoundersAvx2};
  static const size_t count = __builtin_cpu_supports("avx2") ? 2 : 1;
#else
  static constexpr std::array<const RowRounders*, 1> kForms{&kRowRoundersBaseline};
  static constexpr size_t count = 1;
#endif
  return {kForms.data(), count};
}

}  // namespace halfbyte
