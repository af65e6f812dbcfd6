"""Linears: the contract's order against real arithmetic, the a16i16 bound, and the residue methods' algebra."""

import numpy as np
import pytest

from halfbyte_reference import blocks, formats, linear, residue
from halfbyte_reference.arith import F32, F64
from halfbyte_reference.golden import LINEAR_SHAPES, MXFP4_MODES, NVFP4_MODES, sample_rows, sample_weight
from halfbyte_reference.rng import TestData

CASES = [("nvfp4", m) for m in NVFP4_MODES] + [("mxfp4", m) for m in MXFP4_MODES]


def case(weight_format, n, k):
    data = TestData(42 + k)
    x, w = sample_rows(data, k), sample_weight(data, n, k)
    return x, w, blocks.quantise_nvfp4_weight(w) if weight_format == "nvfp4" else blocks.quantise_mxfp4(w)


def absolute_sum(rows, w, alpha_w):
    """sum_k |x^ w|: what float32 rounding errors are proportional to."""
    xs = np.abs(rows.values.astype(F64) * rows.scales.astype(F64)[:, :, None]).reshape(len(rows.values), -1)
    ws = np.abs(w.code_values().astype(F64) * w.scale_values()[:, :, None]).reshape(len(w.codes), -1)
    return xs @ ws.T * F64(alpha_w) * rows.alpha.astype(F64)[:, None]


@pytest.mark.parametrize("n, k", LINEAR_SHAPES)
@pytest.mark.parametrize("weight_format, mode", CASES)
def test_order_of_sums_stays_near_real_arithmetic(weight_format, mode, n, k):
    """Error below (blocks/8 + 3 + 4) half ulps of the absolute sum: terms, tree, accumulation, scales."""
    x, _, w = case(weight_format, n, k)
    rows = linear.quantise_rows(x, weight_format, mode, F32(0.0119))
    alpha_w = w.alpha[0]
    y, exact = linear.linear_fp4(rows, w, alpha_w), linear.exact_fp4(rows, w, alpha_w)
    bound = (w.scales.shape[1] / 8 + 7) * 2.0**-24 * absolute_sum(rows, w, alpha_w) + 1e-44
    assert (np.abs(y - exact) <= bound).all()


@pytest.mark.parametrize("n, k", LINEAR_SHAPES)
def test_w4a4_terms_are_exact(n, k):
    x, _, w = case("nvfp4", n, k)
    rows = linear.quantise_rows(x, "nvfp4", "a4_per_token")
    d, scale = linear.block_dots(rows, w), w.scale_values()[None] * rows.scales[:, None]
    exact = np.einsum("mbi,nbi->mnb", rows.values.astype(F64), w.code_values().astype(F64))
    assert np.array_equal(d, exact) and np.array_equal(d * scale, exact * scale.astype(F64))


def test_w4a8_block_dots_need_more_than_24_bits():
    """Why step 1 rounds for FP8: 15 products 6 * 448 and one .5 * 2^-9 in a block."""
    w = blocks.Blocks("nvfp4", np.array([[7] * 15 + [1]], np.uint8), np.array([[0x38]], np.uint8), np.ones(1, F32), 16)
    rows = linear.rows_fp8(np.array([[448] * 15 + [2.0**-9]], F32), 16, F32(1))
    assert linear.block_dots(rows, w)[0, 0, 0] == F32(40320) and linear.exact_fp4(rows, w, 1)[0, 0] == 40320 + 2.0**-10


