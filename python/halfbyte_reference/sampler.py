"""Entropy, log-probability, penalties, truncation and the draw (docs/numerics.md section 4).

Weights of a draw are integers, so sums are exact in any order and every backend draws the same token.
"""

from dataclasses import dataclass, field

import numpy as np

from .arith import F32, F64, exp32, f32, fold, log64
from .rng import philox_draw


@dataclass
class Sampling:
    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    frequency_penalty: float = 0.0
    presence_penalty: float = 0.0
    logit_bias: dict = field(default_factory=dict)
    marker_penalty: float = 0.0
    marker_tokens: tuple = ()
    seed: int = 0
    choice: int = 0


def softmax_sums(logits):
    """(m, Z, S): the maximum, sum e^(l-m) and sum e^(l-m) (l-m). Chunks of 4096 logits; in a chunk 32 float64 lanes by
    index mod 32, folded 16, 8, 4, 2, 1; chunks ascending. A term whose exponential is 0 adds nothing."""
    logits = f32(logits)
    m = logits.max()
    d = logits - m
    e = exp32(d).astype(F64)
    de = np.where(e > 0, d, F32(0)).astype(F64) * e
    sums = []
    for terms in (e, de):
        total = F64(0)
        for start in range(0, len(terms), 4096):
            chunk = terms[start:start + 4096]
            rows = np.pad(chunk, (0, -len(chunk) % 32)).reshape(-1, 32)
            lanes = np.zeros(32, F64)
            for row in rows:
                lanes = lanes + row
            total = total + fold(lanes)
        sums.append(total)
    return m, sums[0], sums[1]


def entropy(logits):
    """H = log Z - S/Z, nats, float64."""
    _, z, s = softmax_sums(logits)
    return log64(z) - s / z


def logprob(logits, token):
    """(l_t - m) - log Z, the difference in float32, the rest in float64; float32 at the end."""
    m, z, _ = softmax_sums(logits)
    return F32(F64(f32(logits)[token] - m) - log64(z))


def adjusted_logits(logits, p: Sampling, prompt, generated):
    """Logit bias, then the marker penalty (markers.py), then penalties: repetition on every token seen (positive divided, others multiplied), then
    frequency * count among generated tokens, then presence once for each of them. float32."""
    z = f32(logits).copy()
    for token, bias in p.logit_bias.items():
        z[token] = z[token] + F32(bias)
    if p.marker_penalty != 0:
        for token in p.marker_tokens:
            z[token] = z[token] - F32(p.marker_penalty)
    rep = F32(p.repetition_penalty)
    for token in sorted(set(prompt) | set(generated)):
        z[token] = z[token] / rep if z[token] > 0 else z[token] * rep
    for token in sorted(set(generated)):
        z[token] = z[token] - F32(p.frequency_penalty) * F32(list(generated).count(token))
        z[token] = z[token] - F32(p.presence_penalty)
    return z


def draw_weights(z):
    """w_i = uint32(e^(z_i - zmax) * 2^31), truncated; the largest is 2^31."""
    return (exp32(z - z.max()) * F32(2.0**31)).astype(np.uint32)


def truncate(w, p: Sampling):
    """min-p, top-k, top-p in this order: the kept weights (others 0). Values are float32 parameters widened to float64."""
    w = w.astype(np.uint64)
    if p.min_p > 0:
        w = np.where(w.astype(F64) >= F64(F32(p.min_p)) * F64(w.max()), w, np.uint64(0))
    order = sorted(range(len(w)), key=lambda i: (-int(w[i]), i))
    if p.top_k > 0:
        w[order[p.top_k:]] = 0
    if p.top_p < 1:
        limit = F64(F32(p.top_p)) * F64(int(w.sum()))
        running = 0
        for rank, token in enumerate(order):
            running += int(w[token])
            if running >= limit:
                w[order[rank + 1:]] = 0
                break
    return w


def draw(w, random64):
    """The first token in ascending id order whose running sum exceeds (u * total) >> 64."""
    total = int(w.sum())
    target = (random64 * total) >> 64
    running = 0
    for token in range(len(w)):
        running += int(w[token])
        if running > target:
            return token
    raise AssertionError("unreachable: the running sum ends at the total")


def sample(logits, p: Sampling, prompt=(), generated=(), temperature=None):
    """(token, kept weights or None when greedy). `temperature` (ReSET's) takes the place of the request's.
    position = number of tokens before the drawn one."""
    z = adjusted_logits(logits, p, prompt, generated)
    t = F32(p.temperature if temperature is None else temperature)
    if t <= F32(1e-6):
        return int(np.argmax(z)), None
    w = truncate(draw_weights(z / t), p)
    return draw(w, philox_draw(p.seed, p.choice, len(prompt) + len(generated))), w
