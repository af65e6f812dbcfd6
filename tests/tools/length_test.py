"""What keeps an answer short: the marker penalty, the stop of loops, and a request behind the prompt; in run, trace and eval."""

import json

import pytest
import tiny_chat

WAIT = 256 + len(tiny_chat.ADDED)  # the id of "wait" in the doubter's vocabulary


@pytest.fixture(scope="session")
def doubter(tmp_path_factory):
    """Says "<think>kwaitwaitwait..." for ever; "wait" is one token."""
    saved = tiny_chat.CHAINS, tiny_chat.VOCAB
    tiny_chat.CHAINS, tiny_chat.VOCAB = [["\n", "<think>", "k", "wait", "wait"]], tiny_chat.VOCAB + 1
    tiny_chat.ADDED.append("wait")
    try:
        return tiny_chat.write_model(tmp_path_factory.mktemp("length") / "model")
    finally:
        tiny_chat.CHAINS, tiny_chat.VOCAB = saved
        tiny_chat.ADDED.remove("wait")


@pytest.fixture
def questions(tmp_path):
    path = tmp_path / "q.jsonl"
    path.write_text("".join(json.dumps({"id": f"q{i}", "task": "sums", "prompt": f"What is {i}?", "answer": "7"}) + "\n" for i in range(3)))
    return path


def run(halfbyte, model, *more):
    r = halfbyte("run", model, "Hi", "--json", "--plan", "bf16", "--max-tokens", 40, *more)
    assert r.code == 0, r.err
    return json.loads(r.out)


def evaluate(halfbyte, model, questions, *more):
    r = halfbyte("eval", model, "--questions", questions, "--plan", "bf16", "--max-tokens", 40, "--json", *more)
    assert r.code == 0, r.err
    return json.loads(r.out)


def test_marker_penalty(halfbyte, doubter):
    plain = run(halfbyte, doubter)
    assert plain["token_ids"].count(WAIT) == 38 and "marker_penalty" not in plain
    weak, strong = (run(halfbyte, doubter, "--marker-penalty", p) for p in ("0.5", "100"))
    assert weak["token_ids"] == plain["token_ids"] and weak["marker_penalty"] == 0.5
    assert WAIT not in strong["token_ids"] and strong["token_ids"][:2] == plain["token_ids"][:2]
    off = run(halfbyte, doubter, "--marker-penalty", "0")
    assert off["token_ids"] == plain["token_ids"] and list(off) == list(plain)
    assert "marker penalty 0.5" in halfbyte("run", doubter, "Hi", "--verbose", "--max-tokens", 3, "--marker-penalty", "0.5").err


def test_marker_penalty_in_a_trace(halfbyte, doubter):
    def tokens(*more):
        r = halfbyte("trace", doubter, "Hi", "--jsonl", "-", "--plan", "bf16", "--max-tokens", 10, *more)
        assert r.code == 0, r.err
        return [json.loads(line) for line in r.out.splitlines()]
    plain, strong = tokens(), tokens("--marker-penalty", "100", "--policy", "reset", "--reset-t-high", "0", "--reset-t-low", "0")
    assert WAIT in [t["token"] for t in plain] and WAIT not in [t["token"] for t in strong]
    # What is shown is of the raw logits: where it was not drawn it was still the likeliest.
    assert strong[2]["top"][0]["token"] == WAIT and strong[2]["entropy"] == pytest.approx(plain[2]["entropy"])


def test_marker_penalty_and_loops_in_eval(halfbyte, doubter, questions, tmp_path):
    plain, strong = tmp_path / "plain.jsonl", tmp_path / "strong.jsonl"
    before = evaluate(halfbyte, doubter, questions, "-o", plain)
    assert before["truncated"] == before["looped"] == 1
    after = evaluate(halfbyte, doubter, questions, "-o", strong, "--marker-penalty", "100", "--stop-on-loop", "--keep-tokens")
    assert after["marker_penalty"] == 100 and after["truncated"] == 0 and after["looped"] == 1
    head, *samples = [json.loads(line) for line in strong.read_text().splitlines()]
    assert (head["marker_penalty"], head["stop_on_loop"]) == (100, True)
    assert all(WAIT not in s["token_ids"] and s["tokens"] == 2 + 23 for s in samples)
    first = json.loads(plain.read_text().splitlines()[0])
    assert not {"marker_penalty", "stop_on_loop", "prompt_suffix"} & first.keys()
    refused = halfbyte("eval", doubter, "--questions", questions, "--plan", "bf16", "--max-tokens", 40, "-o", plain, "--stop-on-loop")
    assert refused.code == 2 and "other settings" in refused.err


def test_stop_on_loop(halfbyte, doubter):
    assert run(halfbyte, doubter)["finish_reason"] == "length"
    stopped = run(halfbyte, doubter, "--stop-on-loop")
    assert stopped["finish_reason"] == "loop" and stopped["token_ids"][2:] == [WAIT] * 23
    r = halfbyte("run", doubter, "Hi", "--max-tokens", 40, "--stop-on-loop")
    assert r.code == 0 and "stopped after 25 tokens: the same 20 came four times" in r.err


def test_prompt_suffix(halfbyte, doubter, questions, tmp_path):
    """It lies behind the question, and results say so."""
    plain, brief = tmp_path / "plain.jsonl", tmp_path / "brief.jsonl"
    evaluate(halfbyte, doubter, questions, "-o", plain)
    evaluate(halfbyte, doubter, questions, "-o", brief, "--prompt-suffix", "Be brief.")
    (head, a, *_), (other, b, *_) = ([json.loads(line) for line in path.read_text().splitlines()] for path in (plain, brief))
    assert b["prompt_tokens"] == a["prompt_tokens"] + len("\n\nBe brief.")
    assert other["prompt_suffix"] == "Be brief." and other["fingerprint"] != head["fingerprint"]


def test_sampling_of_eval(halfbyte, doubter, questions, tmp_path):
    out = tmp_path / "r.jsonl"
    evaluate(halfbyte, doubter, questions, "-o", out, "--temperature", "0.6", "--top-k", "20", "--min-p", "0.05", "--top-p", "0.95")
    head = json.loads(out.read_text().splitlines()[0])
    assert (head["temperature"], head["top_k"], head["min_p"], head["top_p"]) == pytest.approx((0.6, 20, 0.05, 0.95))


@pytest.mark.parametrize("arguments, words", [
    (["--marker-penalty", "-1"], ["--marker-penalty", "-1", "100"]),
    (["--marker-penalty", "nan"], ["--marker-penalty"]),
    (["--marker-penalty", "101"], ["--marker-penalty", "101", "100"]),
])
def test_bad_values(halfbyte, doubter, arguments, words):
    r = halfbyte("run", doubter, "Hi", *arguments)
    assert r.code == 2 and r.out == "" and r.err.count("\n") == 1, r.err
    for word in words:
        assert word in r.err


@pytest.mark.parametrize("option", [("--prompt-suffix", "x"), ("--marker-penalty", "1"), ("--stop-on-loop",)])
def test_what_scores_choices_generates_nothing(halfbyte, doubter, questions, option):
    r = halfbyte("eval", doubter, "--questions", questions, "--choices", "text", *option)
    assert r.code == 2 and option[0] in r.err and "nothing is drawn or generated" in r.err


def test_a_vocabulary_without_markers_is_refused(halfbyte, model):
    r = halfbyte("run", model, "Hi", "--marker-penalty", "1")
    assert r.code == 2 and "no marker word" in r.err
    assert halfbyte("run", model, "Hi", "--marker-penalty", "0").out == "Done\n"
