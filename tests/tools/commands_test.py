"""inspect, tokenize, bench, quantize, --version, the environment, and the examples of docs/commands.md."""

import json
import os
import pathlib
import re
import subprocess

import numpy as np
import pytest
import tiny_chat
from conftest import BINARY, PATIENCE, ROOT, clean_environment

COMMANDS = ["run", "inspect", "tokenize", "bench", "quantize", "trace", "calibrate", "eval"]


# --- inspect ---

def test_inspect(halfbyte, model):
    r = halfbyte("inspect", model)
    assert r.code == 0 and r.err == ""
    for text in ("llama: 1 layer, hidden 272", "12 BF16", "w4a16 (nvfp4 weights", "7 linears, ", "KV cache for each token"):
        assert text in r.out, r.out
    assert "model.layers.0.mlp.up_proj.weight" not in r.out
    assert "model.layers.0.mlp.up_proj.weight" in halfbyte("inspect", model, "--tensors").out


def test_inspect_json(halfbyte, model):
    out = json.loads(halfbyte("inspect", model, "--json", "--plan", "w4a4,layers.*.mlp.*:weights=bf16").out)
    assert (out["architecture"], out["layers"], out["vocab"], out["context"]) == ("llama", 1, tiny_chat.VOCAB, 1 << 20)
    assert out["parameters"] == sum(a.size for a in tiny_chat.tensors().values())
    assert len(out["tensors"]) == 12 and out["tensors"][0] == {"name": "lm_head.weight", "dtype": "BF16", "shape": [261, 272], "bytes": 261 * 272 * 2,
                                                              "role": "BF16: bf16 weights, bf16 input, as stored"}
    assert {t["name"]: t["role"] for t in out["tensors"]}["model.norm.weight"] == "norm: FP32"
    linears = {l["name"]: l for l in out["linears"]}
    assert len(linears) == 8
    assert linears["model.layers.0.mlp.up_proj"]["weights"] == "bf16"
    q = linears["model.layers.0.self_attn.q_proj"]
    assert (q["weights"], q["activations"], q["rounded_at_load"], q["shape"]) == ("nvfp4", "fp4", True, [32, 272])
    assert "linear_nvfp4" in q["kernel"]
    assert out["memory"]["kv_bytes_per_token"] == 2 * 16 * 2
    assert out["plan"]["preset"] == "w4a4"


def test_inspect_compares_two_models(halfbyte, model, tmp_path):
    same = halfbyte("inspect", model, model)
    assert same.code == 0 and "12 of 12 tensors are equal" in same.out, same.out + same.err
    other = pathlib.Path(tiny_chat.write_model(tmp_path / "other"))
    raw = bytearray((other / "model.safetensors").read_bytes())
    raw[-2:] = (0x4000).to_bytes(2, "little")  # one element of the last tensor becomes 2
    (other / "model.safetensors").write_bytes(raw)
    r = halfbyte("inspect", model, other)
    assert r.code == 1 and "11 of 12 tensors are equal; worst " in r.out, r.out
    changed = [t for t in json.loads(halfbyte("inspect", model, other, "--json").out)["tensors"] if not t["equal"]]
    assert len(changed) == 1 and changed[0]["largest"] in (1, 2) and changed[0]["nan_a"] == changed[0]["nan_b"] == 0
    raw[-2:] = (0x7FC0).to_bytes(2, "little")
    (other / "model.safetensors").write_bytes(raw)
    worse = json.loads(halfbyte("inspect", model, other, "--json").out)
    assert not worse["equal"] and sum(t["nan_b"] for t in worse["tensors"]) == 1
    missing = halfbyte("inspect", model, tmp_path / "nothing")
    assert missing.code == 2 and "no such file or folder" in missing.err


