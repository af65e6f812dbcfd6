"""The number formats of python/halfbyte_reference on torch tensors, as quantise-dequantise: float32 in, float32 out.

The last dimension is the one that blocks lie along. tests/reasoner holds each to the numpy definition.
"""

import torch


def e2m1(x):
    a = x.abs()
    step = torch.where(a < 2, .5, torch.where(a < 4, 1.0, 2.0))
    return torch.sign(x) * torch.clamp(torch.round(a / step) * step, max=6.0)


def e1m2(x):
    return torch.clamp(torch.round(x * 2) / 2, -3.5, 3.5)


def e4m3(x):
    return x.clamp(-448, 448).to(torch.float8_e4m3fn).float()


def row_alpha(x, denominator):
    alpha = x.abs().amax(-1, keepdim=True) / denominator
    return torch.where(alpha == 0, 1.0, alpha)


def _blocks(x, alpha, code_max, round_code, weight=False):
    b = x.unflatten(-1, (-1, 16))
    alpha = alpha.unsqueeze(-1)
    amax = b.abs().amax(-1, keepdim=True)
    s = amax / (code_max * alpha)
    if weight:
        s = torch.where(amax > 0, s.clamp(2.0**-9, 448), 1.0)
    scale = e4m3(s)
    step = scale * alpha
    return (round_code(b / torch.where(step > 0, step, 1.0)) * scale * alpha).flatten(-2)


def nvfp4_weight(w):
    alpha = (w.abs().max() / 2688).view(1, 1)
    return _blocks(w, alpha, 6, e2m1, weight=True)


def nvfp4(x, alpha=None):
    """Activations; alpha per token unless given."""
    return _blocks(x, row_alpha(x, 2688) if alpha is None else alpha, 6, e2m1)


def nvfp4_m_ext(x):
    alpha = row_alpha(x, 2688)
    base = nvfp4(x, alpha)
    return base + nvfp4(x - base, alpha)


def _mx(x, exponent_of, round_code):
    b = x.unflatten(-1, (-1, 32))
    amax = b.abs().amax(-1, keepdim=True)
    mantissa, exponent = torch.frexp(torch.where(amax > 0, amax, 1.0))      # 0.5 <= mantissa < 1
    exponent = exponent_of(mantissa * 2, exponent - 1).clamp(-126, 127)
    step = ((exponent.int() + 127) << 23).view(torch.float32)               # 2^exponent, exact
    return torch.where(amax > 0, round_code(b / step) * step, 0.0).flatten(-2)


def mxfp4(x):
    return _mx(x, lambda m, e: e - 2 + (m >= 1.75).int(), e2m1)


def mxfp4_m_ext(x):
    base = mxfp4(x)
    return base + mxfp4(x - base)


def mxfp8(x):
    return _mx(x, lambda m, e: e - 8, e4m3)


def fp8_rows(x):
    alpha = row_alpha(x, 448)
    return e4m3(x / alpha) * alpha


def bf16(x):
    return x.to(torch.bfloat16).float()


def int_group(w, bits, group=128):
    """Round to nearest, asymmetric, in groups of 128 along K."""
    b = w.unflatten(-1, (-1, group))
    low, high = b.amin(-1, keepdim=True).clamp(max=0), b.amax(-1, keepdim=True).clamp(min=0)
    step = ((high - low) / (2**bits - 1)).clamp(min=1e-8)
    zero = torch.round(-low / step)
    return ((torch.clamp(torch.round(b / step) + zero, 0, 2**bits - 1) - zero) * step).flatten(-2)


def _one(x):
    return torch.ones_like(x[..., :1])


WEIGHTS = {"bf16": bf16, "nvfp4": nvfp4_weight, "mxfp4": mxfp4, "int4": lambda w: int_group(w, 4),
           "int3": lambda w: int_group(w, 3)}
ACTIVATIONS = {"bf16": bf16, "nvfp4": nvfp4, "nvfp4+m_ext": nvfp4_m_ext, "mxfp4": mxfp4, "mxfp4+m_ext": mxfp4_m_ext,
               "fp8": fp8_rows, "mxfp8": mxfp8}
# Scale 1, as in a checkpoint without k_scale and v_scale.
KV = {"bf16": bf16, "fp8": e4m3, "nvfp4": lambda x: nvfp4(x, _one(x)), "e1m2": lambda x: _blocks(x, _one(x), 3.5, e1m2)}
