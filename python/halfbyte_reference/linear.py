"""y[m,n] = sum_k x[m,k] w[n,k] in every mode of the precision plan (docs/numerics.md section 3).

Activations of every FP4-weight mode become the same thing, `Rows`: a value a channel, a scale a block, a scale a row.
"""

import math
from dataclasses import dataclass

import numpy as np

from .arith import F32, F64, f32, fma32, fold
from .blocks import (Blocks, in_blocks, quantise_fp8_rows, quantise_mxfp4, quantise_mxfp8, quantise_nvfp4, row_alpha)
from .formats import bf16_round, e4m3_decode, floor_log2, pow2


@dataclass
class Rows:
    """What the linear multiplies with: x^[m, k] = values[m, b, i] * scales[m, b] * alpha[m]."""

    values: np.ndarray   # float32 [rows, blocks, block], codes without scale
    scales: np.ndarray   # float32 [rows, blocks]
    alpha: np.ndarray    # float32 [rows]
    stored: dict         # what an implementation keeps (codes, scale bytes), for the golden files

    def concat(self, other):
        """Blocks of `other` behind ours (K-Ext); both have the same alpha."""
        return Rows(np.concatenate([self.values, other.values], axis=1),
                    np.concatenate([self.scales, other.scales], axis=1), self.alpha, {})


def rows_of_blocks(q: Blocks):
    codes = q.codes[:, :q.k] if q.format == "mxfp8" else q.codes      # FP8 codes are kept without padding
    return Rows(q.code_values(), q.scale_values(), q.alpha, {"codes": codes, "scales": q.scales, "alpha": q.alpha})


def rows_a16(x, block):
    """W4A16, `ref`: x rounded to BF16, products exact."""
    values = in_blocks(bf16_round(x), block)
    return Rows(values, np.ones(values.shape[:2], F32), np.ones(len(values), F32), {})


def rows_f32(x, block):
    """Float32 activations beside FP4 weights (`ref` only): as rows_a16 without the rounding."""
    values = in_blocks(x, block)
    return Rows(values, np.ones(values.shape[:2], F32), np.ones(len(values), F32), {})


def rows_a16i16(x, block):
    """W4A16, fast form `a16i16`: a block of BF16 values as int16 with one power of two.

    E = max(floor(log2 amax), -64) (zero block: -64), x^ = rne(x * 2^(14-E)) clamped to +-32639, scale 2^(E-14).
    """
    values = in_blocks(bf16_round(x), block)
    amax = np.max(np.abs(values), axis=2)
    finite = np.isfinite(amax)
    e = np.where(finite & (amax > 0), np.maximum(floor_log2(np.where(finite & (amax > 0), amax, F32(1))), -64), -64)
    ints = np.rint(np.where(finite[:, :, None], values, F32(0)) * pow2(14 - e)[:, :, None])
    ints = np.clip(ints, F32(-32639), F32(32639))
    scales = np.where(finite, pow2(e - 14), F32(np.nan)).astype(F32)
    return Rows(ints, scales, np.ones(len(ints), F32),
                {"codes": ints.astype(np.int16).reshape(len(ints), -1), "scales": scales})


def rows_fp8(x, block, scale=None):
    """W4A8 beside NVFP4: E4M3 with one float32 scale a row."""
    codes, scale = quantise_fp8_rows(x, scale)
    values = in_blocks(e4m3_decode(codes), block)
    return Rows(values, np.ones(values.shape[:2], F32), scale, {"codes": codes, "alpha": scale})


def quantise_rows(x, weight_format, mode, input_scale=None):
    """x float32 [rows, k] -> Rows. mode: f32, a16, a16i16, a8_static, a8_per_token, a4_static, a4_per_token (NVFP4);
    f32, a16, a16i16, a8 (MXFP8), a4 (MXFP4, round74) beside MXFP4 weights."""
    block = {"nvfp4": 16, "mxfp4": 32}[weight_format]
    plain = {"f32": rows_f32, "a16": rows_a16, "a16i16": rows_a16i16}
    if mode in plain:
        return plain[mode](x, block)
    if weight_format == "mxfp4":
        return rows_of_blocks({"a8": quantise_mxfp8, "a4": quantise_mxfp4}[mode](x))
    kind, source = mode.split("_", 1)
    scale = {"static": input_scale, "per_token": None}[source]
    if kind == "a8":
        return rows_fp8(x, block, scale)
    return rows_of_blocks(quantise_nvfp4(x, row_alpha(x) if scale is None else scale))


def sum_blocks(t):
    """Step 3: t [..., blocks] in groups of 8, pairwise inside a group, groups ascending into one float32 accumulator."""
    t = np.concatenate([t, np.zeros((*t.shape[:-1], -t.shape[-1] % 8), F32)], axis=-1)
    acc = np.zeros(t.shape[:-1], F32)
    for g in range(0, t.shape[-1], 8):
        t0, t1, t2, t3, t4, t5, t6, t7 = (t[..., g + i] for i in range(8))
        acc = acc + (((t0 + t1) + (t2 + t3)) + ((t4 + t5) + (t6 + t7)))
    return acc


