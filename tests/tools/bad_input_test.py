"""Bad input: one clear line on stderr, exit code 2, nothing on stdout, nothing half-written."""

import json
import os
import pathlib
import shutil
import signal
import struct
import subprocess

import numpy as np
import pytest
import tiny_chat
from conftest import BINARY, PATIENCE, Result, clean_environment, start_blocked

COMMANDS = ["run", "inspect", "bench"]


def refused(r, *words):
    """Exit code 2 and one line that has all the words."""
    assert r.code == 2, (r.code, r.out, r.err)
    assert r.out == ""
    lines = r.err.rstrip("\n").split("\n")
    assert len(lines) == 1 and lines[0].startswith("error: "), r.err
    for word in words:
        assert str(word) in lines[0], f"{word!r} is not in {lines[0]!r}"


def run_args(command, path):
    return [command, path] + (["Hi"] if command == "run" else [])


@pytest.fixture
def copy(model, tmp_path):
    """A copy of the tiny model to break."""
    return pathlib.Path(shutil.copytree(model, tmp_path / "broken"))


@pytest.mark.parametrize("command", COMMANDS)
def test_missing_folder(halfbyte, tmp_path, command):
    refused(halfbyte(*run_args(command, tmp_path / "nowhere")), tmp_path / "nowhere")


@pytest.mark.parametrize("command", COMMANDS)
def test_wrong_folder_lists_what_was_looked_for(halfbyte, tmp_path, command):
    (tmp_path / "notes.txt").write_text("x")
    refused(halfbyte(*run_args(command, tmp_path)), "tokenizer.json" if command == "run" else "model.safetensors")


def test_devices(halfbyte, model):
    refused(halfbyte("run", model, "Hi", "--device", "gpu"), "--device", "gpu", "auto, cpu or cuda")
    here = halfbyte("inspect", "--devices")
    assert here.code == 0 and here.out.startswith("cpu: "), here.out
    if "without CUDA" in here.out:
        refused(halfbyte("run", model, "Hi", "--device", "cuda"), "without CUDA", "--device cpu")
        assert halfbyte("run", model, "Hi", "--device", "auto", "--max-tokens", "2").code == 0


def test_truncated_weights(halfbyte, copy):
    file = copy / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-100])
    for command in COMMANDS:
        refused(halfbyte(*run_args(command, copy)), "model.safetensors")
    file.write_bytes(b"\x05")
    refused(halfbyte("run", copy, "Hi"), "model.safetensors")


def test_corrupt_header(halfbyte, copy):
    file = copy / "model.safetensors"
    data = bytearray(file.read_bytes())
    data[9] = ord("!")
    file.write_bytes(data)
    refused(halfbyte("run", copy, "Hi"), "model.safetensors")


def test_corrupt_json_files(halfbyte, copy):
    for name in ("config.json", "tokenizer.json", "tokenizer_config.json"):
        file = copy / name
        good = file.read_text()
        file.write_text(good[:-5])
        refused(halfbyte("run", copy, "Hi"), name)
        file.write_text(good)
    assert halfbyte("run", copy, "Hi").code == 0


LFS_POINTER = "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345\n"


@pytest.mark.parametrize("name", ["config.json", "tokenizer.json", "tokenizer_config.json", "model.safetensors"])
def test_what_a_download_leaves_in_place_of_a_file(halfbyte, copy, name):
    (copy / name).write_text(LFS_POINTER)
    refused(halfbyte("run", copy, "Hi"), name, "is a Git LFS pointer", "git lfs pull")
    (copy / name).write_text("<!DOCTYPE html><html><body>Sign in</body></html>")
    refused(halfbyte("run", copy, "Hi"), name, "is a web page")


def test_gguf_files_that_are_none(halfbyte, tmp_path):
    file = tmp_path / "m.gguf"
    for text, words in [(LFS_POINTER, "is a Git LFS pointer"), ("", "is empty"), ("GGML", "starts with 'GGML'")]:
        file.write_text(text)
        refused(halfbyte("inspect", file), file, words)


