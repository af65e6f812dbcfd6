"""halfbyte eval from end to end, on a model that always answers 7 and now and then goes on for ever."""

import contextlib
import fcntl
import json
import math
import os
import pathlib
import re
import shutil
import signal
import subprocess
import time

import pytest
import tiny_chat
from conftest import BINARY, PATIENCE, ROOT, clean_environment


def ask(halfbyte, model, questions, *more):
    r = halfbyte("eval", model, "--questions", questions, "--plan", "bf16", "--json", *more)
    assert r.code == 0, r.err
    return json.loads(r.out)


def test_figures(halfbyte, answerer, questions):
    out = ask(halfbyte, answerer, questions, "--samples", "2")
    assert list(out)[:6] == ["task", "plan", "n", "samples", "accuracy", "ci95"]
    assert (out["task"], out["plan"], out["n"], out["samples"]) == ("sums", "bf16", 12, 2)
    assert out["accuracy"] == out["majority"] == 0.75
    assert out["ci95"][0] < 0.75 < out["ci95"][1]
    assert out["truncated"] == out["looped"] == 0 and out["reasoning_tokens_mean"] == 3 and out["tokens_per_s"] > 0
    assert [(row["level"], row["n"], row["accuracy"]) for row in out["levels"]] == [(1, 6, 0.5), (2, 6, 1.0)]


def test_choosing_questions(halfbyte, answerer, questions):
    assert ask(halfbyte, answerer, questions, "--levels", "2")["accuracy"] == 1
    assert ask(halfbyte, answerer, questions, "--limit", "4")["n"] == 4
    short = ask(halfbyte, answerer, questions, "--max-tokens", "3")
    assert short["truncated"] == 1 and short["accuracy"] == 0


def test_policy(halfbyte, answerer, questions, tmp_path):
    """The policy chooses the temperature: with a threshold above every entropy each token is drawn greedily."""
    out = tmp_path / "r.jsonl"
    greedy = ask(halfbyte, answerer, questions, "--policy", "reset", "--reset-tau0", "99", "--reset-t-low", "0", "-o", out)
    assert greedy["policy"] == {"rule": "reset", "tau0": 99, "t_low": 0, "t_high": 1, "window": 32,
                                "include_current": False}
    settings = json.loads(out.read_text().splitlines()[0])
    assert settings["policy"] == greedy["policy"]
    given = ask(halfbyte, answerer, questions, "--policy", "reset", "--reset-t-low", "0.3", "--reset-t-high", "0.7", "--top-p", "0.95", "--marker-penalty", "0",
                "-o", tmp_path / "given.jsonl")
    assert (given["policy"]["t_low"], given["policy"]["t_high"]) == (0.3, 0.7), "as it was given, and not the nearest float's digits"
    assert json.loads((tmp_path / "given.jsonl").read_text().splitlines()[0])["top_p"] == 0.95
    hot = ask(halfbyte, answerer, questions, "--policy", "reset", "--reset-tau0", "0", "--reset-t-high", "50",
              "--top-p", "1", "--max-tokens", "40")
    assert greedy["accuracy"] == 0.75 and hot["accuracy"] < 0.75  # at 50 nearly every token is as likely as another
    assert ask(halfbyte, answerer, questions)["policy"] is None
    text = halfbyte("eval", answerer, "--questions", questions, "--policy", "reset")
    assert "reset: tau0 0.6349" in text.out and "defaults" in text.out


def test_text(halfbyte, answerer, questions):
    r = halfbyte("eval", answerer, "--questions", questions)
    assert r.code == 0 and "accuracy          0.7500" in r.out and "12 questions x 1 sample\n" in r.out


def test_the_plan_is_named_with_its_changes(halfbyte, answerer, questions, tmp_path):
    plan = "w4a4,kv=fp8,layers.0.*:weights=bf16"
    (tmp_path / "text").write_text("some text " * 20)
    for more in (["--questions", questions, "--max-tokens", "3"], ["--task", "perplexity", "--text", tmp_path / "text", "--window", "32"]):
        r = halfbyte("eval", answerer, *more, "--plan", plan, "--json")
        assert r.code == 0 and json.loads(r.out)["plan"] == plan, r.err


