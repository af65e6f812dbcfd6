"""The scripts of reproduce/ from end to end: every row that can be made, on a tiny Qwen3 with random weights and three questions."""

import ast
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys

import numpy as np
import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "tools"))
sys.path.insert(0, str(ROOT / "reproduce"))
import tiny_chat  # noqa: E402
from conftest import BINARY, clean_environment  # noqa: E402

FOLDER = ROOT / "reproduce"
SCRIPTS = sorted(path.stem for path in FOLDER.glob("*.py") if path.stem != "tables")


def table_of(script):
    return __import__(script).TABLE


@pytest.fixture(scope="session")
def random_model(tmp_path_factory):
    """The schema of Qwen3, with one marker word in the vocabulary."""
    hidden, width, head = 128, 256, 64
    saved = tiny_chat.VOCAB
    tiny_chat.VOCAB += 1
    tiny_chat.ADDED.append("wait")
    try:
        folder = pathlib.Path(tiny_chat.write_model(tmp_path_factory.mktemp("random") / "model"))
        config = tiny_chat.config(architectures=["Qwen3ForCausalLM"], model_type="qwen3", hidden_size=hidden, intermediate_size=width,
                                  num_hidden_layers=2, head_dim=head, max_position_embeddings=4096)
        vocab = tiny_chat.VOCAB
    finally:
        tiny_chat.VOCAB = saved
        tiny_chat.ADDED.remove("wait")
    (folder / "config.json").write_text(json.dumps(config))
    random = np.random.default_rng(7)

    def weight(n, k):
        values = (random.standard_normal((n, k)) / 8).astype(np.float32)
        return (values.view(np.uint32) & 0xFFFF0000).view(np.float32)

    arrays = {"model.embed_tokens.weight": weight(vocab, hidden), "lm_head.weight": weight(vocab, hidden),
              "model.norm.weight": np.ones(hidden, np.float32)}
    for i in range(2):
        layer = f"model.layers.{i}."
        arrays |= {layer + f"{n}_layernorm.weight": np.ones(hidden, np.float32) for n in ("input", "post_attention")}
        arrays |= {layer + f"self_attn.{n}_norm.weight": np.ones(head, np.float32) for n in "qk"}
        for name, n, k in (("self_attn.q", 2 * head, hidden), ("self_attn.k", head, hidden), ("self_attn.v", head, hidden),
                           ("self_attn.o", hidden, 2 * head), ("mlp.gate", width, hidden), ("mlp.up", width, hidden), ("mlp.down", hidden, width)):
            arrays[f"{layer}{name}_proj.weight"] = weight(n, k)
    tiny_chat.write_safetensors(folder / "model.safetensors", arrays)
    return str(folder)


@pytest.fixture
def questions(tmp_path):
    path = tmp_path / "questions.jsonl"
    path.write_text("".join(json.dumps({"problem": f"What is {i}?", "answer": "7"}) + "\n" for i in range(3)))
    return path


def reproduce(script, *arguments, out):
    return subprocess.run([sys.executable, FOLDER / f"{script}.py", "--halfbyte", BINARY, "--device", "cpu", "--out", out, *map(str, arguments)],
                          capture_output=True, text=True, timeout=300, env=clean_environment())


def given(script, model, questions, tmp_path):
    """The first model, every benchmark, a few short answers."""
    table = table_of(script)
    text = tmp_path / "text.txt"
    text.write_text("The quick brown fox jumps over the lazy dog. " * 100)
    source = text if "perplexity" in script else questions
    return ["--model", f"{next(iter(table.models))}={model}", *(a for name in table.benchmarks for a in ("--questions", f"{name}={source}")),
            "--samples", 1, "--max-tokens", 6, *(() if "perplexity" in script else ("--limit", 2))]


@pytest.mark.parametrize("script", SCRIPTS)
def test_a_table_is_made_and_not_made_twice(script, random_model, questions, tmp_path):
    table, arguments = table_of(script), given(script, random_model, questions, tmp_path)
    possible = [name for name, row in table.rows.items() if not row.missing]
    done = reproduce(script, *arguments, out=tmp_path / "out")
    assert done.returncode == 0, done.stderr + done.stdout
    page = (tmp_path / "out" / table.name / "table.md").read_text()
    assert done.stdout.endswith(page) and "failed" not in page
    for name, row in table.rows.items():
        lines = [line for line in page.splitlines() if line.startswith(f"| {name}")]
        assert len(lines) >= len(table.benchmarks) or not table.benchmarks, name
        if row.missing:
            assert f"not possible yet: {name}: {row.missing}" in done.stdout and f"- {name}: {row.missing}" in page
    assert len(done.stdout.split("\nrun   ")) > len(possible) or script in ("reqat_diagnostics", "resserve_table3")
    again = reproduce(script, *arguments, out=tmp_path / "out")
    assert again.returncode == 0 and "\nrun   " not in again.stdout and again.stdout.endswith(page), again.stdout


