#!/usr/bin/env python3
"""Writes a GGUF file in BF16 with random weights of a known shape: speed does not depend on the values, and a machine without
network has no other model of the size.

usage: random_model.py SHAPE FILE.gguf        SHAPE: smollm2-135m, qwen2.5-1.5b
"""

import sys

import llama

llama.need("gguf", "numpy")
import gguf  # noqa: E402
import numpy as np  # noqa: E402

# architecture, hidden, intermediate, layers, heads, KV heads, head size, vocabulary; from the models' config.json files.
SHAPES = {"smollm2-135m": ("llama", 576, 1536, 30, 9, 3, 64, 49152), "qwen2.5-1.5b": ("qwen2", 1536, 8960, 28, 12, 2, 128, 151936)}
POOL = 1 << 24  # random numbers that every tensor takes a run of


def metadata(out, shape):
    arch, hidden, intermediate, layers, heads, kv_heads, head_dim, vocab = shape
    out.add_context_length(8192)
    out.add_embedding_length(hidden)
    out.add_feed_forward_length(intermediate)
    out.add_block_count(layers)
    out.add_head_count(heads)
    out.add_head_count_kv(kv_heads)
    out.add_key_length(head_dim)
    out.add_value_length(head_dim)
    out.add_rope_dimension_count(head_dim)
    out.add_rope_freq_base(1e6 if arch == "qwen2" else 1e5)
    out.add_layer_norm_rms_eps(1e-6)
    out.add_vocab_size(vocab)
    # A byte-level vocabulary of the right length: nothing is tokenised here.
    letters = gguf_bytes()
    out.add_tokenizer_model("gpt2")
    out.add_tokenizer_pre("qwen2" if arch == "qwen2" else "smollm")
    known = letters + ["ab"]
    out.add_token_list(["<|end|>"] + known + [f"w{i}" for i in range(1 + len(known), vocab)])
    # All of them words: first_token.py waits for text.
    out.add_token_types([gguf.TokenType.CONTROL] + [gguf.TokenType.NORMAL] * (vocab - 1))
    out.add_token_merges(["a b"])
    out.add_eos_token_id(0)


def gguf_bytes():
    """The 256 letters that byte-level BPE writes bytes as."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    odd = [b for b in range(256) if b not in plain]
    return [chr(b) for b in plain] + [chr(256 + i) for i in range(len(odd))]


class Weights:
    def __init__(self, out):
        self.out, self.at = out, 0
        pool = np.random.default_rng(1).standard_normal(POOL, np.float32).view(np.uint32)
        self.pool = ((pool + 0x8000) >> 16).astype(np.uint16)  # BF16 bits of N(0, 1)

    def linear(self, name, n, k):
        """N(0, 1) times a power of two near 1 / sqrt(k), so that a linear keeps the size of its input."""
        exponent = round(np.log2(k) / 2)
        scaled = np.where((self.pool & 0x7F80) > exponent << 7, self.pool - np.uint16(exponent << 7), np.uint16(0))
        data = np.resize(np.roll(scaled, self.at), n * k)
        self.at += 7919
        self.out.add_tensor(name, data.view(np.uint8).reshape(n, 2 * k), raw_dtype=gguf.GGMLQuantizationType.BF16)

    def ones(self, name, n):
        self.out.add_tensor(name, np.ones(n, np.float32))

    def zeros(self, name, n):
        self.out.add_tensor(name, np.zeros(n, np.float32))


def main():
    if len(sys.argv) != 3 or sys.argv[1] not in SHAPES:
        sys.exit(__doc__)
    shape = SHAPES[sys.argv[1]]
    arch, hidden, intermediate, layers, heads, kv_heads, head_dim, vocab = shape
    out = gguf.GGUFWriter(sys.argv[2], arch)
    metadata(out, shape)
    w = Weights(out)
    w.linear("token_embd.weight", vocab, hidden)
    w.ones("output_norm.weight", hidden)
    for i in range(layers):
        b = f"blk.{i}."
        w.ones(b + "attn_norm.weight", hidden)
        w.ones(b + "ffn_norm.weight", hidden)
        for part, rows in (("q", heads * head_dim), ("k", kv_heads * head_dim), ("v", kv_heads * head_dim)):
            w.linear(f"{b}attn_{part}.weight", rows, hidden)
            if arch == "qwen2":
                w.zeros(f"{b}attn_{part}.bias", rows)
        w.linear(b + "attn_output.weight", hidden, heads * head_dim)
        w.linear(b + "ffn_gate.weight", intermediate, hidden)
        w.linear(b + "ffn_up.weight", intermediate, hidden)
        w.linear(b + "ffn_down.weight", hidden, intermediate)
    out.write_header_to_file()
    out.write_kv_data_to_file()
    out.write_tensors_to_file()
    out.close()


if __name__ == "__main__":
    main()