def test_a_stopped_run_goes_on_and_ends_in_the_same_bytes(halfbyte, answerer, questions, tmp_path):
    whole, cut = tmp_path / "whole.jsonl", tmp_path / "cut.jsonl"
    first = ask(halfbyte, answerer, questions, "--samples", "3", "-o", whole)
    text = whole.read_bytes()
    assert text.count(b"\n") == 1 + 36
    for at in (10, len(text) // 3, len(text) - 5):
        cut.write_bytes(text[:at])
        again = ask(halfbyte, answerer, questions, "--samples", "3", "-o", cut, "--concurrent", "5")
        assert cut.read_bytes() == text
        assert again["accuracy"] == first["accuracy"] and again["ci95"] == first["ci95"]
    assert ask(halfbyte, answerer, questions, "--samples", "3", "-o", whole)["tokens_per_s"] == 0, "nothing was left to do"


def wait_until_written(process, path):
    """Until some samples are in the results, or all of them."""
    while process.poll() is None and (not path.exists() or path.stat().st_size < 2000):
        time.sleep(0.01)


def test_killed_in_the_middle(answerer, questions, tmp_path):
    """SIGKILL at any moment, then the same command again."""
    many = tmp_path / "many.jsonl"
    many.write_text("".join(json.dumps({"id": f"q{i}", "task": "sums", "prompt": f"{i}?", "answer": "7"}) + "\n" for i in range(400)))
    command = [BINARY, "eval", answerer, "--questions", many, "--plan", "bf16", "--samples", "4", "--json", "-o"]
    whole, killed = tmp_path / "whole.jsonl", tmp_path / "killed.jsonl"
    subprocess.run([*command, whole], check=True, capture_output=True, env=clean_environment(), timeout=PATIENCE)
    victim = subprocess.Popen([*command, killed], stdout=subprocess.DEVNULL, env=clean_environment())
    wait_until_written(victim, killed)
    victim.send_signal(signal.SIGKILL)
    victim.wait()
    subprocess.run([*command, killed], check=True, capture_output=True, env=clean_environment(), timeout=PATIENCE)
    assert killed.read_bytes() == whole.read_bytes()


def test_two_runs_into_one_file(answerer, halfbyte, questions, tmp_path):
    """The second is refused, and the first goes on as if nothing had been."""
    out, held = tmp_path / "r.jsonl", tmp_path / "held.jsonl"
    ask(halfbyte, answerer, questions, "-o", out)
    held.write_bytes(out.read_bytes()[:-5])
    with open(held, "rb") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        r = halfbyte("eval", answerer, "--questions", questions, "--plan", "bf16", "-o", held)
        assert r.code == 2 and r.err.count("\n") == 1 and "another halfbyte eval is writing it" in r.err, r.err
        assert held.read_bytes() == out.read_bytes()[:-5]
    ask(halfbyte, answerer, questions, "-o", held)
    assert held.read_bytes() == out.read_bytes()


def test_task_files_lie_beside_the_model(halfbyte, answerer, questions):
    folder = pathlib.Path(answerer) / "questions"
    folder.mkdir(exist_ok=True)
    (folder / "sums-validation.jsonl").write_bytes(questions.read_bytes())
    r = halfbyte("eval", answerer, "--task", "sums", "--json")
    assert r.code == 0 and json.loads(r.out)["n"] == 12


@pytest.mark.parametrize("arguments, words", [
    ([], ["--task", "--questions"]),
    (["--task", "nothing"], ["nothing-validation.jsonl", "--questions FILE"]),
    (["--task", "x", "--split", "train"], ["--split", "validation or test"]),
    (["--questions", "QUESTIONS", "--task", "x"], ["one of them"]),
    (["--questions", "QUESTIONS", "--levels", "9"], ["--levels"]),
    (["--questions", "no such file"], ["no such file"]),
    (["--questions", "QUESTIONS", "--samples", "0"], ["--samples"]),
    (["--questions", "QUESTIONS", "--policy", "reset", "--temperature", "0.6"], ["--policy reset", "--temperature"]),
    (["--questions", "QUESTIONS", "--reset-tau0", "1"], ["--policy reset"]),
    (["--questions", "QUESTIONS", "-o", "/no/such/folder/x"], ["/no/such/folder/x"]),
])
def test_bad_input(halfbyte, answerer, questions, arguments, words):
    r = halfbyte("eval", answerer, *[questions if a == "QUESTIONS" else a for a in arguments])
    lines = r.err.rstrip("\n").split("\n")
    assert r.code == 2 and r.out == "" and len(lines) == 1 and lines[0].startswith("error: "), (r.code, r.err)
    for word in words:
        assert word in lines[0]


def test_results_of_other_questions_are_refused(halfbyte, answerer, questions, tmp_path):
    """The ids are the same, what is asked or counts as right is not."""
    out = tmp_path / "r.jsonl"
    ask(halfbyte, answerer, questions, "-o", out)
    before, text = out.read_bytes(), questions.read_text()
    for old, new in [("What is 3?", "What was 3?"), ('"answer": "8"', '"answer": "7"')]:
        questions.write_text(text.replace(old, new))
        r = halfbyte("eval", answerer, "--questions", questions, "--plan", "bf16", "-o", out)
        assert r.code == 2 and r.err.count("\n") == 1 and out.read_bytes() == before, r.err
    questions.write_text(text)
    assert ask(halfbyte, answerer, questions, "-o", out)["accuracy"] == 0.75
    # Of a countdown the numbers and the target are what is right, and "answer" is only an example.
    question, counted = {"id": "c", "task": "countdown", "prompt": "?", "answer": "1+2=3", "numbers": [1, 2], "target": 3}, tmp_path / "c.jsonl"
    questions.write_text(json.dumps(question) + "\n")
    ask(halfbyte, answerer, questions, "-o", counted)
    for change in ({"numbers": [1, 3]}, {"target": 4}):
        questions.write_text(json.dumps(question | change) + "\n")
        r = halfbyte("eval", answerer, "--questions", questions, "--plan", "bf16", "-o", counted)
        assert r.code == 2 and "'fingerprint' is" in r.err, r.err


def test_results_of_other_settings_are_refused(halfbyte, answerer, questions, tmp_path):
    ask(halfbyte, answerer, questions, "-o", tmp_path / "r.jsonl")
    before = (tmp_path / "r.jsonl").read_bytes()
    r = halfbyte("eval", answerer, "--questions", questions, "--plan", "bf16", "--seed", "5", "-o", tmp_path / "r.jsonl")
    assert r.code == 2 and "other settings" in r.err and (tmp_path / "r.jsonl").read_bytes() == before


def test_each_setting_has_one_type(halfbyte, answerer, questions, tmp_path):
    settings = []
    for flag in (None, "--think", "--no-think"):
        ask(halfbyte, answerer, questions, "--limit", "1", "-o", tmp_path / f"{flag}", *([flag] if flag else []))
        settings.append(json.loads((tmp_path / f"{flag}").read_text().splitlines()[0]))
    assert [s["think"] for s in settings] == [True, True, False] and [s.get("think_asked_for", False) for s in settings] == [False, True, False]
    assert len({json.dumps(s) for s in settings}) == 3, "none goes on with another's results"


def test_what_other_settings_are_is_said(halfbyte, answerer, questions, tmp_path):
    """The settings are long and mostly alike: the message names what differs, and nothing else."""
    out = tmp_path / "r.jsonl"
    ask(halfbyte, answerer, questions, "-o", out)
    r = halfbyte("eval", answerer, "--questions", questions, "--plan", "bf16", "--seed", "5", "--stop-on-loop", "-o", out)
    assert r.code == 2 and r.err.count("\n") == 1
    assert "'seed' is '0' there and '5' now, 'stop_on_loop' is missing there and 'true' now" in r.err, r.err
    assert "temperature" not in r.err
    out.write_text('{"a": 1}\n')
    r = halfbyte("eval", answerer, "--questions", questions, "--plan", "bf16", "-o", out)
    assert r.code == 2 and '{"a": 1}' in r.err and out.read_text() == '{"a": 1}\n', r.err


# "What would have no effect is refused" (docs/commands.md).
@pytest.mark.parametrize("arguments, word", [
    (["--task", "perplexity", "--text", "TEXT", "-o", "ppl.jsonl"], "--out has no effect with --task perplexity"),
    (["--task", "perplexity", "--text", "TEXT", "--temperature", "0"], "--temperature has no effect"),
    (["--task", "perplexity", "--text", "TEXT", "--policy", "reset"], "--policy has no effect"),
    (["--task", "perplexity", "--text", "TEXT", "--samples", "3"], "--samples has no effect"),
    (["--questions", "Q", "--text", "TEXT"], "--text has no effect without --task perplexity"),
    (["--questions", "Q", "--window", "128"], "--window has no effect"),
    (["--questions", "Q", "--split", "test"], "--split has no effect with --questions"),
    (["--questions", "Q", "--keep-tokens"], "--keep-tokens has no effect without -o"),
    (["--questions", "Q", "--code-seconds", "3"], "--code-seconds has no effect without --allow-code"),
    (["--questions", "Q", "--order-seed", "3"], "--order-seed has no effect"),
    (["--questions", "Q", "--choices", "text", "--concurrent", "3"], "--concurrent has no effect with --choices text"),
    (["--limit", "3", "compare", "Q", "Q"], "has no effect before compare; put it behind"),
    (["sweep", "--tasks", "Q", "-o", "s"], "MODEL has no effect before sweep; put it behind"),
])
def test_options_without_effect_are_refused(halfbyte, answerer, questions, tmp_path, arguments, word):
    (tmp_path / "text").write_text("some text " * 20)
    names = {"TEXT": tmp_path / "text", "Q": questions}
    r = halfbyte("eval", answerer, *[names.get(a, a) for a in arguments], cwd=tmp_path)
    assert r.code == 2 and r.out == "" and word in r.err and r.err.count("\n") == 1, r.err


@pytest.mark.parametrize("size", ["1", "63M", "100000T", "-1"])
def test_memory_that_no_code_could_use_is_refused(halfbyte, answerer, questions, size):
    r = halfbyte("eval", answerer, "--questions", questions, "--allow-code", "--code-memory", size)
    assert r.code == 2 and r.err.count("\n") == 1 and f"--code-memory is {size}, expected" in r.err, r.err


def test_a_file_of_something_else_is_no_results_file(halfbyte, answerer, questions, tmp_path):
    notes = tmp_path / "notes.txt"
    notes.write_text("# my notes\nmore\n")
    r = halfbyte("eval", answerer, "--questions", questions, "-o", notes)
    assert r.code == 2 and r.err.count("\n") == 1 and "is no results file of halfbyte eval, found '# my notes'" in r.err, r.err
    assert notes.read_text() == "# my notes\nmore\n"


def test_help_says_where_it_runs(halfbyte):
    assert any(f"--device TEXT{default}" in halfbyte("eval", "--help").out for default in ("=cpu", " [cpu]"))


# What perplexity reads; of every other flag that there is, now or later, it says that it has no effect.
READ_BY_PERPLEXITY = {"--task", "--text", "--window", "--quiet", "--plan", "--kv", "--kernels", "--threads", "--ctx", "--prefill-chunk", "--device", "--json", "--help"}


def flags_of_eval(halfbyte):
    """{flag: whether a value follows}, from the help."""
    found = re.findall(r"^  (?:-\w,)?(--[\w-]+)[\w,-]*(?: (?!\()([A-Z]+))?", halfbyte("eval", "--help").out, re.MULTILINE)
    return {name: bool(value) for name, value in found}


def test_every_flag_that_perplexity_does_not_read_is_refused(halfbyte, answerer, tmp_path):
    (tmp_path / "text").write_text("some text " * 20)
    flags = flags_of_eval(halfbyte)
    assert set(flags) > READ_BY_PERPLEXITY and {"--samples", "--keep-tokens", "--out", "--think", "--code-memory", "--split"} < set(flags)
    values = {"--choices": "text", "--policy": "reset", "--code-memory": "1G", "--max-tokens": "9"}
    for flag in sorted(set(flags) - READ_BY_PERPLEXITY):
        r = halfbyte("eval", answerer, "--task", "perplexity", "--text", tmp_path / "text", flag, *([values.get(flag, "1")] if flags[flag] else []), cwd=tmp_path)
        assert r.code == 2 and flag in r.err and "no effect with --task perplexity" in r.err, (flag, r.err)


def test_perplexity_says_which_text_and_what_window(halfbyte, answerer, tmp_path):
    (tmp_path / "empty").write_text("")
    (tmp_path / "bytes").write_bytes(b"ab\xff")
    (tmp_path / "text").write_text("some text " * 40)
    for name, more, words in [("empty", [], ["--text", "empty'", "is empty, expected a text"]), ("bytes", [], ["bytes'", "byte 2"]),
                              ("text", ["--window", "100", "--ctx", "64"], ["--window is 100", "context 64", "at most 64"])]:
        r = halfbyte("eval", answerer, "--task", "perplexity", "--text", tmp_path / name, *more)
        assert r.code == 2 and r.err.count("\n") == 1 and all(word in r.err for word in words), r.err


def test_thinking_is_switched_in_the_template(halfbyte, tmp_path):
    """A template that closes the thinking unless it is asked for: the published one of QwQ, as llama.cpp keeps it."""
    template = tiny_chat.TEMPLATE.replace("enable_thinking is defined and enable_thinking is false", "not enable_thinking")
    assert template != tiny_chat.TEMPLATE
    model = pathlib.Path(tiny_chat.write_model(tmp_path / "model"))
    (model / "chat_template.jinja").write_text(template)
    questions = tmp_path / "q.jsonl"
    questions.write_text(json.dumps({"id": "1", "task": "t", "prompt": "?", "answer": "7"}) + "\n")
    tokens = {}
    for flag in (None, "--think", "--no-think"):
        out = tmp_path / f"{flag}.jsonl"
        r = halfbyte("eval", model, "--questions", questions, "-o", out, *([flag] if flag else []))
        assert r.code == 0, r.err
        tokens[flag] = json.loads(out.read_text().splitlines()[1])["prompt_tokens"]
    assert tokens[None] == tokens["--no-think"] == tokens["--think"] + 2  # <think></think>
    (model / "chat_template.jinja").write_text("{{ messages[0].content }}\n")
    for flag in ("--think", "--no-think"):
        r = halfbyte("eval", model, "--questions", questions, flag)
        assert r.code == 2 and "no switch for thinking" in r.err and flag in r.err, r.err


def test_what_there_is_to_choose_from_is_said(halfbyte, answerer, questions):
    r = halfbyte("eval", answerer, "--questions", questions, "--levels", "2,9")
    assert r.code == 2 and "no question has level 9, there are 1, 2" in r.err, r.err
    r = halfbyte("eval", ROOT / "models" / "halfbyte-reasoner", "--task", "sums")
    assert r.code == 2 and "there are arithmetic, chain, countdown, retrieval, word;" in r.err, r.err


@pytest.mark.parametrize("arguments, words", [
    (["--tasks", "Q", "--split", "test"], ["--split has no effect where all of --tasks are files"]),
    (["--tasks", "Q", "--plan", "bf16"], ["--plan has no effect in a sweep, which takes its plans from --plans"]),
    (["--tasks", "Q", "--plans", "bf16@reset,w4a4@reset", "--temperature", "1"], ["--temperature has no effect where each of --plans names a policy"]),
    (["--tasks", "Q", "--python", "python3"], ["--python has no effect without --allow-code"]),
    (["--tasks", "Q", "--forced", "many"], ["--forced", "see halfbyte eval sweep --help"]),
    (["--tasks", "nothing"], ["--tasks: 'nothing': there is no file", "nothing-validation.jsonl'; ", "the name of a question file ends in .jsonl"]),
    (["--tasks", "Q:1+9"], ["--tasks: 'Q': no question has level 9, there are 1, 2"]),
    (["--tasks", ":1"], ["--tasks: ':1' names no task; expected e.g. word:3+4"]),
    (["--tasks", "Q,"], ["--tasks: ", " has a part that names no task"]),
    (["--tasks", "Q", "--max-tokens", "1M"], ["lower --max-tokens"]),
])
def test_what_a_sweep_refuses(halfbyte, answerer, questions, tmp_path, arguments, words):
    r = halfbyte("eval", "sweep", answerer, *[a.replace("Q", str(questions)) for a in arguments], "-o", tmp_path / "s" / "deep")
    assert r.code == 2 and r.out == "" and r.err.count("\n") == 1 and all(word.replace("Q", str(questions)) in r.err for word in words), r.err
    assert not (tmp_path / "s").exists(), "no empty folder stays"


def test_a_variable_for_other_runs_is_not_refused(halfbyte, answerer, questions, tmp_path):
    r = halfbyte("eval", "sweep", answerer, "--tasks", questions, "--plans", "bf16", "--forced", "0", "--limit", "2", "--json", "-o", tmp_path / "s",
                 env=clean_environment(HALFBYTE_PLAN="w4a4", HALFBYTE_SPLIT="test", HALFBYTE_MODEL=str(answerer)))
    assert r.code == 0, r.err
    report = json.loads(r.out)
    assert [plan["plan"] for plan in report["tasks"][0]["plans"]] == ["bf16"]
    assert report["facts"][0].startswith(f"model '{answerer}'") and any(fact.startswith("1 sample a question") for fact in report["facts"]), report["facts"]


def test_a_sweeps_report_names_the_model_that_was_not_named(halfbyte, questions, tmp_path):
    r = halfbyte("eval", "sweep", "--tasks", questions, "--plans", "bf16", "--forced", "0", "--limit", "1", "--max-tokens", "2", "--json", "-o", tmp_path)
    assert r.code == 0, r.err
    assert json.loads(r.out)["facts"][0].startswith(f"model '{ROOT / 'models' / 'halfbyte-reasoner'}'")


@pytest.mark.parametrize("arguments, words", [
    (["--max-tokens", "1M"], ["the question 'q10' needs 10486", "1048576 of them for the answer", "1048576, the model's: lower --max-tokens"]),
    (["--ctx", "20", "--max-tokens", "8"], ["the question 'q10' needs", "the context is 20 (--ctx; the model's is "]),
    (["--task", "perplexity", "--text", "TEXT", "--window", "2M"], ["--window is 2097152, the context 1048576; choose a window of at most 1048576"]),
    (["--task", "perplexity", "--text", "TEXT", "--window", "1"], ["--window is 1, expected 2 or more"]),
    (["--task", "perplexity", "--text", "TEXT", "--window", "200"], ["--text 'TEXT': has ", " less than one window of 200"]),
])
def test_what_is_wrong_is_named_before_the_work(halfbyte, answerer, questions, tmp_path, arguments, words):
    (tmp_path / "TEXT").write_text("some text " * 5)
    out = tmp_path / "r.jsonl"
    asked = [] if "--task" in arguments else ["--questions", questions, "-o", out]
    r = halfbyte("eval", answerer, *asked, *arguments, cwd=tmp_path)
    assert r.code == 2 and r.out == "" and r.err.count("\n") == 1 and all(word in r.err for word in words), r.err
    assert not out.exists()


def test_an_answer_is_as_long_as_the_context_leaves_where_nobody_said_more(halfbyte, answerer, questions, tmp_path):
    """Else no question of 4,096 tokens could be asked of a model that has 4,608, which answers them with a hundred."""
    out = tmp_path / "r.jsonl"
    whole = ask(halfbyte, answerer, questions, "-o", out)
    settings, *results = [json.loads(line) for line in out.read_text().splitlines()]
    assert settings["max_tokens"] == 1024 and "context" not in settings, "there is room for all"
    longest = max(r["prompt_tokens"] for r in results)
    assert whole["truncated"] == 0 and len({r["tokens"] for r in results}) == 1
    short = tmp_path / "short.jsonl"
    cut = ask(halfbyte, answerer, questions, "--ctx", str(longest + 3), "-o", short)
    settings, *results = [json.loads(line) for line in short.read_text().splitlines()]
    assert cut["truncated"] == 1 and settings["context"] == longest + 3
    assert [r["tokens"] for r in results] == [longest + 3 - r["prompt_tokens"] for r in results], "a question's own limit, whatever the others are"
    r = halfbyte("eval", answerer, "--questions", questions, "--ctx", str(longest))
    assert r.code == 2 and f"needs {longest + 1} tokens, and the context is {longest} (--ctx;" in r.err, r.err


def test_a_sweep_refuses_a_row_twice(halfbyte, answerer, questions, tmp_path):
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "q.jsonl").write_bytes(questions.read_bytes())
    for plans, tasks, word in [("bf16,w4a4,bf16", questions, "'bf16' stands there 2 times"), ("bf16", f"{questions},{questions}", "stand there twice"),
                               ("bf16", f"{questions}:1+2,{questions}:2+1", "stand there twice"), ("bf16", f"{questions},{questions}:2", "stand there twice"),
                               ("bf16", f"{questions}:2+2", "names level 2 twice"),
                               ("bf16", f"{questions},{tmp_path}/other/q.jsonl", "another file have the same name")]:
        r = halfbyte("eval", "sweep", answerer, "--plans", plans, "--tasks", tasks, "-o", tmp_path / "s")
        assert r.code == 2 and word in r.err and not (tmp_path / "s").exists(), r.err


