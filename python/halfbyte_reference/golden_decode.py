"""Golden vectors of what happens around the linears: KV, attention, elementwise parts, RNG, sampler, ReSET."""

import numpy as np

from . import arith, attention, formats, kv, markers, reset, rng, sampler, vector
from .arith import F32
from .container import Writer

TWO_32 = 1 << 32


def write_kv():
    w = Writer()
    for d in (16, 64, 80):
        data, name = rng.TestData(4000 + d), f"d{d}"
        x = data.normal(6, d) * formats.pow2(data.integers(-3, 4, d))[None, :]      # channels differ, as keys do
        x[1] *= F32(2.0**-8)
        x[2, 16:32] = 0
        x[3] = 0
        x[4] = x[4] * F32(300)
        x[5] = x[5] * F32(2.0**-30)
        x, shift = x.astype(F32), (data.normal(d) * F32(0.5)).astype(F32)
        w.add(f"{name}/x", x)
        w.add(f"{name}/shift", shift)
        w.add(f"{name}/scale", F32(0.03))
        for fmt in kv.KV_FORMATS[1:]:
            for case, scale, m in (("unit", F32(1), None), ("scaled", F32(0.03), None), ("shifted", F32(1), shift)):
                if fmt == "bf16" and case == "scaled":
                    continue
                stored = kv.write_kv(x, fmt, scale, m)
                part = f"{name}/{fmt}/{case}"
                if fmt in ("nvfp4", "e1m2"):
                    w.add(f"{part}/codes", formats.pack_nibbles(stored.data.codes))
                    w.add(f"{part}/scales", stored.data.scales)
                else:
                    w.add(f"{part}/codes", stored.data)
                w.add(f"{part}/values", kv.read_kv(stored))
    return w


