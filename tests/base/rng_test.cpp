#include "base/rng.h"

#include <gtest/gtest.h>

namespace halfbyte {
namespace {

// Known answers published with Random123 (kat_vectors, "philox4x32 10").
TEST(Philox, KnownAnswers) {
  EXPECT_EQ(philox4x32_10({0, 0, 0, 0}, {0, 0}), (PhiloxBlock{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(philox4x32_10({0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}, {0xffffffff, 0xffffffff}),
            (PhiloxBlock{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox4x32_10({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (PhiloxBlock{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(Philox, DrawPutsEachArgumentInItsPlace) {
  const PhiloxBlock block = philox4x32_10({0x55667788, 0x11223344, 9, 3}, {0xEEFF0011, 0xAABBCCDD});
  EXPECT_EQ(philox_draw(0xAABBCCDDEEFF0011u, 9, 0x1122334455667788u, 3), uint64_t{block[0]} | uint64_t{block[1]} << 32);
}

static_assert(philox_draw(0, 0, 0) == 0xe169c58d6627e8d5u, "usable at compile time");

}  // namespace
}  // namespace halfbyte