def test_a_sweeps_flags_are_explained_by_its_own_help(halfbyte, answerer, tmp_path):
    r = halfbyte("eval", "sweep", answerer, "--tasks", "x")
    assert r.code == 2 and r.err.endswith("see halfbyte eval sweep --help\n"), r.err
    r = halfbyte("eval", "sweep", answerer, "--tasks", "x", "-o", tmp_path / "s", env=clean_environment(HALFBYTE_FORCED="x"))
    assert r.code == 2 and "--forced" in r.err and "(from HALFBYTE_FORCED)" in r.err, r.err


def test_other_draws_are_noted(halfbyte, answerer, questions, tmp_path):
    for seed in ("0", "5"):
        ask(halfbyte, answerer, questions, "--seed", seed, "-o", tmp_path / seed)
    ask(halfbyte, answerer, questions, "--marker-penalty", "0", "--top-k", "5", "-o", tmp_path / "same")
    r = halfbyte("eval", "compare", tmp_path / "0", tmp_path / "same")
    assert r.code == 0 and r.err == "", r.err
    r = halfbyte("eval", "compare", tmp_path / "0", tmp_path / "5", tmp_path / "same")
    note = "drawn with seed 5, the reference with 0: pairs share the question, not the draws"
    assert r.code == 0 and r.err == "" and r.out.count("note: ") == 1 and r.out.splitlines()[1] == "note: " + note, r.out
    compared = json.loads(halfbyte("eval", "compare", tmp_path / "0", tmp_path / "5", tmp_path / "same", "--json").out)["compared"]
    assert [c.get("note") for c in compared] == [note, None]


