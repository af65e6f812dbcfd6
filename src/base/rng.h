// Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011): a counter-based generator, so
// a draw depends only on (seed, choice, position) and is the same on every machine, in every batch and on a GPU.
#pragma once

#include <array>
#include <cstdint>

namespace halfbyte {

using PhiloxBlock = std::array<uint32_t, 4>;

// Ten rounds of Philox4x32 on counter (c0..c3) and key (k0, k1).
constexpr PhiloxBlock philox4x32_10(PhiloxBlock counter, std::array<uint32_t, 2> key) {
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = uint64_t{0xD2511F53u} * counter[0];
    const uint64_t p1 = uint64_t{0xCD9E8D57u} * counter[2];
    counter = {static_cast<uint32_t>(p1 >> 32) ^ counter[1] ^ key[0], static_cast<uint32_t>(p1),
               static_cast<uint32_t>(p0 >> 32) ^ counter[3] ^ key[1], static_cast<uint32_t>(p0)};
    key[0] += 0x9E3779B9u;
    key[1] += 0xBB67AE85u;
  }
  return counter;
}

// The 64 random bits of one draw: counter = (position low, position high, choice, stream), key = seed.
// stream 0 is token sampling; others are free for later use.
constexpr uint64_t philox_draw(uint64_t seed, uint32_t choice, uint64_t position, uint32_t stream = 0) {
  const PhiloxBlock out =
      philox4x32_10({static_cast<uint32_t>(position), static_cast<uint32_t>(position >> 32), choice, stream},
                    {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)});
  return uint64_t{out[0]} | uint64_t{out[1]} << 32;
}

}  // namespace halfbyte
