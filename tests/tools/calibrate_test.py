"""halfbyte calibrate from end to end, on a model that always answers 7."""
import json
import pathlib

import pytest

import tiny_chat


@pytest.fixture
def model(tmp_path, monkeypatch):
    """Says "<think>k</think>answer: 7", the last four of its 13 tokens with half the logit, so that they have entropy."""
    tensors = tiny_chat.tensors

    def with_uncertain_end():
        out = tensors()
        for current in b"r: 7":
            out["lm_head.weight"][:, current] /= 2
        return out
    monkeypatch.setattr(tiny_chat, "CHAINS", [["\n", "<think>", "k", "</think>", *"answer: 7", "<|im_end|>"]])
    monkeypatch.setattr(tiny_chat, "tensors", with_uncertain_end)
    return pathlib.Path(tiny_chat.write_model(tmp_path / "model"))


@pytest.fixture
def questions(tmp_path):
    path = tmp_path / "q.jsonl"
    path.write_text("".join(json.dumps({"id": f"q{i}", "task": "sums", "prompt": f"What is {i}?", "answer": "7"}) + "\n"
                            for i in range(6)))
    return path


def calibrate(halfbyte, *arguments):
    r = halfbyte("calibrate", "reset", *arguments, "--plan", "bf16", "--json", "--max-tokens", "40", "--seed", "3")
    assert r.code == 0, r.err
    return json.loads(r.out)


def test_threshold_from_prompts(halfbyte, model, tmp_path):
    (tmp_path / "p.txt").write_text("one\n\ntwo\n")
    out = calibrate(halfbyte, model, "--prompts", tmp_path / "p.txt", "--t-low", "0.1")
    assert out["prompts"] == len(out["tau0_of_prompts"]) == 2 and out["tokens"] > 2 and out["t_low_grid"] is None
    assert min(out["tau0_of_prompts"]) <= out["tau0"] <= max(out["tau0_of_prompts"])
    written = json.loads((model / "halfbyte_plan.json").read_text())
    assert written["reset"] == {"tau0": out["tau0"], "t_low": out["t_low"]} and out["t_low"] == pytest.approx(0.1)
    traced = halfbyte("run", model, "--policy", "reset", "--plan", "bf16", "--max-tokens", "2", "hello")
    assert "calibrated" in traced.err and "t_low 0.1" in traced.err
    other = halfbyte("run", model, "--policy", "reset", "--plan", "w4a16", "--max-tokens", "2", "hello")
    assert "calibrated" not in other.err  # the values hold for one plan


def test_low_temperature_by_grid(halfbyte, model, questions):
    """At 50 nearly every token is as likely as another, so the model answers wrongly; 0 is greedy."""
    out = calibrate(halfbyte, model, "--questions", questions, "--t-low-grid", "50,0,0.01", "--samples", "2")
    grid = out["t_low_grid"]
    assert out["prompts"] == grid["questions"] == 6 and grid["samples"] == 2 and grid["fixed"]["accuracy"] == 1
    rows = {row["t_low"]: row for row in grid["rows"]}
    assert list(rows) == [50, 0, pytest.approx(0.01)]
    assert rows[50]["accuracy"] < rows[0]["accuracy"]
    assert rows[50]["change"] == rows[50]["accuracy"] - 1 < 0
    best = max(row["accuracy"] for row in grid["rows"])
    assert out["t_low"] == max(row["t_low"] for row in grid["rows"] if row["accuracy"] == best)
    assert json.loads((model / "halfbyte_plan.json").read_text())["reset"]["t_low"] == out["t_low"]


def test_grid_as_text(halfbyte, model, questions, tmp_path):
    r = halfbyte("calibrate", "reset", model, "--questions", questions, "--t-low-grid", "0.01", "--plan", "bf16",
                 "--max-tokens", "40", "--samples", "1", "-o", tmp_path / "plan.json")
    assert r.code == 0 and "t_low 0.01" in r.out and "most accurate" in r.out and "written to" in r.out, r.out + r.err
    assert (tmp_path / "plan.json").exists()


@pytest.mark.parametrize("arguments, words", [
    (["tau", "MODEL", "--prompts", "x"], ["'tau'", "expected reset"]),
    (["reset", "MODEL"], ["--prompts FILE"]),
    (["reset", "MODEL", "--prompts", "no such file"], ["no such file"]),
    (["reset", "MODEL", "--prompts", "x", "--t-low-grid", "0.1"], ["--t-low-grid", "--task"]),
    (["reset", "MODEL", "--questions", "Q", "--t-low-grid", "0.1", "--t-low", "0.1"], ["--t-low-grid"]),
    (["reset", "MODEL", "--questions", "Q", "--t-low-grid", "warm"], ["--t-low-grid"]),
    (["reset", "MODEL", "--questions", "Q", "--t-low", "-1"], ["--t-low"]),
])
def test_bad_input(halfbyte, model, questions, arguments, words):
    names = {"MODEL": model, "Q": questions}
    r = halfbyte("calibrate", *[names.get(a, a) for a in arguments])
    assert r.code == 2 and r.out == "" and r.err.startswith("error: ") and r.err.count("\n") == 1, r.err
    assert all(word in r.err for word in words), r.err
    assert not (model / "halfbyte_plan.json").exists()
