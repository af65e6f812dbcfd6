"""Causal attention of one query row over the cache (docs/numerics.md section 5): online softmax over cuts of 256 positions.

ResAttn: ResServe (arXiv 2611.08713) equation 3: scores = (Q^ K^T + R^ K^T) / sqrt(d), O = softmax(scores) V.
"""

import math

import numpy as np

from .arith import F32, exp32, f32, fma32, fold
from .blocks import quantise_fp8_rows, quantise_nvfp4, row_alpha
from .formats import bf16_round, e4m3_decode, e4m3_encode

CUT = 256
QUERY_MODES = ("f32", "bf16", "fp8", "fp4", "fp4_residue")


def query_terms(q, mode):
    """q float32 [heads, d] -> the rows whose scores are added: one, or base and residue. Scales are per head row."""
    q = f32(q)
    if mode == "f32":
        return [q]
    if mode == "bf16":
        return [bf16_round(q)]
    if mode == "fp8":
        codes, scale = quantise_fp8_rows(q)
        return [e4m3_decode(codes) * scale[:, None]]
    alpha = row_alpha(q)
    base = quantise_nvfp4(q, alpha).dequantise()
    if mode == "fp4":
        return [base]
    return [base, quantise_nvfp4(q - base, alpha).dequantise()]


def dots(q, k):
    """float32 [heads, positions]: 8 partial sums by d mod 8, fma in ascending d, folded 4, 2, 1."""
    lanes = np.zeros((8, len(q), len(k)), F32)
    for d in range(q.shape[1]):
        lanes[d % 8] = fma32(q[:, None, d], k[None, :, d], lanes[d % 8])
    return fold(lanes)


def attention(q, k, v, mode="f32", values="f32", v_scale=F32(1)):
    """q float32 [heads, d] of the KV head's group, k and v float32 [positions, d] as read from the cache -> [heads, d].

    values "fp8" (ResServe: PV in FP8): p is rounded to e4m3(256 p)/256 and v to e4m3(v/v_scale)*v_scale before they are
    multiplied; the sum of p stays unrounded. The factor 256 is ours: the paper does not give one.
    """
    scale = F32(1.0 / math.sqrt(q.shape[1]))
    terms = query_terms(q, mode)
    if values == "fp8":
        v = e4m3_decode(e4m3_encode(f32(v) / F32(v_scale))) * F32(v_scale)
    m_all = l_all = o_all = None
    for start in range(0, len(k), CUT):
        kc, vc = k[start:start + CUT], v[start:start + CUT]
        s = dots(terms[0], kc)
        for term in terms[1:]:
            s = s + dots(term, kc)
        s = s * scale
        m = s.max(axis=1)
        p = exp32(s - m[:, None])
        lanes, o = np.zeros((8, len(q)), F32), np.zeros((len(q), v.shape[1]), F32)
        weight = p if values == "f32" else e4m3_decode(e4m3_encode(p * F32(256))) * F32(1 / 256)
        for j in range(p.shape[1]):
            lanes[j % 8] = lanes[j % 8] + p[:, j]
            o = fma32(weight[:, None, j], vc[None, j, :], o)
        lsum = fold(lanes)
        if m_all is None:
            m_all, l_all, o_all = m, lsum, o
            continue
        m_new = np.maximum(m_all, m)
        a, b = exp32(m_all - m_new), exp32(m - m_new)
        m_all, l_all = m_new, l_all * a + lsum * b
        o_all = o_all * a[:, None] + o * b[:, None]
    return o_all / l_all[:, None]