@pytest.mark.parametrize("weight_format", ["nvfp4", "mxfp4"])
def test_a16i16_bound_and_range(weight_format):
    """|d - d_exact| <= 2^(E-14) sum|w| for each block, integers within two signed bytes (docs/numerics.md 3.2)."""
    worst = 0.0
    for k in (16, 33, 80, 576):
        x, _, w = case(weight_format, 9, k)
        x = np.concatenate([x, x[:1] * F32(2.0**-62), x[:1] * F32(2.0**-90), np.full((1, k), 32640 * 2.0**-10, F32)])
        exact, fast = (linear.quantise_rows(x, weight_format, m) for m in ("a16", "a16i16"))
        assert np.abs(fast.values).max() <= 32639 and np.array_equal(fast.values, np.rint(fast.values))
        wv = w.code_values().astype(F64)
        de = np.einsum("mbi,nbi->mnb", exact.values.astype(F64), wv)
        df = np.einsum("mbi,nbi->mnb", fast.values.astype(F64) * fast.scales.astype(F64)[:, :, None], wv)
        assert np.array_equal(linear.block_dots(fast, w), np.einsum("mbi,nbi->mnb", fast.values.astype(F64), wv))
        bound = fast.scales.astype(F64)[:, None] * np.abs(wv).sum(axis=2)[None]
        assert (np.abs(df - de) <= bound).all()
        with np.errstate(invalid="ignore"):
            worst = max(worst, np.nanmax(np.abs(df - de) / bound))
    assert worst > 0.01                        # the bound is about something that happens


def test_nan_poisons_its_row_only():
    x, _, w = case("nvfp4", 9, 80)
    x[1, 20] = np.nan
    for mode in NVFP4_MODES:
        y = linear.linear_fp4(linear.quantise_rows(x, "nvfp4", mode, F32(0.0119)), w, w.alpha[0])
        assert np.isnan(y[1]).all() and np.isfinite(y[[0, 2, 3, 4]]).all()


def test_rows_do_not_depend_on_their_company():
    x, _, w = case("nvfp4", 9, 80)
    for mode in NVFP4_MODES:
        run = lambda rows: linear.linear_fp4(linear.quantise_rows(rows, "nvfp4", mode, F32(0.0119)), w, w.alpha[0])
        assert np.array_equal(run(x)[2:3], run(x[2:3]))


@pytest.mark.parametrize("k", [1, 31, 32, 33, 576])
def test_plain_weights(k):
    data = TestData(k)
    x, w = data.normal(3, k), data.normal(5, k)
    y, exact = linear.linear_plain(x, w), linear.exact_plain(x, w)
    assert (np.abs(y - exact) <= (k / 32 + 6) * 2.0**-24 * (np.abs(x.astype(F64)) @ np.abs(w.astype(F64)).T)).all()


def gaussian_case(weight_format, k=256):
    data = TestData(7)
    x, w = data.normal(6, k), data.normal(12, k)
    return x, w, blocks.quantise_nvfp4_weight(w) if weight_format == "nvfp4" else blocks.quantise_mxfp4(w)


@pytest.mark.parametrize("weight_format", ["nvfp4", "mxfp4"])
def test_m_ext_is_the_residue_sum_and_helps(weight_format):
    x, _, w = gaussian_case(weight_format)
    y, base, res = residue.m_ext(x, w, w.alpha[0])
    wd = w.dequantise().astype(F64)
    expected = (base.dequantise().astype(F64) + res.dequantise()) @ wd.T
    assert np.allclose(y, expected, rtol=0, atol=1e-5 * np.abs(expected).max())
    plain = linear.linear_fp4(linear.rows_of_blocks(base), w, w.alpha[0])
    target = x.astype(F64) @ wd.T
    assert np.abs(y - target).max() < 0.3 * np.abs(plain - target).max()


@pytest.mark.parametrize("weight_format", ["nvfp4", "mxfp4"])
@pytest.mark.parametrize("ratio", residue.K_EXT_RATIOS)
def test_k_ext_algebra(weight_format, ratio):
    x, w_float, w = gaussian_case(weight_format)
    channels = residue.k_ext_channels(np.abs(TestData(8).normal(256)), ratio)
    ws = residue.k_ext_weight(w_float, channels, weight_format, w.alpha[0], ratio)
    y, base, res = residue.k_ext(x, w, ws, channels, w.alpha[0])
    w_s = (w.dequantise()[:, channels] if ws is None else ws.dequantise()).astype(F64)
    expected = base.dequantise().astype(F64) @ w.dequantise().astype(F64).T + res.dequantise().astype(F64) @ w_s.T
    assert np.allclose(y, expected, rtol=0, atol=1e-5 * np.abs(expected).max())


