"""Training: packed documents, the number formats against the definition, the network against transformers. Mostly PyTorch."""

import itertools
import json
import pathlib
import re
import shlex
import sys

import numpy as np
import pytest

from halfbyte import tasks
from halfbyte.reasoner import tokenizer
from halfbyte.reqat import data
from halfbyte.tasks import retrieval
from halfbyte_reference import blocks, formats, kv

ROOT = pathlib.Path(__file__).resolve().parents[2]
TOKENS = 5000


@pytest.mark.parametrize("kind", data.LONGEST)
def test_batches_hold_whole_documents(kind):
    tokens, offsets = data.shard(3, kind, 2, TOKENS)
    start, end = tokenizer.encode("<|im_start|>user\n"), tokenizer.encode("<|im_end|>\n")
    again = data.shard(3, kind, 2, TOKENS)
    assert np.array_equal(tokens, again[0]) and np.array_equal(offsets, again[1])
    for row, edges in zip(tokens & (data.LEARN - 1), offsets):
        inside = edges[edges < TOKENS]
        assert edges[0] == 0 and np.all(np.diff(edges) >= 0) and edges[-1] == TOKENS
        for begin, stop in zip(inside, [*inside[1:]]):
            assert row[begin:begin + len(start)].tolist() == start and row[stop - len(end):stop].tolist() == end
            assert stop - begin <= data.LONGEST[kind]
        assert not row[inside[-1]:].any(), "the last document is padding"
    learnt = (tokens & data.LEARN) > 0
    assert .1 < learnt.mean() < .8


def test_questions_about_one_list_are_of_the_training_split():
    rand, asked = tasks.Rand(2), 0
    for _ in range(40):
        text = tokenizer.decode((data.document(rand, "retrieval", 200) & (data.LEARN - 1)).tolist())
        values = dict(re.findall(r"^([a-z]{2})=(\d+)$", text.split("\nsum of")[0], re.M))
        for keys, answer in re.findall(r"sum of ([a-z, ]+)<.*?answer: (\d+)<", text, re.S):
            needles = [(k, int(values[k])) for k in keys.split(", ")]
            assert sum(v for _, v in needles) == int(answer)
            assert tasks.split_of("retrieval", retrieval.key(retrieval.Haystack(needles, 0))) == "train"
            asked += 1
    assert asked > 60


def test_shards_are_written_in_the_order_in_which_they_are_read():
    order = list(itertools.islice(data.shards_in_order(12), 80))
    assert order[:4] == [("warm", i) for i in range(4)] and len(set(order)) == 80
    for kind in data.LONGEST:
        indices = [i for k, i in order if k == kind]
        assert indices == list(range(len(indices))) and indices


def test_training_documents_are_of_the_training_split():
    rand, seen = tasks.Rand(9), set()
    for _ in range(200):
        question = tasks.draw_with(rand, "arithmetic", ("*", 2, 1), "train")
        seen.add(question.key)
    assert all(tasks.split_of("arithmetic", key) == "train" for key in seen)
    text = tokenizer.decode((data.document(rand, "word", 3) & (data.LEARN - 1)).tolist())
    assert text.startswith("<|im_start|>user\n") and "<think>\n" in text and text.endswith("<|im_end|>\n")


@pytest.fixture(scope="module")
def values():
    rand = np.random.default_rng(0)
    x = (rand.standard_normal((64, 256)) * np.exp(rand.standard_normal((64, 1)) * 3)).astype(np.float32)
    x[3], x[5, :32], x[7, 17], x[9] = 0, 0, 3e3, np.round(x[9] * 4) / 8        # zeros, an outlier, ties
    x[:, 40] *= 50
    return x


def test_fake_quantisation_is_the_definition(values):
    torch = pytest.importorskip("torch")
    from halfbyte.reqat import fake_quant
    t = torch.from_numpy(values)
    codes, scale = blocks.quantise_fp8_rows(values)
    expected = {
        "nvfp4 weight": (fake_quant.nvfp4_weight(t), blocks.quantise_nvfp4_weight(values).dequantise()),
        "nvfp4": (fake_quant.nvfp4(t), blocks.quantise_nvfp4(values, blocks.row_alpha(values)).dequantise()),
        "mxfp4": (fake_quant.mxfp4(t), blocks.quantise_mxfp4(values).dequantise()),
        "mxfp8": (fake_quant.mxfp8(t), blocks.quantise_mxfp8(values).dequantise()),
        "fp8": (fake_quant.fp8_rows(t), formats.e4m3_decode(codes) * scale[:, None]),
        "bf16": (fake_quant.bf16(t), formats.bf16_round(values)),
    }
    for name in fake_quant.KV:
        expected[f"kv {name}"] = fake_quant.KV[name](t), kv.read_kv(kv.write_kv(values, name))
    for name, (found, wanted) in expected.items():
        assert np.array_equal(found.numpy(), wanted), name


