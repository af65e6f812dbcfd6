"""Attention, KV, elementwise parts, sampler and RNG against independent float64 forms and published vectors."""

import numpy as np
import pytest

from halfbyte_reference import attention, kv, rng, sampler, vector
from halfbyte_reference.arith import F32, F64
from halfbyte_reference.golden_decode import PHILOX_KAT


def softmax64(s):
    p = np.exp(s - s.max(axis=-1, keepdims=True))
    return p / p.sum(axis=-1, keepdims=True)


@pytest.mark.parametrize("positions", [1, 5, 256, 257, 700])
@pytest.mark.parametrize("mode", attention.QUERY_MODES)
def test_attention_against_float64(positions, mode):
    r = np.random.default_rng(positions)
    q, k, v = r.standard_normal((3, 32)).astype(F32), *r.standard_normal((2, positions, 32)).astype(F32)
    out = attention.attention(q, k, v, mode)
    qs = sum(t.astype(F64) for t in attention.query_terms(q, mode))
    expected = softmax64(qs @ k.astype(F64).T / np.sqrt(32)) @ v.astype(F64)
    assert np.abs(out - expected).max() < 3e-6


def test_residue_attention_is_closer_than_fp4_queries():
    r = np.random.default_rng(5)
    q, k, v = r.standard_normal((8, 64)).astype(F32), *r.standard_normal((2, 200, 64)).astype(F32)
    kr, vr = (kv.read_kv(kv.write_kv(x, "nvfp4")) for x in (k, v))
    exact = attention.attention(q, kr, vr, "f32").astype(F64)
    error = {m: float(((attention.attention(q, kr, vr, m) - exact) ** 2).sum()) for m in ("bf16", "fp8", "fp4", "fp4_residue")}
    assert error["fp4_residue"] < 0.05 * error["fp4"] and error["fp4_residue"] < error["fp8"]


@pytest.mark.parametrize("fmt, limit", [("bf16", 2e-5), ("fp8", 1e-3), ("nvfp4", 1.1e-2), ("e1m2", 8.5e-3)])
def test_kv_error(fmt, limit):
    x = np.random.default_rng(1).standard_normal((500, 64)).astype(F32)
    error = np.mean((kv.read_kv(kv.write_kv(x, fmt)).astype(F64) - x) ** 2)
    assert limit / 10 < error < limit


def test_kv_shift_is_subtracted_before_rounding():
    x = np.random.default_rng(2).standard_normal((4, 32)).astype(F32)
    assert np.array_equal(kv.read_kv(kv.write_kv(x, "nvfp4", shift=np.full(32, 2, F32))), kv.read_kv(kv.write_kv(x - F32(2), "nvfp4")))


def test_rmsnorm_silu_rope():
    r = np.random.default_rng(3)
    x, w = r.standard_normal((4, 100)).astype(F32), r.standard_normal(100).astype(F32)
    expected = x / np.sqrt(np.mean(x.astype(F64) ** 2, axis=1, keepdims=True) + 1e-6) * w
    assert np.allclose(vector.rmsnorm(x, w, 1e-6), expected, rtol=1e-6, atol=1e-7)
    g = (r.standard_normal(1000) * 20).astype(F32)
    assert np.allclose(vector.silu(g), g / (1 + np.exp(-g.astype(F64))), rtol=3e-7, atol=1e-37)
    cos, sin = vector.rope_tables([0, 7], 16, 10000.0)
    x = r.standard_normal((2, 16)).astype(F32)
    turned = vector.rope(x, cos[1], sin[1])
    assert np.array_equal(vector.rope(x, cos[0], sin[0]), x)
    z = (x[:, :8] + 1j * x[:, 8:]) * np.exp(7j * 10000.0 ** (-np.arange(8) / 8))
    assert np.allclose(turned, np.concatenate([z.real, z.imag], axis=1), atol=1e-6)


def test_philox_known_answers():
    for counter, key, expected in PHILOX_KAT:
        assert rng.philox4x32_10(counter, key) == expected
    words = rng.philox_words(0x123456789, 9, stream=4)
    assert words[4:8].tolist() == list(rng.philox4x32_10((1, 0, 0, 4), (0x23456789, 1)))


@pytest.mark.parametrize("n", [1, 2, 33, 4096, 5000])
def test_entropy_and_logprob(n):
    logits = (np.random.default_rng(n).standard_normal(n) * 5).astype(F32)
    p = softmax64(logits.astype(F64))
    assert sampler.entropy(logits) == pytest.approx(-(p * np.log(p)).sum(), rel=1e-6, abs=1e-7)
    assert sampler.logprob(logits, n // 2) == pytest.approx(np.log(p[n // 2]), rel=1e-6, abs=2e-6)
    masked = np.append(logits, F32(-np.inf))
    assert sampler.entropy(masked) == sampler.entropy(logits)


def test_draws_follow_the_distribution():
    logits = np.array([0.0, 1.0, -1.0, 2.0, 0.5], F32)
    w = sampler.draw_weights(logits)
    counts = np.bincount([sampler.draw(w, rng.philox_draw(5, 0, i)) for i in range(40000)], minlength=5)
    p = softmax64(logits.astype(F64))
    chi2 = ((counts - 40000 * p) ** 2 / (40000 * p)).sum()
    assert chi2 < 18.5                                       # 99.9% of chi-squared with 4 degrees of freedom


def kept(logits, **values):
    return np.flatnonzero(sampler.truncate(sampler.draw_weights(np.array(logits, F32)), sampler.Sampling(**values))).tolist()


def test_truncation_rules_and_ties():
    assert kept([1, 2, 2, 2, 0], top_k=2) == [1, 2]                      # ties go to lower ids
    assert kept([0, 0, 0, 0], top_p=0.5) == [0, 1]                       # exactly half is enough
    assert kept([0, 0, 0, 0], top_p=0.51) == [0, 1, 2]
    assert kept([0, 5, 0], top_p=1e-9) == [1]                            # one token always stays
    assert kept([0, -1, -3], min_p=0.3) == [0, 1]
    assert kept([0, 0, -1], min_p=1.0) == [0, 1]
    # top-p counts against what min-p and top-k left, not against everything
    assert kept([0, 0, -0.1, -0.1], top_k=2, top_p=0.5) == [0]


def test_greedy_penalties_and_bias():
    s = sampler.Sampling
    assert sampler.sample(np.array([1, 3, 3], F32), s(temperature=0))[0] == 1
    assert sampler.sample(np.array([1, 3, 3], F32), s(temperature=1e-6))[0] == 1
    z = sampler.adjusted_logits(np.array([2, -2, 0, 4], F32), s(repetition_penalty=2, frequency_penalty=0.5, presence_penalty=0.25),
                                prompt=[0, 1, 2], generated=[3, 3])
    assert z.tolist() == [1, -4, 0, 4 / 2 - 2 * 0.5 - 0.25]
    assert sampler.sample(np.array([1, 3, 3], F32), s(temperature=0, logit_bias={0: 5.0}))[0] == 0