def test_inspect_fit(halfbyte, model):
    r = halfbyte("inspect", model, "--fit", "--ctx", "32K", "--batch", "4", "--json")
    assert r.code == 0
    fit = json.loads(r.out)["fit"]
    assert (fit["context"], fit["batch"], fit["kv_bytes"], fit["fits"]) == (32768, 4, 4 * 32768 * 64, True)
    assert fit["peak_bytes"] == fit["weight_bytes"] + max(fit["loading_bytes"], fit["kv_bytes"] + fit["work_bytes"])
    # 16 channels of keys and 16 of values a token: FP8, and 4 bits with a scale each
    for kv, bytes_per_token in (("fp8", 32), ("nvfp4", 18), ("e1m2", 18)):
        fit = json.loads(halfbyte("inspect", model, "--kv", kv, "--fit", "--ctx", "32K", "--json").out)["fit"]
        assert fit["kv_bytes"] == 32768 * bytes_per_token
    text = halfbyte("inspect", model, "--fit", "--ctx", "32K", "--batch", "4").out
    assert "4 sequences of 32768 tokens:" in text and text.endswith("fits\n")


def test_inspect_fit_that_does_not(halfbyte, tmp_path):
    big = tiny_chat.write_model(tmp_path / "m", max_position_embeddings=1 << 32)
    r = halfbyte("inspect", big, "--fit", "--ctx", "4G")
    assert r.code == 1 and "does not fit: " in r.out and r.err == ""


def test_inspect_needs_no_tokenizer(halfbyte, model, tmp_path):
    other = pathlib.Path(tiny_chat.write_model(tmp_path / "m"))
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (other / name).unlink()
    assert halfbyte("inspect", other).code == 0


def test_kv_formats(halfbyte, model):
    for kv in ("f32", "bf16", "fp8", "nvfp4", "e1m2"):
        out = json.loads(halfbyte("inspect", model, "--kv", kv, "--plan", "w4a4", "--json").out)
        assert out["plan"]["kv"] == kv
        assert halfbyte("run", model, "--kv", kv, "--raw", "--max-tokens", 3, "ab").code == 0
    r = halfbyte("run", model, "--kv", "int4", "ab")
    assert r.code == 2 and "expected one of f32, bf16, fp8, nvfp4, e1m2" in r.err


def test_inspect_kernels(halfbyte):
    r = halfbyte("inspect", "--kernels")
    assert r.code == 0 and "linear_nvfp4_a16" in r.out and "ref" in r.out


def test_inspect_tables_as_json(halfbyte):
    kernels = json.loads(halfbyte("inspect", "--kernels", "--json").out)["kernels"]
    assert {"linear_nvfp4_a16_ref"} <= {k["name"] for k in kernels} and any(k["runs_here"] for k in kernels)
    devices = json.loads(halfbyte("inspect", "--devices", "--json").out)
    assert devices["cpu"]["threads"] >= 1
    assert isinstance(devices["cuda"]["devices"], list) and (devices["cuda"]["devices"] or devices["cuda"]["note"])


def test_inspect_compares_other_shapes_in_line(halfbyte, model, tmp_path):
    other = pathlib.Path(tiny_chat.write_model(tmp_path / "other"))
    tiny_chat.write_safetensors(other / "model.safetensors", tiny_chat.tensors() | {"model.norm.weight": np.ones(1024, np.float32)})
    out = halfbyte("inspect", model, other).out.splitlines()
    row = next(line for line in out if "model.norm.weight" in line)
    assert "not compared" in row and row.endswith("; other shape: [272] and [1024]")
    assert row.index("not compared") + len("not compared") == out[0].index("NaN") + len("NaN"), out


