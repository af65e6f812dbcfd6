// Compiled once per instruction set: HALFBYTE_BLOCK_DECODERS names the table this object defines (src/io/CMakeLists.txt).
// The loops are written so that compilers vectorise them. Nothing here may call an inline function of another header: the
// linker could keep this object's copy of it for every machine.
#include "io/gguf_blocks.h"

#include <cstring>

#include "io/gguf_blocks_tables.h"

namespace halfbyte {
namespace {

uint8_t u8(const std::byte* p) {
  return static_cast<uint8_t>(*p);
}

uint32_t u16(const std::byte* p) {
  return static_cast<uint32_t>(u8(p)) | static_cast<uint32_t>(u8(p + 1)) << 8;
}

float float_of(uint32_t bits) {
  float x;
  std::memcpy(&x, &bits, sizeof x);
  return x;
}

uint32_t bits_of(float x) {
  uint32_t bits;
  std::memcpy(&bits, &x, sizeof bits);
  return bits;
}

// An F16, subnormals, infinities and NaN included.
float half_of(uint32_t h) {
  const uint32_t body = (h & 0x7FFFu) << 13;
  const uint32_t finite = bits_of(float_of(body) * 0x1p112f);  // exponent bias 15 -> 127; exact
  const uint32_t magnitude = (h & 0x7C00u) == 0x7C00u ? (body | 0x7F800000u) : finite;
  return float_of(magnitude | (h & 0x8000u) << 16);
}

float half(const std::byte* p) {
  return half_of(u16(p));
}

float bfloat_of(uint32_t h) {
  return float_of(h << 16);
}

// Rows of 16-bit elements, `kOf` each.
template <float (*kOf)(uint32_t)>
void sixteen_bits(const std::byte* in, size_t count, float* out) {
  constexpr size_t kRun = 64;
  uint16_t run[kRun];
  for (; count >= kRun; count -= kRun, in += sizeof run, out += kRun) {
    std::memcpy(run, in, sizeof run);
    for (size_t i = 0; i < kRun; ++i) out[i] = kOf(run[i]);
  }
  for (size_t i = 0; i < count; ++i) out[i] = kOf(u16(in + 2 * i));
}

// Bytes as integers, once, so that the loops over them vectorise.
template <size_t kCount>
struct Bytes {
  uint8_t at[kCount];
  explicit Bytes(const std::byte* p) { std::memcpy(at, p, kCount); }
};

void q4_0(const std::byte* in, size_t blocks, float* out) {
  for (size_t b = 0; b < blocks; ++b, in += 18, out += 32) {
    const float d = half(in);
    const Bytes<16> q(in + 2);
    for (int i = 0; i < 16; ++i) out[i] = d * static_cast<float>((q.at[i] & 15) - 8);
    for (int i = 0; i < 16; ++i) out[i + 16] = d * static_cast<float>((q.at[i] >> 4) - 8);
  }
}

void q4_1(const std::byte* in, size_t blocks, float* out) {
  for (size_t b = 0; b < blocks; ++b, in += 20, out += 32) {
    const float d = half(in), m = half(in + 2);
    const Bytes<16> q(in + 4);
    for (int i = 0; i < 16; ++i) out[i] = d * static_cast<float>(q.at[i] & 15) + m;
    for (int i = 0; i < 16; ++i) out[i + 16] = d * static_cast<float>(q.at[i] >> 4) + m;
  }
}

// The 5-bit integers of Q5_0 and Q5_1: 4 bytes of fifth bits, then 16 bytes of nibbles.
void five_bits(const std::byte* in, int32_t (&q)[32]) {
  const uint32_t high = u16(in) | u16(in + 2) << 16;
  const Bytes<16> low(in + 4);
  for (int i = 0; i < 16; ++i) q[i] = (low.at[i] & 15) | static_cast<int32_t>((high >> i & 1u) << 4);
  for (int i = 0; i < 16; ++i) q[i + 16] = (low.at[i] >> 4) | static_cast<int32_t>((high >> (i + 16) & 1u) << 4);
}

void q5_0(const std::byte* in, size_t blocks, float* out) {
  for (size_t b = 0; b < blocks; ++b, in += 22, out += 32) {
    const float d = half(in);
    int32_t q[32];
    five_bits(in + 2, q);
    for (int i = 0; i < 32; ++i) out[i] = d * static_cast<float>(q[i] - 16);
  }
}

void q5_1(const std::byte* in, size_t blocks, float* out) {
  for (size_t b = 0; b < blocks; ++b, in += 24, out += 32) {
    const float d = half(in), m = half(in + 2);
    int32_t q[32];
    five_bits(in + 4, q);
    for (int i = 0; i < 32; ++i) out[i] = d * static_cast<float>(q[i]) + m;
  }
}

void q8_0(const std::byte* in, size_t blocks, float* out) {
  for (size_t b = 0; b < blocks; ++b, in += 34, out += 32) {
    const float d = half(in);
    int8_t q[32];
    std::memcpy(q, in + 2, sizeof q);
    for (int i = 0; i < 32; ++i) out[i] = d * static_cast<float>(q[i]);
  }
}

void q2_k(const std::byte* in, size_t blocks, float* out) {
  for (size_t b = 0; b < blocks; ++b, in += 84) {
    const float d = half(in + 80), m = half(in + 82);
    int scale = 0;
    for (int part = 0; part < 2; ++part) {
      const Bytes<32> q(in + 16 + 32 * part);
      for (int shift = 0; shift < 8; shift += 2) {
        for (int run = 0; run < 2; ++run, ++scale, out += 16) {
          const float s = d * static_cast<float>(u8(in + scale) & 15), t = m * static_cast<float>(u8(in + scale) >> 4);
          for (int i = 0; i < 16; ++i) out[i] = s * static_cast<float>(q.at[16 * run + i] >> shift & 3) - t;
        }
      }
    }
  }
}

void q3_k(const std::byte* in, size_t blocks, float* out) {
  for (size_t b = 0; b < blocks; ++b, in += 110) {
    const Bytes<32> high(in);
    const std::byte* scales = in + 96;
    const float d = half(in + 108);
    int index = 0;
    for (int part = 0; part < 2; ++part) {
      const Bytes<32> q(in + 32 + 32 * part);
      for (int shift = 0; shift < 8; shift += 2) {
        const int bit = 4 * part + shift / 2;
        for (int run = 0; run < 2; ++run, ++index, out += 16) {
          // Scale i: four bits in byte i mod 8 (low nibble first), two in byte 8 + i mod 4.
          const int low = u8(scales + index % 8) >> (index / 8 * 4) & 15;
          const int top = u8(scales + 8 + index % 4) >> (index / 4 * 2) & 3;
          const float s = d * static_cast<float>((low | top << 4) - 32);
          for (int i = 0; i < 16; ++i) {
            const int h = high.at[16 * run + i] >> bit & 1;
            out[i] = s * static_cast<float>((q.at[16 * run + i] >> shift & 3) + 4 * h - 4);
          }
        }
      }
    }
  }
}

// The 6-bit scale and minimum of run j (0..7) of Q4_K and Q5_K, from 12 bytes.
void scale_and_min(const std::byte* p, int j, float d, float m, float& s, float& t) {
  int scale, minimum;
  if (j < 4) {
    scale = u8(p + j) & 63;
    minimum = u8(p + j + 4) & 63;
  } else {
    scale = (u8(p + j + 4) & 15) | (u8(p + j - 4) >> 6) << 4;
    minimum = (u8(p + j + 4) >> 4) | (u8(p + j) >> 6) << 4;
  }
  s = d * static_cast<float>(scale);
  t = m * static_cast<float>(minimum);
}

void q4_k(const std::byte* in, size_t blocks, float* out) {
  for (size_t b = 0; b < blocks; ++b, in += 144) {
    const float d = half(in), m = half(in + 2);
    for (int j = 0; j < 8; j += 2, out += 64) {
      float s0, t0, s1, t1;
      scale_and_min(in + 4, j, d, m, s0, t0);
      scale_and_min(in + 4, j + 1, d, m, s1, t1);
      const Bytes<32> q(in + 16 + 16 * j);
      for (int i = 0; i < 32; ++i) out[i] = s0 * static_cast<float>(q.at[i] & 15) - t0;
      for (int i = 0; i < 32; ++i) out[i + 32] = s1 * static_cast<float>(q.at[i] >> 4) - t1;
    }
  }
}

void q5_k(const std::byte* in, size_t blocks, float* out) {
  for (size_t b = 0; b < blocks; ++b, in += 176) {
    const float d = half(in), m = half(in + 2);
    const Bytes<32> high(in + 16);
    for (int j = 0; j < 8; j += 2, out += 64) {
      float s0, t0, s1, t1;
      scale_and_min(in + 4, j, d, m, s0, t0);
      scale_and_min(in + 4, j + 1, d, m, s1, t1);
      const Bytes<32> q(in + 48 + 16 * j);
      for (int i = 0; i < 32; ++i) out[i] = s0 * static_cast<float>((q.at[i] & 15) | (high.at[i] >> j & 1) << 4) - t0;
      for (int i = 0; i < 32; ++i)
        out[i + 32] = s1 * static_cast<float>((q.at[i] >> 4) | (high.at[i] >> (j + 1) & 1) << 4) - t1;
    }
  }
}

void q6_k(const std::byte* in, size_t blocks, float* out) {
  for (size_t b = 0; b < blocks; ++b, in += 210) {
    const float d = half(in + 208);
    float s[16];
    for (int i = 0; i < 16; ++i) s[i] = d * static_cast<float>(static_cast<int8_t>(u8(in + 192 + i)));
    for (int part = 0; part < 2; ++part, out += 128) {
      const Bytes<64> low(in + 64 * part);
      const Bytes<32> high(in + 128 + 32 * part);
      // Runs of 32: low nibbles of the first 32 bytes, of the second, then the high nibbles.
      for (int run = 0; run < 4; ++run) {
        const int from = run % 2 * 32, nibble = run / 2 * 4;
        for (int h = 0; h < 2; ++h) {
          const float scale = s[8 * part + 2 * run + h];
          for (int i = 16 * h; i < 16 * h + 16; ++i) {
            const int q = (low.at[from + i] >> nibble & 15) | (high.at[i] >> (2 * run) & 3) << 4;
            out[32 * run + i] = scale * static_cast<float>(q - 32);
          }
        }
      }
    }
  }
}

// The magnitude of a value as an integer that orders like it; a NaN is above all.
uint32_t magnitude(float x) {
  return bits_of(x) & 0x7FFFFFFFu;
}

// Raises `largest` to the magnitudes of a scale's two extremes.
void raise(uint32_t& largest, float a, float b) {
  const uint32_t m = magnitude(a), n = magnitude(b), larger = m > n ? m : n;
  largest = larger > largest ? larger : largest;
}

float largest_q4_0(const std::byte* in, size_t blocks) {
  uint32_t largest = 0;
  for (size_t b = 0; b < blocks; ++b, in += 18) {
    const Bytes<16> q(in + 2);
    uint8_t least = 15, most = 0;
    for (int i = 0; i < 16; ++i) {
      const auto low = static_cast<uint8_t>(q.at[i] & 15), high = static_cast<uint8_t>(q.at[i] >> 4);
      const uint8_t less = low < high ? low : high, more = low < high ? high : low;
      least = less < least ? less : least;
      most = more > most ? more : most;
    }
    const float d = half(in);
    raise(largest, d * static_cast<float>(least - 8), d * static_cast<float>(most - 8));
  }
  return float_of(largest);
}

float largest_q8_0(const std::byte* in, size_t blocks) {
  uint32_t largest = 0;
  for (size_t b = 0; b < blocks; ++b, in += 34) {
    int8_t q[32];
    std::memcpy(q, in + 2, sizeof q);
    int8_t least = 127, most = -128;
    for (int i = 0; i < 32; ++i) {
      least = q[i] < least ? q[i] : least;
      most = q[i] > most ? q[i] : most;
    }
    const float d = half(in);
    raise(largest, d * static_cast<float>(least), d * static_cast<float>(most));
  }
  return float_of(largest);
}

float largest_q4_k(const std::byte* in, size_t blocks) {
  uint32_t largest = 0;
  for (size_t b = 0; b < blocks; ++b, in += 144) {
    const float d = half(in), m = half(in + 2);
    for (int j = 0; j < 8; j += 2) {
      const Bytes<32> q(in + 16 + 16 * j);
      uint8_t least[2] = {15, 15}, most[2] = {0, 0};
      for (int i = 0; i < 32; ++i) {
        const auto low = static_cast<uint8_t>(q.at[i] & 15), high = static_cast<uint8_t>(q.at[i] >> 4);
        least[0] = low < least[0] ? low : least[0];
        most[0] = low > most[0] ? low : most[0];
        least[1] = high < least[1] ? high : least[1];
        most[1] = high > most[1] ? high : most[1];
      }
      for (int h = 0; h < 2; ++h) {
        float s, t;
        scale_and_min(in + 4, j + h, d, m, s, t);
        raise(largest, s * static_cast<float>(least[h]) - t, s * static_cast<float>(most[h]) - t);
      }
    }
  }
  return float_of(largest);
}

float largest_q6_k(const std::byte* in, size_t blocks) {
  uint32_t largest = 0;
  for (size_t b = 0; b < blocks; ++b, in += 210) {
    const float d = half(in + 208);
    for (int part = 0; part < 2; ++part) {
      const Bytes<64> low(in + 64 * part);
      const Bytes<32> high(in + 128 + 32 * part);
      for (int run = 0; run < 4; ++run) {
        const int from = run % 2 * 32, nibble = run / 2 * 4;
        for (int h = 0; h < 2; ++h) {
          uint8_t least = 63, most = 0;
          for (int i = 16 * h; i < 16 * h + 16; ++i) {
            const auto q = static_cast<uint8_t>((low.at[from + i] >> nibble & 15) | (high.at[i] >> (2 * run) & 3) << 4);
            least = q < least ? q : least;
            most = q > most ? q : most;
          }
          const float s = d * static_cast<float>(static_cast<int8_t>(u8(in + 192 + 8 * part + 2 * run + h)));
          raise(largest, s * static_cast<float>(least - 32), s * static_cast<float>(most - 32));
        }
      }
    }
  }
  return float_of(largest);
}

constexpr float kIq4[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};
constexpr float kE2m1[16] = {0.0f,  0.5f,  1.0f,  1.5f,  2.0f,  3.0f,  4.0f,  6.0f,
                             -0.0f, -0.5f, -1.0f, -1.5f, -2.0f, -3.0f, -4.0f, -6.0f};

// count bytes: their low nibbles are elements 0..count-1, the high ones the next count.
void lookup(const float (&table)[16], const std::byte* in, int count, float scale, float* out) {
  for (int i = 0; i < count; ++i) out[i] = scale * table[u8(in + i) & 15];
  for (int i = 0; i < count; ++i) out[i + count] = scale * table[u8(in + i) >> 4];
}

void iq4_nl(const std::byte* in, size_t blocks, float* out) {
  for (size_t b = 0; b < blocks; ++b, in += 18, out += 32) lookup(kIq4, in + 2, 16, half(in), out);
}

void iq4_xs(const std::byte* in, size_t blocks, float* out) {
  for (size_t b = 0; b < blocks; ++b, in += 136) {
    const float d = half(in);
    for (int j = 0; j < 8; ++j, out += 32) {
      const int low = u8(in + 4 + j / 2) >> (j % 2 * 4) & 15, high = static_cast<int>(u16(in + 2) >> (2 * j) & 3u);
      lookup(kIq4, in + 8 + 16 * j, 16, d * static_cast<float>((low | high << 4) - 32), out);
    }
  }
}

float e8m0(uint32_t code) {
  if (code == 255) return float_of(0x7FC00000u);
  return code == 0 ? 0x1p-127f : float_of(code << 23);
}

float e4m3(uint32_t code) {
  const uint32_t body = code & 0x7Fu, sign = (code & 0x80u) << 24;
  if (body == 0x7F) return float_of(0x7FC00000u);
  if (body < 8) return float_of(sign | bits_of(static_cast<float>(body) * 0x1p-9f));
  return float_of(sign | ((body << 20) + (120u << 23)));
}

void mxfp4(const std::byte* in, size_t blocks, float* out) {
  for (size_t b = 0; b < blocks; ++b, in += 17, out += 32) lookup(kE2m1, in + 1, 16, e8m0(u8(in)), out);
}

void nvfp4(const std::byte* in, size_t blocks, float* out) {
  for (size_t b = 0; b < blocks; ++b, in += 36)
    for (int j = 0; j < 4; ++j, out += 16) lookup(kE2m1, in + 4 + 8 * j, 8, e4m3(u8(in + j)), out);
}

DecodeBlocksFn decoder(DType type) {
  switch (type) {
    case DType::kF16: return sixteen_bits<half_of>;
    case DType::kBF16: return sixteen_bits<bfloat_of>;
    case DType::kQ4_0: return q4_0;
    case DType::kQ4_1: return q4_1;
    case DType::kQ5_0: return q5_0;
    case DType::kQ5_1: return q5_1;
    case DType::kQ8_0: return q8_0;
    case DType::kQ2K: return q2_k;
    case DType::kQ3K: return q3_k;
    case DType::kQ4K: return q4_k;
    case DType::kQ5K: return q5_k;
    case DType::kQ6K: return q6_k;
    case DType::kIQ4NL: return iq4_nl;
    case DType::kIQ4XS: return iq4_xs;
    case DType::kGgufMXFP4: return mxfp4;
    case DType::kGgufNVFP4: return nvfp4;
    default: return nullptr;
  }
}

LargestOfBlocksFn largest(DType type) {
  switch (type) {
    case DType::kQ4_0: return largest_q4_0;
    case DType::kQ8_0: return largest_q8_0;
    case DType::kQ4K: return largest_q4_k;
    case DType::kQ6K: return largest_q6_k;
    default: return nullptr;
  }
}

}  // namespace

const BlockDecoders HALFBYTE_BLOCK_DECODERS = {HALFBYTE_BLOCK_DECODERS_NAME, decoder, largest};

}  // namespace halfbyte
