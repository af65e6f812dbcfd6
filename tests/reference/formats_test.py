"""Every code and dense random rounding against ml_dtypes, which is independent of us."""

import numpy as np
import pytest

from halfbyte_reference import formats
from halfbyte_reference.arith import F32

ml_dtypes = pytest.importorskip("ml_dtypes", reason="ml_dtypes is not installed: formats are not compared with it")

BYTES = np.arange(256, dtype=np.uint8)


def same(a, b):
    assert np.array_equal(np.asarray(a, F32), np.asarray(b, F32), equal_nan=True)


def dense(seed=0, n=300_000):
    rng = np.random.default_rng(seed)
    x = rng.standard_normal(n) * np.exp2(rng.integers(-14, 12, n))
    ties = np.arange(-1024, 1024) / 64                       # every tie of the small formats, exactly
    return np.concatenate([x, ties, ties * 32, [0.0, -0.0]]).astype(F32)


def test_every_code():
    same(formats.e4m3_decode(BYTES), BYTES.view(ml_dtypes.float8_e4m3fn).astype(F32))
    same(formats.e8m0_decode(BYTES), BYTES.view(ml_dtypes.float8_e8m0fnu).astype(F32))
    same(formats.e2m1_decode(BYTES[:16]), BYTES[:16].view(ml_dtypes.float4_e2m1fn).astype(F32))
    words = np.arange(65536, dtype=np.uint16)
    same(formats.bf16_decode(words), words.view(ml_dtypes.bfloat16).astype(F32))


def test_every_code_survives_a_round_trip():
    for decode, encode, codes in ((formats.e4m3_decode, formats.e4m3_encode, BYTES),
                                  (formats.e2m1_decode, formats.e2m1_encode, BYTES[:16]),
                                  (formats.e1m2_decode, formats.e1m2_encode, BYTES[:16])):
        keep = ~np.isnan(decode(codes)) & ~((decode(codes) == 0) & (codes > 0))        # our writers have no -0 in FP4
        assert np.array_equal(encode(decode(codes[keep])), codes[keep])


def test_rounding_e4m3():
    x = dense()
    expected = np.clip(x, -448, 448).astype(ml_dtypes.float8_e4m3fn).view(np.uint8)    # ml_dtypes does not saturate
    assert np.array_equal(formats.e4m3_encode(x), expected)
    assert formats.e4m3_encode(F32([np.inf, -np.inf, np.nan])).tolist() == [0x7E, 0xFE, 0x7F]


def test_rounding_e2m1():
    x = dense(1)
    same(formats.e2m1_decode(formats.e2m1_encode(x)), np.clip(x, -6, 6).astype(ml_dtypes.float4_e2m1fn).astype(F32))
    assert formats.e2m1_encode(F32([np.nan, -0.1, -0.25, np.inf, -np.inf])).tolist() == [7, 0, 0, 7, 15]


def test_rounding_e1m2_is_a_uniform_grid():
    x = dense(2)
    same(formats.e1m2_decode(formats.e1m2_encode(x)), np.clip(np.rint(x * 2), -7, 7) / 2)


def test_rounding_bf16():
    bits = np.random.default_rng(4).integers(0, 2**32, 300_000, dtype=np.uint32)
    x = np.concatenate([bits, (bits & 0xFFFF0000) | 0x8000]).astype(np.uint32).view(F32)
    keep = ~np.isnan(x)
    with np.errstate(over="ignore"):
        assert np.array_equal(formats.bf16_encode(x)[keep], x[keep].astype(ml_dtypes.bfloat16).view(np.uint16))
    assert np.isnan(formats.bf16_decode(formats.bf16_encode(x[~keep]))).all()


def test_floor_log2_and_pow2_reach_the_subnormals():
    e = np.arange(-149, 128)
    assert np.array_equal(formats.floor_log2(formats.pow2(e)), e)


def test_nibbles_even_k_is_low():
    assert formats.pack_nibbles(np.array([[0xB, 0x2]], np.uint8)).tolist() == [[0x2B]]
    codes = np.random.default_rng(5).integers(0, 16, (3, 32)).astype(np.uint8)
    assert np.array_equal(formats.unpack_nibbles(formats.pack_nibbles(codes)), codes)
