"""Writes the seeds of io's fuzz targets to fuzz/corpus. usage: make_seeds.py  (no packages needed)

Small and right, or wrong in one place: the fuzzer and the smoke tests change them further.
"""

import json
import pathlib
import struct

CORPUS = pathlib.Path(__file__).resolve().parents[1] / "corpus"


def write(target, name, data):
    folder = CORPUS / target
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(data if isinstance(data, bytes) else data.encode())


def safetensors(tensors, length=None):
    header, data = {}, b""
    for name, (dtype, shape, content) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(data), len(data) + len(content)]}
        data += content
    text = json.dumps(header, separators=(",", ":")).encode()
    return struct.pack("<Q", len(text) if length is None else length) + text + data


def packed(**changes):
    parts = {"m.weight_scale_2": ("F32", [], struct.pack("<f", 0.5)), "m.input_scale": ("F32", [1], struct.pack("<f", 0.25)),
             "m.weight": ("U8", [2, 8], bytes(range(16))), "m.weight_scale": ("F8_E4M3", [2, 1], b"\x38\x40")}
    parts.update({k.replace("__", "."): v for k, v in changes.items()})
    return {k: v for k, v in parts.items() if v is not None}


def seeds_safetensors():
    t = "fuzz_safetensors"
    write(t, "empty", safetensors({}))
    write(t, "plain", safetensors({"m.weight": ("BF16", [1, 2], b"\x80\x3f\x00\x40"), "m.bias": ("F32", [1], b"\0\0\x80\x3f")}))
    write(t, "metadata", struct.pack("<Q", 32) + b'{"__metadata__":{"format":"pt"}}')
    write(t, "nvfp4", safetensors(packed()))
    write(t, "nan_scale", safetensors(packed(m__weight_scale=("F8_E4M3", [2, 1], b"\x7f\xff"))))
    write(t, "zero_block", safetensors(packed(m__weight=("U8", [2, 8], b"\x80\x08" * 8), m__weight_scale=("F8_E4M3", [2, 1], b"\x7f\x80"))))
    write(t, "half_a_set", safetensors(packed(m__weight_scale=None)))
    write(t, "unknown_suffix", safetensors(packed(m__foo=("F32", [], b"\0\0\0\0"))))
    write(t, "zero_size", safetensors({"a.weight": ("F16", [0, 4], b""), "b": ("I64", [1], bytes(8))}))
    write(t, "long_length", safetensors({}, length=2 ** 63))
    # Header and data apart by a zero byte, as the target's second reading takes them.
    write(t, "split", safetensors(packed())[8:].replace(b"}}", b"}}\0", 1))


def seeds_index():
    t = "fuzz_safetensors_index"
    write(t, "two", '{"metadata":{"total_size":8},"weight_map":{"a":"model-00001-of-00002.safetensors","b":"model-00002-of-00002.safetensors"}}')
    write(t, "traversal", '{"weight_map":{"a":"../../etc/x.safetensors"}}')
    write(t, "empty", '{"weight_map":{}}')
    write(t, "kinds", '{"weight_map":{"a":3,"b":null,"c":["x.safetensors"]}}')


def gguf_string(text):
    return struct.pack("<Q", len(text.encode())) + text.encode()


def key(name, kind, data):
    return gguf_string(name) + struct.pack("<I", kind) + data


def u32(name, value):
    return key(name, 4, struct.pack("<I", value))


def text(name, value):
    return key(name, 8, gguf_string(value))


def strings(name, values):
    return key(name, 9, struct.pack("<IQ", 8, len(values)) + b"".join(map(gguf_string, values)))


def gguf(keys, tensors, version=3):
    table, data = b"", b""
    for name, dims, kind, content in tensors:
        data += bytes(-len(data) % 32)
        table += gguf_string(name) + struct.pack("<I", len(dims)) + b"".join(struct.pack("<Q", d) for d in dims)
        table += struct.pack("<IQ", kind, len(data))
        data += content
    head = b"GGUF" + struct.pack("<IQQ", version, len(tensors), len(keys)) + b"".join(keys) + table
    return head + bytes(-len(head) % 32) + data


def model_keys(arch):
    keys = [text("general.architecture", arch)]
    for name, value in (("block_count", 1), ("context_length", 16), ("embedding_length", 4), ("feed_forward_length", 4),
                        ("attention.head_count", 2), ("attention.head_count_kv", 1)):
        keys.append(u32(f"{arch}.{name}", value))
    return keys


