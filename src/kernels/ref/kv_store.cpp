// The key-value cache element by element: what each format stores and what is read.
#include <cstring>

#include "formats/bf16.h"
#include "formats/kv_blocks.h"
#include "kernels/attention_layout.h"
#include "kernels/ref/attention.h"

namespace halfbyte::ref {
namespace {

// Where one element lies: `index` counts elements of the part, `scale` its block's scale behind them.
struct Place {
  int64_t index;
  int64_t scale;
};
Place key_place(const KvLayout& layout, int64_t slot, int64_t d) {
  const int64_t unit = kv_unit(layout.format);
  return {(d / unit * layout.page_tokens + slot) * unit + d % unit, d / kKvBlock * layout.page_tokens + slot};
}
Place value_place(const KvLayout& layout, int64_t slot, int64_t d) {
  return {slot * layout.head_dim + d, slot * kv_blocks(layout.head_dim) + d / kKvBlock};
}

uint8_t* bytes_of(std::byte* part) {
  return reinterpret_cast<uint8_t*>(part);
}

void set_nibble(uint8_t* data, int64_t index, uint8_t code) {
  uint8_t& byte = data[index / 2];
  byte = static_cast<uint8_t>(index % 2 == 0 ? (byte & 0xF0) | code : (byte & 0x0F) | code << 4);
}

template <class Element>
void store_blocks(const KvLayout& layout, int64_t slot, const float* x, float scale, uint8_t* part,
                  Place (*place)(const KvLayout&, int64_t, int64_t)) {
  for (int64_t begin = 0; begin < layout.head_dim; begin += kKvBlock) {
    uint8_t codes[kKvBlock], block_scale = 0;
    const int64_t end = begin + kKvBlock < layout.head_dim ? begin + kKvBlock : layout.head_dim;
    KvBlocks<Element>::quantize_row(x + begin, end - begin, scale, codes, &block_scale);
    part[kv_data_bytes(layout) + place(layout, slot, begin).scale] = block_scale;
    for (int64_t d = begin; d < end; ++d) set_nibble(part, place(layout, slot, d).index, codes[d - begin]);
  }
}

void store(const KvLayout& layout, int64_t slot, const float* x, float scale, std::byte* part,
           Place (*place)(const KvLayout&, int64_t, int64_t)) {
  if (layout.format == KvFormat::kNVFP4) return store_blocks<E2M1>(layout, slot, x, scale, bytes_of(part), place);
  if (layout.format == KvFormat::kE1M2) return store_blocks<E1M2>(layout, slot, x, scale, bytes_of(part), place);
  for (int64_t d = 0; d < layout.head_dim; ++d) {
    const int64_t index = place(layout, slot, d).index;
    if (layout.format == KvFormat::kFP8) {
      bytes_of(part)[index] = E4M3::encode(x[d] / scale);
    } else if (layout.format == KvFormat::kBF16) {
      const uint16_t code = BF16::encode(x[d]);
      std::memcpy(part + 2 * index, &code, sizeof code);
    } else {
      std::memcpy(part + 4 * index, x + d, sizeof(float));
    }
  }
}

float read(const KvLayout& layout, const std::byte* part, Place place, float scale) {
  const auto* bytes = reinterpret_cast<const uint8_t*>(part);
  switch (layout.format) {
    case KvFormat::kF32: return reinterpret_cast<const float*>(part)[place.index];
    case KvFormat::kBF16: return BF16::decode(reinterpret_cast<const uint16_t*>(part)[place.index]);
    case KvFormat::kFP8: return E4M3::decode(bytes[place.index]) * scale;
    case KvFormat::kNVFP4:
    case KvFormat::kE1M2: break;
  }
  const uint8_t code = E2M1::unpack(bytes, place.index), block_scale = bytes[kv_data_bytes(layout) + place.scale];
  return layout.format == KvFormat::kNVFP4 ? KvBlocks<E2M1>::decode(code, block_scale, scale)
                                           : KvBlocks<E1M2>::decode(code, block_scale, scale);
}

}  // namespace

void store_kv(const KvLayout& layout, int64_t slot, const float* key, float key_scale, const float* value,
              float value_scale, std::byte* key_part, std::byte* value_part) {
  store(layout, slot, key, key_scale, key_part, &key_place);
  store(layout, slot, value, value_scale, value_part, &value_place);
}

float read_key(const KvLayout& layout, const std::byte* part, int64_t slot, int64_t d, float scale) {
  return read(layout, part, key_place(layout, slot, d), scale);
}
float read_value(const KvLayout& layout, const std::byte* part, int64_t slot, int64_t d, float scale) {
  return read(layout, part, value_place(layout, slot, d), scale);
}

}  // namespace halfbyte::ref
