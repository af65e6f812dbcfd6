"""Small Qwen3- and Qwen2-type decoders for training: transformers' computation, in pieces that compile once.

Tokens are a flat stream of documents [n, ...]; attention stays inside each. Weights are named and stored as in
transformers (`to_hf`, `from_hf`), but q, k, v and gate, up lie together.
"""

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn


POSITIONS = 4608
DIGITS = (48, 57)                        # ids of "0" to "9"
ROW = 4096                               # tokens, of attention in rows


@dataclass
class Config:
    architecture: str = "qwen3"          # or qwen2: QKV bias, no q/k norm
    hidden: int = 256
    layers: int = 4
    intermediate: int = 768
    heads: int = 4
    kv_heads: int = 2
    head_dim: int = 64
    vocabulary: int = 512
    theta: float = 10000.0
    eps: float = 1e-6

    def hf_config(self):
        name = {"qwen3": "Qwen3", "qwen2": "Qwen2"}[self.architecture]
        config = {
            "architectures": [f"{name}ForCausalLM"], "model_type": self.architecture, "torch_dtype": "bfloat16",
            "vocab_size": self.vocabulary, "hidden_size": self.hidden, "intermediate_size": self.intermediate,
            "num_hidden_layers": self.layers, "num_attention_heads": self.heads, "num_key_value_heads": self.kv_heads,
            "head_dim": self.head_dim, "hidden_act": "silu", "max_position_embeddings": POSITIONS,
            "rms_norm_eps": self.eps, "rope_theta": self.theta, "tie_word_embeddings": True,
            "attention_dropout": 0.0, "use_cache": True, "use_sliding_window": False,
        }
        if self.architecture == "qwen3":
            config["attention_bias"] = False
        return config


def rope_table(config, length, device):
    """cos, sin: float32 [length, head_dim]."""
    inverse = 1.0 / config.theta ** (torch.arange(0, config.head_dim, 2, device=device).float() / config.head_dim)
    angle = torch.arange(length, device=device).float()[:, None] * inverse
    angle = torch.cat([angle, angle], -1)
    return angle.cos(), angle.sin()


def rotate(x, cos, sin):
    half = x.shape[-1] // 2
    return x * cos + torch.cat([-x[..., half:], x[..., :half]], -1) * sin


def rms_norm(x, weight, eps):
    y = x.float()
    return (y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + eps)).to(x.dtype) * weight.to(x.dtype)


class Embed(torch.autograd.Function):
    """weight[ids]. Its gradient is a product with one-hot rows: few rows, many tokens, and no sort that a CUDA graph refuses."""

    @staticmethod
    def forward(ctx, weight, ids, dtype):
        ctx.save_for_backward(ids)
        ctx.rows = len(weight)
        return weight[ids].to(dtype)

    @staticmethod
    def backward(ctx, grad):
        (ids,) = ctx.saved_tensors
        one_hot = (ids[:, None] == torch.arange(ctx.rows, device=ids.device)).to(grad.dtype)
        return (one_hot.T @ grad).float(), None, None


class Layer(nn.Module):
    def __init__(self, c):
        super().__init__()
        width = (c.heads + 2 * c.kv_heads) * c.head_dim
        self.input_norm, self.post_norm = nn.Parameter(torch.ones(c.hidden)), nn.Parameter(torch.ones(c.hidden))
        self.qkv = nn.Parameter(torch.empty(width, c.hidden))
        self.o = nn.Parameter(torch.empty(c.hidden, c.heads * c.head_dim))
        self.gate_up = nn.Parameter(torch.empty(2 * c.intermediate, c.hidden))
        self.down = nn.Parameter(torch.empty(c.hidden, c.intermediate))
        if c.architecture == "qwen3":
            self.q_norm, self.k_norm = nn.Parameter(torch.ones(c.head_dim)), nn.Parameter(torch.ones(c.head_dim))
        else:
            self.qkv_bias = nn.Parameter(torch.zeros(width))


