"""Activation residues: what W4A4 loses, quantised once more and added back (docs/numerics.md section 3.4).

M-Ext and K-Ext: ResServe (arXiv 2611.08713) equations 1, 2, 6, 7. ARC: ARCQuant (arXiv 2601.07475) section 3 and
appendix D. In all of them R = X - X^ is float32, X^ = code * (scale * alpha), and R uses the alpha of its row.
"""

import numpy as np

from .arith import F32, f32
from .blocks import Blocks, quantise_mxfp4, quantise_nvfp4, quantise_nvfp4_weight, row_alpha, tensor_alpha
from .linear import Rows, linear_unbiased, rows_of_blocks

K_EXT_RATIOS = (0.125, 0.25, 0.5, 1.0)


def quantise_fp4(x, weight_format, alpha):
    return quantise_nvfp4(x, alpha) if weight_format == "nvfp4" else quantise_mxfp4(x)


def activation_alpha(x, weight_format, input_scale=None):
    """float32 [rows]: per token unless the checkpoint's scale is given; 1 for MXFP4."""
    if weight_format == "mxfp4":
        return np.ones(len(x), F32)
    return row_alpha(x) if input_scale is None else np.full(len(x), input_scale, F32)


def base_and_residue(x, weight_format, alpha):
    """(Blocks of X, R = X - X^ float32 [rows, k])."""
    base = quantise_fp4(x, weight_format, alpha)
    return base, f32(x) - base.dequantise()


def m_ext(x, w: Blocks, alpha_w, input_scale=None, bias=None):
    """M-Ext with Fold: Z = [X^; R^] W^ (2M rows), Y_j = Z_j + Z_{M+j}; the sum of the two rows is float32, then the bias."""
    alpha = activation_alpha(x, w.format, input_scale)
    base, r = base_and_residue(x, w.format, alpha)
    residue = quantise_fp4(r, w.format, alpha)
    y = linear_unbiased(rows_of_blocks(base), w, alpha_w) + linear_unbiased(rows_of_blocks(residue), w, alpha_w)
    return (y if bias is None else y + f32(bias)[None, :]), base, residue


def k_ext_channels(score, ratio):
    """S: in each group of 8 consecutive channels the 8*ratio of the largest score (ties: lower channel), ascending.
    A short last group keeps at most its size."""
    take = int(8 * ratio)
    chosen = []
    for g in range(0, len(score), 8):
        order = sorted(range(g, min(g + 8, len(score))), key=lambda c: (-score[c], c))
        chosen += sorted(order[:take])
    return np.array(chosen, np.int64)


def k_ext_weight(w_float, channels, weight_format, alpha_w, ratio):
    """W^_S: the selected columns in blocks of their own, with W's alpha; ratio 1 re-uses the base weight (None)."""
    if ratio == 1.0:
        return None
    selected = f32(w_float)[:, channels]
    if weight_format == "nvfp4":
        return quantise_nvfp4_weight(selected, alpha_w)
    return quantise_mxfp4(selected)


def concat_blocks(a: Blocks, b: Blocks):
    """The blocks of b behind those of a, as one weight. k stays a's: the extension is not made of input channels."""
    return Blocks(a.format, np.concatenate([a.codes, b.codes], axis=1), np.concatenate([a.scales, b.scales], axis=1),
                  a.alpha, a.k)


def k_ext_rows(x, channels, weight_format, alpha):
    """[X^ | R^_S]: base blocks, then residue blocks of the selected channels (new blocks, same alpha)."""
    base, r = base_and_residue(x, weight_format, alpha)
    residue = quantise_fp4(r[:, channels], weight_format, alpha)
    return rows_of_blocks(base).concat(rows_of_blocks(residue)), base, residue


def k_ext(x, w: Blocks, w_selected, channels, alpha_w, input_scale=None, bias=None):
    """K-Ext: [X^ | R^_S] [W^ ; W^_S], one list of blocks (base, then extension) in the order of section 3.
    Padding of the extension to a storage width adds blocks of zero codes, which change no bit."""
    alpha = activation_alpha(x, w.format, input_scale)
    rows, base, residue = k_ext_rows(x, channels, w.format, alpha)
    w_all = concat_blocks(w, w if w_selected is None else w_selected)
    y = linear_unbiased(rows, w_all, alpha_w)
    return (y if bias is None else y + f32(bias)[None, :]), base, residue


def arc_order(score):
    """Channels by ascending calibrated maximum |x| (ties: lower channel first); the last S get residues."""
    return np.array(sorted(range(len(score)), key=lambda c: (score[c], c)), np.int64)


def arc_split(x, order, s, block):
    """Columns in ARC order, the K - S unselected ones padded with zeros to whole blocks: [rows, K' + S]."""
    x = f32(x)[:, order]
    plain, selected = x[:, :x.shape[1] - s], x[:, x.shape[1] - s:]
    return np.concatenate([np.pad(plain, ((0, 0), (0, -plain.shape[1] % block))), selected], axis=1)


def _interleave(base, residue, s_blocks):
    """P | R | P | R ... for the last s_blocks blocks along axis 1."""
    n = base.shape[1] - s_blocks
    parts = [base[:, :n]]
    for b in range(s_blocks):
        parts += [base[:, n + b:n + b + 1], residue[:, b:b + 1]]
    return np.concatenate(parts, axis=1)


def arc_weight(w_float, order, s, weight_format, alpha_w=None):
    """Weight in ARC order, quantised once; the blocks of selected channels appear twice (same codes)."""
    block = 16 if weight_format == "nvfp4" else 32
    w = arc_split(w_float, order, s, block)
    if weight_format == "nvfp4":
        q = quantise_nvfp4_weight(w, tensor_alpha(w_float) if alpha_w is None else alpha_w)
    else:
        q = quantise_mxfp4(w)
    n, sb = len(q.scales), s // block
    codes = q.codes.reshape(n, -1, block)
    return Blocks(q.format, _interleave(codes, codes[:, codes.shape[1] - sb:], sb).reshape(n, -1),
                  _interleave(q.scales, q.scales[:, q.scales.shape[1] - sb:], sb), q.alpha, q.k)


def arc_rows(x, order, s, weight_format, alpha):
    """Augmented activations: unselected blocks, then primary and residual block alternating (s a multiple of the block)."""
    block = 16 if weight_format == "nvfp4" else 32
    xs = arc_split(x, order, s, block)
    base, r = base_and_residue(xs, weight_format, alpha)
    residue = quantise_fp4(r[:, r.shape[1] - s:], weight_format, alpha)
    b, rr, sb = rows_of_blocks(base), rows_of_blocks(residue), s // block
    rows = Rows(_interleave(b.values, rr.values, sb), _interleave(b.scales, rr.scales, sb), b.alpha, {})
    return rows, base, residue


def arc(x, w_arc: Blocks, order, s, alpha_w, input_scale=None, bias=None):
    """Y = Q(X) Q(W)^T + Q(R_o) Q(W_o)^T as one linear over K + S in the interleaved block order."""
    alpha = activation_alpha(x, w_arc.format, input_scale)
    rows, base, residue = arc_rows(x, order, s, w_arc.format, alpha)
    y = linear_unbiased(rows, w_arc, alpha_w)
    return (y if bias is None else y + f32(bias)[None, :]), base, residue
