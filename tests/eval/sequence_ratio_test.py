"""sequence_ratio() against Python's difflib, to the last bit: random texts, edited texts, repetitive ones, long ones."""

import difflib
import os
import pathlib
import random
import struct
import subprocess

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROGRAM = pathlib.Path(os.environ.get("HALFBYTE_BIN", ROOT / "build" / "dev" / "bin")) / "ratio_lines"
WORDS = "the tapir wrote a poem about rain and the second tapir about the first ; \n\n é 漢字 😀 -".split(" ")


def edited(choose, text):
    for _ in range(choose.randrange(6)):
        at, end = sorted(choose.randrange(len(text) + 1) for _ in range(2))
        kind = choose.randrange(4)
        piece = text[at:min(end, at + 30)]
        text = (text[:at] + text[end:] if kind == 0 else text[:at] + choose.choice(WORDS) + text[at:] if kind == 1
                else text[:at] + piece + text[at:] if kind == 2 else text[end:] + text[at:end] + text[:at])
    return text


def pairs():
    choose = random.Random(3)
    yield from [("", ""), ("", "a"), ("a", ""), ("a", "a"), ("ab" * 100, "ba" * 100), ("a" * 199, "a" * 199), ("a" * 200, "a" * 200),
                ("a" * 200, "a" * 199), ("x" + "a" * 300, "a" * 300 + "x")]
    for size in (3, 10, 40, 198, 199, 200, 201, 250, 600):
        for alphabet in ("ab", "abcdefgh", "".join(map(chr, range(0x3B1, 0x3B1 + 120)))):
            for _ in range(25):
                yield tuple("".join(choose.choice(alphabet) for _ in range(choose.randrange(size - 2, size + 3))) for _ in "ab")
    for size in (5, 30, 60, 200, 500):
        for _ in range(60):
            text = " ".join(choose.choice(WORDS) for _ in range(size))
            yield text, edited(choose, text)
            yield edited(choose, text), text


def test_bits_are_difflib_s():
    lines = list(pairs())
    assert sum(len(b) >= 200 for _, b in lines) > 400, "autojunk is at work"
    done = subprocess.run([PROGRAM], input="".join(f"{a.encode().hex()}\t{b.encode().hex()}\n" for a, b in lines), capture_output=True,
                          text=True, timeout=120)
    assert done.returncode == 0
    found = done.stdout.split()
    assert len(found) == len(lines) > 1200
    expected = [struct.pack(">d", difflib.SequenceMatcher(None, a, b).ratio()).hex() for a, b in lines]
    differences = [(a[:50], b[:50], f, e) for (a, b), f, e in zip(lines, found, expected) if f != e]
    assert not differences, differences[:3]
    assert len(set(expected)) > 500