# What a command would pass over in silence is refused.
@pytest.mark.parametrize("args, words", [
    (["inspect", "MODEL", "--kernels", "avx2"], ["MODEL", "--use-kernels"]),
    (["inspect", "--devices", "--kernels"], ["one of them"]),
    (["inspect", "--measure"], ["--measure goes with --devices"]),
    (["inspect", "MODEL", "--table"], ["--table goes with --devices"]),
    (["inspect", "--devices", "--measure", "--table"], ["--table has no effect with --measure"]),
    (["inspect", "--devices", "MODEL"], ["MODEL has no effect with --devices"]),
    (["inspect", "MODEL", "MODEL", "--fit"], ["--fit has no effect with two models"]),
    (["inspect", "MODEL", "MODEL", "--plan", "w4a4"], ["--plan has no effect with two models"]),
    (["inspect", "MODEL", "--batch", "4"], ["--batch has no effect without --fit"]),
    (["inspect", "MODEL", "--ctx", "64"], ["--ctx has no effect without --fit"]),
    (["bench", "MODEL", "--policy-cost", "--batch", "4"], ["--batch has no effect with --policy-cost"]),
    (["bench", "MODEL", "--policy-cost", "--prefill-chunk", "4"], ["--prefill-chunk has no effect with --policy-cost"]),
    (["bench", "--roofline", "--prefill-chunk", "4"], ["--prefill-chunk has no effect with --roofline"]),
    (["bench", "MODEL", "--stepped", "--prefill-chunk", "4"], ["--prefill-chunk has no effect with --stepped"]),
    (["bench", "MODEL", "--policy-cost", "--stepped"], ["--policy-cost has no effect with --stepped"]),
    (["bench", "MODEL", "--roofline"], ["MODEL has no effect with --roofline"]),
    (["bench", "--race", "--roofline"], ["--race has no effect with --roofline"]),
    (["bench", "--race", "--stepped", "--synthetic", "tiny"], ["--race has no effect with --stepped"]),
    (["bench", "--race", "--synthetic", "tiny"], ["--race needs --device cuda and --synthetic"]),
    (["bench", "--race", "MODEL", "--device", "auto"], ["--race needs --device cuda and --synthetic"]),
    (["bench", "--synthetic", "tiny", "--batch", "257"], ["--batch is 257, expected 1 to 256 on the CPU"]),
    # What a CUDA device would pass over, and what it cannot do: said before anybody asks for a device.
    *[(["bench", "--device", "cuda", "--synthetic", "qwen3-0.6b", *given], [said]) for given, said in (
        (["MODEL"], "--synthetic and a MODEL exclude each other"),
        (["--kv", "nvfp4"], "a KV cache in nvfp4 on a CUDA device, expected bf16 or fp8"),
        (["--plan", "w4a16,kv=f32"], "a KV cache in f32 on a CUDA device, expected bf16 or fp8"),
        (["--warmup", "3"], "--warmup has no effect with --device cuda"),
        (["--ctx", "1K"], "--ctx has no effect with --device cuda"),
        (["--threads", "2"], "--threads has no effect with --device cuda"),
        (["--race", "--host-gap"], "--host-gap has no effect with --race"),
        (["--race", "--policy-cost"], "--policy-cost has no effect with --race"),
        (["--race", "--repeat", "3"], "--repeat has no effect with --race"),
        (["--race", "--prompt-tokens", "3"], "--prompt-tokens has no effect with --race"),
        (["--race", "--prefill-chunk", "3"], "--prefill-chunk has no effect with --race"),
        (["--prefill-chunk", "4097"], "--prefill-chunk is 4097, expected 1 to 4096 on a CUDA device"),
        (["--tokens", "1"], "--tokens is 1, expected 2 to 1048576 on a CUDA device"),
        (["--tokens", "2M"], "--tokens is 2097152, expected 2 to 1048576 on a CUDA device"),
        (["--batch", "65"], "--batch is 65, expected 1 to 64 on a CUDA device"),
        (["--context", "1M"], "--context 1048576 and 64 tokens to decode are more than the context of 40960 tokens holds"),
        (["--context", "9223372036854775807"], "are more than the context of 40960 tokens holds"),
        (["--prompt-tokens", "1M"], "--prompt-tokens is 1048576, expected at most 40959"))],
    (["bench", "--device", "cuda", "--synthetic", "gpt-9"], ["gpt-9", "tiny"]),
    (["run", "MODEL", "Hi", "-q", "-v"], ["--verbose and --quiet"]),
    (["trace", "MODEL", "Hi", "--jsonl", "-", "--html", "-"], ["--jsonl and --html"])])
def test_an_option_without_effect_is_refused(halfbyte, model, args, words):
    r = halfbyte(*[model if a == "MODEL" else a for a in args])
    assert r.code == 2 and r.out == "" and r.err.count("\n") == 1
    for word in words:
        assert word in r.err, r.err


