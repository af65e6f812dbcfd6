"""Published code questions: their own solutions pass, changed ones fail. Every 20th question; HALFBYTE_ALL_CODE=1 runs them all."""

import json
import os
import pathlib
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROGRAM = pathlib.Path(os.environ.get("HALFBYTE_BIN", ROOT / "build" / "dev" / "bin")) / "grade_lines"
DATA = pathlib.Path(os.environ.get("HALFBYTE_SHARED", ROOT.parent / "shared")) / "data"
EVERY = 1 if os.environ.get("HALFBYTE_ALL_CODE") else 20


def read(name):
    path = DATA / name
    if not path.exists():
        pytest.skip(f"shared/data/{name} is not here")
    return [json.loads(line) for line in path.read_text().splitlines()][::EVERY]


def grades(questions, codes):
    lines = "".join(json.dumps(q | {"completion": f"So:\n```python\n{code}\n```\n"}) + "\n" for q, code in zip(questions, codes))
    done = subprocess.run([PROGRAM], input=lines, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0
    if done.stdout.startswith("no sandbox"):
        pytest.skip(done.stdout)
    found = [line == "1" for line in done.stdout.split()]
    assert len(found) == len(questions)
    return found


def test_humaneval():
    questions = read("humaneval/test.jsonl")
    for codes in ([q["prompt"] + q["canonical_solution"] for q in questions], [q["canonical_solution"].strip("\n") for q in questions]):
        found = grades(questions, codes)
        assert all(found), [q["id"] for q, right in zip(questions, found) if not right]
    assert not any(grades(questions, [q["prompt"] + "    return None\n" for q in questions]))


def test_mbpp():
    questions = read("mbpp/sanitized.jsonl")
    found = grades(questions, [q["code"] for q in questions])
    assert all(found), [q["id"] for q, right in zip(questions, found) if not right]
    assert not any(grades(questions, ["x = 1" for _ in questions]))