def vocabulary():
    types = struct.pack("<IQ3i", 5, 3, 1, 3, 4)
    return [text("tokenizer.ggml.model", "gpt2"), text("tokenizer.ggml.pre", "qwen2"), strings("tokenizer.ggml.tokens", ["a", "<e>", "[PAD2]"]),
            key("tokenizer.ggml.token_type", 9, types), strings("tokenizer.ggml.merges", ["a a"]), u32("tokenizer.ggml.eos_token_id", 1),
            text("tokenizer.chat_template", "{{x}}"), strings("tokenizer.chat_templates", ["t"]), text("tokenizer.chat_template.t", "T")]


def seeds_gguf():
    t = "fuzz_gguf"
    f32 = struct.pack("<16f", *range(16))
    embedding = ("token_embd.weight", [4, 3], 0, f32[:48])
    write(t, "empty", gguf([], []))
    write(t, "kinds", gguf([key("a", 0, b"\1"), key("b", 1, b"\xff"), key("c", 2, b"\1\0"), key("d", 3, b"\xff\xff"), u32("e", 5), key("f", 5, b"\xff\xff\xff\xff"),
                            key("g", 6, struct.pack("<f", .5)), key("h", 7, b"\1"), text("i", "x"), key("j", 10, bytes(8)), key("k", 11, b"\xff" * 8),
                            key("l", 12, struct.pack("<d", .5)), strings("m", ["", "y"]), key("n", 9, struct.pack("<IQH", 2, 1, 7))], [], version=2))
    write(t, "vocabulary", gguf(vocabulary(), []))
    for arch in ("llama", "qwen2", "qwen3"):
        write(t, arch, gguf(model_keys(arch), [embedding, ("blk.0.attn_q.weight", [4, 4], 0, f32), ("blk.0.attn_k.bias", [2], 0, f32[:8]),
                                               ("output_norm.weight", [4], 30, bytes(8))]))
    blocks = [("output.weight", [32, 1], 2, bytes(range(18))), ("blk.0.ffn_up.weight", [32, 2], 3, bytes(range(40))), ("blk.0.ffn_down.weight", [32], 8, bytes(range(34))),
              ("blk.0.ffn_gate.weight", [2], 1, bytes(4))]
    write(t, "blocks", gguf(model_keys("qwen3"), [embedding] + blocks))
    write(t, "rope", gguf(model_keys("llama") + [text("llama.rope.scaling.type", "yarn"), key("llama.rope.scaling.factor", 6, struct.pack("<f", 4))], [embedding]))
    write(t, "rope_freqs", gguf(model_keys("llama"), [embedding, ("rope_freqs.weight", [1], 0, struct.pack("<f", 8))]))
    kinds = [(6, 32, 22), (7, 32, 24), (10, 256, 84), (11, 256, 110), (12, 256, 144), (13, 256, 176), (14, 256, 210), (20, 32, 18), (23, 256, 136), (39, 32, 17),
             (40, 64, 36)]
    write(t, "k_blocks", gguf(model_keys("qwen2"), [(f"blk.0.{part}.weight", [elements], kind, bytes(i % 251 for i in range(size)))
                                                    for (kind, elements, size), part in zip(kinds, ("attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up",
                                                                                                    "ffn_down", "attn_norm", "ffn_norm", "attn_q_norm", "attn_k_norm"))]))
    write(t, "nvfp4_scale", gguf(model_keys("qwen2"), [("blk.0.ffn_up.weight", [64, 1], 40, bytes(range(36))), ("blk.0.ffn_up.scale", [1], 0, struct.pack("<f", .5))]))
    write(t, "unsupported_type", gguf(model_keys("llama"), [("x", [256], 16, bytes(66))]))
    write(t, "alignment", gguf([u32("general.alignment", 8)], [embedding]))
    write(t, "many_tensors", b"GGUF" + struct.pack("<IQQ", 3, 2 ** 40, 1) + text("a", "b"))


