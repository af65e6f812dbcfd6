"""halfbyte run: one prompt, pipes, JSON, flags, interruption."""

import json
import os
import signal
import subprocess

import tiny_chat
from conftest import BINARY, PATIENCE, clean_environment, filled_pipe, start_blocked, wait_until_it_waits


def test_answers_a_prompt(halfbyte, model):
    r = halfbyte("run", model, "Hi")
    assert (r.code, r.out, r.err) == (0, "Done\n", "")


def test_reads_a_pipe(halfbyte, model):
    r = halfbyte("run", model, stdin="Hi\n")
    assert (r.code, r.out, r.err) == (0, "Done\n", "")


def test_joins_words_and_takes_the_prompt_flag(halfbyte, model):
    several = json.loads(halfbyte("run", model, "a", "b", "--json").out)
    one = json.loads(halfbyte("run", model, "--prompt", "a b", "--json").out)
    assert several["prompt_tokens"] == one["prompt_tokens"]
    assert halfbyte("run", model, "a", "--prompt", "b").code == 2


def test_json_object(halfbyte, model):
    r = halfbyte("run", model, "Hi", "--json", "--seed", 7)
    assert r.code == 0 and r.err == ""
    out = json.loads(r.out)
    assert list(out) == ["model", "plan", "device", "device_name", "kernels", "prompt_tokens", "completion_tokens", "reasoning_tokens", "text", "reasoning", "token_ids",
                         "finish_reason", "seed", "timing"]
    assert list(out["timing"]) == ["load_s", "prefill_s", "decode_s", "prefill_tokens_per_s", "decode_tokens_per_s"]
    ids = tiny_chat.token_ids()
    expected = [i for t in ["<think>", "a", "b", "</think>", "D", "o", "n", "e", "<|im_end|>"] for i in ids(t)]
    assert out["token_ids"] == expected
    assert (out["text"], out["reasoning"], out["finish_reason"], out["seed"]) == ("Done", "ab", "stop", 7)
    assert (out["completion_tokens"], out["reasoning_tokens"]) == (9, 4)
    # <|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n
    assert out["prompt_tokens"] == 1 + 5 + 2 + 1 + 1 + 1 + 10
    assert out["model"] == model and out["plan"] == "w4a16"
    assert all(v >= 0 for v in out["timing"].values())


def test_thinking_can_be_switched_off(halfbyte, model):
    out = json.loads(halfbyte("run", model, "Hi", "--json", "--no-think").out)
    assert (out["text"], out["reasoning"], out["reasoning_tokens"]) == ("Done", "", 0)
    assert json.loads(halfbyte("run", model, "Hi", "--json", "--think").out)["reasoning"] == "ab"


def test_reasoning_is_shown_on_request(halfbyte, model):
    assert halfbyte("run", model, "Hi", "--reasoning", "show").out == "ab\n\nDone\n"
    assert halfbyte("run", model, "Hi", "--reasoning", "hide").out == "Done\n"
    assert halfbyte("run", model, "Hi", "--reasoning", "maybe").code == 2


def test_raw_prompt(halfbyte, model):
    out = json.loads(halfbyte("run", model, "x", "--raw", "--json").out)
    assert (out["prompt_tokens"], out["text"]) == (1, "éw")
    # Special tokens are read in a raw prompt and nowhere else.
    assert json.loads(halfbyte("run", model, "<|im_start|>x", "--raw", "--json").out)["prompt_tokens"] == 2
    plain = json.loads(halfbyte("run", model, "Hi", "--json").out)["prompt_tokens"]
    typed = json.loads(halfbyte("run", model, "<|im_end|>", "--json").out)["prompt_tokens"]
    assert typed == plain - len("Hi") + len("<|im_end|>")


def test_max_tokens_and_stop(halfbyte, model):
    out = json.loads(halfbyte("run", model, "z", "--raw", "--json", "--max-tokens", "6").out)
    assert (out["text"], out["finish_reason"], out["completion_tokens"]) == ("yzyzyz", "length", 6)
    out = json.loads(halfbyte("run", model, "Hi", "--json", "--stop", "zz", "--stop", "ne").out)
    assert (out["text"], out["finish_reason"]) == ("Do", "stop")
    # A character cut by max_tokens.
    out = json.loads(halfbyte("run", model, "x", "--raw", "--json", "--max-tokens", "1").out)
    assert (out["text"], out["finish_reason"]) == ("�", "length")


def test_stop_tokens_come_from_the_model(halfbyte, tmp_path):
    other = tiny_chat.write_model(tmp_path / "m", generation={"eos_token_id": [ord("n"), 258]})
    assert halfbyte("run", other, "Hi").out == "Don\n"