def project(c, x, input_norm, qkv, bias, q_norm, k_norm, cos, sin):
    """x [n, hidden] -> q, k, v [n, heads, head_dim], k and v repeated for each query head."""
    y = F.linear(rms_norm(x, input_norm, c.eps), qkv, bias).view(len(x), -1, c.head_dim)
    q, k, v = y.split([c.heads, c.kv_heads, c.kv_heads], 1)
    if q_norm is not None:
        q, k = rms_norm(q, q_norm, c.eps), rms_norm(k, k_norm, c.eps)
    q, k = rotate(q, cos, sin).to(v.dtype), rotate(k, cos, sin).to(v.dtype)
    group = c.heads // c.kv_heads
    return q, k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)


def attend(q, k, v, offsets, longest):
    """Causal attention inside each document. q, k, v [n, heads, d]; offsets int32 [documents + 1], where each begins and the
    last ends, with n repeated at the end for none; longest: of the documents, at least."""
    if q.is_cuda and q.dtype == torch.bfloat16:
        return torch.ops.aten._flash_attention_forward(q, k, v, offsets, offsets, longest, longest, 0.0, True, False)[0]
    out, edges = [], offsets.tolist()
    for begin, end in zip(edges, edges[1:]):
        if begin < end:
            rows = (t[begin:end].transpose(0, 1)[None] for t in (q, k, v))
            out.append(F.scaled_dot_product_attention(*rows, is_causal=True)[0].transpose(0, 1))
    return torch.cat(out)


def attend_in_rows(q, k, v, offsets, longest):
    """Where the above does not work: rows of ROW tokens, in which a document sees those before it."""
    q, k, v = (t.unflatten(0, (-1, min(ROW, len(t)))).transpose(1, 2) for t in (q, k, v))
    return F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(0, 1)


ATTENTION = {"documents": attend, "rows": attend_in_rows}


def check_attention(device):
    """Raises if attend() on this device differs from plain attention, forward or backward, beyond BF16 rounding."""
    torch.manual_seed(0)
    offsets = torch.tensor([0, 70, 71, 400, 512, 512], dtype=torch.int32)
    *inputs, weight = (torch.randn(512, 4, 64).to(torch.bfloat16).float() for _ in range(4))
    results = []
    for where, dtype in (("cpu", torch.float32), (device, torch.bfloat16 if device == "cuda" else torch.float32)):
        q, k, v = (t.detach().to(where, dtype).requires_grad_() for t in inputs)
        out = attend(q, k, v, offsets.to(where), 512)
        (out * weight.to(where, dtype)).sum().backward()
        results.append([t.detach().float().cpu() for t in (out, q.grad, k.grad, v.grad)])
    for expected, found in zip(*results):
        error = float((expected - found).abs().max() / expected.abs().max())
        if not error < .05:
            raise RuntimeError(f"attention on {device} is off by {error:.3f} of the largest value, at most .05 is rounding")


def finish(c, x, attended, o, post_norm, gate_up, down):
    x = x + F.linear(attended, o)
    gate, up = F.linear(rms_norm(x, post_norm, c.eps), gate_up).chunk(2, -1)
    return x + F.linear(F.silu(gate) * up, down)


def token_loss(c, x, norm, embedding, labels):
    """(mean over all labels, mean over those that are digits: near 0 once values are looked up and not guessed)."""
    logits = F.linear(rms_norm(x, norm, c.eps), embedding)
    each = F.cross_entropy(logits.float(), labels, ignore_index=-100, reduction="none")
    digit = (labels >= DIGITS[0]) & (labels <= DIGITS[1])
    return each.sum() / (labels >= 0).sum().clamp(min=1), (each.detach() * digit).sum() / digit.sum().clamp(min=1)