def test_ctrl_c_keeps_whole_samples(answerer, questions, tmp_path):
    out = tmp_path / "r.jsonl"
    many = tmp_path / "many.jsonl"
    many.write_text("".join(json.dumps({"id": f"q{i}", "task": "sums", "prompt": f"{i}?", "answer": "7"}) + "\n" for i in range(2000)))
    victim = subprocess.Popen([BINARY, "eval", answerer, "--questions", many, "--samples", "64", "-o", out], stdout=subprocess.DEVNULL,
                              stderr=subprocess.PIPE, env=clean_environment())
    wait_until_written(victim, out)
    victim.send_signal(signal.SIGINT)
    assert victim.wait(timeout=PATIENCE) in (130, -signal.SIGINT, 0), "0: the last of so many samples came before the signal"
    lines = out.read_bytes()
    assert lines.endswith(b"\n") and all(json.loads(line) for line in lines.splitlines())
    assert os.path.getsize(out) > 0


def test_compare(halfbyte, answerer, questions, tmp_path):
    """Against itself nothing changes; against a run that is cut off, accuracy and length fall."""
    whole, cut = tmp_path / "whole.jsonl", tmp_path / "cut.jsonl"
    ask(halfbyte, answerer, questions, "--samples", "2", "-o", whole)
    ask(halfbyte, answerer, questions, "--samples", "2", "--max-tokens", "3", "-o", cut)
    r = halfbyte("eval", "compare", whole, whole, cut, "--json")
    assert r.code == 0, r.err
    same, shorter = json.loads(r.out)["compared"]
    assert same["change"] == {"mean": 0, "ci95": [0, 0]} and same["ctir"]["mean"] == same["paired_ratio"] == 1
    assert shorter["change"]["mean"] == -.75 and shorter["other"]["truncated"] == 1
    assert shorter["questions"] == 12 and shorter["samples"] == 24
    assert "CTIR 1.000" in halfbyte("eval", "compare", whole, whole).out and "serving_penalty" not in same
    rated = json.loads(halfbyte("eval", "compare", whole, whole, cut, "--tokens-per-s", "1000,2000,500", "--json").out)["compared"]
    assert rated[0]["serving_penalty"] == .5
    assert rated[1]["serving_penalty"] == pytest.approx(2 * rated[1]["other"]["tokens"] / rated[1]["reference"]["tokens"])
    assert "serving penalty   0.500" in halfbyte("eval", "compare", whole, whole, "--tokens-per-s", "1000,2000").out
    wrong = halfbyte("eval", "compare", whole, whole, "--tokens-per-s", "1000")
    assert wrong.code == 2 and "--tokens-per-s has 1 rate for 2 files" in wrong.err, wrong.err
    refused = halfbyte("eval", "compare", whole, questions)
    assert refused.code == 2 and "is no results file" in refused.err
    assert halfbyte("eval", "compare", whole).code == 2