def test_sampling_defaults_come_from_the_model_and_are_printed(halfbyte, model, tmp_path):
    assert "sampling  greedy\n" in halfbyte("run", model, "Hi", "--verbose").err
    other = tiny_chat.write_model(tmp_path / "m", generation={"do_sample": True, "temperature": 0.6, "top_p": 0.95, "top_k": 20})
    r = halfbyte("run", other, "Hi", "--verbose", "--seed", 3)
    assert "sampling  temperature 0.6, top-p 0.95, top-k 20, seed 3" in r.err
    r = halfbyte("run", other, "Hi", "--verbose", "--temperature", "0", "--repetition-penalty", "1.1")
    assert "sampling  greedy, repetition penalty 1.1\n" in r.err


def test_seeds_repeat(halfbyte, model):
    def tokens(seed):
        return json.loads(halfbyte("run", model, "z", "--raw", "--json", "--max-tokens", 20, "--temperature", 40, "--seed", seed).out)["token_ids"]
    assert tokens(1) == tokens(1)
    assert tokens(1) != tokens(2)


def test_logprobs(halfbyte, model):
    out = json.loads(halfbyte("run", model, "z", "--raw", "--json", "--max-tokens", 2, "--logprobs", 3).out)
    assert len(out["logprobs"]) == 2
    first = out["logprobs"][0]
    assert (first["id"], first["token"]) == (ord("y"), "y") and -0.01 < first["logprob"] <= 0
    assert len(first["top"]) == 3 and first["top"][0]["id"] == ord("y") and first["top"][0]["logprob"] == first["logprob"]
    assert halfbyte("run", model, "z", "--logprobs", 3).code == 2
    assert halfbyte("run", model, "z", "--logprobs", 21, "--json").code == 2


def test_think_budget_ends_the_reasoning_in_the_same_request(halfbyte, model):
    args = ("run", model, "Hi", "--json", "--think-budget", "2", "--logprobs", "1")
    out = json.loads(halfbyte(*args).out)
    said = "\n\nI have to answer now.\n</think>\n\n"
    assert out["reasoning"] == "a" + said.removesuffix("</think>\n\n")
    assert out["text"] == "<think>ab</think>Done"  # what this model says behind a newline
    forced = [e.get("forced", False) for e in out["logprobs"]]
    count = len(said.replace("</think>", "<"))  # one token a byte, one the tag
    assert forced == [False] * 2 + [True] * count + [False] * 9
    assert all((e["logprob"] is None) == f for e, f in zip(out["logprobs"], forced))
    assert [e["id"] for e in out["logprobs"]] == out["token_ids"]
    # What is forced counts for --max-tokens; no reasoning, nothing to end.
    cut = json.loads(halfbyte(*args, "--max-tokens", "10").out)
    assert (cut["finish_reason"], cut["token_ids"], cut["text"]) == ("length", out["token_ids"][:10], "")
    assert json.loads(halfbyte(*args, "--no-think").out)["text"] == "Done"


def test_plans_and_kernels(halfbyte, model):
    for plan in ("bf16", "w4a16", "w4a8", "w4a4", "w4a16-mxfp4", "w4a4,kv=f32"):
        out = json.loads(halfbyte("run", model, "Hi", "--json", "--plan", plan).out)
        assert (out["text"], out["plan"]) == ("Done", plan)
    # Two plans that differ look different, however they were said.
    typed = json.loads(halfbyte("run", model, "Hi", "--json", "--plan", "w4a4, layers.0.*:weights=bf16", "--kv", "fp8").out)["plan"]
    assert typed == "w4a4,kv=fp8,layers.0.*:weights=bf16"
    assert json.loads(halfbyte("run", model, "Hi", "--json", "--plan", typed).out)["plan"] == typed
    r = halfbyte("run", model, "Hi", "--kernels", "ref", "--threads", 1, "--verbose")
    assert r.out == "Done\n" and "kernels   ref" in r.err


def test_system_message(halfbyte, model):
    plain = json.loads(halfbyte("run", model, "Hi", "--json").out)["prompt_tokens"]
    # <|im_start|>system\nBe<|im_end|>\n
    assert json.loads(halfbyte("run", model, "Hi", "--json", "--system", "Be").out)["prompt_tokens"] == plain + 1 + 7 + 2 + 2


def test_verbose_and_quiet(halfbyte, model):
    r = halfbyte("run", model, "Hi", "--verbose")
    assert r.out == "Done\n"
    assert "prompt tokens in" in r.err and "w4a16 (nvfp4 weights, bf16 activations, bf16 KV)" in r.err
    assert halfbyte("run", model, "Hi", "--quiet").err == ""


