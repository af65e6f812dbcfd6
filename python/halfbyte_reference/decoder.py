"""A whole decoder (Llama, Qwen2, Qwen3) under a precision plan, in the contract's order: what an engine's logits are.

Plans: f32, bf16, w4a16, w4a8, w4a4 and the -mxfp4 forms of the last three, w8a16, int4, int3, as include/halfbyte/plan.h presets them (head
and embedding BF16, KV BF16 unless another format is named; f32: everything float32). `a16i16` chooses the fast form of W4A16 (docs/numerics.md 3.2).
"""

import math

import numpy as np

from .arith import F32
from .attention import attention
from .blocks import quantise_fp8_rows, quantise_mxfp4, quantise_nvfp4_weight, round_int_groups, tensor_alpha
from .formats import bf16_round
from .kv import read_kv, write_kv
from .linear import linear_fp4, linear_fp8_weight, linear_plain, quantise_rows
from .vector import rmsnorm, rope, silu

# plan -> (weight format, activation mode)
PLANS = {"f32": ("f32", "f32"), "bf16": ("bf16", "bf16"),
         "w4a16": ("nvfp4", "a16"), "w4a8": ("nvfp4", "a8_per_token"), "w4a4": ("nvfp4", "a4_per_token"),
         "w4a16-mxfp4": ("mxfp4", "a16"), "w4a8-mxfp4": ("mxfp4", "a8"), "w4a4-mxfp4": ("mxfp4", "a4"),
         "w8a16": ("fp8", "bf16"), "int4": ("int4", "bf16"), "int3": ("int3", "bf16")}