def block_dots(rows: Rows, w: Blocks):
    """d_b, float32 [rows, n, blocks]: the float64 sum in ascending k of exact products, rounded once.

    FP4, FP8 and int16 activations: the float64 sum is exact too (an integer below 2^28 times a power of two).
    """
    wv = w.code_values().astype(F64)
    d = np.zeros((len(rows.values), len(wv), wv.shape[1]), F64)
    for i in range(wv.shape[2]):
        d = d + rows.values[:, None, :, i].astype(F64) * wv[None, :, :, i]
    return d.astype(F32)


def linear_unbiased(rows: Rows, w: Blocks, alpha_w):
    """Steps 1 to 4 without the bias: float32 [rows, n]. alpha_w: the weight's tensor scale (1 for MXFP4)."""
    scale = w.scale_values()[None, :, :] * rows.scales[:, None, :]
    t = block_dots(rows, w) * scale
    return sum_blocks(t) * (F32(alpha_w) * rows.alpha)[:, None]


def linear_fp4(rows: Rows, w: Blocks, alpha_w, bias=None):
    y = linear_unbiased(rows, w, alpha_w)
    return y if bias is None else y + f32(bias)[None, :]


def exact_fp4(rows: Rows, w: Blocks, alpha_w, bias=None):
    """The same sum in real numbers, rounded to float64 at the end (math.fsum of exact products)."""
    xs = rows.values.astype(F64) * rows.scales.astype(F64)[:, :, None]
    ws = w.code_values().astype(F64) * w.scale_values().astype(F64)[:, :, None]
    y = np.empty((len(xs), len(ws)), F64)
    for m in range(len(xs)):
        for n in range(len(ws)):
            y[m, n] = math.fsum((xs[m] * ws[n]).ravel()) * (float(F32(alpha_w)) * float(rows.alpha[m]))
    return y if bias is None else y + f32(bias).astype(F64)[None, :]


def linear_plain(x, w, bias=None):
    """BF16 or float32 weights, or the codes of FP8 ones (section 3.3): 32 partial sums by k mod 32, fma in ascending k, folded 16, 8, 4, 2, 1.
    x must already be rounded as the plan says (BF16 for `bf16`, untouched for `f32`)."""
    x, w = f32(x), f32(w)
    lanes = np.zeros((32, len(x), len(w)), F32)
    for k in range(x.shape[1]):
        lanes[k % 32] = fma32(x[:, None, k], w[None, :, k], lanes[k % 32])
    y = fold(lanes)
    return y if bias is None else y + f32(bias)[None, :]


def linear_fp8_weight(x, codes, scale, bias=None):
    """FP8 weights (section 3.3): linear_plain over value * 2^-8, then times 2^8 times the row's scale. codes uint8 [n, k],
    scale float32 [n]."""
    y = linear_plain(x, e4m3_decode(codes) * F32(2.0**-8)) * (F32(256) * f32(scale))[None, :]
    return y if bias is None else y + f32(bias)[None, :]


def flush(v):
    """Subnormal numbers as zeros of their sign, as AMX's tile instruction has them."""
    return np.where(np.abs(v) < F32(2.0**-126), np.copysign(F32(0), v), v).astype(F32)


def tile_sums(x, w, halves):
    """The tile order (section 3.5): float32 [m, n] from x [m, k] and w [n, k]. A step of 32 k has two sums of 16 products, of its first
    and last 16 k (`halves`) or of its even and odd k."""
    pad = [(0, 0), (0, -x.shape[1] % 32)]
    x, w = (flush(np.pad(f32(v), pad)) for v in (x, w))
    acc = np.zeros((len(x), len(w)), F32)
    for first in range(0, x.shape[1], 32):
        sums = np.zeros((2,) + acc.shape, F32)
        for i in range(16):
            for part in range(2):
                k = first + (16 * part + i if halves else 2 * i + part)
                sums[part] = flush(fma32(x[:, None, k], w[None, :, k], sums[part]))
        acc = flush(acc + flush(sums[0] + sums[1]))
    return acc


def linear_bf16_tiles(x, w, bias=None):
    """BF16 weights and activations in the tile order. x must already be rounded to BF16."""
    y = tile_sums(x, w, halves=False)
    return y if bias is None else y + f32(bias)[None, :]


def linear_fp4_tiles(rows: Rows, w: Blocks, alpha_w, bias=None):
    """FP4 weights in the tile order: operands with their block scales multiplied in. Finite rows."""
    xs = (rows.values * rows.scales[:, :, None]).reshape(len(rows.values), -1)
    ws = (w.code_values() * w.scale_values()[:, :, None]).reshape(len(w.codes), -1)
    y = tile_sums(xs, ws, halves=True) * (F32(alpha_w) * rows.alpha)[:, None]
    return y if bias is None else y + f32(bias)[None, :]


def exact_plain(x, w, bias=None):
    x, w = f32(x).astype(F64), f32(w).astype(F64)
    y = np.array([[math.fsum(x[m] * w[n]) for n in range(len(w))] for m in range(len(x))])
    return y if bias is None else y + f32(bias).astype(F64)[None, :]