def read_until(stream, text):
    seen = b""
    while text not in seen:
        piece = stream.read1(4096)
        assert piece, seen
        seen += piece
    return seen


def interrupted(args, until):
    """Starts the command, waits until stdout has that text, sends SIGINT."""
    process = start_blocked(*args)
    seen = read_until(process.stdout, until)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=PATIENCE)
    return process.returncode, seen + out, err


def test_interrupt_ends_with_130_and_a_whole_line(model):
    code, out, err = interrupted(["run", model, "z", "--raw"], b"yzyz")
    assert code == 130 and err == b""
    assert out.endswith(b"\n") and set(out.strip()) == set(b"yz")


def test_interrupt_before_anything_is_written(model):
    # Nothing half-written: no JSON at all.
    process = subprocess.Popen([BINARY, "run", model, "z", "--raw", "--json", "--verbose"], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                               stdin=subprocess.DEVNULL, env=clean_environment())
    read_until(process.stderr, b"sampling")  # the last thing said before the answer begins
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=PATIENCE)
    assert (process.returncode, out) == (130, b"")


def test_interrupt_while_nobody_reads(model):
    """As in `halfbyte run | less`: stdout is full when Ctrl-C comes, and what was begun is written once there is room."""
    process = start_blocked("run", model, "z", "--raw", "--max-tokens", "100K", "--threads", "1")
    wait_until_it_waits(process)
    process.send_signal(signal.SIGINT)
    wait_until_it_waits(process)
    out, err = process.communicate(timeout=PATIENCE)
    assert (process.returncode, err) == (130, b"")
    assert out.endswith(b"\n") and 4096 < len(out) < 100_000 and set(out.strip()) == set(b"yz")


def test_a_reader_that_goes_away_ends_the_run(model):
    process = start_blocked("run", model, "z", "--raw")
    assert process.stdout.read(4)
    process.stdout.close()
    process.wait(timeout=PATIENCE)
    assert process.returncode == -signal.SIGPIPE


def test_smollm2_answers(halfbyte, smollm2):
    out = json.loads(halfbyte("run", smollm2, "What is the capital of France?", "--json", "--max-tokens", 24).out)
    assert "Paris" in out["text"]
    assert out["completion_tokens"] > 3 and out["timing"]["decode_tokens_per_s"] > 0


def test_entropies(halfbyte, model):
    out = json.loads(halfbyte("run", model, "Hi", "--json", "--entropy").out)
    assert len(out["entropies"]) == out["completion_tokens"] == 9
    assert all(0 <= h < 5 for h in out["entropies"])
    # Colours are for terminals.
    r = halfbyte("run", model, "Hi", "--entropy")
    assert r.out == "Done\n" and "note: --entropy colours a terminal and has no effect here" in r.err


def test_policy(halfbyte, model):
    r = halfbyte("run", model, "Hi", "--json", "--policy", "reset", "--reset-tau0", 0.5, "--reset-t-low", 0)
    assert r.code == 0 and r.err.startswith("note: reset: tau0 0.5, t_low 0, t_high 1, window 32 (from the flags)")
    policy = json.loads(r.out)["policy"]
    assert policy == {"rule": "reset", "tau0": 0.5, "t_low": 0.0, "t_high": 1.0, "window": 32, "include_current": False, "source": "from the flags"}
    assert halfbyte("run", model, "Hi", "-q", "--policy", "reset").err == ""
    r = halfbyte("run", model, "Hi", "--policy", "reset", "--temperature", 0.6)
    assert r.code == 2 and "leave out --temperature" in r.err


def test_an_answer_that_shows_nothing_says_why(halfbyte, model, tmp_path):
    r = halfbyte("run", model, "Hi", "--max-tokens", 3)
    assert (r.code, r.out) == (0, "") and "note: cut after 3 tokens, all of them reasoning" in r.err and "raise --max-tokens" in r.err
    assert halfbyte("run", model, "Hi", "--max-tokens", 3, "--quiet").err == ""
    assert halfbyte("run", model, "Hi", "--max-tokens", 3, "--json").err == ""
    assert halfbyte("run", model, "Hi", "--max-tokens", 3, "--reasoning", "show").err == ""
    stops_early = tiny_chat.write_model(tmp_path / "m", generation={"eos_token_id": 256 + tiny_chat.ADDED.index("</think>")})
    assert "note: no answer: the model ended after 4 tokens of reasoning" in halfbyte("run", stops_early, "Hi").err
    assert "note: the answer is empty: it ended after 1 token\n" in halfbyte("run", model, "w", "--raw").err
    # A stop text counts in the reasoning, too, and it was not the model that ended.
    r = halfbyte("run", model, "Hi", "--stop", "b")
    assert (r.code, r.out) == (0, "") and "note: no answer: a --stop text came after 3 tokens of reasoning" in r.err, r.err
    assert "note: the answer is empty: a --stop text came after" in halfbyte("run", model, "Hi", "--no-think", "--stop", "D").err


