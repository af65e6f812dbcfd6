"""A tiny model whose answers are known: after each token it says the next one of a fixed chain, whatever came before.

One layer that adds nothing, an embedding that is one-hot, a head with one entry a row: greedy decoding follows NEXT. The
tokenizer has the 256 bytes and a few added tokens, the template is ChatML with a switch for thinking. So every command can
be run from end to end with no download, and its output checked to the byte."""

import json
import pathlib
import struct

import numpy as np

SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
ADDED = SPECIAL + ["<think>", "</think>"]
VOCAB = 256 + len(ADDED)
HIDDEN = 272  # a multiple of 16, at least VOCAB

# "\n" ends the template's prompt. With thinking: <think>ab</think>Done. Without: Done. "z" and "y" never end.
CHAINS = [["\n", "<think>", "a", "b", "</think>", "D", "o", "n", "e", "<|im_end|>"], ["z", "y", "z"], ["x", "é", "w", "<|im_end|>"]]

TEMPLATE = (
    "{%- for message in messages %}{{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' }}{%- endfor %}"
    "{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}"
    "{%- if enable_thinking is defined and enable_thinking is false %}{{- '<think></think>' }}{%- endif %}{%- endif %}")


def byte_alphabet():
    """GPT-2's printable stand-in for each byte."""
    keep = list(range(33, 127)) + list(range(161, 173)) + list(range(174, 256))
    out, n = {}, 0
    for b in range(256):
        if b in keep:
            out[b] = chr(b)
        else:
            out[b] = chr(256 + n)
            n += 1
    return out


def token_ids():
    """Ids of a chain's entries: an added token, or the bytes of a text."""
    ids = {text: 256 + i for i, text in enumerate(ADDED)}
    return lambda text: [ids[text]] if text in ids else list(text.encode())


def next_token():
    ids = token_ids()
    table = {}
    for chain in CHAINS:
        flat = [i for text in chain for i in ids(text)]
        table.update(zip(flat, flat[1:]))
    return table


def tokenizer_json(template_tokens=ADDED):
    alphabet = byte_alphabet()
    vocab = {alphabet[b]: b for b in range(256)}
    added = [{"id": 256 + i, "content": text, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
              "special": text in SPECIAL} for i, text in enumerate(template_tokens)]
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    return {"version": "1.0", "truncation": None, "padding": None, "added_tokens": added, "normalizer": None,
            "pre_tokenizer": byte_level, "post_processor": None, "decoder": byte_level,
            "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
                      "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False, "vocab": vocab, "merges": []}}


def bf16(values):
    """Bits of float32 values that BF16 holds exactly."""
    bits = np.asarray(values, dtype=np.float32).view(np.uint32)
    assert not (bits & 0xFFFF).any()
    return (bits >> 16).astype(np.uint16)


def tensors():
    embed = np.zeros((VOCAB, HIDDEN), np.float32)
    embed[np.arange(VOCAB), np.arange(VOCAB)] = 1
    head = np.zeros((VOCAB, HIDDEN), np.float32)
    for current, following in next_token().items():
        head[following, current] = 1
    layer = "model.layers.0."
    ones, zeros = np.ones(HIDDEN, np.float32), lambda n, k: np.zeros((n, k), np.float32)
    return {
        "model.embed_tokens.weight": embed, "lm_head.weight": head, "model.norm.weight": ones,
        layer + "input_layernorm.weight": ones, layer + "post_attention_layernorm.weight": ones,
        layer + "self_attn.q_proj.weight": zeros(32, HIDDEN), layer + "self_attn.k_proj.weight": zeros(16, HIDDEN),
        layer + "self_attn.v_proj.weight": zeros(16, HIDDEN), layer + "self_attn.o_proj.weight": zeros(HIDDEN, 32),
        layer + "mlp.gate_proj.weight": zeros(32, HIDDEN), layer + "mlp.up_proj.weight": zeros(32, HIDDEN),
        layer + "mlp.down_proj.weight": zeros(HIDDEN, 32),
    }


def write_safetensors(path, arrays, metadata=None):
    header, offset = {}, 0
    for name, array in arrays.items():
        data = bf16(array)
        header[name] = {"dtype": "BF16", "shape": list(array.shape), "data_offsets": [offset, offset + data.nbytes]}
        offset += data.nbytes
    if metadata:
        header["__metadata__"] = metadata
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as out:
        out.write(struct.pack("<Q", len(text)) + text)
        for array in arrays.values():
            out.write(bf16(array).tobytes())


def config(**changes):
    out = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": HIDDEN, "intermediate_size": 32,
           "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 16, "vocab_size": VOCAB,
           "max_position_embeddings": 1 << 20, "rms_norm_eps": 1e-6, "hidden_act": "silu", "tie_word_embeddings": False,
           "attention_bias": False, "mlp_bias": False, "rope_theta": 10000.0, "rope_scaling": None, "torch_dtype": "bfloat16",
           "eos_token_id": 256 + ADDED.index("<|im_end|>")}
    out.update(changes)
    return out


def write_model(folder, generation=None, template=TEMPLATE, **config_changes):
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config(**config_changes)))
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer_json()))
    tokenizer_config = {"eos_token": "<|im_end|>", "pad_token": "<|endoftext|>"}
    if template is not None:
        tokenizer_config["chat_template"] = template
    (folder / "tokenizer_config.json").write_text(json.dumps(tokenizer_config))
    if generation is not None:
        (folder / "generation_config.json").write_text(json.dumps(generation))
    write_safetensors(folder / "model.safetensors", tensors())
    return str(folder)


def write_model_of(folder, own_chains, *words):
    """One with chains of its own, and these words as tokens beside the others."""
    global CHAINS, VOCAB
    chains, vocab, added = CHAINS, VOCAB, list(ADDED)
    CHAINS, VOCAB, ADDED[:] = own_chains, VOCAB + len(words), [*ADDED, *words]
    try:
        return write_model(folder)
    finally:
        CHAINS, VOCAB, ADDED[:] = chains, vocab, added


def write_model_that_says(folder, text):
    """One that thinks "k" and then answers every message with this text."""
    return write_model_of(folder, [["\n", "<think>", "k", "</think>", text, "<|im_end|>"]], text)


def write_wide_model(folder):
    """So wide that writing it takes a moment; its answers mean nothing."""
    hidden, layers = 1024, 24
    folder = pathlib.Path(write_model(folder))
    (folder / "config.json").write_text(json.dumps(config(
        hidden_size=hidden, intermediate_size=2048, num_hidden_layers=layers, num_attention_heads=16, num_key_value_heads=16, head_dim=64,
        tie_word_embeddings=True)))
    rows = np.ones((2048, hidden), np.float32)
    arrays = {"model.embed_tokens.weight": rows[:VOCAB], "model.norm.weight": rows[0]}
    for i in range(layers):
        layer = f"model.layers.{i}."
        arrays |= {layer + f"{n}_layernorm.weight": rows[0] for n in ("input", "post_attention")}
        arrays |= {layer + f"self_attn.{p}_proj.weight": rows[:hidden] for p in "qkvo"}
        arrays |= {layer + "mlp.gate_proj.weight": rows, layer + "mlp.up_proj.weight": rows, layer + "mlp.down_proj.weight": rows.reshape(hidden, 2048)}
    write_safetensors(folder / "model.safetensors", arrays)
    return str(folder)