# On any machine: a CPU's kernels choose the CPU.
def test_where_a_model_ran_is_said(halfbyte, model):
    cpu = json.loads(halfbyte("inspect", "--devices", "--json").out)["cpu"]["name"]
    table = halfbyte("run", model, "Hi", "-v", "--kernels", "ref", "--max-tokens", 2).err
    assert f"  device    cpu: {cpu} (--kernels ref)\n  kernels   ref\n" in table
    assert f"  device    cpu: {cpu}\n" in halfbyte("run", model, "Hi", "-v", "--device", "cpu", "--max-tokens", 2).err
    out = json.loads(halfbyte("run", model, "Hi", "--json", "--kernels", "ref", "--max-tokens", 2).out)
    assert (out["device"], out["device_name"], out["kernels"]) == ("cpu", cpu, "ref")


def test_devices_show_the_kernels_that_are_forced(halfbyte):
    assert "\n  runs the kernels ref\n" in halfbyte("inspect", "--devices", env=clean_environment(HALFBYTE_KERNELS="ref")).out
    assert json.loads(halfbyte("inspect", "--devices", "--json", "--use-kernels", "ref").out)["cpu"]["kernels"] == "ref"
    own = halfbyte("inspect", "--devices").out.splitlines()[1]
    assert halfbyte("inspect", "--devices", env=clean_environment(HALFBYTE_KERNELS="portable")).out.splitlines()[1] == own


def test_kernels_of_a_device_name_the_commands_own_options(halfbyte, model):
    r = halfbyte("inspect", model, "--use-kernels", "ring")
    assert r.code == 2 and r.err.startswith("error: --use-kernels is 'ring', which CUDA devices have; ") and "--device" not in r.err
    r = halfbyte("inspect", model, env=clean_environment(HALFBYTE_KERNELS="portable"))
    assert r.code == 2 and "--use-kernels is 'portable' (from HALFBYTE_KERNELS)" in r.err
    r = halfbyte("run", model, "Hi", "--device", "cpu", env=clean_environment(HALFBYTE_KERNELS="portable"))
    assert r.code == 2 and "--kernels is 'portable' (from HALFBYTE_KERNELS)" in r.err and "--device cuda" in r.err


def test_a_variable_that_has_no_effect_here_is_passed_over(halfbyte, model):
    assert halfbyte("inspect", model, env=clean_environment(HALFBYTE_CTX="64", HALFBYTE_BATCH="2")).code == 0
    assert halfbyte("run", model, "Hi", "-v", env=clean_environment(HALFBYTE_QUIET="1")).code == 0


# --- prompts in chunks ---

@pytest.mark.parametrize("command", [["run", "MODEL", "Hi"], ["bench", "MODEL"], ["eval", "MODEL", "--task", "perplexity", "--text", "t"],
                                     ["eval", "sweep", "MODEL", "--tasks", "t.jsonl", "-o", "s"], ["trace", "MODEL", "Hi", "--jsonl", "-"],
                                     ["calibrate", "reset", "MODEL", "--prompts", "p"]])
@pytest.mark.parametrize("chunk", ["0", "-3", "65537", "many", "1.5"])
def test_a_chunk_has_its_range(halfbyte, model, command, chunk):
    r = halfbyte(*[model if a == "MODEL" else a for a in command], "--prefill-chunk", chunk)
    assert r.code == 2 and r.out == "" and r.err.count("\n") == 1
    assert f"--prefill-chunk: is '{chunk}', expected 1 to 65536" in r.err, r.err


@pytest.mark.parametrize("plan", ["w4a4", "bf16"])
def test_another_chunk_gives_the_same_text(halfbyte, plan):
    """Of a model whose tokens depend on the whole prompt, with chunks that end anywhere in it."""
    reasoner = pathlib.Path(__file__).resolve().parents[2] / "models" / "halfbyte-reasoner"
    ask = ("run", reasoner, "What is 17 + 25? " * 4, "--plan", plan, "--device", "cpu", "--temperature", 0, "--max-tokens", 40, "--json")
    whole = json.loads(halfbyte(*ask).out)
    assert whole["prompt_tokens"] > 40 and len(set(whole["token_ids"])) > 5
    for chunk in ("1", "7", "32", "2K"):
        other = json.loads(halfbyte(*ask, "--prefill-chunk", chunk).out)
        assert other["token_ids"] == whole["token_ids"], chunk
    assert json.loads(halfbyte(*ask, env=clean_environment(HALFBYTE_PREFILL_CHUNK="5")).out)["token_ids"] == whole["token_ids"]