def test_an_answer_that_goes_in_circles_says_so(halfbyte, model):
    r = halfbyte("run", model, "z", "--raw", "--max-tokens", 100)
    assert r.code == 0 and "note: cut after 100 tokens: the answer repeats itself" in r.err
    assert halfbyte("run", model, "z", "--raw", "--max-tokens", 20).err == ""


def test_an_empty_prompt_is_refused_and_stdin_is_not_read(model):
    for args in (["run", model, ""], ["run", model, "-p", ""], ["trace", model, "--jsonl", "-", ""]):
        # stdin stays open: a command that reads it does not end.
        process = subprocess.Popen([BINARY, *args], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=clean_environment())
        assert process.wait(timeout=PATIENCE) == 2, args
        assert b"empty" in process.stderr.read(), args


def test_an_empty_text_has_no_tokens(halfbyte, model):
    for args in ([""], ["--text", ""]):
        r = halfbyte("tokenize", model, *args, stdin="abc")
        assert r.code == 0 and r.out == "0 tokens\n"
    assert halfbyte("tokenize", model, "a").out.endswith("1 token\n")


UNREAD = "note: there is text on stdin, and it is not read"


def test_text_on_stdin_beside_a_prompt_is_not_dropped_in_silence(halfbyte, model, tmp_path):
    for args in (["run", model, "Hi"], ["run", model, "-p", "Hi"], ["tokenize", model, "Hi"]):
        r = halfbyte(*args, stdin="more\n")
        assert r.code == 0 and UNREAD in r.err and r.err.count("\n") == 1
        assert r.out == halfbyte(*args).out and halfbyte(*args).err == ""
    assert halfbyte("run", model, "Hi", "-q", stdin="more\n").err == ""
    # A stdin that stays open, and one that is a file.
    process = subprocess.Popen([BINARY, "run", model, "Hi"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=clean_environment())
    assert (process.wait(timeout=PATIENCE), process.stderr.read()) == (0, b"")
    (tmp_path / "text").write_text("more")
    with open(tmp_path / "text") as file:
        r = subprocess.run([BINARY, "run", model, "Hi"], stdin=file, capture_output=True, env=clean_environment())
    assert UNREAD in r.stderr.decode()


def test_text_on_stdin_is_seen_before_the_answer_or_behind_it_and_said_once(model):
    args = ("run", model, "z", "--raw", "--max-tokens", "6K", "--verbose")  # more than the pipe of its stdout holds
    with filled_pipe(b"more\n") as pipe:
        process = start_blocked(*args, stdin=pipe)
    err = read_until(process.stderr, b"sampling")
    assert UNREAD in err.decode()
    assert UNREAD not in process.communicate(timeout=PATIENCE)[1].decode() and process.returncode == 0
    # The one who writes is slower than the command's start.
    process = start_blocked(*args, stdin=subprocess.PIPE)
    assert UNREAD not in read_until(process.stderr, b"sampling").decode()
    _, err = process.communicate(b"more\n", timeout=PATIENCE)
    assert process.returncode == 0 and err.decode().count(UNREAD) == 1


def test_a_prompt_in_the_place_of_the_model(halfbyte, tmp_path):
    for args, flag in ((["run", "Why is the sky blue?"], "--prompt"), (["run", "Why", "is"], "--prompt"), (["tokenize", "Hello world"], "--text")):
        r = halfbyte(*args)
        assert r.code == 2 and f"the first argument is the MODEL: to ask the default model, write {flag}" in r.err, r.err
    assert "first argument" not in halfbyte("run", tmp_path / "none", "Hi").err


def test_stdin_without_end_is_refused(model):
    for command in ("run", "tokenize"):
        with open("/dev/zero") as endless:
            r = subprocess.run([BINARY, command, model], stdin=endless, capture_output=True, env=clean_environment(), timeout=PATIENCE)
        assert r.returncode == 2 and b"stdin has more than 16.0 MiB" in r.stderr
    r = subprocess.run([BINARY, "run", model], stdin=os.open(model, os.O_RDONLY), capture_output=True, env=clean_environment())
    assert r.returncode == 2 and b"stdin cannot be read: Is a directory" in r.stderr
