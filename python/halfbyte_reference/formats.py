"""Number formats and their rounding (docs/numerics.md section 1). Codes are uint8 arrays, values float32 arrays.

E2M1, E8M0: OCP Microscaling Formats (MX) v1.0. E4M3: OCP 8-bit Floating Point v1.0 ("fn", no infinities).
E1M2: ReQAT (arXiv 2606.15682), the 4-bit KV format. All roundings: nearest, ties to even, saturating.
"""

import numpy as np

from .arith import F32, f32

E2M1_MAX, E1M2_MAX, E4M3_MAX = F32(6), F32(3.5), F32(448)

_E2M1 = np.array([0, .5, 1, 1.5, 2, 3, 4, 6], F32)
_E1M2 = np.arange(8, dtype=F32) / F32(2)


def _fp4_encode(x, magnitudes):
    """sign<<3 | index of the nearest magnitude, a tie to the even index; NaN -> 7; a zero has no sign."""
    x = f32(x)
    ax = np.abs(x)
    index = np.zeros(x.shape, np.uint8)
    for i in range(7):
        border = (magnitudes[i] + magnitudes[i + 1]) / F32(2)
        index += ((ax > border) | ((ax == border) & (i % 2 == 1))).astype(np.uint8)
    index = np.where(np.isnan(x), np.uint8(7), index)
    return np.where((x < 0) & (index > 0), index | np.uint8(8), index).astype(np.uint8)


def _fp4_decode(code, magnitudes):
    code = np.asarray(code, np.uint8)
    return np.where(code & 8, -magnitudes[code & 7], magnitudes[code & 7]).astype(F32)


def e2m1_encode(x):
    return _fp4_encode(x, _E2M1)


def e2m1_decode(code):
    return _fp4_decode(code, _E2M1)


def e1m2_encode(x):
    return _fp4_encode(x, _E1M2)


def e1m2_decode(code):
    return _fp4_decode(code, _E1M2)


def floor_log2(x):
    """floor(log2 |x|) of non-zero finite float32 values, exact (subnormals too)."""
    return (np.frexp(f32(x))[1] - 1).astype(np.int32)


def pow2(e):
    """2^e as float32, exact for -149 <= e <= 127."""
    return np.ldexp(F32(1), np.asarray(e, np.int32)).astype(F32)


def e4m3_decode(code):
    """(-1)^s 2^(e-7) (1 + m/8), e > 0; (-1)^s 2^-6 (m/8), e = 0; 0x7F and 0xFF are NaN."""
    code = np.asarray(code, np.uint8).astype(np.int32)
    e, m = (code >> 3) & 15, code & 7
    value = np.where(e == 0, np.ldexp(m.astype(F32), -9), np.ldexp((8 + m).astype(F32), e - 10)).astype(F32)
    value = np.where((code & 0x7F) == 0x7F, F32(np.nan), value)
    return np.where(code & 0x80, -value, value).astype(F32)


_E4M3_POSITIVE = e4m3_decode(np.arange(127, dtype=np.uint8))


def e4m3_encode(x):
    """Saturates at 448 (infinities too); NaN -> 0x7F; keeps the sign of zero."""
    x = f32(x)
    ax = np.minimum(np.abs(np.where(np.isnan(x), F32(0), x)), E4M3_MAX)
    step = np.maximum(floor_log2(np.where(ax == 0, F32(1), ax)), -6) - 3
    rounded = np.ldexp(np.rint(np.ldexp(ax, -step)), step).astype(F32)      # both ldexp are exact where it matters
    code = np.searchsorted(_E4M3_POSITIVE, rounded).astype(np.uint8)
    code = np.where(np.signbit(x), code | np.uint8(0x80), code)
    return np.where(np.isnan(x), np.uint8(0x7F), code).astype(np.uint8)


def e8m0_decode(code):
    """2^(code - 127); 255 is NaN. 2^-127 is a float32 subnormal."""
    code = np.asarray(code, np.uint8).astype(np.int32)
    return np.where(code == 255, F32(np.nan), pow2(np.where(code == 255, 0, code - 127))).astype(F32)


def bf16_encode(x):
    """uint16 bits, round to nearest even; NaN stays NaN (quiet bit set, payload's upper bits kept)."""
    bits = f32(x).view(np.uint32)
    rounded = ((bits.astype(np.uint64) + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)
    return np.where(np.isnan(f32(x)), ((bits >> 16) | 0x40).astype(np.uint16), rounded).astype(np.uint16)


def bf16_decode(bits):
    return (np.asarray(bits, np.uint16).astype(np.uint32) << 16).view(F32)


def bf16_round(x):
    return bf16_decode(bf16_encode(x))


def pack_nibbles(codes):
    """[..., 2n] codes -> [..., n] bytes, even k in the low nibble."""
    return (codes[..., 0::2] | (codes[..., 1::2] << 4)).astype(np.uint8)


def unpack_nibbles(packed):
    packed = np.asarray(packed, np.uint8)
    return np.stack([packed & 15, packed >> 4], axis=-1).reshape(*packed.shape[:-1], -1)
