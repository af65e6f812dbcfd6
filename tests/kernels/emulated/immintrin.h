// The AVX-VNNI, AVX-512 and AMX intrinsics that src/kernels/cpu uses, in plain loops over the vectors' bytes, so that
// those kernels run, and are held to the reference, on every x86-64 machine. Put this folder first on the include path and
// compile the kernel's file without -mavxvnni, -mavx512*, -mamx*. Semantics: Intel's intrinsics guide; tiles: Intel SDM
// volume 2, TDPBF16PS.
#pragma once

#include_next <immintrin.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <type_traits>

namespace hb_emulated {

template <class To, class From>
inline To as(const From& from) {
  static_assert(sizeof(To) == sizeof(From));
  To to;
  std::memcpy(&to, &from, sizeof(to));
  return to;
}

template <class T, int kCount>
struct Lanes {
  T v[kCount];
};
// A vector's 128-bit or 256-bit parts.
template <int kBytes>
using Parts = Lanes<Lanes<uint8_t, kBytes>, 64 / kBytes>;
using F32 = Lanes<float, 16>;
using I32 = Lanes<int32_t, 16>;
using U32 = Lanes<uint32_t, 16>;
using U64 = Lanes<uint64_t, 8>;
using U16 = Lanes<uint16_t, 32>;
using U8 = Lanes<uint8_t, 64>;
using I8 = Lanes<int8_t, 64>;

template <class L, class To = __m512i, class A, class Fn>
inline To map(const A& a, Fn fn) {
  L x = as<L>(a);
  for (auto& lane : x.v) lane = static_cast<std::decay_t<decltype(lane)>>(fn(lane));
  return as<To>(x);
}
template <class L, class To = __m512i, class A, class Fn>
inline To zip(const A& a, const A& b, Fn fn) {
  L x = as<L>(a);
  const L y = as<L>(b);
  for (size_t i = 0; i < std::size(x.v); ++i) x.v[i] = static_cast<std::decay_t<decltype(x.v[0])>>(fn(x.v[i], y.v[i]));
  return as<To>(x);
}
template <class L, class A, class Fn>
inline __mmask16 compare(const A& a, const A& b, Fn fn) {
  const L x = as<L>(a), y = as<L>(b);
  unsigned mask = 0;
  for (unsigned i = 0; i < std::size(x.v); ++i) mask |= fn(x.v[i], y.v[i]) ? 1u << i : 0u;
  return static_cast<__mmask16>(mask);
}
// Lane i of the result is fn(i).
template <class L, class To = __m512i, class Fn>
inline To make(Fn fn) {
  L x;
  for (int i = 0; i < static_cast<int>(std::size(x.v)); ++i)
    x.v[i] = static_cast<std::decay_t<decltype(x.v[0])>>(fn(i));
  return as<To>(x);
}

inline __m512i add_epi32(__m512i a, __m512i b) {
  return zip<U32>(a, b, [](auto x, auto y) { return x + y; });
}
inline __m512 add_ps(__m512 a, __m512 b) {
  return zip<F32, __m512>(a, b, [](auto x, auto y) { return x + y; });
}
inline __m512 mul_ps(__m512 a, __m512 b) {
  return zip<F32, __m512>(a, b, [](auto x, auto y) { return x * y; });
}
inline __m512 sub_ps(__m512 a, __m512 b) {
  return zip<F32, __m512>(a, b, [](auto x, auto y) { return x - y; });
}
inline __m512 div_ps(__m512 a, __m512 b) {
  return zip<F32, __m512>(a, b, [](auto x, auto y) { return x / y; });
}
inline __m512 max_ps(__m512 a, __m512 b) {
  return zip<F32, __m512>(a, b, [](auto x, auto y) { return x > y ? x : y; });
}
inline __m512 fmadd_ps(__m512 a, __m512 b, __m512 c) {
  const F32 x = as<F32>(a), y = as<F32>(b), z = as<F32>(c);
  return make<F32, __m512>([&](int i) { return std::fma(x.v[i], y.v[i], z.v[i]); });
}
inline __m512i and_si512(__m512i a, __m512i b) {
  return zip<U64>(a, b, [](auto x, auto y) { return x & y; });
}
inline __m512i or_si512(__m512i a, __m512i b) {
  return zip<U64>(a, b, [](auto x, auto y) { return x | y; });
}
inline __m512i max_epi32(__m512i a, __m512i b) {
  return zip<I32>(a, b, [](auto x, auto y) { return x > y ? x : y; });
}
inline __m512i max_epu32(__m512i a, __m512i b) {
  return zip<U32>(a, b, [](auto x, auto y) { return x > y ? x : y; });
}
inline __mmask16 cmpge_epu32(__m512i a, __m512i b) {
  return compare<U32>(a, b, [](auto x, auto y) { return x >= y; });
}
inline __mmask16 cmpgt_epu32(__m512i a, __m512i b) {
  return compare<U32>(a, b, [](auto x, auto y) { return x > y; });
}
inline __mmask16 cmp_ps_mask(__m512 a, __m512 b, int predicate) {
  return compare<F32>(a, b, [predicate](float x, float y) {
    switch (predicate) {
      case _CMP_GE_OQ: return x >= y;
      case _CMP_NLT_UQ: return !(x < y);
      default: __builtin_trap();
    }
  });
}
inline __m512i slli_epi32(__m512i a, unsigned n) {
  return map<U32>(a, [n](auto x) { return n > 31 ? 0 : x << n; });
}
inline __m512i srli_epi32(__m512i a, unsigned n) {
  return map<U32>(a, [n](auto x) { return n > 31 ? 0 : x >> n; });
}
inline __m512i srli_epi16(__m512i a, unsigned n) {
  return map<U16>(a, [n](auto x) { return n > 15 ? 0 : x >> n; });
}
inline __m512i set1_epi8(char c) {
  return make<U8>([c](int) { return c; });
}
inline __m512i set1_epi32(int n) {
  return make<I32>([n](int) { return n; });
}
inline __m512 set1_ps(float f) {
  return make<F32, __m512>([f](int) { return f; });
}
inline __m512 cvtepi32_ps(__m512i a) {
  const I32 x = as<I32>(a);
  return make<F32, __m512>([&](int i) { return static_cast<float>(x.v[i]); });
}
inline __m512i cvtepu8_epi32(__m128i a) {
  const auto x = as<Lanes<uint8_t, 16>>(a);
  return make<I32>([&](int i) { return x.v[i]; });
}
inline __m512i cvtepi8_epi32(__m128i a) {
  const auto x = as<Lanes<int8_t, 16>>(a);
  return make<I32>([&](int i) { return x.v[i]; });
}
inline __m512i cvtepu16_epi32(__m256i a) {
  const auto x = as<Lanes<uint16_t, 16>>(a);
  return make<I32>([&](int i) { return x.v[i]; });
}
inline __m512 cvtph_ps(__m256i a) {
  const auto halves = as<Lanes<Lanes<uint8_t, 16>, 2>>(a);
  const __m256 low = _mm256_cvtph_ps(as<__m128i>(halves.v[0])), high = _mm256_cvtph_ps(as<__m128i>(halves.v[1]));
  return as<__m512>(Parts<32>{{as<Lanes<uint8_t, 32>>(low), as<Lanes<uint8_t, 32>>(high)}});
}
inline __m256i cvtepi32_epi16(__m512i a) {
  const I32 x = as<I32>(a);
  return make<Lanes<int16_t, 16>, __m256i>([&](int i) { return x.v[i]; });
}
inline float flush(float v) {
  return std::fabs(v) < 0x1p-126f ? std::copysign(0.0f, v) : v;
}
inline __m256i cvtneps_pbh(__m512 a) {
  const F32 x = as<F32>(a);
  return make<Lanes<uint16_t, 16>, __m256i>([&](int i) {
    const auto bits = std::bit_cast<uint32_t>(flush(x.v[i]));
    if (std::isnan(x.v[i])) return static_cast<uint16_t>(bits >> 16 | 0x40);
    return static_cast<uint16_t>((bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
  });
}
template <class V>
inline V load(const void* p) {
  V v;
  std::memcpy(&v, p, sizeof(v));
  return v;
}
template <class V>
inline void store(void* p, V v) {
  std::memcpy(p, &v, sizeof(v));
}
inline __m512i maskz_loadu_epi16(__mmask32 mask, const void* p) {
  U16 x{};
  for (unsigned i = 0; i < 32; ++i) {
    if (mask >> i & 1) std::memcpy(&x.v[i], static_cast<const uint16_t*>(p) + i, 2);
  }
  return as<__m512i>(x);
}
inline __m512 maskz_loadu_ps(__mmask16 mask, const void* p) {
  const char* from = static_cast<const char*>(p);
  return make<F32, __m512>([&](int i) { return (mask >> i & 1) != 0 ? load<float>(from + 4 * i) : 0.0f; });
}
inline void mask_storeu_ps(void* p, __mmask16 mask, __m512 a) {
  const F32 x = as<F32>(a);
  for (int i = 0; i < 16; ++i) {
    if ((mask >> i & 1) != 0) std::memcpy(static_cast<char*>(p) + 4 * i, &x.v[i], 4);
  }
}
template <class L>
inline __m512i blend(uint64_t mask, __m512i a, __m512i b) {
  const L x = as<L>(a), y = as<L>(b);
  return make<L>([&](int i) { return (mask >> i & 1) != 0 ? y.v[i] : x.v[i]; });
}
inline __m512 mask_blend_ps(__mmask16 mask, __m512 a, __m512 b) {
  return as<__m512>(blend<U32>(mask, as<__m512i>(a), as<__m512i>(b)));
}
inline __m512 maskz_mul_ps(__mmask16 mask, __m512 a, __m512 b) {
  return mask_blend_ps(mask, set1_ps(0.0f), mul_ps(a, b));
}
inline __m512 mask_xor_ps(__m512 other, __mmask16 mask, __m512 a, __m512 b) {
  const __m512i x = zip<U32>(as<__m512i>(a), as<__m512i>(b), [](auto l, auto r) { return l ^ r; });
  return mask_blend_ps(mask, other, as<__m512>(x));
}
inline __m512i broadcast_i32x4(__m128i a) {
  const auto x = as<Lanes<uint8_t, 16>>(a);
  return as<__m512i>(Parts<16>{{x, x, x, x}});
}
inline __m512 permutexvar_ps(__m512i index, __m512 table) {
  const U32 at = as<U32>(index);
  const F32 x = as<F32>(table);
  return make<F32, __m512>([&](int i) { return x.v[at.v[i] & 15]; });
}
inline __m512i permutexvar_epi16(__m512i index, __m512i table) {
  const U16 at = as<U16>(index), x = as<U16>(table);
  return make<U16>([&](int i) { return x.v[at.v[i] & 31]; });
}
inline __m512i permutex2var_epi16(__m512i a, __m512i index, __m512i b) {
  const U16 at = as<U16>(index), x = as<U16>(a), y = as<U16>(b);
  return make<U16>([&](int i) { return ((at.v[i] & 32) != 0 ? y : x).v[at.v[i] & 31]; });
}
inline uint32_t cmpeq_epi16(__m512i a, __m512i b) {
  const U16 x = as<U16>(a), y = as<U16>(b);
  uint32_t mask = 0;
  for (int i = 0; i < 32; ++i) mask |= x.v[i] == y.v[i] ? uint32_t{1} << i : 0u;
  return mask;
}
inline __m512i broadcast_i64x4(__m256i a) {
  const auto x = as<Lanes<uint8_t, 32>>(a);
  return as<__m512i>(Parts<32>{{x, x}});
}
inline __m512i shuffle_epi8(__m512i a, __m512i index) {
  const U8 x = as<U8>(a), at = as<U8>(index);
  return make<U8>([&](int i) { return (at.v[i] & 128) != 0 ? 0 : x.v[i / 16 * 16 + (at.v[i] & 15)]; });
}
inline __m512i shuffle_i32x4(__m512i a, __m512i b, int imm) {
  const auto x = as<Parts<16>>(a), y = as<Parts<16>>(b);
  return as<__m512i>(Parts<16>{{x.v[imm & 3], x.v[imm >> 2 & 3], y.v[imm >> 4 & 3], y.v[imm >> 6 & 3]}});
}
// Lanes first, first + 1 of each 128-bit part of a and b in turn.
template <class L>
inline __m512i unpack(__m512i a, __m512i b, int first) {
  const L x = as<L>(a), y = as<L>(b);
  constexpr int kPart = 16 / sizeof(x.v[0]);
  return make<L>([&](int i) { return (i % 2 != 0 ? y : x).v[i / kPart * kPart + first + i % kPart / 2]; });
}
inline __m512i dpbusd_epi32(__m512i sum, __m512i a, __m512i b) {
  const I32 s = as<I32>(sum);
  const U8 x = as<U8>(a);
  const I8 y = as<I8>(b);
  return make<I32>([&](int i) {
    int32_t v = s.v[i];
    for (int j = 4 * i; j < 4 * i + 4; ++j) v += x.v[j] * y.v[j];
    return v;
  });
}
inline __m256i dpbusd_avx_epi32(__m256i sum, __m256i a, __m256i b) {
  const auto s = as<Lanes<int32_t, 8>>(sum);
  const auto x = as<Lanes<uint8_t, 32>>(a);
  const auto y = as<Lanes<int8_t, 32>>(b);
  return make<Lanes<int32_t, 8>, __m256i>([&](int i) {
    int32_t v = s.v[i];
    for (int j = 4 * i; j < 4 * i + 4; ++j) v += x.v[j] * y.v[j];
    return v;
  });
}

// The tiles of the calling thread.
struct Tiles {
  bool configured = false;
  uint16_t row_bytes[16];
  uint8_t rows[16];
  uint8_t data[8][16][64];
};
inline Tiles& tiles() {
  thread_local Tiles state;
  return state;
}
// Reading a tile that is not configured is #UD on the machine.
inline void need(bool ok) {
  if (!ok) __builtin_trap();
}
inline void tile_loadconfig(const void* config) {
  Tiles& t = tiles();
  const auto* bytes = static_cast<const uint8_t*>(config);
  need(bytes[0] == 1 && bytes[1] == 0);
  std::memcpy(t.row_bytes, bytes + 16, sizeof(t.row_bytes));
  std::memcpy(t.rows, bytes + 48, sizeof(t.rows));
  for (int i = 0; i < 8; ++i)
    need(t.rows[i] <= 16 && t.row_bytes[i] <= 64 && (t.rows[i] == 0) == (t.row_bytes[i] == 0));
  std::memset(t.data, 0, sizeof(t.data));
  t.configured = true;
}
inline void tile_release() {
  tiles().configured = false;
}
inline void tile_zero(int tile) {
  need(tiles().configured && tiles().rows[tile] != 0);
  std::memset(tiles().data[tile], 0, sizeof(tiles().data[tile]));
}
inline void tile_loadd(int tile, const void* base, int64_t stride) {
  Tiles& t = tiles();
  tile_zero(tile);
  for (int r = 0; r < t.rows[tile]; ++r)
    std::memcpy(t.data[tile][r], static_cast<const char*>(base) + r * stride, t.row_bytes[tile]);
}
inline void tile_stored(int tile, void* base, int64_t stride) {
  Tiles& t = tiles();
  need(t.configured && t.rows[tile] != 0);
  for (int r = 0; r < t.rows[tile]; ++r)
    std::memcpy(static_cast<char*>(base) + r * stride, t.data[tile][r], t.row_bytes[tile]);
}
inline float bf16(const uint8_t* p) {
  return flush(std::bit_cast<float>(static_cast<uint32_t>(p[0] | p[1] << 8) << 16));
}
inline void tile_dpbf16ps(int c, int a, int b) {
  Tiles& t = tiles();
  const int pairs = t.row_bytes[a] / 4, columns = t.row_bytes[c] / 4;
  need(t.configured && t.rows[c] == t.rows[a] && t.rows[b] == pairs && t.row_bytes[b] == t.row_bytes[c] && pairs > 0);
  for (int m = 0; m < t.rows[c]; ++m) {
    for (int n = 0; n < columns; ++n) {
      float sums[2] = {0.0f, 0.0f};
      for (int k = 0; k < pairs; ++k) {
        for (int i = 0; i < 2; ++i)
          sums[i] = flush(std::fma(bf16(&t.data[a][m][4 * k + 2 * i]), bf16(&t.data[b][k][4 * n + 2 * i]), sums[i]));
      }
      float acc = load<float>(&t.data[c][m][4 * n]);
      acc = flush(acc + flush(sums[0] + sums[1]));
      std::memcpy(&t.data[c][m][4 * n], &acc, 4);
    }
  }
}

}  // namespace hb_emulated

#undef _tile_loadconfig
#undef _tile_release
#undef _tile_zero
#undef _tile_loadd
#undef _tile_stored
#undef _tile_dpbf16ps
#define _tile_loadconfig hb_emulated::tile_loadconfig
#define _tile_release hb_emulated::tile_release
#define _tile_zero hb_emulated::tile_zero
#define _tile_loadd hb_emulated::tile_loadd
#define _tile_stored hb_emulated::tile_stored
#define _tile_dpbf16ps hb_emulated::tile_dpbf16ps

#undef _mm256_dpbusd_avx_epi32
#define _mm256_dpbusd_avx_epi32 hb_emulated::dpbusd_avx_epi32
#define _mm512_add_epi32 hb_emulated::add_epi32
#define _mm512_add_ps hb_emulated::add_ps
#define _mm512_and_si512 hb_emulated::and_si512
#define _mm512_broadcast_i32x4 hb_emulated::broadcast_i32x4
#define _mm512_castps512_ps256(a) hb_emulated::as<__m256>(hb_emulated::as<hb_emulated::Parts<32>>(a).v[0])
#define _mm512_castps_pd hb_emulated::as<__m512d>
#define _mm512_castps_si512 hb_emulated::as<__m512i>
#define _mm512_castsi512_ps hb_emulated::as<__m512>
#undef _mm512_cmpge_epu32_mask
#undef _mm512_cmpgt_epu32_mask
#define _mm512_cmpge_epu32_mask hb_emulated::cmpge_epu32
#define _mm512_cmpgt_epu32_mask hb_emulated::cmpgt_epu32
#undef _mm512_cmp_ps_mask
#define _mm512_cmp_ps_mask hb_emulated::cmp_ps_mask
#define _mm512_cvtneps_pbh hb_emulated::cvtneps_pbh
#define _mm512_cvtepi32_epi16 hb_emulated::cvtepi32_epi16
#define _mm512_cvtepi32_ps hb_emulated::cvtepi32_ps
#define _mm512_cvtepi8_epi32 hb_emulated::cvtepi8_epi32
#define _mm512_cvtepu16_epi32 hb_emulated::cvtepu16_epi32
#define _mm512_cvtph_ps hb_emulated::cvtph_ps
#define _mm512_div_ps hb_emulated::div_ps
#define _mm512_cvtepu8_epi32 hb_emulated::cvtepu8_epi32
#define _mm512_dpbusd_epi32 hb_emulated::dpbusd_epi32
#undef _mm512_extractf32x8_ps
#define _mm512_extractf32x8_ps(a, i) hb_emulated::as<__m256>(hb_emulated::as<hb_emulated::Parts<32>>(a).v[i])
#undef _mm512_extractf64x4_pd
#define _mm512_extractf64x4_pd(a, i) hb_emulated::as<__m256d>(hb_emulated::as<hb_emulated::Parts<32>>(a).v[i])
#define _mm512_fmadd_ps hb_emulated::fmadd_ps
#define _mm512_loadu_ps hb_emulated::load<__m512>
#define _mm512_loadu_si512 hb_emulated::load<__m512i>
#define _mm512_mask_blend_epi16 hb_emulated::blend<hb_emulated::U16>
#define _mm512_mask_blend_epi32 hb_emulated::blend<hb_emulated::U32>
#define _mm512_mask_blend_ps hb_emulated::mask_blend_ps
#define _mm512_mask_xor_ps hb_emulated::mask_xor_ps
#define _mm512_maskz_mul_ps hb_emulated::maskz_mul_ps
#define _mm512_max_ps hb_emulated::max_ps
#define _mm512_sub_ps hb_emulated::sub_ps
#define _mm512_store_ps hb_emulated::store<__m512>
#define _mm512_mask_storeu_ps hb_emulated::mask_storeu_ps
#define _mm512_maskz_loadu_epi16 hb_emulated::maskz_loadu_epi16
#define _mm512_maskz_loadu_ps hb_emulated::maskz_loadu_ps
#define _mm512_max_epi32 hb_emulated::max_epi32
#define _mm512_max_epu32 hb_emulated::max_epu32
#define _mm512_mul_ps hb_emulated::mul_ps
#define _mm512_or_si512 hb_emulated::or_si512
#define _mm512_broadcast_i64x4 hb_emulated::broadcast_i64x4
#define _mm512_permutexvar_epi16 hb_emulated::permutexvar_epi16
#define _mm512_permutex2var_epi16 hb_emulated::permutex2var_epi16
#define _mm512_cmpeq_epi16_mask hb_emulated::cmpeq_epi16
#undef _mm512_setr_epi32
#define _mm512_setr_epi32(...) hb_emulated::as<__m512i>(hb_emulated::I32{{__VA_ARGS__}})
#define _mm512_permutexvar_ps hb_emulated::permutexvar_ps
#define _mm512_set1_epi32 hb_emulated::set1_epi32
#define _mm512_set1_epi8 hb_emulated::set1_epi8
#define _mm512_set1_ps hb_emulated::set1_ps
#undef _mm512_setr_ps
#define _mm512_setr_ps(...) hb_emulated::as<__m512>(hb_emulated::F32{{__VA_ARGS__}})
#define _mm512_setzero_ps() hb_emulated::set1_ps(0.0f)
#define _mm512_setzero_si512() hb_emulated::set1_epi32(0)
#define _mm512_shuffle_epi8 hb_emulated::shuffle_epi8
#undef _mm512_shuffle_i32x4
#define _mm512_shuffle_i32x4 hb_emulated::shuffle_i32x4
#undef _mm512_slli_epi32
#undef _mm512_srli_epi32
#undef _mm512_srli_epi16
#define _mm512_slli_epi32 hb_emulated::slli_epi32
#define _mm512_srli_epi16 hb_emulated::srli_epi16
#define _mm512_srli_epi32 hb_emulated::srli_epi32
#define _mm512_storeu_ps hb_emulated::store<__m512>
#define _mm512_storeu_si512 hb_emulated::store<__m512i>
#define _mm512_unpackhi_epi32(a, b) hb_emulated::unpack<hb_emulated::U32>(a, b, 2)
#define _mm512_unpackhi_epi64(a, b) hb_emulated::unpack<hb_emulated::U64>(a, b, 1)
#define _mm512_unpacklo_epi32(a, b) hb_emulated::unpack<hb_emulated::U32>(a, b, 0)
#define _mm512_unpacklo_epi64(a, b) hb_emulated::unpack<hb_emulated::U64>(a, b, 0)
