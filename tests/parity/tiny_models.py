"""Tiny random models whose weights follow a rule, so that nothing but their config.json is stored (tests/parity/README.md).

Element i of tensor T of model M: v = (word_i >> 8) * 2^-23 - 1, a float32 in [-1, 1), where word_i is word i mod 4 of
Philox4x32-10 with counter (i / 4, 0, 0, 0) and key = FNV-1a 64 of "M/T". The stored value is
    norm weights 1 + 0.25 v;   biases 0.3 v;   embedding a v if tied, else 0.6 v;   lm_head 3 a v;   q_proj and k_proj 1.5 a v;   others a v
with a = float32(sqrt(3 / K)), products in float32 from the left, rounded to BF16. tiny_models.h does the same in C++.
"""

import json
import math
import pathlib
import struct
import sys

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "python"))
from halfbyte_reference.arith import F32  # noqa: E402
from halfbyte_reference.formats import bf16_decode, bf16_encode  # noqa: E402
from halfbyte_reference.rng import philox_words  # noqa: E402

TINY = pathlib.Path(__file__).resolve().parent / "tiny"


def model_names():
    return sorted(p.stem for p in TINY.glob("*.json"))


def read_config(name):
    return json.loads((TINY / f"{name}.json").read_text())


def tensor_shapes(config):
    """(name, shape) in the order in which they are written."""
    h, inter, kind = config["hidden_size"], config["intermediate_size"], config["model_type"]
    heads, kv = config["num_attention_heads"], config["num_key_value_heads"]
    d = config.get("head_dim", h // heads)
    shapes = [("model.embed_tokens.weight", (config["vocab_size"], h))]
    for i in range(config["num_hidden_layers"]):
        layer = f"model.layers.{i}"
        shapes.append((f"{layer}.input_layernorm.weight", (h,)))
        for part, n, k in (("q", heads * d, h), ("k", kv * d, h), ("v", kv * d, h), ("o", h, heads * d)):
            shapes.append((f"{layer}.self_attn.{part}_proj.weight", (n, k)))
            if part != "o" and kind == "qwen2" or config.get("attention_bias"):
                shapes.append((f"{layer}.self_attn.{part}_proj.bias", (n,)))
        if kind == "qwen3":
            shapes += [(f"{layer}.self_attn.q_norm.weight", (d,)), (f"{layer}.self_attn.k_norm.weight", (d,))]
        shapes.append((f"{layer}.post_attention_layernorm.weight", (h,)))
        for part, n, k in (("gate", inter, h), ("up", inter, h), ("down", h, inter)):
            shapes.append((f"{layer}.mlp.{part}_proj.weight", (n, k)))
            if config.get("mlp_bias"):
                shapes.append((f"{layer}.mlp.{part}_proj.bias", (n,)))
    shapes.append(("model.norm.weight", (h,)))
    if not config["tie_word_embeddings"]:
        shapes.append(("lm_head.weight", (config["vocab_size"], h)))
    return shapes


def fnv1a64(data: bytes, value=0xCBF29CE484222325):
    for byte in data:
        value = ((value ^ byte) * 0x100000001B3) & 0xFFFFFFFFFFFFFFFF
    return value


def tensor_bits(model, name, shape, tied):
    """uint16 BF16 bits of one tensor."""
    words = philox_words(fnv1a64(f"{model}/{name}".encode()), int(np.prod(shape)))
    v = (words >> 8).astype(F32) * F32(2.0**-23) - F32(1)
    if name.endswith("norm.weight"):
        x = F32(1) + F32(0.25) * v
    elif name.endswith(".bias"):
        x = F32(0.3) * v
    elif name == "model.embed_tokens.weight" and not tied:
        x = F32(0.6) * v
    else:
        gain = 3.0 if name == "lm_head.weight" else 1.5 if name.endswith(("q_proj.weight", "k_proj.weight")) else 1.0
        x = F32(gain) * F32(math.sqrt(3.0 / shape[1])) * v
    return bf16_encode(x).reshape(shape)


def read_tensors(model):
    """{name: float32 array}, as a reader of the folder sees them."""
    config = read_config(model)
    return {name: bf16_decode(tensor_bits(model, name, shape, config["tie_word_embeddings"]))
            for name, shape in tensor_shapes(config)}


def write_folder(model, folder):
    """config.json and model.safetensors; returns the FNV-1a 64 of all tensor bytes in file order."""
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    config = read_config(model)
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    header, blobs, offset, fingerprint = {}, [], 0, fnv1a64(b"")
    for name, shape in tensor_shapes(config):
        data = tensor_bits(model, name, shape, config["tie_word_embeddings"]).astype("<u2").tobytes()
        header[name] = {"dtype": "BF16", "shape": list(shape), "data_offsets": [offset, offset + len(data)]}
        offset += len(data)
        blobs.append(data)
        fingerprint = fnv1a64(data[:64] + data[-64:], fingerprint)      # ends suffice to tell rules apart
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + b"".join(blobs))
    return fingerprint