def write_vocabulary(path):
    """A GGUF file with a tokenizer and nothing else, as llama.cpp keeps them for its tests."""
    def text(value):
        return struct.pack("<Q", len(value.encode())) + value.encode()

    letters = [chr(b) if 33 <= b < 127 else chr(256 + i) for i, b in enumerate(range(256))]
    facts = [("general.architecture", 8, text("llama")), ("tokenizer.ggml.model", 8, text("gpt2")), ("tokenizer.ggml.pre", 8, text("smollm")),
             ("tokenizer.ggml.tokens", 9, struct.pack("<IQ", 8, 258) + b"".join(map(text, ["<|end|>", *letters, "ab"]))),
             ("tokenizer.ggml.token_type", 9, struct.pack("<IQ", 5, 258) + struct.pack("<258i", 3, *[1] * 257)),
             ("tokenizer.ggml.merges", 9, struct.pack("<IQ", 8, 1) + text("a b")), ("tokenizer.ggml.eos_token_id", 4, struct.pack("<I", 0))]
    path.write_bytes(b"GGUF" + struct.pack("<IQQ", 3, 0, len(facts)) + b"".join(text(key) + struct.pack("<I", kind) + value for key, kind, value in facts))
    return path


@pytest.mark.parametrize("command", [["run", "FILE", "Hi"], ["run", "FILE", "--raw", "Hi"], ["trace", "FILE", "Hi", "--jsonl", "OUT"], ["eval", "FILE", "--questions", "Q"]])
def test_a_vocabulary_is_no_model_and_no_prompt_would_help(halfbyte, tmp_path, command):
    """It has no chat template either, but --raw is no way out."""
    file, questions = write_vocabulary(tmp_path / "vocabulary.gguf"), tmp_path / "q.jsonl"
    questions.write_text('{"id": "1", "task": "t", "prompt": "p", "answer": "7"}\n')
    r = halfbyte(*[{"FILE": file, "Q": questions, "OUT": tmp_path / "out"}.get(word, word) for word in command])
    refused(r, file, "holds no tensors")
    assert "--raw" not in r.err


@pytest.mark.parametrize("name", ["model.safetensors", "model.safetensors.index.json"])
def test_names_that_hold_no_weights(halfbyte, copy, name):
    (copy / "model.safetensors").unlink()
    file = copy / name
    file.symlink_to("../blobs/0123")  # half a cache of the hub
    refused(halfbyte("inspect", copy), file, "is a link to '../blobs/0123'", "download the model again")
    file.unlink()
    file.symlink_to(name)
    refused(halfbyte("inspect", copy), file, "is a link to")
    file.unlink()
    os.mkfifo(file)
    refused(halfbyte("inspect", copy), file, "is not a regular file")
    file.unlink()
    file.mkdir()
    refused(halfbyte("inspect", copy), file, "is not a regular file")


def test_tokenizers_that_cannot_be_used(halfbyte, copy):
    file = copy / "tokenizer.json"
    good = json.loads(file.read_text())

    def with_model(**changes):
        file.write_text(json.dumps(dict(good, model=dict(good["model"], **changes))))
        return halfbyte("run", copy, "Hi")
    r = with_model(merges=["a b c"])
    refused(r, "merges[0]", "expected two tokens with a space between")
    assert r.err.count("tokenizer.json") == 1
    refused(with_model(vocab={"hello": 0}), "no token is a single byte")
    refused(with_model(byte_fallback=True), "pre_tokenizer", "found 'ByteLevel'", "for a vocabulary with byte_fallback")
    file.unlink()
    (copy / "tokenizer.model").write_bytes(b"\x0a\x0e")
    refused(halfbyte("run", copy, "Hi"), "has no tokenizer.json; there: ", "tokenizer.model", "save the tokenizer in the fast format")