def test_sweep(halfbyte, answerer, questions, tmp_path):
    folder = tmp_path / "sweep"
    (pathlib.Path(answerer) / "questions").mkdir(exist_ok=True)
    (pathlib.Path(answerer) / "questions" / "sums-validation.jsonl").write_text(questions.read_text())
    command = ("eval", "sweep", answerer, "--tasks", "sums:1+2", "--plans", "bf16,int4,f32,kv=bf16", "--forced", "2", "-o", folder)
    r = halfbyte(*command)
    assert r.code == 0, r.err
    report = json.loads((folder / "report.json").read_text())
    plans = report["tasks"][0]["plans"]
    assert [p["plan"] for p in plans] == ["bf16", "int4", "f32,kv=bf16"]
    assert plans[0]["accuracy"]["mean"] == .75 and plans[2]["versus_first"]["change"]["mean"] == 0
    assert plans[0]["forced"]["mismatch"] == 0 and plans[0]["forced"]["tokens"] > 10
    settings = json.loads((folder / "sums-1-2.bf16.jsonl").read_text().splitlines()[0])
    here = json.loads(halfbyte("inspect", "--devices", "--json").out)["cpu"]
    assert f"device cpu ({here['name']}), kernels {settings['kernels']}" in report["facts"] and "device" not in settings
    assert r.out == (folder / "report.md").read_text() and "| int4 |" in r.out and "| serving penalty |" in r.out
    time = [p["versus_first"]["other"]["tokens"] / p["tokens_per_s"] for p in plans[1:]]
    own = plans[1]["versus_first"]["reference"]["tokens"] / plans[0]["tokens_per_s"]
    assert [p["serving_penalty"] for p in plans[1:]] == pytest.approx([t / own for t in time])
    by_file = halfbyte("eval", "sweep", answerer, "--tasks", f"{questions}:1+2", "--plans", "bf16,int4", "--forced", "0", "-o", tmp_path / "file", "--json")
    assert by_file.code == 0, by_file.err
    assert [p["accuracy"] for p in json.loads(by_file.out)["tasks"][0]["plans"]] == [p["accuracy"] for p in plans[:2]]
    assert (tmp_path / "file" / "q-1-2.int4.jsonl").exists()
    page = (folder / "report.html").read_text()
    assert page.startswith("<!doctype html>") and "<svg" in page and "<script" not in page
    before = sorted((p.name, p.read_bytes()) for p in folder.glob("*.jsonl"))
    assert halfbyte(*command).code == 0
    assert before == sorted((p.name, p.read_bytes()) for p in folder.glob("*.jsonl")), "nothing was left to do"


def test_a_sweeps_rows_have_policies_of_their_own(halfbyte, tmp_path):
    sweep = ("eval", "sweep", ROOT / "models" / "halfbyte-reasoner", "--tasks", "countdown:1", "--limit", "4", "--max-tokens", "120", "--json")
    r = halfbyte(*sweep, "--plans", "bf16,bf16@reset,f32,kv=bf16@token", "--reset-tau0", "0", "--reset-t-low", "0",
                 "--reset-t-high", "0", "-o", tmp_path / "sweep")
    assert r.code == 0, r.err
    fixed, reset, token = (plan["forced"] for plan in json.loads(r.out)["tasks"][0]["plans"])
    # Greedy at each token: the whole probability on the most likely one.
    assert fixed["uncertain_tokens"] > 20 and fixed["symbols"] > 0
    for greedy in (reset, token):
        assert greedy["drawn_top"] == 1 and greedy["drawn_entropy"] == 0 and greedy["symbolic_error"] == 0
        assert greedy["top"] == pytest.approx(fixed["top"], rel=.01) and greedy["symbolic_error_reference"] == fixed["symbolic_error"]
    assert 0 < fixed["drawn_entropy"] < fixed["entropy"] and fixed["drawn_top"] > fixed["top"], "0.6 sharpens"
    facts = json.loads(r.out)["facts"]
    assert "bf16@reset: reset: tau0 0, t_low 0, t_high 0, window 32 (from the flags), top-p 0.95, top-k 0, min-p 0" in facts, facts
    assert "bf16: temperature 0.6, top-p 0.95" in facts and any(fact.startswith("f32,kv=bf16@token: token: tau0 0") for fact in facts)
    headers = {p.name: json.loads(p.read_text().splitlines()[0]) for p in (tmp_path / "sweep").glob("*.jsonl")}
    assert headers["countdown-1.bf16_reset.jsonl"]["policy"]["t_low"] == 0 and "policy" not in headers["countdown-1.bf16.jsonl"]
    assert headers["countdown-1.f32_kv-bf16_token.jsonl"]["policy"]["rule"] == "token"
    for plans, message in (("bf16@now", "--plans bf16@now"), ("bf17@reset", "--plans"), ("bf16", "--reset- flags belong to a policy")):
        refused = halfbyte(*sweep, "--plans", plans, "--reset-tau0", "1", "-o", tmp_path / "other")
        assert refused.code == 2 and message in refused.err, refused.err