def test_what_stands_in_a_cell(random_model, questions, tmp_path):
    """An accuracy with its interval, what it is against its reference, and the paper's figure."""
    r = reproduce("reset_accuracy", *given("reset_accuracy", random_model, questions, tmp_path), "--rows", "BF16,NVFP4", out=tmp_path)
    assert r.returncode == 0, r.stderr
    row = next(line for line in r.stdout.splitlines() if line.startswith("| NVFP4"))
    first, second = row.split(" | ")[1:3]
    assert first == "0.00 [0.00, 0.00]; tokens saved 0.00%; paper 39.6" and second == "paper 52.4"


def test_calibration_goes_into_the_row(random_model, questions, tmp_path):
    prompts = tmp_path / "prompts.txt"
    prompts.write_text("What is 1?\nWhat is 2?\n")
    r = reproduce("reset_accuracy", *given("reset_accuracy", random_model, questions, tmp_path), "--rows", "ReSET", "--prompts", prompts, out=tmp_path)
    assert r.returncode == 0, r.stderr
    record = json.loads((tmp_path / "reset_accuracy" / "calibration-R1-Qwen-7B.record").read_text())
    results = (tmp_path / "reset_accuracy" / "ReSET-AIME-120-R1-Qwen-7B.jsonl").read_text().splitlines()[0]
    policy = json.loads(results)["policy"]
    assert policy["tau0"] == pytest.approx(record["output"]["tau0"]) and policy["t_low"] == pytest.approx(0.4), "the published t_low"


def test_a_failed_calibration_fails_the_rows_that_take_it(random_model, questions, tmp_path):
    """And no other row, nor another model."""
    prompts = tmp_path / "prompts.txt"
    prompts.write_text("What is 1?\n")
    broken = shutil.copytree(random_model, tmp_path / "broken")
    halfbyte = tmp_path / "halfbyte"
    halfbyte.write_text(f'#!/bin/sh\ncase "$*" in calibrate*broken*) echo "error: no calibration today" >&2; exit 1;; esac\nexec {BINARY} "$@"\n')
    halfbyte.chmod(0o755)
    r = reproduce("reset_accuracy", *given("reset_accuracy", random_model, questions, tmp_path), "--model", f"R1-Qwen-7B={broken}", "--model",
                  f"R1-Qwen-14B={random_model}", "--rows", "BF16,ReSET", "--prompts", prompts, "--halfbyte", halfbyte, out=tmp_path)
    assert r.returncode == 1 and "Traceback" not in r.stderr, r.stderr
    assert "- ReSET, AIME-120, R1-Qwen-7B: tau0 was not calibrated: error: no calibration today\n" in r.stdout
    rows = {line.split(" | ")[0]: line.split(" | ")[1:3] for line in reversed(r.stdout.splitlines()) if line.startswith("| ")}
    first, second = rows["| ReSET"]
    assert first.startswith("failed") and second.startswith("0.00 [")
    assert all(cell.startswith("0.00 [") for cell in rows["| BF16"])


def test_a_table_says_what_its_figures_are(random_model, questions, tmp_path):
    """Draws and percent only where there are some."""
    for script, said in (("reset_perplexity", "Lee et al., arXiv 2606.13233. Perplexity; windows of 2,048 tokens; beside it the paper's figure.\n\n## WikiText-2\n"),
                         ("resserve_table3", "arXiv 2611.08713, table 3.\n\nNot possible yet:\n")):
        page = reproduce(script, out=tmp_path).stdout
        assert said in page and not any(word in page for word in ("Seed", "Percent", "samples", ", ,")), page
    page = reproduce("ctir", "--samples", 1, "--limit", 3, out=tmp_path).stdout
    assert "Seed 0, " in page and "Percent right" in page and ", at most 3 questions" in page and "## GSM8K, 1 sample a question\n" in page