def test_bench_counts_the_weights_of_each_chunk(halfbyte):
    def bytes_a_token(*chunk):
        out = halfbyte("bench", "--synthetic", "tiny", "--prompt-tokens", 30, "--tokens", 2, "--repeat", 1, "--warmup", 0, "--json", *chunk)
        prompt = json.loads(out.out)["cases"][0]
        return prompt["GBps"] / prompt["tokens_per_s"]
    whole = bytes_a_token()
    assert bytes_a_token("--prefill-chunk", 10) == pytest.approx(3 * whole)
    assert bytes_a_token("--prefill-chunk", 29) == pytest.approx(2 * whole)


# --- tokenize ---

def test_tokenize_json(halfbyte, model):
    out = json.loads(halfbyte("tokenize", model, "aé<think>", "--json").out)
    assert out == {"ids": [97, 0xC3, 0xA9, 259], "pieces": ["a", "�", "�", "<think>"]}
    assert json.loads(halfbyte("tokenize", model, "--json", stdin="ab\n").out)["ids"] == [97, 98, 10]
    assert json.loads(halfbyte("tokenize", model, "--json", "--text", "ab").out)["ids"] == [97, 98]


def test_tokenize_text_of_a_request(halfbyte, model):
    special = "<|im_end|><think>"
    assert json.loads(halfbyte("tokenize", model, special, "--json").out)["ids"] == [258, 259]
    # <think> is not marked special, but the template writes it... only "<think></think>": both are control tokens.
    assert len(json.loads(halfbyte("tokenize", model, special, "--user", "--json").out)["ids"]) == len(special)
    chat = json.loads(halfbyte("tokenize", model, "x", "--chat", "--json").out)["pieces"]
    assert "".join(chat) == "<|im_start|>user\nx<|im_end|>\n<|im_start|>assistant\n"


def test_tokenize_table(halfbyte, model):
    assert halfbyte("tokenize", model, "a\n<|im_end|>").out == "     97  'a'\n     10  '\\n'\n    258  '<|im_end|>'  special\n3 tokens\n"


def test_tokenize_equals_tokenizers(halfbyte, smollm2):
    out = json.loads(halfbyte("tokenize", smollm2, "Hello, world! 12345", "--json").out)
    assert "".join(out["pieces"]) == "Hello, world! 12345"
    assert out["pieces"][-5:] == list("12345")


# --- bench ---

BENCH = ["--prompt-tokens", 8, "--tokens", 4, "--repeat", 2]


def test_bench_json(halfbyte, model):
    r = halfbyte("bench", model, "--json", *BENCH)
    assert r.code == 0 and r.err == ""
    out = json.loads(r.out)
    assert list(out) == ["machine", "version", "commit", "plan", "kernels", "cases"] and list(out["machine"]) == ["cpu", "threads", "read_GBps"]
    assert out["machine"]["read_GBps"] > 0
    assert [c["name"] for c in out["cases"]] == ["prompt 8", "decode batch 1 at 16"]
    for case in out["cases"]:
        assert list(case) == ["name", "tokens_per_s", "p10", "p90", "GBps", "share_of_read"]
        assert 0 < case["p10"] <= case["tokens_per_s"] <= case["p90"]
        assert case["share_of_read"] == pytest.approx(case["GBps"] / out["machine"]["read_GBps"])


def test_bench_table_and_synthetic(halfbyte):
    r = halfbyte("bench", "--synthetic", "tiny", "--batch", 3, *BENCH)
    assert r.code == 0 and "decode batch 3" in r.out and "of read" in r.out


def test_bench_fits_its_prompt_into_a_short_context(halfbyte):
    r = halfbyte("bench", "--synthetic", "tiny", "--tokens", 2, "--repeat", 1, "--json")
    assert r.code == 0 and json.loads(r.out)["cases"][0]["name"] == "prompt 511"
    head, prompt, decode = halfbyte("bench", "--synthetic", "tiny", *BENCH).out.splitlines()[-3:]
    assert len(head) == len(prompt) == len(decode), "columns are aligned"
    r = halfbyte("bench", "--synthetic", "tiny", "--prompt-tokens", 512)
    assert r.code == 2 and "--prompt-tokens is 512, expected at most 511" in r.err
    r = halfbyte("bench", "--synthetic", "tiny", "--context", "1M")
    assert r.code == 2 and "--context 1048576 and 64 tokens to decode" in r.err