def test_benchmark_lines_are_read_as_published(halfbyte, answerer, tmp_path):
    path = tmp_path / "gsm8k.jsonl"
    lines = [{"question": "What is 3 + 4?", "answer": "3 + 4 = <<3+4=7>>7\n#### 7"}, {"question": "And 3 + 5?", "answer": "8"},
             {"problem": "Find $x$.", "answer": "\\frac{14}{2}", "level": 2}]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    out = ask(halfbyte, answerer, path)
    assert out["task"] == "gsm8k, math" and out["accuracy"] == pytest.approx(2 / 3)


def test_choices_by_likelihood(halfbyte, answerer, tmp_path):
    """The chain says " 7" behind ":". A longer choice that begins wrongly and goes on rightly wins by its length."""
    path, out = tmp_path / "choices.jsonl", tmp_path / "r.jsonl"
    lines = [{"question": "Which?", "choices": ["8", "7"], "answer": 1},
             {"question": "Which?", "choices": ["8", "8answer: "], "answer": "B"},
             {"question": "Which?", "choices": ["8", "9", "7"], "answer": 0}]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    found = ask(halfbyte, answerer, path, "--choices", "text", "-o", out)
    assert (found["n"], found["choices"]) == (3, "text")
    assert found["accuracy"] == pytest.approx(1 / 3) and found["accuracy_norm"] == pytest.approx(2 / 3)
    assert found["ci95"][0] <= found["accuracy"] <= found["ci95"][1] and found["ci95_norm"][1] == 1
    settings, *results = [json.loads(line) for line in out.read_text().splitlines()]
    assert settings["choices"] == "text" and [r["answer"] for r in results] == ["B", "A", "C"]
    # One-hot rows under a norm: a miss costs sqrt(hidden) nats, a token that no chain goes on from log(vocab).
    miss, unknown = tiny_chat.HIDDEN ** .5, math.log(tiny_chat.VOCAB)
    assert results[0]["log_likelihoods"] == pytest.approx([-miss, 0], abs=.1)
    assert results[1]["log_likelihoods"] == pytest.approx([-miss, -miss - unknown], abs=.1)
    text = out.read_bytes()
    out.write_bytes(text[:-40])
    assert ask(halfbyte, answerer, path, "--choices", "text", "-o", out)["accuracy"] == found["accuracy"]
    assert out.read_bytes() == text, "a run that was stopped goes on and ends in the same bytes"
    letters = ask(halfbyte, answerer, path, "--choices", "letter")
    assert letters["choices"] == "letter" and letters["accuracy"] == pytest.approx(1 / 3), "all equally likely: the first"
    shown = halfbyte("eval", answerer, "--questions", path, "--choices", "text")
    assert "accuracy          0.3333" in shown.out and "accuracy by len.  0.6667" in shown.out


def test_choices_need_choices(halfbyte, answerer, questions, tmp_path):
    for arguments, words in [(["--choices", "text"], ["q0", "no choices"]), (["--choices", "words"], ["generate, text or letter"]),
                             (["--choices", "letter", "--samples", "2"], ["--samples"])] + [
                                 (["--choices", "text", *flag], ["nothing is drawn", flag[0]])
                                 for flag in (["--temperature", ".5"], ["--top-p", ".5"], ["--top-k", "5"], ["--min-p", ".1"], ["--seed", "1"],
                                              ["--policy", "reset"], ["--marker-penalty", "1"], ["--stop-on-loop"], ["--max-tokens", "5"],
                                              ["--keep-tokens"], ["--prompt-suffix", "x"], ["--system", "x"], ["--no-think"])]:
        r = halfbyte("eval", answerer, "--questions", questions, *arguments)
        assert r.code == 2 and r.err.count("\n") == 1 and all(word in r.err for word in words), r.err
    read = READ_BY_PERPLEXITY - {"--task", "--text", "--window"} | {"--task", "--questions", "--levels", "--limit", "--order-seed", "--choices", "--out"}
    for flag, takes in flags_of_eval(halfbyte).items():
        if flag not in read | {"--text", "--window", "--split"}:
            r = halfbyte("eval", answerer, "--questions", questions, "--choices", "text", flag, *(["reset" if flag == "--policy" else "1"] if takes else []))
            assert r.code == 2 and flag in r.err and "no effect with --choices text" in r.err, (flag, r.err)
    bad = tmp_path / "bad.jsonl"
    bad.write_text('{"question": "q", "choices": ["a", "b"], "answer": "E"}\n')
    r = halfbyte("eval", answerer, "--questions", bad)
    assert r.code == 2 and "bad.jsonl, line 1: answer: found 'E', expected an index from 0 to 1 or a letter" in r.err


def test_choices_pass_variables_of_other_runs_over(halfbyte, answerer, tmp_path):
    """Nothing is drawn, so no variable of drawing changes the results or their file."""
    path = tmp_path / "choices.jsonl"
    path.write_text('{"question": "Which?", "choices": ["8", "7"], "answer": 1}\n')
    variables = {f"HALFBYTE_{name}": value for name, value in (("THINK", "1"), ("SAMPLES", "3"), ("SEED", "5"), ("TEMPERATURE", "0.5"), ("TOP_P", "0.5"),
                                                                ("MAX_TOKENS", "5"), ("SYSTEM", "x"), ("PROMPT_SUFFIX", "x"), ("POLICY", "reset"),
                                                                ("MARKER_PENALTY", "1"), ("STOP_ON_LOOP", "1"), ("KEEP_TOKENS", "1"))}
    files = []
    for name, env in (("without", {}), ("with", variables)):
        r = halfbyte("eval", answerer, "--questions", path, "--choices", "text", "-o", tmp_path / name, env=clean_environment(**env))
        assert r.code == 0, r.err
        files.append((tmp_path / name).read_bytes())
    assert files[0] == files[1]


