"""Philox4x32-10 (Salmon, Moraes, Dror, Shaw: "Parallel random numbers: as easy as 1, 2, 3", SC 2011) and test data."""

import numpy as np

from .arith import F32

_MASK = 0xFFFFFFFF


def philox4x32_10(counter, key):
    """Four 32-bit words of counter c0..c3 under key k0, k1."""
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(10):
        p0, p1 = 0xD2511F53 * c0, 0xCD9E8D57 * c2
        c0, c1, c2, c3 = (p1 >> 32) ^ c1 ^ k0, p1 & _MASK, (p0 >> 32) ^ c3 ^ k1, p0 & _MASK
        k0, k1 = (k0 + 0x9E3779B9) & _MASK, (k1 + 0xBB67AE85) & _MASK
    return c0, c1, c2, c3


def philox_draw(seed, choice, position, stream=0):
    """The 64 bits of one token draw: counter (position low, position high, choice, stream), key = seed."""
    out = philox4x32_10((position & _MASK, position >> 32, choice, stream), (seed & _MASK, seed >> 32))
    return out[0] | out[1] << 32


def philox_words(seed, n, stream=0):
    """n 32-bit words, vectorised: block i of four words has counter (i, 0, 0, stream)."""
    blocks = (n + 3) // 4
    c = [np.arange(blocks, dtype=np.uint64), np.zeros(blocks, np.uint64), np.zeros(blocks, np.uint64),
         np.full(blocks, stream, np.uint64)]
    k0, k1 = seed & _MASK, seed >> 32
    low, shift = np.uint64(_MASK), np.uint64(32)
    for _ in range(10):
        p0, p1 = np.uint64(0xD2511F53) * c[0], np.uint64(0xCD9E8D57) * c[2]
        c = [(p1 >> shift) ^ c[1] ^ np.uint64(k0), p1 & low, (p0 >> shift) ^ c[3] ^ np.uint64(k1), p0 & low]
        k0, k1 = (k0 + 0x9E3779B9) & _MASK, (k1 + 0xBB67AE85) & _MASK
    return np.stack(c, axis=1).ravel()[:n].astype(np.uint32)


class TestData:
    """Deterministic pseudo-random data from Philox alone: the same bytes with any numpy, C library or machine."""

    __test__ = False  # not a pytest class

    def __init__(self, seed):
        self.seed, self.stream = seed, 0

    def words(self, *shape):
        self.stream += 1
        return philox_words(self.seed, int(np.prod(shape)), self.stream).reshape(shape)

    def integers(self, low, high, *shape):
        """low <= i < high (modulo; the tiny bias does not matter here)."""
        return (self.words(*shape) % np.uint32(high - low)).astype(np.int64) + low

    def uniform(self, *shape):
        """[0, 1), multiples of 2^-24, float32."""
        return ((self.words(*shape) >> 8).astype(F32)) * F32(2.0**-24)

    def normal(self, *shape):
        """About N(0, 1): twelve uniforms summed, less 6 (exact additions, so no libm is involved)."""
        u = (self.words(12, *shape) >> 12).astype(np.float64) * 2.0**-20
        return (u.sum(axis=0) - 6.0).astype(F32)
