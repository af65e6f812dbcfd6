"""GSM8K on SmolLM2 from end to end: its questions as they are published, asked through its own chat template, graded and kept."""

import json
import os
import pathlib

import pytest

DATA = pathlib.Path(os.environ.get("HALFBYTE_SHARED", pathlib.Path(__file__).resolve().parents[3] / "shared")) / "data"


def test_two_questions(halfbyte, smollm2, tmp_path):
    source = DATA / "gsm8k" / "test.jsonl"
    if not source.exists():
        pytest.skip(f"{source} is not there")
    gold = [json.loads(line) for line in source.read_text(encoding="utf-8").splitlines()[:2]]
    path, out = tmp_path / "two.jsonl", tmp_path / "r.jsonl"
    path.write_text("".join(json.dumps(q) + "\n" for q in gold), encoding="utf-8")
    r = halfbyte("eval", smollm2, "--questions", path, "--plan", "bf16", "--max-tokens", 96, "-o", out, "--json", timeout=280)
    assert r.code == 0, r.err
    summary = json.loads(r.out)
    head, *samples = [json.loads(line) for line in out.read_text(encoding="utf-8").splitlines()]
    assert (summary["task"], summary["n"], head["n"]) == ("gsm8k", 2, 2)
    assert [s["id"] for s in samples] == [q["id"] for q in gold]
    for sample, question in zip(samples, gold):
        assert sample["prompt_tokens"] > len(question["question"].split()) and 0 < sample["tokens"] <= 96
        assert sample["truncated"] == (sample["tokens"] == 96)
        if sample["correct"]:  # the last number, or what is boxed
            assert question["answer"].replace(",", "") in sample["answer"].replace(",", "")
    assert summary["accuracy"] == sum(s["correct"] for s in samples) / 2
