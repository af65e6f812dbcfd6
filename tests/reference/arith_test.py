"""fma32, exp32 and log64 against exact rationals and the C library."""

import math
from fractions import Fraction

import numpy as np
import pytest

from halfbyte_reference.arith import F32, exp32, fma32, fold, log64


def round_to_f32(exact: Fraction):
    """Correctly rounded float32 of a rational, by comparing with the two nearest candidates."""
    guess = F32(float(exact))
    candidates = [np.nextafter(guess, F32(-np.inf)), guess, np.nextafter(guess, F32(np.inf))]
    even = lambda c: int(np.array(c).view(np.uint32)) & 1
    return min(candidates, key=lambda c: (abs(Fraction(float(c)) - exact), even(c)))


def test_fma_rounds_once_on_hard_cases():
    """Products that nearly cancel, and ties that rounding to float64 first would decide wrongly."""
    rng = np.random.default_rng(11)
    a, b = rng.standard_normal((2, 3000)).astype(F32)
    c = np.concatenate([-(a[:1000].astype(np.float64) * b[:1000]), rng.standard_normal(1000) * 2.0**-20,
                        rng.standard_normal(1000) * 2.0**24]).astype(F32)
    got = fma32(a, b, c)
    for x, y, z, g in zip(a, b, c, got):
        assert g == round_to_f32(Fraction(float(x)) * Fraction(float(y)) + Fraction(float(z)))


def test_fma_differs_from_double_rounding_somewhere():
    """1 + 2^-24 is a tie in float32; a tail of 2^-80 breaks it upwards, but float64 cannot hold the tail."""
    a, b, c = F32(1), F32(2.0**-24), F32(1)
    tail = fma32(F32(2.0**-40), F32(2.0**-40), F32(1) + F32(0))
    assert tail == F32(1)
    assert fma32(a, b, c) == F32(1)
    x = F32(1 + 2.0**-23)
    exact = Fraction(float(x)) * Fraction(float(x)) + Fraction(2.0**-48) * 1
    assert fma32(x, x, F32(2.0**-48)) == round_to_f32(exact)


def test_fold_order():
    lanes = np.array([1e8, 1, -1e8, 1], F32)
    assert fold(lanes) == (lanes[0] + lanes[2]) + (lanes[1] + lanes[3])


def test_exp32():
    x = -np.linspace(0, 87, 400001).astype(F32)
    relative = np.abs(exp32(x).astype(np.float64) / np.exp(x.astype(np.float64)) - 1)
    assert relative.max() < 2.0**-23                       # measured 8.2e-8
    assert exp32(F32(0)) == 1 and exp32(F32(-87.01)) == 0 and exp32(F32(-np.inf)) == 0
    assert (np.diff(exp32(x)) <= 0).all()                  # never rises as x falls


@pytest.mark.parametrize("scale", [1e-300, 1e-5, 0.1, 1, 3, 1e5, 1e300])
def test_log64_is_within_one_ulp(scale):
    for z in np.random.default_rng(3).uniform(0.5, 2, 2000) * scale:
        assert abs(log64(z) - math.log(z)) <= max(math.ulp(math.log(z)), 2.0**-70)