def test_a_system_message(halfbyte, answerer, questions, tmp_path):
    """It stands before the question, where the template puts it, in every row of a sweep, and results without it are others."""
    out = tmp_path / "r.jsonl"
    ask(halfbyte, answerer, questions, "--system", "Be brief.", "-o", out)
    settings, first, *_ = [json.loads(line) for line in out.read_text().splitlines()]
    plain = tmp_path / "plain.jsonl"
    ask(halfbyte, answerer, questions, "-o", plain)
    without, first_without, *_ = [json.loads(line) for line in plain.read_text().splitlines()]
    assert settings["system"] == "Be brief." and "system" not in without and settings["fingerprint"] != without["fingerprint"]
    more = first["prompt_tokens"] - first_without["prompt_tokens"]
    assert more == len("<|im_start|>system\nBe brief.<|im_end|>\n") - (len("<|im_start|>") - 1) - (len("<|im_end|>") - 1)
    r = halfbyte("eval", answerer, "--questions", questions, "--plan", "bf16", "-o", out)
    assert r.code == 2 and "other settings" in r.err
    r = halfbyte("eval", "sweep", answerer, "--tasks", questions, "--plans", "bf16", "--forced", "2", "--system", "Be brief.", "-o", tmp_path / "sweep")
    assert r.code == 0 and "system message: 'Be brief.'" in r.out, r.err
    assert json.loads((tmp_path / "sweep" / "q.bf16.jsonl").read_text().splitlines()[1])["prompt_tokens"] == first["prompt_tokens"]
    own = tmp_path / "own.jsonl"
    own.write_text(json.dumps({"prompt": [{"role": "system", "content": "s"}, {"role": "user", "content": "u"}], "answer": "a", "id": "m1",
                               "random_string_to_prepend": "a"}) + "\n")
    r = halfbyte("eval", answerer, "--questions", own, "--system", "Be brief.")
    assert r.code == 2 and "'m1' has a system message of its own" in r.err


def test_choices_in_the_model_s_own_words(halfbyte, answerer, tmp_path):
    """It says "answer: 7": the text of a choice."""
    path = tmp_path / "choices.jsonl"
    path.write_text(json.dumps({"question": "3 + 4?", "options": ["6", "7"], "answer": "B", "answer_index": 1}) + "\n")
    out = ask(halfbyte, answerer, path, "--samples", "2")
    assert out["task"] == "mmlu-pro" and out["accuracy"] == out["majority"] == 1


def test_scores_in_part(halfbyte, answerer, tmp_path):
    """It says "answer: 7" to the last of several messages: half of one text, none of a text with another prefix."""
    path, out = tmp_path / "mrcr.jsonl", tmp_path / "r.jsonl"
    messages = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}, {"role": "user", "content": "c"}]
    lines = [{"prompt": json.dumps(messages), "answer": "answer: 8", "random_string_to_prepend": "answer: "},
             {"prompt": json.dumps(messages), "answer": "answer: 777", "random_string_to_prepend": "answer: "},
             {"prompt": messages, "answer": "XanswerX", "random_string_to_prepend": "X"}]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    found = ask(halfbyte, answerer, path, "-o", out)
    assert found["task"] == "mrcr" and found["accuracy"] == pytest.approx((0 + .5 + 0) / 3)
    results = [json.loads(line) for line in out.read_text().splitlines()[1:]]
    assert [(r["score"], r["correct"]) for r in results] == [(0, False), (.5, False), (0, False)]
    text = out.read_bytes()
    out.write_bytes(text[:-30])
    assert ask(halfbyte, answerer, path, "-o", out)["ci95"] == found["ci95"] and out.read_bytes() == text
    compared = json.loads(halfbyte("eval", "compare", out, out, "--json").out)["compared"][0]
    assert compared["reference"]["accuracy"] == pytest.approx(.5 / 3)


def test_code_is_refused_unless_allowed(halfbyte, answerer, tmp_path):
    path, out = tmp_path / "code.jsonl", tmp_path / "r.jsonl"
    path.write_text(json.dumps({"id": "c1", "task": "code", "prompt": "p", "checks": "assert True"}) + "\n")
    r = halfbyte("eval", answerer, "--questions", path, "-o", out)
    assert r.code == 2 and "'c1' is answered by code" in r.err and "--allow-code" in r.err and not out.exists()
    r = halfbyte("eval", answerer, "--questions", path, "--allow-code", "--python", "no-such-python", "-o", out)
    assert r.code == 2 and "'no-such-python': is no Python that runs" in r.err and not out.exists()


# Squares a number; a negative one not before somebody puts a file "go" into its folder. At 0 it waits for ever and tries to outlive
# its grader.
CODER = """```python
import ctypes, os, time
n = int(input())
open("started", "w").write(f"{n} {os.getpid()}")
while n < 0 and not os.path.exists("go"): time.sleep(.01)
if n == 0:
    ctypes.CDLL(None).prctl(1, 0, 0, 0, 0)
    while True: time.sleep(10)
time.sleep(.02)
print(n * n)
```"""


@pytest.fixture(scope="session")
def coder(tmp_path_factory):
    return tiny_chat.write_model_that_says(tmp_path_factory.mktemp("coder") / "model", CODER)


def write_programs(path, *numbers):
    """Questions for squares; those of multiples of 5 expect something else."""
    path.write_text("".join(json.dumps({"id": f"n{i}", "task": "squares", "prompt": f"Square {i}.", "level": 1,
                                        "tests": [{"input": str(n), "output": str(n * n + (n % 5 == 0))}]}) + "\n" for i, n in enumerate(numbers)))
    return path


@pytest.fixture(scope="session")
def whole_sandbox(coder, tmp_path_factory):
    """Skips where this kernel gives none."""
    questions = write_programs(tmp_path_factory.mktemp("sandbox") / "q.jsonl", 1)
    done = subprocess.run([BINARY, "eval", coder, "--questions", questions, "--allow-code"], capture_output=True, text=True, timeout=PATIENCE,
                          env=clean_environment())
    if "no whole sandbox" in done.stderr or "the sandbox cannot" in done.stderr:
        pytest.skip(done.stderr)
    assert done.returncode == 0, done.stderr


def test_code_runs_where_it_is_allowed(halfbyte, coder, whole_sandbox, tmp_path):
    path, out = write_programs(tmp_path / "code.jsonl", 3, 4, 5, 6), tmp_path / "r.jsonl"
    r = halfbyte("eval", coder, "--questions", path, "--allow-code", "--json", "-o", out)
    assert r.code == 0 and json.loads(r.out)["accuracy"] == .75, r.err
    settings, *results = [json.loads(line) for line in out.read_text().splitlines()]
    assert settings["sandbox"].endswith("files, network, processes and signals closed; 10 s, 1024 MiB")
    assert [s["correct"] for s in results] == [True, True, False, True] and "print(n * n)" in results[0]["answer"]


