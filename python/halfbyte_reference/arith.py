"""Float arithmetic that the contract fixes: fma, folds, exp32, log64 (docs/numerics.md sections 3.3 and 4)."""

import numpy as np

F32 = np.float32
F64 = np.float64


def f32(x):
    """x as a float32 array (no copy when it is one)."""
    return np.asarray(x, dtype=F32)


def fma32(a, b, c):
    """round32(a*b + c) with one rounding, as the fma instruction does.

    The product of two float32 is exact in float64. The float64 sum is turned into round-to-odd (Boldo and Melquiond,
    "Emulation of FMA and correctly rounded sums", 2008), after which rounding to float32 equals a single rounding.
    """
    a, b, c = (v.astype(F64) for v in np.broadcast_arrays(f32(a), f32(b), f32(c)))
    p = a * b
    with np.errstate(invalid="ignore"):
        s = np.asarray(p + c)
        pp = s - c                                  # TwoSum (Knuth): s + err == p + c exactly
        err = (p - pp) + (c - (s - pp))
    bits = s.view(np.int64)
    move = np.isfinite(s) & (err != 0) & ((bits & 1) == 0)
    away = (err > 0) == (s > 0)                     # the exact value has a larger magnitude than s
    bits = np.where(move, np.where(away, bits + 1, bits - 1), bits)
    return bits.view(F64).astype(F32)


def fold(lanes):
    """Sum over axis 0 (a power of two long): lane i += lane i + half, halving until one is left."""
    while lanes.shape[0] > 1:
        half = lanes.shape[0] // 2
        lanes = lanes[:half] + lanes[half:]
    return lanes[0]


_LOG2E = F32(1.44269504)
_LN2_HI, _LN2_LO = F32(0.693359375), F32(-2.12194440e-4)
_EXP_POLY = [F32(c) for c in (1.9875691500e-4, 1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1,
                              5.0000001201e-1)]


def exp32(x):
    """e^x for x <= 0 in plain float32 operations (polynomial of Cephes' expf); 0 below -87. Every backend has these bits."""
    x = f32(x)
    safe = np.where(x < F32(-87), F32(0), x)
    n = np.rint(safe * _LOG2E)
    r = (safe - n * _LN2_HI) - n * _LN2_LO
    p = _EXP_POLY[0]
    for c in _EXP_POLY[1:]:
        p = p * r + c
    p = (p * (r * r) + r) + F32(1)
    scale = ((n.astype(np.int32) + 127) << 23).astype(np.int32).view(F32)
    return np.where(x < F32(-87), F32(0), p * scale).astype(F32)


_LG = (6.666666666666735130e-01, 3.999999999940941908e-01, 2.857142874366239149e-01, 2.222219843214978396e-01,
       1.818357216161805012e-01, 1.531383769920937332e-01, 1.479819860511658591e-01)


def log64(z):
    """ln z of a normal z > 0 in plain float64 operations (the algorithm of fdlibm's e_log.c, below 1 ulp).

    z = 2^k m, m in [sqrt(1/2), sqrt 2), f = m - 1, s = f/(2 + f):
    log = k ln2_hi - ((h - (s (h + R(s^2)) + k ln2_lo)) - f), h = f^2/2.
    Libraries differ in the last bit of log; entropies steer temperatures, so the operations are fixed here.
    """
    m, k = np.frexp(F64(z))
    if m < 0.7071067811865476:
        m, k = m * 2.0, k - 1
    k = F64(k)
    f = m - 1.0
    s = f / (2.0 + f)
    w = s * s
    r = F64(_LG[6])
    for c in reversed(_LG[:6]):
        r = r * w + c
    r = r * w
    h = (0.5 * f) * f
    return k * 6.93147180369123816490e-01 - ((h - (s * (h + r) + k * 1.90821492927058770002e-10)) - f)