def test_bench_stages_are_all_of_a_steps_time(halfbyte):
    r = halfbyte("bench", "--synthetic", "tiny", "--threads", 1, "--stages", "--json", *BENCH)
    assert r.code == 0, r.err
    for case in json.loads(r.out)["cases"]:
        stages = case["stages_us"]
        assert {"linear", "attention", "rounding", "head", "sampling"} <= stages.keys() and all(v > 0 for v in stages.values())
        assert sum(stages.values()) > 0
    text = halfbyte("bench", "--synthetic", "tiny", "--stages", *BENCH).out
    assert "attention" in text and "attention" not in halfbyte("bench", "--synthetic", "tiny", *BENCH).out


def test_bench_stepped_answers_each_line(halfbyte):
    lines = "prompt 8\ndecode 2 16 3\ndecode 2 16 3\nread\n"
    r = halfbyte("bench", "--synthetic", "tiny", "--threads", 1, "--stepped", stdin=lines)
    assert r.code == 0 and r.err == ""
    ready, prompt, first, second, read = map(json.loads, r.out.splitlines())
    assert ready["case"] == "ready" and ready["threads"] == 1 and ready["decode_bytes_per_token"] > 0
    assert prompt["case"] == "prompt" and prompt["tokens"] == 8 and prompt["seconds"] > 0
    assert first["rows"] == 2 and first["context"] == 16 and len(first["seconds"]) == len(second["seconds"]) == 3
    assert read["GBps"] > 0


def test_bench_stepped_refuses_other_lines(halfbyte):
    r = halfbyte("bench", "--synthetic", "tiny", "--stepped", stdin="decode 1 16\n")
    assert r.code == 2 and "decode ROWS CONTEXT STEPS" in r.err


def test_bench_svg_needs_roofline(halfbyte):
    r = halfbyte("bench", "--synthetic", "tiny", "--svg", "a.svg")
    assert r.code == 2 and "--roofline" in r.err


# --- quantize ---

def test_quantize_writes_a_folder_that_answers(halfbyte, model, tmp_path):
    out = tmp_path / "nvfp4"
    r = halfbyte("quantize", model, "-o", out)
    assert r.code == 0 and r.err == ""
    lines = r.out.strip().split("\n")
    assert len(lines) == 12 + 1 and any(re.search(r"up_proj\.weight .*NVFP4 .*(dB|exact)", line) for line in lines)
    assert json.loads((out / "halfbyte_plan.json").read_text())
    answer = json.loads(halfbyte("run", out, "Hi", "--json").out)
    assert (answer["text"], answer["reasoning"]) == ("Done", "ab")
    assert "quantised" in halfbyte("inspect", out).out


def test_a_tied_folder_that_quantize_wrote_has_no_notes(halfbyte, tmp_path):
    """The embedding is no linear: that no list leaves it out says nothing."""
    model = tiny_chat.write_model(tmp_path / "model", tie_word_embeddings=True)
    tensors = tiny_chat.tensors()
    del tensors["lm_head.weight"]
    tiny_chat.write_safetensors(tmp_path / "model" / "model.safetensors", tensors)
    assert halfbyte("quantize", model, "-o", tmp_path / "q").code == 0
    r = halfbyte("inspect", tmp_path / "q", "--json")
    assert r.code == 0 and json.loads(r.out)["notes"] == [], r.out


def test_quantize_json_and_recipes(halfbyte, model, tmp_path):
    r = halfbyte("quantize", model, "--out", tmp_path / "a", "--recipe", "bf16", "--json")
    out = json.loads(r.out)
    assert r.code == 0 and list(out) == ["model", "folder", "recipe", "bytes", "source_bytes", "seconds", "files", "warnings", "tensors"]
    assert out["recipe"] == "bf16" and all(t["format"] == "BF16" and t["snr_db"] is None for t in out["tensors"])
    assert sorted(os.listdir(tmp_path / "a")) == sorted(out["files"])
    assert halfbyte("run", tmp_path / "a", "Hi").out == "Done\n"
    assert halfbyte("quantize", model, "--out", tmp_path / "a", "--force", "--quiet").code == 0


