"""Quantising rows in blocks along K (docs/numerics.md section 2). x is float32 [rows, k]; block scales are bytes.

NVFP4: 16 values, an E4M3 scale, a float32 tensor scale alpha (a multiplier). MXFP4, MXFP8: 32 values, an E8M0 scale
(OCP MX v1.0). Writer rules as in docs/formats: `floor` is OCP's, `ceil` ModelOpt's, `round74` rounds the significand.
A block (FP8: a row) with a NaN or an infinity gets a NaN scale and zero codes.
"""

from dataclasses import dataclass

import numpy as np

from .arith import F32, f32
from .formats import (E1M2_MAX, E2M1_MAX, E4M3_MAX, e1m2_encode, e1m2_decode, e2m1_decode, e2m1_encode, e4m3_decode,
                      e4m3_encode, e8m0_decode, floor_log2)

NVFP4_BLOCK, MXFP4_BLOCK = 16, 32
MX_RULES = ("floor", "ceil", "round74")


@dataclass
class Blocks:
    """Quantised rows. codes: uint8 [rows, blocks * block] (one code a byte, zero-padded); scales: uint8 [rows, blocks]."""

    format: str            # "nvfp4", "mxfp4", "mxfp8", "e1m2"
    codes: np.ndarray
    scales: np.ndarray
    alpha: np.ndarray      # float32 [rows]; ones where the format has no tensor scale
    k: int

    @property
    def block(self):
        return self.codes.shape[1] // self.scales.shape[1]

    def code_values(self):
        """float32 [rows, blocks, block]: the codes' values without any scale."""
        decode = {"nvfp4": e2m1_decode, "mxfp4": e2m1_decode, "mxfp8": e4m3_decode, "e1m2": e1m2_decode}[self.format]
        return decode(self.codes).reshape(*self.scales.shape, self.block)

    def scale_values(self):
        """float32 [rows, blocks]: the block scales without alpha."""
        return (e4m3_decode if self.format in ("nvfp4", "e1m2") else e8m0_decode)(self.scales)

    def dequantise(self):
        """float32 [rows, k]: (code * scale) * alpha; the first product is exact."""
        with np.errstate(invalid="ignore"):
            value = (self.code_values() * self.scale_values()[:, :, None]) * self.alpha[:, None, None]
        return value.reshape(len(self.codes), -1)[:, :self.k]


def in_blocks(x, block):
    """[rows, k] -> [rows, ceil(k/block), block], padded with zeros."""
    x = f32(x)
    pad = -x.shape[1] % block
    return np.pad(x, ((0, 0), (0, pad))).reshape(len(x), -1, block)


def tensor_alpha(x, denominator=2688):
    """amax / 2688 (= 6 * 448) as float32; 1 when that is zero. The tensor scale of an NVFP4 weight."""
    alpha = np.max(np.abs(f32(x)), initial=F32(0)) / F32(denominator)
    return F32(1) if alpha == 0 else alpha


def row_alpha(x, denominator=2688):
    """The `per_token` tensor scale: each row's amax / 2688, 1 where that is zero. float32 [rows]."""
    alpha = np.max(np.abs(f32(x)), axis=1, initial=F32(0)) / F32(denominator)
    return np.where(alpha == 0, F32(1), alpha).astype(F32)


def _codes(xb, step, encode):
    """encode(x / step) in true division; zero codes where the step is 0 or NaN."""
    usable = (step > 0)[:, :, None]
    codes = encode(xb / np.where(usable, step[:, :, None], F32(1)))
    return np.where(usable, codes, np.uint8(0)).astype(np.uint8).reshape(len(xb), -1)


def _e4m3_blocks(x, alpha, code_max, encode, format_name, weight):
    xb = in_blocks(x, NVFP4_BLOCK)
    alpha = np.broadcast_to(f32(alpha), (len(xb),)).astype(F32)
    amax = np.max(np.abs(xb), axis=2)
    with np.errstate(over="ignore", invalid="ignore"):
        s = amax / (code_max * alpha)[:, None]
    if weight:
        s = np.where(amax > 0, np.clip(s, F32(2.0**-9), E4M3_MAX), F32(1))
    scales = e4m3_encode(np.where(np.isfinite(amax), s, F32(np.nan)))
    with np.errstate(invalid="ignore"):
        step = e4m3_decode(scales) * alpha[:, None]       # the rounded scale; the step is rounded too
    return Blocks(format_name, _codes(xb, step, encode), scales, alpha, x.shape[1])