def test_unknown_and_missing_tensors(halfbyte, copy):
    arrays = tiny_chat.tensors()
    tiny_chat.write_safetensors(copy / "model.safetensors", arrays | {"model.layers.0.router.weight": np.zeros((2, 2), np.float32)})
    refused(halfbyte("run", copy, "Hi"), "model.layers.0.router.weight")
    del arrays["model.layers.0.mlp.up_proj.weight"]
    tiny_chat.write_safetensors(copy / "model.safetensors", arrays)
    refused(halfbyte("run", copy, "Hi"), "up_proj")


def test_misshapen_tensor(halfbyte, copy):
    arrays = tiny_chat.tensors()
    arrays["model.layers.0.mlp.up_proj.weight"] = np.zeros((31, tiny_chat.HIDDEN), np.float32)
    tiny_chat.write_safetensors(copy / "model.safetensors", arrays)
    refused(halfbyte("run", copy, "Hi"), "up_proj", "[31, 272]")


def test_weights_that_are_not_finite(halfbyte, copy):
    arrays = tiny_chat.tensors()
    arrays["model.layers.0.mlp.up_proj.weight"][3, 4] = float("nan")
    tiny_chat.write_safetensors(copy / "model.safetensors", arrays)
    refused(halfbyte("run", copy, "Hi"), "up_proj")


def test_nan_scales(halfbyte, model, tmp_path):
    out = tmp_path / "nvfp4"
    assert halfbyte("quantize", model, "-o", out).code == 0
    file = next(out.glob("*.safetensors"))
    data = bytearray(file.read_bytes())
    size = struct.unpack("<Q", data[:8])[0]
    header = json.loads(bytes(data[8:8 + size]))
    name = "model.layers.0.mlp.up_proj.weight_scale"
    codes = header["model.layers.0.mlp.up_proj.weight"]["data_offsets"][0]
    data[8 + size + header[name]["data_offsets"][0]] = 0x7F  # NaN in E4M3
    data[8 + size + codes] = 0x22
    file.write_bytes(data)
    refused(halfbyte("run", out, "Hi"), file.name, "NaN", "up_proj")


def test_unsupported_architecture(halfbyte, tmp_path):
    other = tiny_chat.write_model(tmp_path / "m", model_type="mamba", architectures=["MambaForCausalLM"])
    for command in COMMANDS:
        refused(halfbyte(*run_args(command, other)), "MambaForCausalLM", "llama", "qwen2", "qwen3")


def test_prompt_longer_than_the_context(halfbyte, model):
    refused(halfbyte("run", model, "x" * 100, "--ctx", "64"), "64", "prompt has 1")
    refused(halfbyte("run", model, "Hi", "--ctx", "64", "--max-tokens", "1K"), "1024", "64")
    refused(halfbyte("run", model, "Hi", "--ctx", "2M"), 2 << 20, 1 << 20)


def test_prompt_that_is_not_utf8(halfbyte, model):
    r = subprocess.run([BINARY, "run", model, b"ab\xff"], capture_output=True, env=clean_environment(), stdin=subprocess.DEVNULL)
    assert r.returncode == 2 and b"not valid UTF-8: byte 2 is 0xff" in r.stderr and r.stdout == b""
    r = subprocess.run([BINARY, "run", model], input=b"\xc3\x28", capture_output=True, env=clean_environment())
    assert r.returncode == 2 and b"UTF-8" in r.stderr


def test_not_enough_memory_is_said_before_the_start(halfbyte, tmp_path):
    other = tiny_chat.write_model(tmp_path / "m", max_position_embeddings=1 << 32)
    refused(halfbyte("run", other, "Hi", "--ctx", "4G"), "256 GiB", "available")


def test_empty_prompt(halfbyte, model):
    refused(halfbyte("run", model, stdin=""), "stdin is empty")
    refused(halfbyte("run", model, stdin="\n"), "stdin is empty")