def write_attention():
    """Every query mode over every cache format; lengths on both sides of the cut at 256."""
    w = Writer()
    for d, heads, lengths, formats_here in ((16, 3, (1, 2, 9, 255, 256, 257, 520), ("f32", "bf16")),
                                            (64, 2, (24,), kv.KV_FORMATS)):
        data, name = rng.TestData(5000 + d), f"d{d}"
        t = max(lengths)
        q, k, v = data.normal(heads, d), data.normal(t, d), data.normal(t, d)
        k[:, d // 3] *= F32(6)
        q[0] *= F32(8)                                   # a sharp softmax
        for key, value in (("q", q), ("k", k), ("v", v)):
            w.add(f"{name}/{key}", value)
        for fmt in formats_here:
            kr, vr = (kv.read_kv(kv.write_kv(x, fmt)) for x in (k, v))
            modes = attention.QUERY_MODES if d == 64 else ("f32",)
            for mode in modes:
                for n in lengths:
                    w.add(f"{name}/{fmt}/{mode}/n{n}/out", attention.attention(q, kr[:n], vr[:n], mode))
        if d == 64:
            kr, vr = (kv.read_kv(kv.write_kv(x, "nvfp4")) for x in (k, v))
            w.add(f"{name}/nvfp4/fp4_residue/n24/out_fp8_values", attention.attention(q, kr, vr, "fp4_residue", "fp8"))
    return w


def write_vector():
    w = Writer()
    data = rng.TestData(6000)
    grid = np.concatenate([-np.arange(0, 90, 0.125), -data.uniform(800) * F32(90), [-np.inf, -87, -0.0, 1e-30 * -1],
                           np.nextafter(F32(-87), F32([0, -100]))]).astype(F32)
    w.add("exp32/x", grid)
    w.add("exp32/y", arith.exp32(grid))
    z = np.concatenate([1 + data.uniform(300).astype(np.float64) * 2.0**data.integers(-20, 18, 300), [1.0, 2.0, 151936.0],
                        [np.nextafter(1.0, 2.0), 1.414213562373095, 1.4142135623730951, 1.4142135623730954]])
    w.add("log64/x", z)
    w.add("log64/y", np.array([arith.log64(v) for v in z]))
    gate = np.concatenate([data.normal(300) * F32(8), F32([0, -0.0, 100, -100, -86.9, 1e-30])]).astype(F32)
    up = data.normal(len(gate))
    w.add("silu_mul/gate", gate)
    w.add("silu_mul/up", up)
    w.add("silu_mul/y", vector.silu(gate) * up)
    for k in (1, 7, 8, 9, 64, 576):
        x, weight = data.normal(3, k), F32(1) + data.normal(k) * F32(0.25)
        x[1] = x[1] * F32(1000)
        x[2] = 0
        w.add(f"rmsnorm/k{k}/x", x)
        w.add(f"rmsnorm/k{k}/weight", weight)
        w.add(f"rmsnorm/k{k}/y", vector.rmsnorm(x, weight, F32(1e-6)))
    w.add("rmsnorm/eps", F32(1e-6))
    for d, theta in ((8, 10000.0), (64, 100000.0)):
        positions = np.array([0, 1, 2, 47, 1000, 32767], np.int64)
        cos, sin = vector.rope_tables(positions, d, theta)
        x = data.normal(2, d)
        for key, value in (("positions", positions), ("theta", np.float64(theta)), ("cos", cos), ("sin", sin), ("x", x),
                           ("y", np.stack([vector.rope(x, c, s) for c, s in zip(cos, sin)]))):
            w.add(f"rope/d{d}/{key}", value)
    return w


# The known-answer vectors of Random123 (kat_vectors, philox 4x32 10): counter, key, expected.
PHILOX_KAT = (((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
              ((0xFFFFFFFF,) * 4, (0xFFFFFFFF,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
              ((0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344), (0xA4093822, 0x299F31D0),
               (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1)))


def write_rng():
    w = Writer()
    cases = [(c, k) for c, k, _ in PHILOX_KAT] + [((i, 0, 0, 0), (1, 2)) for i in range(8)]
    w.add("philox/counter", np.array([c for c, _ in cases], np.uint32))
    w.add("philox/key", np.array([k for _, k in cases], np.uint32))
    w.add("philox/out", np.array([rng.philox4x32_10(c, k) for c, k in cases], np.uint32))
    draws = [(seed, choice, position, stream) for seed in (0, 1, 0x123456789ABCDEF0, (1 << 64) - 1) for choice in (0, 3)
             for position in (0, 1, 4096, TWO_32 + 5) for stream in (0, 1)]
    w.add("draw/seed", np.array([d[0] for d in draws], np.uint64))
    w.add("draw/choice", np.array([d[1] for d in draws], np.uint32))
    w.add("draw/position", np.array([d[2] for d in draws], np.uint64))
    w.add("draw/stream", np.array([d[3] for d in draws], np.uint32))
    w.add("draw/out", np.array([rng.philox_draw(*d) for d in draws], np.uint64))
    return w


def _logit_sets():
    data = rng.TestData(7000)
    plain = data.normal(97) * F32(3)
    ties = np.rint(data.normal(64) * F32(2)).astype(F32)                  # many equal logits
    peaked = data.normal(33)
    peaked[20] = F32(30)
    wide = data.normal(300) * F32(40)
    return {"plain": plain, "ties": ties, "peaked": peaked, "wide": wide, "one": F32([0.5]),
            "flat": np.zeros(17, F32)}


def _sampling_cases():
    s = sampler.Sampling
    yield from (s(temperature=t, seed=11) for t in (0.0, 1e-6, 1e-5, 0.1, 0.6, 1.0, 1.7))
    yield from (s(top_k=k, seed=12) for k in (1, 2, 5, 17, 1000))
    yield from (s(top_p=p, seed=13, temperature=0.8) for p in (1e-3, 0.3, 0.5, 0.9, 0.95, 0.999))
    yield from (s(min_p=p, seed=14) for p in (0.01, 0.1, 0.5, 1.0))
    yield s(top_k=20, top_p=0.95, min_p=0.02, temperature=0.6, seed=15)
    yield s(top_k=20, top_p=0.95, temperature=0.6, seed=(1 << 63) + 5, choice=2)
    yield s(repetition_penalty=1.3, seed=16)
    yield s(repetition_penalty=0.7, frequency_penalty=0.4, presence_penalty=-0.25, seed=17)
    yield s(frequency_penalty=1.5, presence_penalty=0.5, temperature=0.0, seed=18)
    yield s(logit_bias={0: 5.0}, seed=19)
    yield s(logit_bias={0: -100.0, 16: 2.5}, repetition_penalty=1.1, top_p=0.8, temperature=0.7, seed=20)
    yield s(marker_penalty=2.0, marker_tokens=(0, 3, 16), seed=21)
    yield s(marker_penalty=0.7, marker_tokens=(0, 1, 2, 5, 12), logit_bias={5: 0.3}, repetition_penalty=1.2,
            frequency_penalty=0.1, presence_penalty=0.3, top_p=0.9, temperature=0.8, seed=22)
    yield s(marker_penalty=4.0, marker_tokens=(4, 16), temperature=0.0, seed=23)


def _add_params(w, name, p):
    for key in ("temperature", "top_p", "min_p", "repetition_penalty", "frequency_penalty", "presence_penalty"):
        w.add(f"{name}/{key}", F32(getattr(p, key)))
    w.add(f"{name}/top_k", np.int32(p.top_k))
    w.add(f"{name}/seed", np.uint64(p.seed))
    w.add(f"{name}/choice", np.uint32(p.choice))
    w.add(f"{name}/bias_tokens", np.array(list(p.logit_bias), np.int32))
    w.add(f"{name}/bias_values", np.array(list(p.logit_bias.values()), F32))
    w.add(f"{name}/marker_penalty", F32(p.marker_penalty))
    w.add(f"{name}/marker_tokens", np.array(p.marker_tokens, np.int32))


def _add_draw(w, name, p, logits, prompt, generated):
    w.add(f"{name}/generated", np.array(generated, np.int32))
    token, weights = sampler.sample(logits, p, prompt, generated)
    if weights is not None:
        kept = np.flatnonzero(weights)
        w.add(f"{name}/kept", kept.astype(np.int32))
        w.add(f"{name}/kept_weights", weights[kept].astype(np.uint32))
    w.add(f"{name}/token", np.int32(token))


def write_sampler():
    w = Writer()
    data = rng.TestData(7100)
    big = (data.normal(9000) * F32(4)).astype(F32)
    sizes = np.array([1, 2, 31, 32, 33, 1000, 4095, 4096, 4097, 8192, 9000], np.int32)
    sums = [sampler.softmax_sums(big[:n]) for n in sizes]
    w.add("entropy/logits", big)
    w.add("entropy/sizes", sizes)
    w.add("entropy/max", np.array([m for m, _, _ in sums], F32))
    w.add("entropy/Z", np.array([z for _, z, _ in sums]))
    w.add("entropy/S", np.array([s for _, _, s in sums]))
    w.add("entropy/H", np.array([sampler.entropy(big[:n]) for n in sizes]))
    w.add("entropy/logprob_of_last", np.array([sampler.logprob(big[:n], n - 1) for n in sizes], F32))
    cases = list(_sampling_cases())
    for i, p in enumerate(cases):
        _add_params(w, f"cases/c{i}", p)
    for name, logits in _logit_sets().items():
        v, prompt = len(logits), [int(t) for t in data.integers(0, len(logits), 5)]
        w.add(f"sets/{name}/logits", logits)
        w.add(f"sets/{name}/H", sampler.entropy(logits))
        w.add(f"sets/{name}/prompt", np.array(prompt, np.int32))
        for i, p in enumerate(cases):
            if all(t < v for t in (*p.logit_bias, *p.marker_tokens)):
                generated = [int(t) for t in data.integers(0, v, i % 7)]
                _add_draw(w, f"sets/{name}/c{i}", p, logits, prompt, generated)
    w.add("markers/words", " ".join(markers.WORDS))
    # One distribution, many positions: tokens of position 0, 1, 2, ... with an empty history.
    p, logits = sampler.Sampling(temperature=0.8, top_p=0.97, seed=99), _logit_sets()["plain"]
    _add_params(w, "positions", p)
    w.add("positions/logits", logits)
    weights = sampler.truncate(sampler.draw_weights(logits / F32(p.temperature)), p)
    tokens = [sampler.draw(weights, rng.philox_draw(p.seed, p.choice, i)) for i in range(256)]
    w.add("positions/tokens", np.array(tokens, np.int32))
    return w


def write_reset():
    """Sequences of (entropy, classes of the emitted tokens) and what ReSET decides."""
    w = Writer()
    data = rng.TestData(8000)
    for name, window, n, tau0, t_low in (("hand", 4, 20, 0.75, 0.25), ("short_window", 3, 60, 0.5505, 0.1),
                                         ("default", 32, 300, 0.6446, 0.4)):
        if name == "hand":
            entropies, classes = np.array(HAND_ENTROPIES), np.array(HAND_CLASSES, np.int32)
        else:
            entropies = np.abs(data.normal(n)).astype(np.float64) * np.where(data.integers(0, 3, n) == 0, 1.5, 0.25)
            classes = np.where(data.integers(0, 9, n) == 0, 1 + data.integers(0, 2, n), 0).astype(np.int32)
            classes[10:12] = 1                                              # two single newlines in a row
        policy, rows = reset.Reset(tau0=tau0, t_low=t_low, window=window), []
        for t in range(n):
            boundary = reset.at_boundary(classes[:t])
            rows.append((boundary, *policy.step(float(entropies[t]), boundary)))
        w.add(f"{name}/window", np.int32(window))
        for key, value in (("tau0", tau0), ("t_low", t_low), ("t_high", 1.0)):
            w.add(f"{name}/{key}", np.float64(value))
        w.add(f"{name}/entropy", entropies)
        w.add(f"{name}/class_of_token", classes)
        w.add(f"{name}/boundary", np.array([r[0] for r in rows], np.uint8))
        w.add(f"{name}/temperature", np.array([r[1] for r in rows], F32))
        w.add(f"{name}/h_step", np.array([r[2] for r in rows]))
        w.add(f"{name}/h_bar", np.array([r[3] for r in rows]))
        w.add(f"{name}/uncertain", np.array([r[4] for r in rows], np.uint8))
    return w


# The 20 tokens that tests/reference/reset_test.py works through by hand (window 4, tau0 .75, T_low .25).
# class_of_token[t] is the class of token t itself: 2 contains a blank line, 1 is one newline, 0 anything else.
HAND_ENTROPIES = [0.5, 1.0, 0.0, 2.0, 1.0, 0.25, 0.5, 3.0, 2.0, 1.5, 1.0, 0.0, 0.0, 0.5, 0.75, 0.25, 2.0, 1.0, 0.5, 1.25]
HAND_CLASSES = [0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 1, 1, 0, 0, 1, 0, 1, 2]

TOPICS = {"kv": write_kv, "attention": write_attention, "vector": write_vector, "rng": write_rng,
          "sampler": write_sampler, "reset": write_reset}