def quantise_nvfp4_weight(w, alpha=None):
    """s = e4m3(clamp(amax/(6 alpha), 2^-9, 448)), zero blocks 1.0 (ModelOpt's rule). alpha: the tensor's unless given."""
    return _e4m3_blocks(w, tensor_alpha(w) if alpha is None else alpha, E2M1_MAX, e2m1_encode, "nvfp4", weight=True)


def quantise_nvfp4(x, alpha):
    """Activations (ResServe 4.1 (8)-(10)): s = e4m3(amax/(6 alpha)), not clamped from below. alpha: a number or [rows]."""
    return _e4m3_blocks(x, alpha, E2M1_MAX, e2m1_encode, "nvfp4", weight=False)


def quantise_e1m2(x, alpha):
    """KV in E1M2 (ReQAT 2.4): s = e4m3(amax/(3.5 alpha)), codes e1m2(x/(s alpha))."""
    return _e4m3_blocks(x, alpha, E1M2_MAX, e1m2_encode, "e1m2", weight=False)


def mx_exponent(amax, rule):
    """e of the E8M0 scale 2^e for non-zero block maxima, unclamped. With amax = m 2^E, 1 <= m < 2:
    floor: E - 2 (floor(log2 amax) - 2);  ceil: E - 2 + (m > 1.5) (= ceil(log2(amax/6)));  round74: E - 2 + (m >= 1.75).
    """
    exponent = floor_log2(amax)
    m = np.frexp(amax)[0] * F32(2)
    up = {"floor": np.zeros(amax.shape, bool), "ceil": m > F32(1.5), "round74": m >= F32(1.75)}[rule]
    return exponent - 2 + up.astype(np.int32)


def _e8m0_blocks(x, exponent_of, encode, format_name):
    xb = in_blocks(x, MXFP4_BLOCK)
    amax = np.max(np.abs(xb), axis=2)
    finite = np.isfinite(amax)
    e = np.clip(exponent_of(np.where(finite & (amax > 0), amax, F32(1))), -127, 127)
    byte = np.where(finite, np.where(amax > 0, e + 127, 0), 255).astype(np.uint8)
    codes = _codes(xb, np.where(amax > 0, e8m0_decode(byte), F32(0)), encode)
    return Blocks(format_name, codes, byte, np.ones(len(xb), F32), x.shape[1])


def quantise_mxfp4(x, rule="round74"):
    """Weights and activations alike: byte e + 127, codes e2m1(x / 2^e)."""
    return _e8m0_blocks(x, lambda amax: mx_exponent(amax, rule), e2m1_encode, "mxfp4")


def quantise_mxfp8(x):
    """W4A8 activations beside MXFP4 weights: e = floor(log2 amax) - 8 (OCP MX v1.0), codes e4m3(x / 2^e)."""
    return _e8m0_blocks(x, lambda amax: floor_log2(amax) - 8, e4m3_encode, "mxfp8")


def quantise_fp8_rows(x, scale=None):
    """W4A8 activations beside NVFP4 weights: (codes uint8 [rows, k], scale float32 [rows]); `per_token` unless given."""
    x = f32(x)
    finite = np.isfinite(x).all(axis=1)
    scale = row_alpha(x, 448) if scale is None else np.broadcast_to(f32(scale), (len(x),))
    scale = np.where(finite, scale, F32(np.nan)).astype(F32)
    safe = np.where(finite, scale, F32(1))[:, None]
    return np.where(finite[:, None], e4m3_encode(x / safe), np.uint8(0)).astype(np.uint8), scale


def round_int_groups(w, bits, group=128):
    """Weights rounded to `bits`-bit integers in groups along K, asymmetric: a study format, kept as values and not packed."""
    w, levels = f32(w), F32(2**bits - 1)
    out = np.empty_like(w)
    for begin in range(0, w.shape[1], group):
        x = w[:, begin:begin + group]
        low, high = np.minimum(x.min(axis=1, keepdims=True), F32(0)), np.maximum(x.max(axis=1, keepdims=True), F32(0))
        step = np.maximum((high - low) / levels, F32(1e-8))
        zero = np.rint(-low / step)
        out[:, begin:begin + group] = (np.clip(np.rint(x / step) + zero, F32(0), levels) - zero) * step
    return out
