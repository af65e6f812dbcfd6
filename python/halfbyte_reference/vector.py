"""The elementwise parts of a decoder layer (docs/numerics.md section 6)."""

import math

import numpy as np

from .arith import F32, exp32, f32, fold


def rmsnorm(x, weight, eps):
    """(x * (1/sqrt(mean(x^2) + eps))) * w; the mean as 8 partial sums by index mod 8, folded 4, 2, 1, divided by k."""
    x = f32(x)
    lanes = np.zeros((8, len(x)), F32)
    for i in range(x.shape[1]):
        lanes[i % 8] = lanes[i % 8] + x[:, i] * x[:, i]
    inverse = F32(1) / np.sqrt(fold(lanes) / F32(x.shape[1]) + F32(eps))
    return (x * inverse[:, None]) * f32(weight)[None, :]


def silu(x):
    """x / (1 + e^-x) for x >= 0, (x e^x) / (1 + e^x) below, with exp32."""
    x = f32(x)
    e = exp32(-np.abs(x))
    return np.where(x >= 0, x / (F32(1) + e), (x * e) / (F32(1) + e)).astype(F32)


def rope_tables(positions, head_dim, theta):
    """cos, sin float32 [positions, head_dim/2]: angle = position * theta^(-2i/d) in float64, then rounded."""
    freq = np.array([theta ** (-2.0 * i / head_dim) for i in range(head_dim // 2)])
    angle = np.asarray(positions, np.float64)[:, None] * freq[None, :]
    return (np.vectorize(math.cos)(angle)).astype(F32), (np.vectorize(math.sin)(angle)).astype(F32)


def rope(x, cos, sin):
    """x float32 [heads, d], pairs (i, i + d/2): x_i' = x_i cos - x_j sin, x_j' = x_j cos + x_i sin."""
    x = f32(x)
    half = x.shape[1] // 2
    a, b = x[:, :half], x[:, half:]
    return np.concatenate([a * cos - b * sin, b * cos + a * sin], axis=1)
