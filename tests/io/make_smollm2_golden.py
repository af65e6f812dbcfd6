"""Writes smollm2_values.txt: for each tensor of the SmolLM2 GGUF its Hugging Face name, shape and a checksum of its FP32 values,
as the `gguf` package of llama.cpp dequantises them. usage: make_smollm2_golden.py MODEL.gguf  (pip install gguf numpy)

Checksum: sum over i of bits(i) * (2 i + 1) modulo 2^64, bits(i) being the FP32 pattern of element i in row-major order.
"""

import pathlib
import re
import sys

import gguf
import numpy as np

PARTS = {
    "attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm", "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj", "attn_output": "self_attn.o_proj",
    "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj",
}
TOP = {"token_embd.weight": "model.embed_tokens.weight", "output_norm.weight": "model.norm.weight"}


def hugging_face_name(name):
    layer = re.fullmatch(r"blk\.(\d+)\.(\w+)\.weight", name)
    return f"model.layers.{layer[1]}.{PARTS[layer[2]]}.weight" if layer else TOP[name]


def unpermuted(values, heads):
    """The inverse of LlamaModel.permute in convert_hf_to_gguf.py."""
    rows, columns = values.shape
    return values.reshape(heads, rows // heads // 2, 2, columns).swapaxes(1, 2).reshape(rows, columns)


def main():
    reader = gguf.GGUFReader(sys.argv[1])
    heads = {key: int(reader.fields[f"llama.attention.{name}"].contents())
             for key, name in (("attn_q", "head_count"), ("attn_k", "head_count_kv"))}
    lines = []
    for tensor in reader.tensors:
        values = gguf.dequantize(tensor.data, tensor.tensor_type).astype(np.float32, copy=False)
        values = values.reshape(tuple(int(d) for d in reversed(tensor.shape)))
        part = tensor.name.split(".")[2] if tensor.name.startswith("blk.") else ""
        if part in heads:
            values = unpermuted(values, heads[part])
        bits = np.ascontiguousarray(values).view(np.uint32).ravel().astype(np.uint64)
        checksum = int(np.sum(bits * (2 * np.arange(bits.size, dtype=np.uint64) + np.uint64(1)), dtype=np.uint64))
        shape = "x".join(str(d) for d in values.shape)
        lines.append(f"{hugging_face_name(tensor.name)} {shape} {checksum:016x}")
    out = pathlib.Path(__file__).parent / "smollm2_values.txt"
    out.write_text("".join(line + "\n" for line in sorted(lines)))


main()
