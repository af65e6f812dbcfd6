"""The grader of mathematical answers against an independent one (math-verify), on the gold answers of MATH-500 and on changes
of them that keep or break their meaning. Skipped without the data or the package; what it found stands in docs/evaluation.md."""

import json
import os
import pathlib
import random
import re
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROGRAM = pathlib.Path(os.environ.get("HALFBYTE_BIN", ROOT / "build" / "dev" / "bin")) / "same_math_lines"
DATA = pathlib.Path(os.environ.get("HALFBYTE_SHARED", ROOT.parent / "shared")) / "data" / "math500" / "test.jsonl"

def ours(pairs):
    lines = "".join(f"{a}\t{b}\n" for a, b in pairs)
    done = subprocess.run([PROGRAM], input=lines, capture_output=True, text=True, timeout=300, check=True)
    return [line == "1" for line in done.stdout.split()]


def kept(choose, gold):
    """(kind, text) of one change that keeps the meaning, or None."""
    kind = choose.randrange(9)
    plain = re.fullmatch(r"-?\d+", gold)
    if kind == 0:
        return "dollars", f"${gold}$"
    if kind == 1 and "text" not in gold and "mbox" not in gold:
        return "spaces", re.sub(r"(?<=[-+*=(),])(?=[^ ])", " ", gold)
    if kind == 2 and "\\frac" in gold:
        return "dfrac", gold.replace("\\frac", "\\dfrac")
    if kind == 3 and re.search(r"\\d?frac\{(\w+)\}\{(\w+)\}", gold):
        return "slash", re.sub(r"\\d?frac\{(\w+)\}\{(\w+)\}", r"(\1/\2)", gold)
    if kind == 4 and gold.startswith("(") and "\\" not in gold:
        return "left right", gold.replace("(", "\\left(", 1)[:-1] + "\\right" + gold[-1]
    if kind == 5 and plain:
        return "sum", f"{int(gold) - 7}+7"
    if kind == 6 and plain:
        return "decimal", f"{gold}.0"
    if kind == 7 and plain and abs(int(gold)) < 10000:
        return "fraction", f"\\frac{{{3 * int(gold)}}}{{3}}"
    if kind == 8 and re.fullmatch(r"\\frac\{(\d+)\}\{(\d+)\}", gold):
        a, b = map(int, re.findall(r"\d+", gold))
        return "widened", f"\\frac{{{5 * a}}}{{{5 * b}}}"
    return None


def broken(choose, gold):
    """(kind, text) of one change that gives another answer, or None."""
    kind = choose.randrange(6)
    digits = [m.start() for m in re.finditer(r"\d", gold)]
    if kind == 0 and digits:
        at = choose.choice(digits)
        return "digit", gold[:at] + str((int(gold[at]) + choose.randrange(1, 9)) % 10) + gold[at + 1:]
    if kind == 1 and re.fullmatch(r"-?\d+|\\frac\{\d+\}\{\d+\}", gold) and gold != "0":
        return "sign", gold[1:] if gold.startswith("-") else "-" + gold
    if kind == 2 and re.fullmatch(r"\((-?\d+), ?(-?\d+)\)", gold):
        a, b = re.findall(r"-?\d+", gold)
        return ("swapped", f"({b},{a})") if a != b else None
    if kind == 3 and re.fullmatch(r"[(\[].*,.*[)\]]", gold):
        return "bracket", ("[" if gold[0] == "(" else "(") + gold[1:]
    if kind == 4 and re.fullmatch(r"-?\d+", gold):
        return "longer", gold + "0" if gold != "0" else "10"
    if kind == 5 and re.fullmatch(r"\\frac\{\d+\}\{\d+\}", gold):
        a, b = re.findall(r"\d+", gold)
        return ("upside down", f"\\frac{{{b}}}{{{a}}}") if a != b else None
    return None


def changes(golds, count):
    choose, out = random.Random(3), []
    while len(out) < count:
        gold = choose.choice(golds)
        make, keep = (kept, True) if choose.random() < .5 else (broken, False)
        change = make(choose, gold)
        if change and "_" not in gold and "mbox" not in gold:                    # of units nothing counts
            out.append((gold, change[1], keep, change[0]))
    return out


@pytest.fixture(scope="module")
def golds():
    if not DATA.exists():
        pytest.skip(f"{DATA} is not there")
    if not PROGRAM.exists():
        pytest.skip(f"{PROGRAM} is not built")
    return [json.loads(line)["answer"] for line in DATA.read_text().splitlines()]


def test_gold_answers_are_themselves_and_no_other(golds):
    different = sorted(set(golds))
    assert all(ours([(g, g) for g in different]))
    choose = random.Random(1)
    pairs = [tuple(choose.sample(different, 2)) for _ in range(3000)]
    same = {frozenset(p) for p, s in zip(pairs, ours(pairs)) if s}
    assert all(re.sub(r"[^\w]|[dt]?frac|text|circ", "", a) == re.sub(r"[^\w]|[dt]?frac|text|circ", "", b) for a, b in same), same


def test_changes_are_told_apart(golds):
    made = changes(golds, 2000)
    wrong = [m for m, same in zip(made, ours([m[:2] for m in made])) if same != m[2]]
    assert not wrong, wrong[:10]


def test_an_independent_grader_agrees(golds):
    verify = pytest.importorskip("math_verify")
    made = changes(golds, 1000)
    differences = []
    for (gold, other, keep, kind), same in zip(made, ours([m[:2] for m in made])):
        theirs = verify.verify(verify.parse(f"${gold}$", parsing_timeout=None), verify.parse(f"${other.strip('$')}$", parsing_timeout=None),
                               timeout_seconds=None)
        if theirs != same:
            differences.append((kind, gold, other, "ours" if same == keep else "theirs"))
    print(f"{len(differences)} of {len(made)} differ")
    for d in differences:
        print(d)
    # Where the two differ, this one must be right.
    assert not [d for d in differences if d[3] == "theirs"], differences
