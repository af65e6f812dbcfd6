"""KV cache formats: what is stored for one row (a token's K or V of one head, after RoPE) and what attention reads.

f32, bf16; fp8: E4M3 with one scale; nvfp4: 16-blocks along the head dimension, E4M3 block scales under the same global
scale (vLLM, ModelOpt: k_scale = amax/448, a multiplier, 1 when the checkpoint has none); e1m2: ReQAT section on KV.
Block scales as for activations (docs/numerics.md sections 2 and 5). `shift` is Q-FIT's m (per channel, subtracted from K).
"""

from dataclasses import dataclass

import numpy as np

from .arith import F32, f32
from .blocks import Blocks, quantise_e1m2, quantise_nvfp4
from .formats import bf16_decode, bf16_encode, e4m3_decode, e4m3_encode

KV_FORMATS = ("f32", "bf16", "fp8", "nvfp4", "e1m2")


@dataclass
class StoredKv:
    format: str
    data: np.ndarray | Blocks      # float32, uint16, uint8 [rows, d] or Blocks
    scale: np.float32


def write_kv(x, format_name, scale=F32(1), shift=None):
    """x float32 [rows, d] -> what the cache holds. d is a multiple of 16 for the 4-bit formats."""
    x, scale = f32(x), F32(scale)
    if shift is not None:
        x = x - f32(shift)[None, :]
    if format_name == "f32":
        return StoredKv(format_name, x, scale)
    if format_name == "bf16":
        return StoredKv(format_name, bf16_encode(x), scale)
    if format_name == "fp8":
        return StoredKv(format_name, e4m3_encode(x / scale), scale)
    return StoredKv(format_name, {"nvfp4": quantise_nvfp4, "e1m2": quantise_e1m2}[format_name](x, scale), scale)


def read_kv(stored: StoredKv):
    """float32 [rows, d]: fp8 code * scale; 4-bit (code * block scale) * scale."""
    if stored.format == "f32":
        return stored.data
    if stored.format == "bf16":
        return bf16_decode(stored.data)
    if stored.format == "fp8":
        return e4m3_decode(stored.data) * stored.scale
    return stored.data.dequantise()