def test_k_ext_takes_a_fixed_count_of_each_group_of_eight():
    score = np.array([5, 1, 9, 9, 0, 2, 3, 4, 1, 1, 1], F32)
    assert residue.k_ext_channels(score, 0.125).tolist() == [2, 8]
    assert residue.k_ext_channels(score, 0.25).tolist() == [2, 3, 8, 9]
    assert residue.k_ext_channels(score, 1.0).tolist() == list(range(11))


def test_k_ext_zero_blocks_change_no_bit():
    """The extension may be padded to a storage width."""
    x, _, w = gaussian_case("nvfp4")
    rows = linear.quantise_rows(x, "nvfp4", "a4_per_token")
    pad = linear.Rows(np.zeros((6, 5, 16), F32), np.zeros((6, 5), F32), rows.alpha, {})
    w_pad = residue.concat_blocks(w, blocks.Blocks("nvfp4", np.zeros((12, 80), np.uint8), np.zeros((12, 5), np.uint8), w.alpha, 80))
    assert np.array_equal(linear.linear_unbiased(rows.concat(pad), w_pad, w.alpha[0]), linear.linear_unbiased(rows, w, w.alpha[0]))


@pytest.mark.parametrize("weight_format, k", [("nvfp4", 256), ("nvfp4", 72), ("mxfp4", 264)])
def test_arc_equals_residues_on_the_selected_channels(weight_format, k):
    x, w_float, _ = gaussian_case(weight_format, k)
    score, s = np.abs(TestData(9).normal(k)), 64
    order = residue.arc_order(score)
    wa = residue.arc_weight(w_float, order, s, weight_format)
    y, base, res = residue.arc(x, wa, order, s, wa.alpha[0])
    plain = residue.arc_split(w_float, order, s, wa.block)
    q = blocks.quantise_nvfp4_weight(plain, wa.alpha[0]) if weight_format == "nvfp4" else blocks.quantise_mxfp4(plain)
    wd = q.dequantise().astype(F64)
    expected = base.dequantise().astype(F64) @ wd.T + res.dequantise().astype(F64) @ wd[:, -s:].T
    assert np.allclose(y, expected, rtol=0, atol=1e-5 * np.abs(expected).max())


def test_bf16_weights_in_the_fp4_values_are_exact():
    """E2M1 x E4M3 has 6 significant bits, so dequantised weights without alpha fit BF16 (prefill may rely on it)."""
    values = formats.e2m1_decode(np.arange(16))[:, None] * formats.e4m3_decode(np.arange(127))[None, :]
    assert np.array_equal(formats.bf16_round(values), values)


@pytest.mark.parametrize("halves", [False, True])
def test_the_tile_order_stays_within_its_bound(halves):
    """docs/numerics.md 3.5, and another order than the plain one where values are not small integers."""
    data, k = TestData(41), 200
    x, w = formats.bf16_round(data.normal(3, k)), formats.bf16_round(data.normal(5, k))
    y, exact = linear.tile_sums(x, w, halves), linear.exact_plain(x, w)
    size = linear.exact_plain(np.abs(x), np.abs(w))
    assert np.all(np.abs(y - exact) <= (k / 32 + 17) * 2.0**-24 * size)
    assert np.any(y != linear.linear_plain(x, w))
    small = np.rint(F32(4) * x), np.rint(F32(4) * w)
    assert np.array_equal(linear.tile_sums(*small, halves), linear.exact_plain(*small))


def test_the_tile_order_flushes_subnormal_numbers():
    x, w = np.full((1, 32), 2.0**-100, np.float32), np.full((1, 32), 2.0**-30, np.float32)
    assert linear.tile_sums(x, w, False)[0, 0] == 0.0          # every product is below 2^-126
    assert linear.linear_plain(x, w)[0, 0] != 0.0
    assert linear.tile_sums(np.full((1, 32), 2.0**-130, np.float32), np.full((1, 32), 2.0**20, np.float32), True)[0, 0] == 0.0
