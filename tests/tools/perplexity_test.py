"""halfbyte eval --task perplexity: the same figure as a transformers run, on the start of WikiText-2 with SmolLM2."""

import json
import os
import pathlib

import pytest

DATA = pathlib.Path(os.environ.get("HALFBYTE_SHARED", pathlib.Path(__file__).resolve().parents[3] / "shared")) / "data"
WINDOW, WINDOWS = 2048, 1  # docs/evaluation.md has the figures of two


@pytest.fixture
def text(tmp_path):
    source = DATA / "wikitext2" / "wiki.test.raw"
    if not source.exists():
        pytest.skip(f"{source} is not there")
    path = tmp_path / "start.raw"
    # SmolLM2 takes about 4.5 characters a token.
    path.write_text(source.read_text(encoding="utf-8")[:WINDOW * (WINDOWS + 1) * 4], encoding="utf-8")
    return path


def test_perplexity_is_that_of_transformers(halfbyte, smollm2, text):
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    for package in ("gguf", "accelerate"):             # with which transformers reads the file
        pytest.importorskip(package)
    r = halfbyte("eval", smollm2, "--task", "perplexity", "--text", text, "--window", WINDOW, "--plan", "f32", "--json", timeout=600)
    assert r.code == 0, r.err
    found = json.loads(r.out)
    folder, name = os.path.split(smollm2)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder, gguf_file=name)
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, gguf_file=name, dtype=torch.float32)
    ids = tokenizer(text.read_text(encoding="utf-8"), add_special_tokens=False).input_ids
    windows = torch.tensor(ids[:len(ids) // WINDOW * WINDOW]).view(-1, WINDOW)
    with torch.no_grad():
        nats = [float(model(w[None], labels=w[None]).loss) for w in windows]
    expected = float(torch.tensor(nats).mean().exp())
    assert found["windows"] == len(windows) >= WINDOWS and found["tokens"] == len(windows) * (WINDOW - 1)
    assert abs(found["perplexity"] / expected - 1) < 1e-3, (found["perplexity"], expected)


def test_perplexity_needs_a_text_and_a_whole_window(halfbyte, model, tmp_path):
    assert "--text" in halfbyte("eval", model, "--task", "perplexity").err
    short = tmp_path / "short.txt"
    short.write_text("k j")
    r = halfbyte("eval", model, "--task", "perplexity", "--text", short, "--window", "64")
    assert r.code == 2 and "--text" in r.err and "less than one window of 64" in r.err
    short.write_text("kj" * 200)
    r = halfbyte("eval", model, "--task", "perplexity", "--text", short, "--window", "64", "--json")
    assert r.code == 0, r.err
    out = json.loads(r.out)
    assert out["windows"] == 6 and out["tokens"] == 6 * 63 and out["perplexity"] > 1
