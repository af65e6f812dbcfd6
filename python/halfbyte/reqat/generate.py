"""Batched sampling from a reasoner under a precision plan, with fake quantisation. For the measurements of a training:
what counts is measured with the engine.

Everything is float32 but what a plan rounds; sums are in torch's order, not the engine's. On a GPU a step is one CUDA
graph for each span of cache length.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F

from .fake_quant import ACTIVATIONS, KV, WEIGHTS
from .network import rms_norm, rope_table, rotate

SPAN = 256                       # cache positions; a captured step reads whole spans


@dataclass(frozen=True)
class Plan:
    weights: str = "bf16"
    activations: str = "bf16"
    kv: str = "bf16"


PLANS = {
    "bf16": Plan(),
    "w4a4": Plan("nvfp4", "nvfp4"),
    "w4a4,kv=nvfp4": Plan("nvfp4", "nvfp4", "nvfp4"),
    "w4a4-mxfp4": Plan("mxfp4", "mxfp4"),
    "w4a4+m_ext": Plan("nvfp4", "nvfp4+m_ext"),
    "w4a16": Plan("nvfp4"),
    "int3": Plan("int3"),
    "w4a4-mxfp4+m_ext": Plan("mxfp4", "mxfp4+m_ext"),
    "w4a4,kv=e1m2": Plan("nvfp4", "nvfp4", "e1m2"),
    "w4a8": Plan("nvfp4", "fp8"),
    "int4": Plan("int4"),
    "w4a4,kv=fp8": Plan("nvfp4", "nvfp4", "fp8"),
    "bf16,kv=nvfp4": Plan("bf16", "bf16", "nvfp4"),
}
LINEARS = ("qkv", "o", "gate_up", "down")


class Model:
    """Thread-compatible. Weights of `state` (network.Network's names), rounded as the plan says."""

    def __init__(self, config, state, plan, device, longest):
        self.config, self.device = config, device
        self.weights = {}
        for name, t in state.items():
            t = t.to(device).float().to(torch.bfloat16).float()
            linear = name.rpartition(".")[2] in LINEARS
            self.weights[name] = (WEIGHTS[plan.weights](t) if linear else t).contiguous()
        self.activation, self.kv = ACTIVATIONS[plan.activations], KV[plan.kv]
        self.cos, self.sin = rope_table(config, longest, device)

    def get(self, i, name):
        return self.weights.get(f"layers.{i}.{name}")

    def project(self, i, x, positions):
        """x [n, hidden] -> q [n, heads, d], and k, v [n, kv_heads, d] as the cache returns them."""
        c = self.config
        h = self.activation(rms_norm(x, self.get(i, "input_norm"), c.eps))
        y = F.linear(h, self.get(i, "qkv"), self.get(i, "qkv_bias")).view(len(x), -1, c.head_dim)
        q, k, v = y.split([c.heads, c.kv_heads, c.kv_heads], 1)
        if c.architecture == "qwen3":
            q, k = rms_norm(q, self.get(i, "q_norm"), c.eps), rms_norm(k, self.get(i, "k_norm"), c.eps)
        cos, sin = self.cos[positions][:, None], self.sin[positions][:, None]
        return rotate(q, cos, sin), self.kv(rotate(k, cos, sin)), self.kv(v)

    def finish(self, i, x, attended):
        x = x + F.linear(self.activation(attended), self.get(i, "o"))
        h = self.activation(rms_norm(x, self.get(i, "post_norm"), self.config.eps))
        gate, up = F.linear(h, self.get(i, "gate_up")).chunk(2, -1)
        return x + F.linear(self.activation(F.silu(gate) * up), self.get(i, "down"))

    def head(self, x):
        return F.linear(self.activation_of_head(rms_norm(x, self.weights["norm"], self.config.eps)),
                        self.weights["embedding"])

    @staticmethod
    def activation_of_head(x):
        return x.to(torch.bfloat16).float()

    def prefill(self, ids, lengths, cache, first_row):
        """ids [b, p], padded behind; fills cache rows from first_row on. Logits [b, vocabulary] of each row's last token."""
        c, (b, p) = self.config, ids.shape
        x = self.weights["embedding"][ids.reshape(-1)]
        positions = torch.arange(p, device=ids.device).repeat(b)
        group = c.heads // c.kv_heads
        for i in range(c.layers):
            q, k, v = (t.view(b, p, -1, c.head_dim).transpose(1, 2) for t in self.project(i, x, positions))
            cache[i][0][first_row:first_row + b, :, :p] = k
            cache[i][1][first_row:first_row + b, :, :p] = v
            a = F.scaled_dot_product_attention(q, k.repeat_interleave(group, 1), v.repeat_interleave(group, 1), is_causal=True)
            x = self.finish(i, x, a.transpose(1, 2).reshape(b * p, -1))
        return self.head(x.view(b, p, -1)[torch.arange(b, device=ids.device), lengths - 1])

    def step(self, tokens, positions, cache, span, rows):
        """One token a row; the cache is read up to `span` positions. Logits [b, vocabulary]."""
        c, b = self.config, len(tokens)
        x = self.weights["embedding"][tokens]
        beyond = (torch.arange(span, device=tokens.device)[None] > positions[:, None])[:, None, None]
        for i in range(c.layers):
            q, k, v = self.project(i, x, positions)
            keys, values = cache[i]
            keys[rows, :, positions] = k
            values[rows, :, positions] = v
            q = q.view(b, c.kv_heads, -1, c.head_dim)
            scores = torch.matmul(q, keys[:, :, :span].transpose(-1, -2)) * c.head_dim**-.5
            p = scores.masked_fill(beyond, -1e30).softmax(-1)
            x = self.finish(i, x, torch.matmul(p, values[:, :, :span]).reshape(b, -1))
        return self.head(x)


def draw(logits, u, temperature, top_p):
    """(token, entropy of the raw logits). u [b]: uniform numbers."""
    log_p = logits.log_softmax(-1)
    entropy = -(log_p.exp() * log_p).sum(-1)
    p, order = (logits / temperature).softmax(-1).sort(-1, descending=True)
    total = p.cumsum(-1)
    p = torch.where(total - p < top_p, p, 0.0)
    total = p.cumsum(-1)
    at = (total <= u[:, None] * total[:, -1:]).sum(-1).clamp(max=logits.shape[1] - 1)
    return order.gather(1, at[:, None])[:, 0], entropy


class Batch:
    """A running generation: the state a step reads and writes, on the device."""

    def __init__(self, model, prompts, limit, seed, end, temperature, top_p):
        device, c = model.device, model.config
        self.model, self.limit, self.end, self.temperature, self.top_p = model, limit, end, temperature, top_p
        b = len(prompts)
        self.lengths = torch.tensor([len(p) for p in prompts], device=device)
        self.longest = int(self.lengths.max())
        size = -(-(self.longest + limit) // SPAN) * SPAN
        self.cache = [[torch.zeros(b, c.kv_heads, size, c.head_dim, device=device) for _ in range(2)] for _ in range(c.layers)]
        self.rows = torch.arange(b, device=device)
        self.positions = self.lengths.clone()
        self.at = torch.zeros((), dtype=torch.long, device=device)
        self.done = torch.zeros(b, dtype=torch.bool, device=device)
        self.out = torch.full((limit, b), -1, dtype=torch.int16, device=device)
        self.entropy = torch.zeros(limit, b, device=device)
        self.tokens = torch.zeros(b, dtype=torch.long, device=device)
        generator = torch.Generator().manual_seed(seed)
        self.noise = torch.rand(limit, b, generator=generator).to(device)
        self.prefill(prompts)

    def prefill(self, prompts):
        b, chunk = len(prompts), max(1, 200_000 // self.longest)
        for first in range(0, b, chunk):
            some = prompts[first:first + chunk]
            ids = torch.zeros(len(some), self.longest, dtype=torch.long)
            for row, p in enumerate(some):
                ids[row, :len(p)] = torch.tensor(p)
            lengths = self.lengths[first:first + chunk]
            logits = self.model.prefill(ids.to(self.model.device), lengths, self.cache, first)
            u = self.noise[0, first:first + chunk]
            tokens, entropy = draw(logits, u, self.temperature, self.top_p)
            self.tokens[first:first + chunk] = tokens
            self.out[0, first:first + chunk] = tokens.to(torch.int16)
            self.entropy[0, first:first + chunk] = entropy
        self.done |= self.tokens == self.end
        self.at += 1

    def advance(self, span):
        logits = self.model.step(self.tokens, self.positions, self.cache, span, self.rows)
        u = self.noise.index_select(0, self.at.view(1))[0]
        tokens, entropy = draw(logits, u, self.temperature, self.top_p)
        self.out.index_copy_(0, self.at.view(1), torch.where(self.done, -1, tokens).to(torch.int16)[None])
        self.entropy.index_copy_(0, self.at.view(1), entropy[None])
        self.done |= tokens == self.end
        self.tokens.copy_(tokens)
        self.positions += 1
        self.at += 1

    def captured(self, span):
        """A CUDA graph of advance(span). Capturing runs nothing; one step before it has warmed the libraries up."""
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            self.advance(span)
        return graph.replay

    def run(self):
        spans, on_gpu = {}, str(self.model.device).startswith("cuda")
        for t in range(1, self.limit):
            span = -(-(self.longest + t) // SPAN) * SPAN
            if on_gpu and t > 1:
                if span not in spans:
                    spans[span] = self.captured(span)
                spans[span]()
            else:
                self.advance(span)
            if t % 32 == 0 and bool(self.done.all()):
                break


@torch.no_grad()
def generate(model, prompts, limit, seed, end, temperature=.6, top_p=.95):
    """([token ids with the end token], [entropies]) of each prompt, numpy arrays."""
    batch = Batch(model, prompts, limit, seed, end, temperature, top_p)
    batch.run()
    out, entropy = batch.out.T.cpu().numpy(), batch.entropy.T.cpu().numpy()
    lengths = (out >= 0).sum(1)
    return [row[:n] for row, n in zip(out, lengths)], [row[:n] for row, n in zip(entropy, lengths)]