def test_published_values_are_said_in_the_commands(random_model, questions, tmp_path):
    """A plan beside the weights has values of its own, and the random model's configuration is none that is recognised."""
    source = (ROOT / "src" / "model" / "published_reset.cpp").read_text()
    values = dict(re.findall(r'\{"(?:DeepSeek-R1-Distill-)?(Qwen3?-\d+B)", ([\d., f]+)\}', source))
    import tables
    assert {name.removeprefix("R1-"): f"{tau0}, {t_low}f" for name, (tau0, t_low) in tables.PUBLISHED_RESET.items()} == values
    plan = pathlib.Path(random_model) / "halfbyte_plan.json"
    plan.write_text('{"preset": "w4a4", "reset": {"tau0": 9.5, "t_low": 0.7}}')
    try:
        r = reproduce("reset_ablations", *given("reset_ablations", random_model, questions, tmp_path), "--rows", "ReSET,t_low 0.2", out=tmp_path)
    finally:
        plan.unlink()
    assert r.returncode == 0, r.stderr
    for row, t_low in (("ReSET", 0.4), ("t-low-0.2", 0.2)):
        policy = json.loads((tmp_path / "reset_ablations" / f"{row}-AIME-120-R1-Qwen-7B.jsonl").read_text().splitlines()[0])["policy"]
        assert policy["tau0"] == 0.6446 and policy["t_low"] == pytest.approx(t_low), (row, policy)


def test_files_are_hashed_once(tmp_path, monkeypatch):
    """However many steps a run has: models and question files are large."""
    import tables
    for name in ("model", "questions"):
        (tmp_path / name).write_text(name)
    read = []
    monkeypatch.setattr("builtins.open", lambda path, *more, _open=open: read.append(pathlib.Path(path).name) or _open(path, *more))
    monkeypatch.setattr(pathlib.Path, "read_bytes", lambda path: read.append(path.name) or b"")
    steps = [tables.Step(str(i), [BINARY, "eval", str(i)], str(tmp_path / "model"), tmp_path / "record", inputs=(str(tmp_path / "questions"),)) for i in range(3)]
    of = [tables.made_of(step) for step in steps]
    assert sorted(read) == ["model", "questions"]
    assert of[0]["inputs"] == of[2]["inputs"] and of[0]["command"] != of[2]["command"]


def test_a_dry_run_says_what_and_how_much(random_model, questions, tmp_path):
    r = reproduce("ctir", "--model", f"Qwen3-8B={random_model}", "--questions", f"GSM8K={questions}", "--dry-run", out=tmp_path / "out")
    assert r.returncode == 0 and not (tmp_path / "out").exists()
    possible = sum(not row.missing for row in table_of("ctir").rows.values())
    assert f"{3 * 32768:,} tokens at most: " in r.stdout and f"{possible * 3 * 32768:,} tokens at most in all" in r.stdout
    assert r.stdout.count("--questions") == possible + 1 and "not given (--model NAME=PATH): Qwen3-4B" in r.stdout


def test_a_reader_that_goes_away_is_no_traceback(random_model, questions, tmp_path):
    """`| head`: the pipe is closed before anything is written."""
    reader, writer = os.pipe()
    os.close(reader)
    with open(writer, "wb") as closed:
        done = subprocess.run([sys.executable, FOLDER / "ctir.py", "--halfbyte", BINARY, "--model", f"Qwen3-8B={random_model}", "--questions",
                               f"GSM8K={questions}", "--dry-run"], stdout=closed, stderr=subprocess.PIPE, text=True, env=clean_environment())
    assert done.returncode == 141 and done.stderr == ""


def test_one_bad_file_does_not_stop_the_rest(random_model, questions, tmp_path):
    bad = tmp_path / "bad.jsonl"
    bad.write_text("{}\n")
    r = reproduce("ctir", "--model", f"Qwen3-4B={random_model}", "--questions", f"GSM8K={bad}", "--questions", f"MATH-500={questions}", "--rows", "BF16",
                  "--limit", 1, "--max-tokens", 4, out=tmp_path)
    assert r.returncode == 1 and "failed: error: " in r.stderr and "bad.jsonl" in r.stderr
    assert "- BF16, GSM8K, Qwen3-4B: error: " in r.stdout and "| BF16 | 0.00 [0.00, 0.00] |" in r.stdout


def test_a_changed_question_file_is_not_taken_for_the_old_one(random_model, questions, tmp_path):
    arguments = ["--model", f"Qwen3-4B={random_model}", "--questions", f"GSM8K={questions}", "--rows", "BF16", "--limit", 1, "--max-tokens", 4]
    assert reproduce("ctir", *arguments, out=tmp_path).returncode == 0
    questions.write_text(questions.read_text().replace("What is 0?", "What was 0?"))
    r = reproduce("ctir", *arguments, out=tmp_path)
    assert r.returncode == 1 and "other settings" in r.stderr


