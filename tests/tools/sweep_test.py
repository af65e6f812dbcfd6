"""halfbyte eval sweep: a folder that is gone on with, a disk that is full; and what eval says of tasks, paths and seeds."""

import json
import resource

import pytest


def rows(path):
    settings, *results = [json.loads(line) for line in path.read_text().splitlines()]
    return settings, results


def test_a_folder_is_gone_on_with_in_another_order(halfbyte, answerer, questions, tmp_path):
    """The reference's results have token ids: taken where none are needed; where they are needed and missing, it is said."""
    folder = tmp_path / "s"
    sweep = ("eval", "sweep", answerer, "--tasks", questions, "--limit", "3", "-o", folder)
    assert halfbyte(*sweep, "--plans", "bf16,int4", "--forced", "1").code == 0
    before = {p.name: p.read_bytes() for p in folder.glob("*.jsonl")}
    assert rows(folder / "q.bf16.jsonl")[0]["keep_tokens"] is True and "keep_tokens" not in rows(folder / "q.int4.jsonl")[0]
    for plans, forced in (("bf16,int4", "0"), ("int4,bf16", "0"), ("int4", "0"), ("bf16,int4", "2")):
        r = halfbyte(*sweep, "--plans", plans, "--forced", forced)
        assert r.code == 0, r.err
    refused = halfbyte(*sweep, "--plans", "int4,bf16", "--forced", "1")
    assert refused.code == 2 and refused.err.count("\n") == 1, refused.err
    assert f"{folder}/q.int4.jsonl': has no token ids, which --forced 1 reads of the reference, 'int4', the first of --plans" in refused.err, refused.err
    assert "begin --plans with the plan that was first" in refused.err and "--forced 0" in refused.err and "another folder" in refused.err
    assert before == {p.name: p.read_bytes() for p in folder.glob("*.jsonl")}, "nothing was left to do"
    # One that was cut off ends in the same bytes, ids and all, although nobody asks for them now.
    (folder / "q.bf16.jsonl").write_bytes(before["q.bf16.jsonl"][:-30])
    assert halfbyte(*sweep, "--plans", "int4,bf16", "--forced", "0").code == 0
    assert before == {p.name: p.read_bytes() for p in folder.glob("*.jsonl")}
    other = halfbyte(*sweep, "--plans", "int4,bf16", "--forced", "1", "--seed", "5")
    assert other.code == 2 and "'seed' is '0' there and '5' now" in other.err, other.err


def test_a_report_is_whole_or_as_it_was(halfbyte, answerer, questions, tmp_path):
    """No room for it: the system's reason, and the report of before."""
    folder = tmp_path / "s"
    sweep = ("eval", "sweep", answerer, "--tasks", questions, "--plans", "bf16,int4", "--forced", "1", "--limit", "3", "-o", folder)
    assert halfbyte(*sweep).code == 0
    before = {p.name: p.read_bytes() for p in folder.iterdir()}
    most = min(len(before["report.json"]), len(before["report.html"])) - 1
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, hard))  # the command inherits it
    try:
        r = halfbyte(*sweep, "--title", "Another")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert r.code == 2 and "cannot be written: File too large; make room and start again" in r.err and "/report." in r.err, r.err
    after = {p.name: p.read_bytes() for p in folder.iterdir()}
    assert set(after) == set(before), "nothing unfinished stays"
    assert after["report.json"] == before["report.json"] and after["report.html"] == before["report.html"]


@pytest.mark.parametrize("command", [["eval"], ["eval", "sweep"]])
def test_a_seed_is_no_negative_number(halfbyte, answerer, questions, tmp_path, command):
    what = ["--questions", questions] if command == ["eval"] else ["--tasks", questions, "-o", tmp_path / "s"]
    r = halfbyte(*command, answerer, *what, "--seed", "-1")
    assert r.code == 2 and "--seed: is '-1', expected a whole number from 0 to 18446744073709551615" in r.err, r.err


def test_every_task_of_a_file_is_named(halfbyte, answerer, tmp_path):
    path = tmp_path / "q.jsonl"
    for count, name in ((2, "t0, t1"), (5, "5 tasks")):
        path.write_text("".join(json.dumps({"id": f"q{i}", "task": f"t{i % count}", "prompt": f"{i}?", "answer": "7"}) + "\n" for i in range(6)))
        ask = ("eval", answerer, "--questions", path, "--plan", "bf16")
        assert halfbyte(*ask).out.startswith(f"{name}, plan bf16 (")
        assert json.loads(halfbyte(*ask, "--json").out)["task"] == name


def test_a_path_is_shown_whole_and_a_missing_model_is_said(halfbyte, answerer, tmp_path):
    folder = tmp_path / ("long" * 30)
    r = halfbyte("eval", folder, "--task", "chain")
    assert r.code == 2 and r.err.startswith(f"error: '{folder}': no such file or folder"), r.err
    folder.mkdir()
    r = halfbyte("eval", folder, "--task", "chain")
    assert r.code == 2 and f"there is no file '{folder}/questions/chain-validation.jsonl'" in r.err, r.err


@pytest.mark.parametrize("tasks", ["chain", "FILE", "FILE,chain"])
def test_a_sweep_says_that_the_model_is_missing(halfbyte, questions, tmp_path, tasks):
    """It is not the tasks that are wrong, and nothing is left behind."""
    missing, folder = tmp_path / "no-such-model", tmp_path / "s"
    r = halfbyte("eval", "sweep", missing, "--tasks", tasks.replace("FILE", str(questions)), "-o", folder)
    assert r.code == 2 and r.err == f"error: '{missing}': no such file or folder; expected a Hugging Face folder or a .gguf file\n", r.err
    assert not folder.exists()


def test_no_reasoning_has_no_ratio(halfbyte, tmp_path):
    lines = ['{"halfbyte_eval":2,"seed":0}']
    lines += [json.dumps({"id": f"q{i}", "sample": 0, "correct": True, "answer": "7", "prompt_tokens": 5, "reasoning_tokens": 0, "tokens": 9, "truncated": False,
                          "looped": False, "steps": 0, "repeated": 0.0, "alike": 0.0}) for i in range(3)]
    path = tmp_path / "r.jsonl"
    path.write_text("\n".join(lines) + "\n")
    text = halfbyte("eval", "compare", path, path)
    assert text.code == 0 and "reasoning tokens  0.0 -> 0.0\n" in text.out and "CTIR" not in text.out and "paired" not in text.out, text.err + text.out
    compared = json.loads(halfbyte("eval", "compare", path, path, "--json").out)["compared"][0]
    assert compared["ctir"] is None and compared["paired_ratio"] is None and compared["tokens_saved"]["mean"] == 0
