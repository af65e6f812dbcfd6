"""The policy in C++ against the definition in Python over 10,000 sequences, every rule, bit for bit."""

import os
import struct
import subprocess

import numpy as np

from halfbyte_reference import reset

ORACLE = os.environ["HALFBYTE_RESET_ORACLE"]
RULES = ["fixed", "reset", "token", "window", "step", "low-step"]     # the order of TemperatureRule
SEQUENCES = 10_000


def adversarial(rng, n):
    """Entropies and classes that lie on the rules' edges."""
    kind = rng.integers(0, 6)
    classes = np.zeros(n, np.uint8)
    if kind == 0:                                   # a boundary before every token
        classes[:] = 2
    elif kind == 1:                                 # only single newlines: a boundary before every token but two
        classes[:] = 1
    else:
        classes = rng.choice(np.array([0, 0, 0, 0, 0, 0, 0, 0, 1, 2], np.uint8), n)
    if kind == 2:                                   # equal means everywhere: never uncertain
        entropies = np.full(n, rng.choice([0.0, 0.5, 11.93]))
    elif kind == 3:                                 # extremes of a vocabulary of 2^18
        entropies = rng.choice([0.0, 5e-324, np.log(2.0**18), 1e-10], n)
    elif kind == 4:                                 # few values, so that H_t often equals the threshold
        entropies = rng.choice([0.0, 0.25, 0.5, 1.0], n)
    else:
        entropies = np.where(rng.random(n) < 0.3, rng.gamma(2.0, 0.6, n), rng.gamma(1.0, 0.02, n))
    return entropies.astype(np.float64), classes


def sequences():
    rng = np.random.default_rng(71)
    for i in range(SEQUENCES):
        n = 2000 if i % 500 == 0 else int(1 + rng.exponential(60)) if i % 10 else int(rng.integers(1, 400))
        rule = RULES[1 + i % 5]
        window = int(rng.choice([1, 2, 3, 16, 32, 128]))
        tau0 = float(rng.choice([0.0, 0.25, 0.5505, 0.6349, 100.0]))
        t_low, t_high = np.float32(rng.choice([0.0, 0.1, 0.3])), np.float32(rng.choice([0.6, 1.0]))
        yield rule, bool(rng.integers(0, 2)), window, tau0, t_low, t_high, *adversarial(rng, n)


def test_ten_thousand_sequences():
    cases = list(sequences())
    packed = b"".join(struct.pack("<BBidffi", RULES.index(rule), include, window, tau0, t_low, t_high, len(h))
                      + h.tobytes() + classes.tobytes() for rule, include, window, tau0, t_low, t_high, h, classes in cases)
    answer = subprocess.run([ORACLE], input=packed, capture_output=True, check=True).stdout
    at, tokens, highs = 0, 0, 0
    for number, (rule, include, window, tau0, t_low, t_high, h, classes) in enumerate(cases):
        n = len(h)
        policy = reset.Reset(tau0=tau0, t_low=t_low, t_high=t_high, window=window, rule=rule, include_current=include)
        rows = []
        for t in range(n):
            boundary = reset.at_boundary(classes[max(0, t - 2):t])
            rows.append((*policy.step(float(h[t]), boundary), boundary))
        expected = [np.array([r[0] for r in rows], np.float32), np.array([r[1] for r in rows]), np.array([r[2] for r in rows]),
                    np.array([r[4] + 2 * r[3] for r in rows], np.uint8)]
        for part in expected:
            assert answer[at:at + part.nbytes] == part.tobytes(), (number, rule, include, window)
            at += part.nbytes
        tokens += n
        highs += int(np.count_nonzero(expected[0] == t_high))
    assert at == len(answer)
    assert tokens > 500_000 and 0.05 < highs / tokens < 0.95        # both temperatures were chosen often