@pytest.fixture(scope="module", params=["qwen3", "qwen2"])
def network(request):
    torch = pytest.importorskip("torch")
    from halfbyte.reqat.network import Config, Network
    torch.manual_seed(1)
    made = Network(Config(architecture=request.param, layers=2))
    for p in made.parameters():
        p.data = (p.data + torch.randn_like(p) * .1 * (p.dim() == 1)).to(torch.bfloat16).float()
    return made.requires_grad_(False)


def test_network_is_that_of_transformers(network, tmp_path):
    transformers, torch = pytest.importorskip("transformers"), pytest.importorskip("torch")
    from safetensors.torch import save_file
    from halfbyte.reqat.network import from_hf, to_hf
    tensors = to_hf(network.config, network.state_dict())
    save_file(tensors, tmp_path / "model.safetensors", metadata={"format": "pt"})
    (tmp_path / "config.json").write_text(json.dumps(network.config.hf_config()))
    theirs = transformers.AutoModelForCausalLM.from_pretrained(tmp_path, dtype=torch.float32)
    ids = torch.randint(0, 512, (2, 33), generator=torch.Generator().manual_seed(2))
    with torch.no_grad():
        assert torch.allclose(network.logits(ids), theirs(ids).logits, atol=1e-5)
    back = from_hf(network.config, tensors)
    assert all(torch.equal(back[name], t) for name, t in network.state_dict().items())


def test_documents_do_not_see_each_other(network):
    torch = pytest.importorskip("torch")
    ids = torch.randint(0, 512, (30,), generator=torch.Generator().manual_seed(3))
    positions = torch.cat([torch.arange(12), torch.arange(18)])
    offsets = torch.tensor([0, 12, 30, 30], dtype=torch.int32)
    both = network(ids, positions, offsets, 30, torch.float32)
    alone = network(ids[12:], positions[12:], torch.tensor([0, 18], dtype=torch.int32), 18, torch.float32)
    assert torch.allclose(both[12:], alone, atol=1e-5)


def test_the_sampler_follows_the_network(network):
    """Prefill and steps under a plan that rounds little give the network's own distribution: the greedy text is the same."""
    torch = pytest.importorskip("torch")
    from halfbyte.reqat import generate
    model = generate.Model(network.config, network.state_dict(), generate.Plan(), "cpu", 64)
    for name in ("activation", "kv", "activation_of_head"):
        setattr(model, name, lambda x: x)
    prompts = [[5, 9, 200, 31], [17, 4, 300, 301, 302, 80, 11]]
    ids, entropies = generate.generate(model, prompts, 6, seed=1, end=-1, temperature=1e-4, top_p=1)
    for prompt, row, entropy in zip(prompts, ids, entropies):
        text = list(prompt)
        for token, h in zip(row, entropy):
            logits = network.logits(torch.tensor([text]))[0, -1]
            p = logits.softmax(-1)
            assert token == int(logits.argmax()) and abs(float(-(p * p.log()).sum()) - h) < 1e-3
            text.append(int(token))


def test_attention_check_can_fail(monkeypatch):
    torch = pytest.importorskip("torch")
    from halfbyte.reqat import network as module
    module.check_attention("cpu")
    plain, calls = module.attend, []

    def broken(*arguments):
        calls.append(1)
        return plain(*arguments) * (1.1 if len(calls) > 1 else 1)
    monkeypatch.setattr(module, "attend", broken)
    with pytest.raises(RuntimeError, match="off by"):
        module.check_attention("cpu")
    assert torch


@pytest.mark.parametrize("change, words", [
    ([], ["no time left for bf16\n", "no time left for w4a4\n"]),
    (["--plans", "bf16,w4a4"], ["--plans: there is no 'bf16,w4a4', only 'bf16', "]),
    (["--tasks", "words"], ["--tasks: there is no 'words', only "]),
])
def test_measures_usage_line_and_unknown_names(change, words, tmp_path, monkeypatch, capsys):
    pytest.importorskip("torch")
    from halfbyte.reqat import measure
    usage = shlex.split(measure.__doc__.split("python -m halfbyte.reqat.measure ")[1].split("\n")[0])
    assert usage[:2] == ["MODEL", "OUT"]
    monkeypatch.setattr(sys, "argv", ["measure", str(ROOT / "models" / "halfbyte-reasoner"), str(tmp_path), *usage[2:], "--scale", "0",
                                      "--tasks", "word", "--budget", "-1", *change])
    if change:
        with pytest.raises(SystemExit, match="2"):
            measure.main()
    else:
        measure.main()
    out, err = capsys.readouterr()
    assert all(word in (err if change else out) for word in words), out + err