def alone(tmp_path):
    """A way to run the binary from a folder where no model lies."""
    copy = tmp_path / "a" / "b" / "c" / "d" / "halfbyte"
    copy.parent.mkdir(parents=True)
    shutil.copy2(BINARY, copy)
    env = clean_environment(XDG_CACHE_HOME=str(tmp_path))

    def run(*args, stdin=""):
        return Result(subprocess.run([copy, *args], input=stdin, capture_output=True, text=True, timeout=PATIENCE, env=env))
    return run


def test_no_model(halfbyte, tmp_path):
    run = alone(tmp_path)
    refused(run("run", "-p", "Hi"), "scripts/get-model smollm2")
    refused(run("inspect"), "scripts/get-model smollm2")
    refused(run("run", "Why is the sky blue?", stdin="x"), "--prompt")


def test_default_model_is_the_shipped_one(halfbyte):
    r = halfbyte("tokenize", "--text", "find 4*3", "--json")
    assert r.code == 0 and json.loads(r.out)["pieces"] == ["find", " ", "4", "*", "3"]


def test_without_it_the_default_model_is_the_cached_one(smollm2, tmp_path):
    models = tmp_path / "halfbyte" / "models"
    models.mkdir(parents=True)
    os.symlink(smollm2, models / "SmolLM2-135M-Instruct.Q4_1.gguf")
    r = alone(tmp_path)("tokenize", "--text", "hello", "--json")
    assert r.code == 0 and json.loads(r.out)["pieces"] == ["hello"]


def test_no_chat_template(halfbyte, tmp_path):
    other = tiny_chat.write_model(tmp_path / "m", template=None)
    refused(halfbyte("run", other, "Hi"), "no chat template", "--raw")
    assert halfbyte("run", other, "x", "--raw").out == "éw\n"


def test_broken_chat_template(halfbyte, tmp_path):
    other = tiny_chat.write_model(tmp_path / "m", template="a\n{{ messages[0].content | urlencode }}")
    refused(halfbyte("run", other, "Hi"), "chat template: 2:26", "urlencode", "with --raw")
    other = tiny_chat.write_model(tmp_path / "m2", template="{% if %}")
    refused(halfbyte("run", other, "Hi"), "chat template: 1:7")
    other = tiny_chat.write_model(tmp_path / "m3", template="{{ raise_exception('only tools') }}")
    refused(halfbyte("run", other, "Hi"), "only tools")


def test_thinking_switch_without_one(halfbyte, tmp_path):
    other = tiny_chat.write_model(tmp_path / "m", template="{{ messages[0].content }}")
    refused(halfbyte("run", other, "Hi", "--no-think"), "no switch for thinking")