CONFIG = {"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2,
          "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 100, "max_position_embeddings": 4096, "rms_norm_eps": 1e-6}


def config(**changes):
    merged = {**CONFIG, **changes}
    return json.dumps({k: v for k, v in merged.items() if v is not None}, separators=(",", ":"))


def seeds_hf_config():
    t = "fuzz_hf_config"
    write(t, "plain", config())
    write(t, "llama3", config(architectures=["LlamaForCausalLM"], rope_scaling={"rope_type": "llama3", "factor": 8, "low_freq_factor": 1, "high_freq_factor": 4,
                                                                                 "original_max_position_embeddings": 8192}))
    write(t, "yarn", config(rope_parameters={"rope_type": "yarn", "rope_theta": 1e6, "factor": 4, "beta_fast": 32, "beta_slow": 1, "mscale": 1, "mscale_all_dim": 1,
                                             "attention_factor": 1.1, "truncate": False}))
    write(t, "linear", config(architectures=None, model_type="qwen2", rope_scaling={"type": "linear", "factor": 2.5}, head_dim=32, eos_token_id=[1, 2], bos_token_id=3))
    write(t, "sliding", config(sliding_window=4096, use_sliding_window=True, max_window_layers=1, layer_types=["full_attention", "sliding_attention"]))
    write(t, "python_numbers", '{"architectures":["MambaForCausalLM"],"x":[NaN,-Infinity,"Infinity"]}')
    write(t, "nested", '{"architectures":["Gemma3ForConditionalGeneration"],"text_config":{"hidden_size":1}}')


def seeds_generation_config():
    t = "fuzz_generation_config"
    write(t, "all", '{"bos_token_id":1,"do_sample":true,"eos_token_id":[2,3],"pad_token_id":4,"temperature":0.6,"top_k":20,"top_p":0.95,"min_p":0.1,"repetition_penalty":1.05,"max_new_tokens":9}')
    write(t, "edges", '{"temperature":1e308,"top_k":-1,"top_p":0,"eos_token_id":9223372036854775807,"max_new_tokens":0.5}')
    write(t, "empty", "{}")


def seeds_quant_config():
    t = "fuzz_quant_config"
    nested = '{"producer":{"name":"modelopt","version":"0.37.0"},"quantization":{"quant_algo":"NVFP4","kv_cache_quant_algo":"FP8","group_size":16,"exclude_modules":["lm_head","model.layers.0.self_attn*"]}}'
    flat = ('{"quant_method":"modelopt","quant_algo":"W4A16_NVFP4","kv_cache_scheme":{"num_bits":8,"type":"float"},"ignore":["lm_head"],'
            '"config_groups":{"g":{"weights":{"num_bits":4,"type":"float","group_size":16},"targets":["Linear"]}}}')
    mixed = '{"quantization":{"quant_algo":"MIXED_PRECISION","quantized_layers":{"model.layers.0.mlp.up_proj":{"quant_algo":"NVFP4","group_size":16}}}}'
    write(t, "nested", nested)
    write(t, "flat", '{"quantization_config":' + flat + "}")
    write(t, "groups_only", '{"quantization_config":{"config_groups":{"g":{"weights":{"num_bits":4,"type":"float","group_size":16}}}}}')
    write(t, "mixed", mixed)
    write(t, "both", '{"quantization_config":' + flat + "}\0" + nested + "\0*.self_attn*[a-q]?")
    write(t, "compressed_tensors", '{"quantization_config":{"quant_method":"compressed-tensors","format":"nvfp4-pack-quantized"}}')
    write(t, "patterns", "{}\0{}\0[!a-c]*[]]?[x-" + "*a" * 20)


def seeds_tokenizer_config():
    t = "fuzz_tokenizer_config"
    write(t, "objects", '{"bos_token":{"content":"<s>"},"eos_token":"</s>","pad_token":null,"add_bos_token":true,"model_max_length":1e30,'
                        '"added_tokens_decoder":{"3":{"content":"<a>","special":true},"11":{"content":"<b>"}}}')
    write(t, "templates", '{"chat_template":[{"name":"default","template":"D"},{"name":"tool_use","template":"U"}]}')
    write(t, "template", '{"chat_template":"{{ x }}","model_max_length":8192}')
    write(t, "bad_ids", '{"added_tokens_decoder":{"-1":{"content":"a"},"x":{"content":"b"},"99999999999":{"content":"c"}}}')


for make in (seeds_safetensors, seeds_index, seeds_gguf, seeds_hf_config, seeds_generation_config, seeds_quant_config, seeds_tokenizer_config):
    make()
