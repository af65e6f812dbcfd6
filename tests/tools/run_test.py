"""halfbyte run: one prompt, pipes, JSON, flags, interruption."""

import json
import signal
import subprocess

import tiny_chat
from conftest import BINARY, clean_environment


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
    assert list(out) == ["model", "plan", "prompt_tokens", "completion_tokens", "reasoning_tokens", "text", "reasoning", "token_ids",
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
    assert "sampling  greedy, seed " in halfbyte("run", model, "Hi", "--verbose").err
    other = tiny_chat.write_model(tmp_path / "m", generation={"do_sample": True, "temperature": 0.6, "top_p": 0.95, "top_k": 20})
    r = halfbyte("run", other, "Hi", "--verbose", "--seed", 3)
    assert "sampling  temperature 0.6, top-p 0.95, top-k 20, seed 3" in r.err
    r = halfbyte("run", other, "Hi", "--verbose", "--temperature", "0", "--repetition-penalty", "1.1")
    assert "sampling  greedy, repetition penalty 1.1, seed " in r.err


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
        assert (out["text"], out["plan"]) == ("Done", plan.split(",")[0])
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


def interrupted(args, until):
    """Starts the command, waits until stdout has that text, sends SIGINT."""
    process = subprocess.Popen([BINARY, *args], stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL,
                               env=clean_environment())
    seen = b""
    while until not in seen:
        piece = process.stdout.read1(4096)
        assert piece, process.stderr.read()
        seen += piece
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    return process.returncode, seen + out, err


def test_interrupt_ends_with_130_and_a_whole_line(model):
    code, out, err = interrupted(["run", model, "z", "--raw"], b"yzyz")
    assert code == 130 and err == b""
    assert out.endswith(b"\n") and set(out.strip()) == set(b"yz")


def test_interrupt_before_anything_is_written(model):
    # Nothing half-written: no JSON at all.
    process = subprocess.Popen([BINARY, "run", model, "z", "--raw", "--json", "--verbose"], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                               stdin=subprocess.DEVNULL, env=clean_environment())
    seen = b""
    while b"sampling" not in seen:  # the last thing said before the answer begins
        piece = process.stderr.read1(4096)
        assert piece, seen
        seen += piece
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=60)
    assert (process.returncode, out) == (130, b"")


def test_a_reader_that_goes_away_ends_the_run(model):
    process = subprocess.Popen([BINARY, "run", model, "z", "--raw"], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                               stdin=subprocess.DEVNULL, env=clean_environment())
    assert process.stdout.read(4)
    process.stdout.close()
    process.wait(timeout=60)
    assert process.returncode == -signal.SIGPIPE


def test_smollm2_answers(halfbyte, smollm2):
    out = json.loads(halfbyte("run", smollm2, "What is the capital of France?", "--json", "--max-tokens", 24, timeout=280).out)
    assert "Paris" in out["text"]
    assert out["completion_tokens"] > 3 and out["timing"]["decode_tokens_per_s"] > 0


def test_entropies(halfbyte, model):
    out = json.loads(halfbyte("run", model, "Hi", "--json", "--entropy").out)
    assert len(out["entropies"]) == out["completion_tokens"] == 9
    assert all(0 <= h < 5 for h in out["entropies"])
    # Colours are for terminals.
    assert halfbyte("run", model, "Hi", "--entropy").out == "Done\n"


def test_policy(halfbyte, model):
    r = halfbyte("run", model, "Hi", "--json", "--policy", "reset", "--reset-tau0", 0.5, "--reset-t-low", 0)
    assert r.code == 0 and r.err.startswith("note: reset: tau0 0.5, t_low 0, t_high 1, window 32 (from the flags)")
    policy = json.loads(r.out)["policy"]
    assert policy == {"rule": "reset", "tau0": 0.5, "t_low": 0.0, "t_high": 1.0, "window": 32, "include_current": False, "source": "from the flags"}
    assert halfbyte("run", model, "Hi", "-q", "--policy", "reset").err == ""
    r = halfbyte("run", model, "Hi", "--policy", "reset", "--temperature", 0.6)
    assert r.code == 2 and "leave out --temperature" in r.err