class Network(nn.Module):
    def __init__(self, config, compiled=False, attention="documents"):
        super().__init__()
        self.config, self.attend = config, ATTENTION[attention]
        self.embedding = nn.Parameter(torch.empty(config.vocabulary, config.hidden))
        self.layers = nn.ModuleList(Layer(config) for _ in range(config.layers))
        self.norm = nn.Parameter(torch.ones(config.hidden))
        for name, p in self.named_parameters():
            if p.dim() == 2:
                scale = 1 / math.sqrt(2 * config.layers) if name.endswith((".o", ".down")) else 1
                nn.init.normal_(p, std=.02 * scale)
        for name, table in zip(("cos", "sin"), rope_table(config, POSITIONS, "cpu")):
            self.register_buffer(name, table, persistent=False)
        make = (lambda f: torch.compile(f, dynamic=False, fullgraph=True)) if compiled else (lambda f: f)
        c = config
        self._project = make(lambda *a: project(c, *a))
        self._finish = make(lambda *a: finish(c, *a))
        self._loss = make(lambda *a: token_loss(c, *a))

    def forward(self, ids, positions, offsets, longest, dtype):
        """ids, positions [n]; offsets as in attend(). The last hidden states [n, hidden]."""
        x = Embed.apply(self.embedding, ids, dtype)
        cos, sin = (t[positions][:, None] for t in (self.cos, self.sin))
        for layer in self.layers:
            q, k, v = self._project(x, layer.input_norm, layer.qkv, getattr(layer, "qkv_bias", None),
                                    getattr(layer, "q_norm", None), getattr(layer, "k_norm", None), cos, sin)
            attended = self.attend(q, k, v, offsets, longest).reshape(len(ids), -1)
            x = self._finish(x, attended, layer.o, layer.post_norm, layer.gate_up, layer.down)
        return x

    def loss(self, ids, labels, positions, offsets, longest, dtype):
        return self._loss(self.forward(ids, positions, offsets, longest, dtype), self.norm, self.embedding, labels)

    def logits(self, ids):
        """float32 [batch, length, vocabulary] of ids [batch, length], for comparisons."""
        batch, length = ids.shape
        positions = torch.arange(length, device=ids.device).repeat(batch)
        offsets = torch.arange(batch + 1, device=ids.device, dtype=torch.int32) * length
        x = self.forward(ids.reshape(-1), positions, offsets, length, torch.float32)
        return F.linear(rms_norm(x, self.norm, self.config.eps), self.embedding).view(batch, length, -1)


def _pieces(config):
    """(our name, [(transformers' name, rows)]) of a layer."""
    q, kv, ff = config.heads * config.head_dim, config.kv_heads * config.head_dim, config.intermediate
    split = [("q_proj", q), ("k_proj", kv), ("v_proj", kv)]
    names = [("input_norm", [("input_layernorm.weight", None)]), ("post_norm", [("post_attention_layernorm.weight", None)]),
             ("qkv", [(f"self_attn.{n}.weight", rows) for n, rows in split]), ("o", [("self_attn.o_proj.weight", None)]),
             ("gate_up", [("mlp.gate_proj.weight", ff), ("mlp.up_proj.weight", ff)]), ("down", [("mlp.down_proj.weight", None)])]
    if config.architecture == "qwen3":
        return names + [("q_norm", [("self_attn.q_norm.weight", None)]), ("k_norm", [("self_attn.k_norm.weight", None)])]
    return names + [("qkv_bias", [(f"self_attn.{n}.bias", rows) for n, rows in split])]


def to_hf(config, state, dtype=torch.bfloat16):
    """state_dict() -> transformers' tensors."""
    out = {"model.embed_tokens.weight": state["embedding"], "model.norm.weight": state["norm"]}
    for i in range(config.layers):
        for ours, theirs in _pieces(config):
            tensor = state[f"layers.{i}.{ours}"]
            parts = [tensor] if theirs[0][1] is None else tensor.split([rows for _, rows in theirs])
            out |= {f"model.layers.{i}.{name}": part for (name, _), part in zip(theirs, parts)}
    return {name: t.detach().to(dtype).cpu().clone().contiguous() for name, t in out.items()}


def from_hf(config, tensors):
    """transformers' tensors -> a state for load_state_dict()."""
    out = {"embedding": tensors["model.embed_tokens.weight"], "norm": tensors["model.norm.weight"]}
    for i in range(config.layers):
        for ours, theirs in _pieces(config):
            out[f"layers.{i}.{ours}"] = torch.cat([tensors[f"model.layers.{i}.{name}"] for name, _ in theirs])
    return {name: t.float() for name, t in out.items()}