def rope_rule(config):
    """(inverse frequencies float64 [d/2], factor on cos and sin), as transformers' modeling_rope_utils defines the kinds."""
    d = config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]
    rule = config.get("rope_parameters") or config.get("rope_scaling") or {}
    theta = rule.get("rope_theta", config.get("rope_theta", 10000.0))
    kind = rule.get("rope_type", rule.get("type", "default"))
    freq = np.array([1.0 / theta ** (2.0 * i / d) for i in range(d // 2)])
    if kind == "linear":
        return freq / rule["factor"], 1.0
    if kind == "llama3":
        return np.array([_llama3(f, rule) for f in freq]), 1.0
    if kind == "yarn":
        return _yarn(freq, d, theta, rule, config)
    return freq, 1.0


def _llama3(f, rule):
    original, low, high = rule["original_max_position_embeddings"], rule["low_freq_factor"], rule["high_freq_factor"]
    wavelength = 2 * math.pi / f
    if wavelength < original / high:
        return f
    if wavelength > original / low:
        return f / rule["factor"]
    smooth = (original / wavelength - low) / (high - low)
    return (1 - smooth) * f / rule["factor"] + smooth * f


def _yarn(freq, d, theta, rule, config):
    factor = rule["factor"]
    original = rule.get("original_max_position_embeddings") or config["max_position_embeddings"]
    turns = lambda n: d * math.log(original / (n * 2 * math.pi)) / (2 * math.log(theta))
    low, high = turns(rule.get("beta_fast", 32)), turns(rule.get("beta_slow", 1))
    if rule.get("truncate", True):
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, d - 1)
    high += 0.001 if low == high else 0
    stretched = np.clip((np.arange(d // 2) - low) / (high - low), 0, 1)
    grow = lambda m: 0.1 * m * math.log(factor) + 1
    if rule.get("attention_factor") is not None:
        scale = rule["attention_factor"]
    elif rule.get("mscale") and rule.get("mscale_all_dim"):
        scale = grow(rule["mscale"]) / grow(rule["mscale_all_dim"])
    else:
        scale = grow(1)
    return freq / factor * stretched + freq * (1 - stretched), scale


class Linear:
    """One weight under the plan. `shares` are the weights whose NVFP4 tensor scale it shares (q, k, v; gate, up)."""

    def __init__(self, w, bias, plan, a16i16, shares=()):
        self.format, mode = PLANS[plan]
        if self.format in ("int4", "int3"):  # rounded once, then a BF16 weight
            w, self.format = round_int_groups(w, int(self.format[3:])), "bf16"
        self.mode = "a16i16" if a16i16 and mode == "a16" else mode
        self.bias = bias
        if self.format == "nvfp4":
            self.w = quantise_nvfp4_weight(w, max(tensor_alpha(s) for s in (w, *shares)))
        else:
            self.w = {"f32": lambda: w, "bf16": lambda: bf16_round(w), "mxfp4": lambda: quantise_mxfp4(w),
                      "fp8": lambda: quantise_fp8_rows(w)}[self.format]()

    def __call__(self, x):
        if self.format in ("f32", "bf16"):
            return linear_plain(bf16_round(x) if self.format == "bf16" else x, self.w, self.bias)
        if self.format == "fp8":
            return linear_fp8_weight(bf16_round(x), *self.w, self.bias)
        return linear_fp4(quantise_rows(x, self.format, self.mode), self.w, self.w.alpha[0], self.bias)


class Decoder:
    """tensors: {Hugging Face name: float32 array}. head: the plan whose formats the head has, where not the preset's."""

    def __init__(self, config, tensors, plan, a16i16=False, kv=None, head=None):
        self.config, self.t = config, tensors
        self.kv_format = kv or ("f32" if plan == "f32" else "bf16")
        self.eps = F32(config["rms_norm_eps"])
        self.head_dim = config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]
        self.frequencies, self.rope_factor = rope_rule(config)
        self.linears = {}
        for i in range(config["num_hidden_layers"]):
            for names in (("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"), ("self_attn.o_proj",),
                          ("mlp.gate_proj", "mlp.up_proj"), ("mlp.down_proj",)):
                full = [f"model.layers.{i}.{n}" for n in names]
                weights = [tensors[f"{n}.weight"] for n in full]
                for n, w in zip(full, weights):
                    self.linears[n] = Linear(w, tensors.get(f"{n}.bias"), plan, a16i16, weights)
        w = tensors.get("lm_head.weight", tensors["model.embed_tokens.weight"])
        self.head = Linear(w, None, head or ("f32" if plan == "f32" else "bf16"), a16i16)

    def logits(self, tokens):
        """float32 [tokens, vocab]."""
        x = self.t["model.embed_tokens.weight"][np.asarray(tokens)]
        angle = np.arange(len(tokens), dtype=np.float64)[:, None] * self.frequencies[None, :]
        self.cos = (np.vectorize(math.cos)(angle) * self.rope_factor).astype(F32)
        self.sin = (np.vectorize(math.sin)(angle) * self.rope_factor).astype(F32)
        for i in range(self.config["num_hidden_layers"]):
            name = f"model.layers.{i}"
            x = x + self._attention(name, rmsnorm(x, self.t[f"{name}.input_layernorm.weight"], self.eps))
            h = rmsnorm(x, self.t[f"{name}.post_attention_layernorm.weight"], self.eps)
            gate, up = self.linears[f"{name}.mlp.gate_proj"](h), self.linears[f"{name}.mlp.up_proj"](h)
            x = x + self.linears[f"{name}.mlp.down_proj"](silu(gate) * up)
        return self.head(rmsnorm(x, self.t["model.norm.weight"], self.eps))

    def _heads(self, name, part, h):
        """[tokens, heads, d] of one projection, normalised and rotated where the architecture does."""
        x = self.linears[f"{name}.self_attn.{part}_proj"](h).reshape(len(h), -1, self.head_dim)
        if part == "v":
            return x
        norm = self.t.get(f"{name}.self_attn.{part}_norm.weight")
        if norm is not None:
            x = rmsnorm(x.reshape(-1, self.head_dim), norm, self.eps).reshape(x.shape)
        return np.stack([rope(row, c, s) for row, c, s in zip(x, self.cos, self.sin)])

    def _attention(self, name, h):
        q, k, v = (self._heads(name, part, h) for part in "qkv")
        group = q.shape[1] // k.shape[1]
        out = np.empty_like(q)
        for g in range(k.shape[1]):
            kr, vr = (read_kv(write_kv(x[:, g], self.kv_format)) for x in (k, v))
            heads = slice(g * group, (g + 1) * group)
            for t in range(len(h)):
                out[t, heads] = attention(q[t, heads], kr[:t + 1], vr[:t + 1])
        return self.linears[f"{name}.self_attn.o_proj"](out.reshape(len(h), -1))