def test_slow_code_and_a_kill_give_the_same_file(coder, whole_sandbox, tmp_path):
    """The kill comes while the seventh answer's code waits: the six before it may be in the file, and nothing behind it."""
    questions = write_programs(tmp_path / "q.jsonl", *range(1, 7), -7, *range(8, 17))
    command = [BINARY, "eval", coder, "--questions", questions, "--plan", "bf16", "--allow-code", "--code-seconds", "100", "--json", "-o"]
    runs, whole, killed = tmp_path / "runs", tmp_path / "whole.jsonl", tmp_path / "killed.jsonl"
    runs.mkdir()

    def start(out):
        running = subprocess.Popen([*command, out], stdout=subprocess.PIPE, text=True, env=clean_environment(TMPDIR=str(runs)))
        return running, started(running, runs, {-7})[-7][0]

    def finish(running, folder):
        (folder / "go").touch()
        out, _ = running.communicate(timeout=PATIENCE)
        assert running.returncode == 0
        shutil.rmtree(runs)
        runs.mkdir()
        return json.loads(out)

    first = finish(*start(whole))
    victim, waits = start(killed)
    while killed.read_bytes().count(b"\n") < 7:
        assert victim.poll() is None
        time.sleep(0.01)
    victim.send_signal(signal.SIGKILL)
    victim.communicate()
    assert killed.read_bytes().count(b"\n") == 7, "in the middle"
    shutil.rmtree(runs)
    runs.mkdir()
    again = finish(*start(killed))
    assert killed.read_bytes() == whole.read_bytes() and whole.read_bytes().count(b"\n") == 17
    assert again["ci95"] == first["ci95"] and first["accuracy"] == pytest.approx(13 / 16)


def test_code_is_graded_where_ended_children_are_ignored(coder, whole_sandbox, tmp_path):
    """A shell's `trap '' CHLD` is inherited, and then the system tells nobody how a process ended."""
    out = tmp_path / "r.jsonl"
    done = subprocess.run([BINARY, "eval", coder, "--questions", write_programs(tmp_path / "q.jsonl", 3, 5), "--allow-code", "-o", out], capture_output=True,
                          text=True, env=clean_environment(), timeout=PATIENCE, preexec_fn=lambda: signal.signal(signal.SIGCHLD, signal.SIG_IGN))
    assert done.returncode == 0, done.stderr
    assert [json.loads(line)["correct"] for line in out.read_text().splitlines()[1:]] == [True, False]


def started(process, folder, numbers):
    """Waits until code runs for all of these numbers: {number: (its folder, its process)}."""
    found = {}
    while not set(numbers) <= set(found):
        assert process.poll() is None
        time.sleep(0.01)
        found = {}
        for path in folder.iterdir():
            with contextlib.suppress(FileNotFoundError, ValueError):  # gone, or not wholly written
                number, pid = (path / "started").read_text().split()
                found[int(number)] = path, int(pid)
    return found


def test_code_that_waits_holds_no_sample_up(coder, whole_sandbox, tmp_path):
    """The first answer's code waits until the fifth's runs."""
    runs, out = tmp_path / "runs", tmp_path / "r.jsonl"
    runs.mkdir()
    questions = write_programs(tmp_path / "q.jsonl", -1, 2, 3, 4, -6, 7)
    running = subprocess.Popen([BINARY, "eval", coder, "--questions", questions, "--plan", "bf16", "--concurrent", "3", "--allow-code", "--code-seconds",
                                "100", "-o", out],
                               stdout=subprocess.DEVNULL, env=clean_environment(TMPDIR=str(runs)))
    for folder, _ in started(running, runs, {-1, -6}).values():
        (folder / "go").touch()
    assert running.wait(timeout=PATIENCE) == 0
    assert [json.loads(line)["correct"] for line in out.read_text().splitlines()[1:]] == [True] * 6


def test_a_grading_that_fails_ends_the_run(coder, whole_sandbox, tmp_path):
    """The folder for runs goes away while the third answer's code waits; the run says so, and goes on once it is there again."""
    runs, gone, out = tmp_path / "runs", tmp_path / "gone", tmp_path / "r.jsonl"
    runs.mkdir()
    questions = write_programs(tmp_path / "q.jsonl", 2, 3, -4, -6, 7)
    command = [BINARY, "eval", coder, "--questions", questions, "--plan", "bf16", "--allow-code", "--code-seconds", "100", "-o", out]
    running = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=clean_environment(TMPDIR=str(runs)))
    waiting = started(running, runs, {-4, -6})  # both threads: the last answer's code has not begun
    runs.rename(gone)
    for number in (-6, -4):
        (gone / waiting[number][0].name / "go").touch()
    assert running.wait(timeout=PATIENCE) == 2
    assert "the sandbox cannot make its folder" in running.stderr.read()
    before = out.read_bytes()
    assert before.count(b"\n") == 5, "what came before the one that failed, graded before it and after it"
    runs.mkdir()
    again = subprocess.Popen(command, stdout=subprocess.DEVNULL, env=clean_environment(TMPDIR=str(runs)))
    assert again.wait(timeout=PATIENCE) == 0 and out.read_bytes().startswith(before) and out.read_bytes().count(b"\n") == 6


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_nothing_outlives_the_run(coder, whole_sandbox, tmp_path, how):
    """Code that never ends, when Ctrl-C or a kill ends its grader."""
    runs = tmp_path / "runs"
    runs.mkdir()
    questions = write_programs(tmp_path / "q.jsonl", 0, 0)
    victim = subprocess.Popen([BINARY, "eval", coder, "--questions", questions, "--allow-code", "-o", tmp_path / "r.jsonl"], stdout=subprocess.DEVNULL,
                              stderr=subprocess.PIPE, env=clean_environment(TMPDIR=str(runs)))
    code = [pid for _, pid in started(victim, runs, {0}).values()]
    victim.send_signal(how)
    assert victim.wait(timeout=PATIENCE) in (130, -how)
    for pid in code:
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            while ") Z " not in pathlib.Path(f"/proc/{pid}/stat").read_text():
                time.sleep(0.01)
    if how == signal.SIGINT:
        assert not list(runs.iterdir())


def test_a_sweep_grades_code(halfbyte, coder, whole_sandbox, questions, tmp_path):
    programs, folder = write_programs(tmp_path / "programs.jsonl", 3, 5), tmp_path / "sweep"
    sweep = ("eval", "sweep", coder, "--tasks", f"{questions},{programs}", "--plans", "bf16,f32", "--forced", "1", "-o", folder, "--json")
    refused = halfbyte(*sweep)
    assert refused.code == 2 and "'n0' is answered by code" in refused.err and "--allow-code" in refused.err
    assert not list(folder.glob("*.jsonl")), "before the first task was begun"
    refused = halfbyte(*sweep, "--allow-code", "--python", "no-such-python")
    assert refused.code == 2 and "is no Python that runs" in refused.err and not list(folder.glob("*.jsonl"))
    r = halfbyte(*sweep, "--allow-code")
    assert r.code == 0, r.err
    report = json.loads(r.out)
    assert [plan["accuracy"]["mean"] for plan in report["tasks"][1]["plans"]] == [.5, .5]
    assert any("ran in a sandbox: " in fact for fact in report["facts"])
    headers = {p.name: json.loads(p.read_text().splitlines()[0]) for p in folder.glob("*.jsonl")}
    assert "sandbox" in headers["programs.bf16.jsonl"] and "sandbox" not in headers["q.bf16.jsonl"]
