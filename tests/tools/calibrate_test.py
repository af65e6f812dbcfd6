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
    assert written["reset"] == {"tau0": out["tau0"], "t_low": out["t_low"]} and out["t_low"] == 0.1
    traced = halfbyte("run", model, "--policy", "reset", "--plan", "bf16", "--max-tokens", "2", "hello")
    assert "calibrated" in traced.err and "t_low 0.1" in traced.err
    other = halfbyte("run", model, "--policy", "reset", "--plan", "w4a16", "--max-tokens", "2", "hello")
    assert "calibrated" not in other.err  # the values hold for one plan


def test_the_plan_is_named_with_its_changes(halfbyte, model, tmp_path):
    (tmp_path / "p.txt").write_text("one\ntwo\n")
    r = halfbyte("calibrate", "reset", model, "--prompts", tmp_path / "p.txt", "--t-low", "0.1", "--plan", "w4a4,kv=fp8", "--max-tokens", "40",
                 "--seed", "3", "--json")
    assert r.code == 0 and json.loads(r.out)["plan"] == "w4a4,kv=fp8", r.err


def test_low_temperature_by_grid(halfbyte, model, questions):
    """At 50 nearly every token is as likely as another, so the model answers wrongly; 0 is greedy."""
    out = calibrate(halfbyte, model, "--questions", questions, "--t-low-grid", "50,0,0.01", "--samples", "2")
    grid = out["t_low_grid"]
    assert out["prompts"] == grid["questions"] == 6 and grid["samples"] == 2 and grid["fixed"]["accuracy"] == 1
    rows = {row["t_low"]: row for row in grid["rows"]}
    assert list(rows) == [50, 0, 0.01]
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


def test_the_plan_that_is_written_is_said(halfbyte, model, questions):
    r = halfbyte("calibrate", "reset", model, "--questions", questions, "--plan", "w4a4", "--max-tokens", "4")
    assert "default plan was w4a16" in r.out and "is now w4a4" in r.out, r.out
    again = halfbyte("calibrate", "reset", model, "--questions", questions, "--max-tokens", "4")
    assert "default plan" not in again.out


def test_values_of_another_plan_are_not_used_and_that_is_said(halfbyte, model, questions):
    halfbyte("calibrate", "reset", model, "--questions", questions, "--plan", "w4a4", "--max-tokens", "4")
    def source(plan):
        r = halfbyte("run", model, "--policy", "reset", "--plan", plan, "--json", "--max-tokens", "2", "Hi")
        assert r.code == 0, r.err
        return json.loads(r.out)["policy"]["source"]
    assert source("w4a4") == "calibrated, from the model's halfbyte_plan.json"
    other = source("w4a16,kv=fp8")
    assert "defaults" in other and other.endswith("those in halfbyte_plan.json are of the plan w4a4 and not used"), other


def test_what_cannot_be_written_is_said_first_and_nothing_is_left(halfbyte, model, questions, tmp_path):
    prompts = tmp_path / "p.txt"
    prompts.write_text("one\n")
    for out, words in [(tmp_path / "no" / "x", "No such file"), (tmp_path, "Is a directory"), (prompts, "no plan")]:
        r = halfbyte("calibrate", "reset", model, "--prompts", prompts, "-o", out)
        assert r.code == 2 and words in r.err and r.err.count("\n") == 1, r.err
    assert prompts.read_text() == "one\n"
    (model / "halfbyte_plan.json").write_text("mine")
    r = halfbyte("calibrate", "reset", model, "--prompts", prompts, "--plan", "bf16")
    assert r.code == 2 and "no plan" in r.err and (model / "halfbyte_plan.json").read_text() == "mine"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["model", "p.txt", "q.jsonl"]


def test_prompts_are_checked_before_the_first_is_answered(halfbyte, model, tmp_path):
    prompts = tmp_path / "p.txt"
    prompts.write_bytes(b"one\ntwo\xff\n")
    r = halfbyte("calibrate", "reset", model, "--prompts", prompts)
    assert r.code == 2 and f"{prompts}: line 2 is not UTF-8 at byte 3" in r.err
    prompts.write_text("one\n" + "x" * 300 + "\n")
    r = halfbyte("calibrate", "reset", model, "--prompts", prompts, "--ctx", "100")
    assert r.code == 2 and "prompt 2" in r.err and "context of 100" in r.err


@pytest.mark.parametrize("arguments, words", [
    (["tau", "MODEL", "--prompts", "x"], ["'tau'", "expected reset"]),
    (["reset", "MODEL"], ["--prompts FILE"]),
    (["reset", "MODEL", "--prompts", "no such file"], ["no such file"]),
    (["reset", "MODEL", "--prompts", "x", "--t-low-grid", "0.1"], ["--t-low-grid", "--task"]),
    (["reset", "MODEL", "--questions", "Q", "--t-low-grid", "0.1", "--t-low", "0.1"], ["--t-low-grid"]),
    (["reset", "MODEL", "--questions", "Q", "--t-low-grid", "warm"], ["--t-low-grid"]),
    (["reset", "MODEL", "--questions", "Q", "--samples", "8"], ["--samples has no effect without --t-low-grid"]),
    (["reset", "MODEL", "--prompts", "x", "--limit", "8"], ["--limit has no effect with --prompts"]),
    (["reset", "MODEL", "--prompts", "x", "--questions", "Q"], ["--questions has no effect with --prompts"]),
    *[(["reset", "MODEL", "--questions", "Q", f"--t-low={bad}"], ["--t-low", expected])
      for bad, expected in (("-1", "0 to 100"), ("nan", "expected a number"), ("inf", "expected a number"), ("1e30", "0 to 100"))],
    (["reset", "MODEL", "--questions", "Q", "--t-low-grid", "0.1,nan"], ["--t-low-grid", "expected a number"]),
])
def test_bad_input(halfbyte, model, questions, arguments, words):
    names = {"MODEL": model, "Q": questions}
    r = halfbyte("calibrate", *[names.get(a, a) for a in arguments])
    assert r.code == 2 and r.out == "" and r.err.startswith("error: ") and r.err.count("\n") == 1, r.err
    assert all(word in r.err for word in words), r.err
    assert not (model / "halfbyte_plan.json").exists()
