"""The shipped model's folder: its files are those that the tree's code writes, and others read them alike."""

import json
import os
import pathlib
import struct
import subprocess

import pytest

from halfbyte import tasks
from halfbyte.reasoner import tokenizer
from halfbyte.tasks import files

ROOT = pathlib.Path(__file__).resolve().parents[2]
MODEL = ROOT / "models" / "halfbyte-reasoner"
BIN = pathlib.Path(os.environ.get("HALFBYTE_BIN", ROOT / "build" / "dev" / "bin"))


def test_tokenizer_files_are_those_of_the_code(tmp_path):
    tokenizer.write(tmp_path)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        assert (tmp_path / name).read_bytes() == (MODEL / name).read_bytes()
    generation = json.loads((MODEL / "generation_config.json").read_text())
    assert generation["eos_token_id"] == tokenizer.IDS[tokenizer.END] and generation["temperature"] == 0.6


def test_weights_have_the_promised_shapes():
    data = (MODEL / "model.safetensors").read_bytes()
    header = json.loads(data[8:8 + struct.unpack("<Q", data[:8])[0]])
    shapes = {name: t["shape"] for name, t in header.items() if name != "__metadata__"}
    assert {t["dtype"] for name, t in header.items() if name != "__metadata__"} == {"BF16"}
    assert all(size % 128 == 0 for name, shape in shapes.items() if len(shape) == 2 for size in shape)
    parameters = sum(shape[0] * (shape[1] if len(shape) == 2 else 1) for shape in shapes.values())
    assert 3_000_000 < parameters < 6_000_000


@pytest.mark.parametrize("split", tasks.SPLITS[1:])
@pytest.mark.parametrize("name", tasks.TASKS)
def test_question_files_are_what_the_generators_make(name, split):
    lines = [json.loads(line) for line in (MODEL / "questions" / f"{name}-{split}.jsonl").read_text().splitlines()]
    levels = list(tasks.TASKS[name].LEVELS)
    assert [line["level"] for line in lines] == [level for level in levels for _ in range(files.COUNTS[name])]
    assert len({line["id"] for line in lines}) == len(lines)
    for level in levels:
        mine = [line for line in lines if line["level"] == level]
        for index, question in enumerate(tasks.numbered(name, level, split, 2)):
            assert tasks.split_of(name, question.key) == split
            assert mine[index] == json.loads(json.dumps(files.line_of(question, split, index)))
    for line in lines:
        assert tasks.grade(files.read_line(line), f"answer: {line['answer']}")


def test_our_tokenizer_and_template_read_the_folder():
    program = BIN / "halfbyte"
    if not program.exists():
        pytest.skip(f"{program} is not built")
    environment = {k: v for k, v in os.environ.items() if not k.startswith("HALFBYTE_")}
    for name, module in tasks.TASKS.items():
        question = tasks.draw(tasks.Rand(name), name, list(module.LEVELS)[1], "train")
        steps, answer = tasks.solution(tasks.Rand(1), question)
        text = "".join(t for t, _ in steps) + f"answer: {answer} É <think>"
        cases = [([], text, tokenizer.encode(text)), (["--chat"], question.prompt, tokenizer.encode(tokenizer.prompt_text(question.prompt)))]
        for flags, given, ids in cases:
            done = subprocess.run([program, "tokenize", MODEL, "--json", *flags], input=given, capture_output=True, text=True,
                                  env=environment, timeout=300)
            assert done.returncode == 0, done.stderr
            assert json.loads(done.stdout)["ids"] == ids


def test_the_model_multiplies():
    """The whole way: question file, template, engine, grader. The model gets nearly all of these right."""
    program = BIN / "halfbyte"
    if not program.exists():
        pytest.skip(f"{program} is not built")
    environment = {k: v for k, v in os.environ.items() if not k.startswith("HALFBYTE_")}
    done = subprocess.run([program, "eval", MODEL, "--task", "arithmetic", "--levels", "2", "--limit", "8", "--plan", "bf16", "--json"],
                          capture_output=True, text=True, env=environment, timeout=300)
    assert done.returncode == 0, done.stderr
    out = json.loads(done.stdout)
    assert out["n"] == 8 and out["accuracy"] >= 0.75 and 80 < out["reasoning_tokens_mean"] < 300, out