def test_results_of_another_model_or_binary_are_not_mixed(random_model, questions, tmp_path):
    """Neither finished ones nor those of a run that was stopped."""
    model = shutil.copytree(random_model, tmp_path / "model")
    arguments = ["--model", f"Qwen3-4B={model}", "--questions", f"GSM8K={questions}", "--rows", "BF16", "--limit", 1, "--max-tokens", 4]
    assert reproduce("ctir", *arguments, out=tmp_path).returncode == 0
    record = tmp_path / "ctir" / "BF16-GSM8K-Qwen3-4B.record"
    first = json.loads(record.read_text())
    assert first["of"]["halfbyte"].startswith("halfbyte ")
    weights = model / "model.safetensors"
    same, other = weights.read_bytes(), bytearray(weights.read_bytes())
    other[-1] ^= 1
    for output in (first["output"], None):
        record.write_text(json.dumps(first | {"output": output}))
        weights.write_bytes(other)
        r = reproduce("ctir", *arguments, out=tmp_path)
        assert r.returncode == 1 and "made by another model (" in r.stderr, r.stderr
        weights.write_bytes(same)
    record.write_text(json.dumps({"of": first["of"] | {"halfbyte": "halfbyte 0.0.1 (commit 0000000)"}, "output": None}))
    r = reproduce("ctir", *arguments, out=tmp_path)
    assert r.returncode == 1 and "made by another halfbyte (halfbyte 0.0.1 (commit 0000000), now halfbyte " in r.stderr, r.stderr
    record.write_text(json.dumps(first))
    r = reproduce("ctir", *arguments, out=tmp_path)
    assert r.returncode == 0 and "\nhave  BF16" in r.stdout


@pytest.mark.parametrize("arguments, words", [
    (["--model", "GPT=/"], ["--model GPT=/", "Qwen3-4B"]),
    (["--model", "Qwen3-4B"], ["NAME=PATH"]),
    (["--questions", "GSM8K=/no/such/file"], ["there is no /no/such/file"]),
    (["--rows", "INT2"], ["no row INT2", "INT3"]),
    (["--prompts", "/no/such/file"], ["--prompts: there is no /no/such/file"]),
    (["--model", "Qwen3-4B=/", "--questions", "GSM8K=/", "--dry-run"], ["/: Is a directory"]),
    (["--out", "/dev/null"], ["/dev/null/ctir: Not a directory"]),
])
def test_bad_input(arguments, words, tmp_path):
    r = reproduce("ctir", *arguments, out=tmp_path)
    assert r.returncode == 2 and r.stderr.startswith("error: ") and r.stderr.count("\n") == 1, r.stderr
    for word in words:
        assert word in r.stderr


@pytest.mark.parametrize("script", SCRIPTS)
def test_figures_belong_to_the_table(script):
    table = table_of(script)
    for (row, benchmark), values in table.figures.items():
        assert row in table.rows and benchmark in table.benchmarks and len(values) == len(table.models), (row, benchmark)
    assert all(row.against in table.rows for row in table.rows.values() if row.against)
    assert f"{script}.py" in (FOLDER / "README.md").read_text() and os.access(FOLDER / f"{script}.py", os.X_OK)


def test_code_runs_only_where_it_is_allowed(tmp_path):
    """LiveCodeBench's rows, with a model that writes a program."""
    model = tiny_chat.write_model_that_says(tmp_path / "model", "```python\nprint(int(input()) ** 2)\n```")
    questions = tmp_path / "lcb.jsonl"
    questions.write_text("".join(json.dumps({"question_id": f"q{i}", "question_content": "Square it.", "starter_code": "", "metadata": "{}",
                                             "public_test_cases": json.dumps([{"input": "3", "output": str(9 + i)}])}) + "\n" for i in range(2)))
    arguments = ["--model", f"R1-Qwen-7B={model}", "--questions", f"LiveCodeBench={questions}", "--rows", "BF16", "--samples", 1, "--max-tokens", 8]
    r = reproduce("reset_accuracy", *arguments, out=tmp_path / "out")
    assert r.returncode == 1 and "not run without --allow-code: LiveCodeBench" in r.stdout and "'q0' is answered by code" in r.stderr
    r = reproduce("reset_accuracy", *arguments, "--allow-code", out=tmp_path / "out")
    if "no whole sandbox" in r.stderr:
        pytest.skip(r.stderr)
    assert r.returncode == 0 and "| BF16 | 50.00 [" in r.stdout, r.stderr
    assert "without --allow-code" not in r.stdout
    r = reproduce("reset_accuracy", *arguments, "--allow-code", "--weak-sandbox", "--python", "no-such-python", "--dry-run", out=tmp_path / "out")
    assert "--allow-code --weak-sandbox --python no-such-python" in r.stdout


def test_only_the_standard_library():
    for path in FOLDER.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            names = [a.name for a in node.names] if isinstance(node, ast.Import) else [node.module] if isinstance(node, ast.ImportFrom) else []
            assert all(n.split(".")[0] in sys.stdlib_module_names or (FOLDER / f"{n}.py").exists() for n in names), (path, names)