@pytest.mark.parametrize("args, words", [
    (["run", "MODEL", "Hi", "--nothing"], ["--nothing", "halfbyte run --help"]),
    (["walk"], ["walk", "run, inspect"]),
    ([], ["halfbyte --help"]),
    (["run", "MODEL", "Hi", "--temperature", "warm"], ["--temperature", "warm"]),
    (["run", "MODEL", "Hi", "--temperature", "-1"], ["temperature"]),
    (["run", "MODEL", "Hi", "--top-p", "3"], ["--top-p: found '3'"]),
    (["run", "MODEL", "Hi", "--ctx", "12Q"], ["--ctx", "12Q"]),
    (["run", "MODEL", "Hi", "--max-tokens", "-5"], ["--max-tokens"]),
    (["run", "MODEL", "Hi", "--plan", "w2a2"], ["w2a2", "w4a16"]),
    (["run", "MODEL", "Hi", "--kernels", "sse"], ["sse", "ref", "ring, stages, portable"]),
    (["run", "MODEL", "Hi", "--kernels", "stages", "--device", "cpu"], ["--kernels is 'stages'", "--device cuda"]),
    (["run", "MODEL", "Hi", "--threads", "-2"], ["--threads"]),
    (["run", "MODEL", "Hi", "--stop", ""], ["stop"]),
    (["run", "MODEL", "Hi", "--raw", "--no-think"], ["--raw"]),
    (["inspect", "MODEL", "--fit", "--batch", "0"], ["--batch"]),
    (["inspect", "MODEL", "--fit", "--ctx", "2M"], ["--ctx"]),
    (["bench", "MODEL", "--prompt-tokens", "0"], ["--prompt-tokens"]),
    (["bench", "--synthetic", "gpt-9"], ["gpt-9", "tiny"]),
    (["bench", "MODEL", "--synthetic", "tiny"], ["--synthetic"]),
    (["quantize", "MODEL"], ["--out"]),
    (["quantize", "MODEL", "-o", "OUT", "--recipe", "magic"], ["magic", "rtn"]),
    (["quantize", "MODEL", "-o", "OUT", "--shard-size", "0"], ["--shard-size"]),
    (["tokenize", "MODEL", "x", "--user", "--chat"], ["--chat"]),
    (["calibrate", "reset", "MODEL", "--prompts", "OUT", "--t-low", "200"], ["--t-low", "200"]),
    (["calibrate", "a\nb", "MODEL", "--prompts", "OUT"], ["'a\\nb'", "expected reset"]),
])
def test_bad_flags(halfbyte, model, tmp_path, args, words):
    r = halfbyte(*[model if a == "MODEL" else str(tmp_path / "out") if a == "OUT" else a for a in args])
    refused(r, *words)
    assert not (tmp_path / "out").exists()


def test_quantize_does_not_touch_a_folder_that_is_there(halfbyte, model, tmp_path):
    out = tmp_path / "out"
    out.mkdir()
    (out / "thesis.txt").write_text("x")
    refused(halfbyte("quantize", model, "-o", out), out)
    refused(halfbyte("quantize", model, "-o", out, "--force"), out)
    assert [p.name for p in out.iterdir()] == ["thesis.txt"]


@pytest.mark.parametrize("name", ["config.json", "generation_config.json", "hf_quant_config.json", "halfbyte_plan.json", "tokenizer.json",
                                  "tokenizer_config.json", "special_tokens_map.json", "model.safetensors",
                                  "model.safetensors.index.json"])
def test_a_broken_file_is_named_with_its_folder(halfbyte, tmp_path, name):
    folder = pathlib.Path(tiny_chat.write_model(tmp_path / "m"))
    if name.endswith("index.json"):
        (folder / "model.safetensors").rename(folder / "model-00001-of-00001.safetensors")
    (folder / name).write_text("{")
    refused(halfbyte("run", folder, "Hi"), folder / name)


def test_two_quantize_into_one_folder(halfbyte, tmp_path):
    folder, out = tiny_chat.write_wide_model(tmp_path / "big"), tmp_path / "out"
    first = start_blocked("quantize", folder, "-o", out)
    assert first.stdout.read1(4096)
    refused(halfbyte("quantize", folder, "-o", out), out, "another halfbyte quantize is writing it")
    refused(halfbyte("quantize", folder, "-o", out, "--force"), out, "another halfbyte quantize is writing it")
    first.communicate(timeout=PATIENCE)
    assert first.returncode == 0
    assert halfbyte("inspect", out).code == 0 and sorted(p.name for p in tmp_path.iterdir()) == ["big", "out"]


def test_interrupted_quantize_leaves_nothing(tmp_path):
    folder = tiny_chat.write_wide_model(tmp_path / "big")
    process = start_blocked("quantize", folder, "-o", tmp_path / "out", "--threads", "1")
    assert process.stdout.read1(4096)  # the first tensor's line
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=PATIENCE)
    assert (process.returncode, err) == (130, b"")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["big"]