# --- the binary ---

def test_version(halfbyte):
    r = halfbyte("--version")
    assert r.code == 0
    assert re.match(r"halfbyte \d+\.\d+\.\d+ \(commit \w+(\+dirty)?, (g\+\+|clang\+\+|clang) [\d.]+.*\)\ncpu +.+\nfeatures +.+\nkernels +\w+\nthreads +\d+\n$", r.out), r.out


def test_help(halfbyte):
    r = halfbyte("--help")
    assert r.code == 0
    listed = re.findall(r"^  (\w+) {2,}\S", r.out.split("ubcommands:")[1], re.MULTILINE | re.IGNORECASE)
    assert listed == COMMANDS, "the tests of all commands must know each of them"
    for command in COMMANDS:
        r = halfbyte(command, "--help")
        assert r.code == 0 and r.out and r.err == ""
        assert "{false}" not in r.out and not re.search(r"([A-Z]+):\1 in", r.out)


def options_of(halfbyte, command):
    """(long name, has an environment variable) of each option in the help."""
    text = halfbyte(command, "--help").out
    for line in re.split(r"\n  (?=-)", text)[1:]:
        name = re.search(r"--[\w-]+", line)
        if name and name[0] != "--help":
            yield name[0], re.search(r"\(Env:(\w+)\)", line)


@pytest.mark.parametrize("command", COMMANDS)
def test_every_flag_has_an_environment_variable(halfbyte, command):
    options = list(options_of(halfbyte, command))
    assert len(options) >= 5
    for name, variable in options:
        assert variable and variable[1].startswith("HALFBYTE_"), f"{command} {name}"


def test_environment_sets_flags_and_the_command_line_wins(halfbyte, model):
    env = clean_environment(HALFBYTE_MODEL=model, HALFBYTE_PROMPT="Hi", HALFBYTE_JSON="1", HALFBYTE_SEED="5", HALFBYTE_PLAN="bf16",
                            HALFBYTE_THINK="false", HALFBYTE_STOP="ne", HALFBYTE_KERNELS="ref")
    out = json.loads(halfbyte("run", env=env).out)
    assert (out["text"], out["reasoning"], out["seed"], out["plan"]) == ("Do", "", 5, "bf16")
    out = json.loads(halfbyte("run", "--seed", 6, "--plan", "w4a8", "--think", env=env).out)
    assert (out["reasoning"], out["seed"], out["plan"]) == ("ab", 6, "w4a8")
    # HALFBYTE_KERNELS forces the kernels of inspect too, and does not ask for its table.
    assert json.loads(halfbyte("inspect", env=env).out)["kernels"] == "ref"
    r = halfbyte("run", env=clean_environment(HALFBYTE_MODEL=model, HALFBYTE_PROMPT="Hi", HALFBYTE_THREADS="many"))
    assert r.code == 2 and "--threads" in r.err


# --- the documents ---

def examples():
    """(line, commands) of each console block in docs/commands.md."""
    text = (ROOT / "docs" / "commands.md").read_text()
    for block in re.finditer(r"```console\n(.*?)```", text, re.DOTALL):
        line = text[:block.start()].count("\n") + 1
        yield pytest.param([c[2:] for c in block[1].split("\n") if c.startswith("$ ")], id=f"line{line}")


@pytest.mark.parametrize("commands", list(examples()))
def test_examples_of_the_documents_run(commands, model, tmp_path):
    env = clean_environment(MODEL=model, PATH=f"{os.path.dirname(BINARY)}:{os.environ['PATH']}")
    for command in commands:
        r = subprocess.run(["bash", "-euo", "pipefail", "-c", command], capture_output=True, text=True, env=env, cwd=tmp_path, timeout=PATIENCE,
                           stdin=subprocess.DEVNULL)
        assert r.returncode == 0, (command, r.stdout, r.stderr)
        assert r.stdout or " > " in command, command


def test_every_command_is_documented():
    text = (ROOT / "docs" / "commands.md").read_text()
    for command in COMMANDS:
        assert f"## {command}" in text and f"halfbyte {command} " in text
