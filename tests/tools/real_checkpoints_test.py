"""Checkpoints made by the real libraries (compressed-tensors, ModelOpt, Quark, gguf, where they are installed): what Halfbyte reads
is what they dequantise, and the same weights written in another format are the same model. Uses `inspect A B`, and the
log-probabilities of `run`."""

import json

import numpy as np
import pytest
import tiny_chat

try:
    import safetensors.torch as safetensors_torch
    import torch
except ImportError:
    torch = None
# Each test is skipped, and counted: a file that is skipped whole has no tests at all.
pytestmark = pytest.mark.skipif(torch is None, reason="torch and safetensors are not installed: no checkpoint of the real libraries")

HIDDEN, MLP, HEADS, KV, DIM, LAYERS = 128, 192, 4, 2, 32, 2
CONFIG = {"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "hidden_size": HIDDEN, "intermediate_size": MLP,
          "num_hidden_layers": LAYERS, "num_attention_heads": HEADS, "num_key_value_heads": KV, "head_dim": DIM,
          "vocab_size": tiny_chat.VOCAB, "max_position_embeddings": 256, "rms_norm_eps": 1e-6, "rope_theta": 10000.0,
          "tie_word_embeddings": False, "torch_dtype": "bfloat16", "eos_token_id": 258}
SHAPES = {"self_attn.q_proj": (HEADS * DIM, HIDDEN), "self_attn.k_proj": (KV * DIM, HIDDEN), "self_attn.v_proj": (KV * DIM, HIDDEN),
          "self_attn.o_proj": (HIDDEN, HEADS * DIM), "mlp.gate_proj": (MLP, HIDDEN), "mlp.up_proj": (MLP, HIDDEN),
          "mlp.down_proj": (HIDDEN, MLP)}


@pytest.fixture(scope="module")
def weights():
    """Linears by module, and the other tensors."""
    generator = torch.Generator().manual_seed(7)
    linears = {f"model.layers.{i}.{part}": (torch.randn(shape, generator=generator) / shape[1] ** 0.5).to(torch.bfloat16)
               for i in range(LAYERS) for part, shape in SHAPES.items()}
    other = {"model.embed_tokens.weight": torch.randn((tiny_chat.VOCAB, HIDDEN), generator=generator).to(torch.bfloat16),
             "lm_head.weight": (torch.randn((tiny_chat.VOCAB, HIDDEN), generator=generator) / 4).to(torch.bfloat16),
             "model.norm.weight": torch.ones(HIDDEN, dtype=torch.bfloat16)}
    for i in range(LAYERS):
        layer = f"model.layers.{i}."
        for name, width in [("input_layernorm", HIDDEN), ("post_attention_layernorm", HIDDEN), ("self_attn.q_norm", DIM),
                            ("self_attn.k_norm", DIM)]:
            other[f"{layer}{name}.weight"] = torch.ones(width, dtype=torch.bfloat16)
    return linears, other


def write_folder(folder, tensors, quantisation=None, hf_quant=None):
    folder.mkdir()
    config = dict(CONFIG, **({"quantization_config": quantisation} if quantisation else {}))
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "tokenizer.json").write_text(json.dumps(tiny_chat.tokenizer_json()))
    if hf_quant:
        (folder / "hf_quant_config.json").write_text(json.dumps(hf_quant))
    safetensors_torch.save_file({name: t.contiguous().clone() for name, t in tensors.items()}, folder / "model.safetensors")
    return folder


def compare(halfbyte, a, b):
    return {t["name"]: t for t in json.loads(halfbyte("inspect", a, b, "--json").out)["tensors"]}


def logprobs(halfbyte, folder, plan=None):
    args = ["run", folder, "--raw", "--json", "--logprobs", "5", "--max-tokens", "12", "--temperature", "0", "Some text"]
    out = json.loads(halfbyte(*args, *(["--plan", plan] if plan else [])).out)
    return [(t["id"], t["logprob"]) for t in out["logprobs"]]


def compressed(linears, preset):
    """Every linear as compressed-tensors packs it, its own dequantised values, and the description it serialises."""
    pytest.importorskip("compressed_tensors")
    from compressed_tensors.compressors import BaseCompressor
    from compressed_tensors.compressors.nvfp4.helpers import unpack_fp4_from_uint8
    from compressed_tensors.quantization import QuantizationConfig, preset_name_to_scheme
    from compressed_tensors.quantization.utils import calculate_qparams, generate_gparam
    scheme = preset_name_to_scheme(preset, ["Linear"])
    args = scheme.weights
    kind = "nvfp4-pack-quantized" if args.group_size == 16 else "mxfp4-pack-quantized"
    compressor = BaseCompressor.get_value_from_registry(kind)
    packed, values = {}, {}
    for module, w in linears.items():
        blocks = w.reshape(w.shape[0], -1, args.group_size)
        state = {"weight": w}
        divisor = None
        if kind.startswith("nvfp4"):
            divisor = state["weight_global_scale"] = generate_gparam(w.min().float(), w.max().float())
        scale, _ = calculate_qparams(blocks.amin(-1), blocks.amax(-1), args, global_scale=divisor)
        state["weight_scale"] = scale
        out = compressor.compress(state, scheme)
        packed.update({f"{module}.{name}": t for name, t in out.items()})
        codes = unpack_fp4_from_uint8(out["weight_packed"], *w.shape, dtype=torch.float32)
        stored = out["weight_scale"]
        block = stored.float() if divisor is not None else torch.exp2(stored.float() - 127)
        factor = 1.0 / divisor if divisor is not None else torch.ones(1)
        values[f"{module}.weight"] = codes * block.repeat_interleave(args.group_size, -1) * factor
    description = QuantizationConfig(config_groups={"group_0": scheme}, format=kind, ignore=["lm_head"]).model_dump(mode="json")
    description["quant_method"] = "compressed-tensors"
    return packed, values, description


def as_modelopt(packed):
    """compressed-tensors' NVFP4 tensors under ModelOpt's names: the divisor becomes a multiplier."""
    names = {"weight_packed": "weight", "weight_scale": "weight_scale"}
    out = {}
    for name, t in packed.items():
        module, suffix = name.rsplit(".", 1)
        if suffix == "weight_global_scale":
            out[f"{module}.weight_scale_2"] = (1.0 / t).reshape(())
        elif suffix in names:
            out[f"{module}.{names[suffix]}"] = t
    return out


@pytest.mark.parametrize("preset", ["NVFP4A16", "MXFP4A16"])
def test_compressed_tensors(halfbyte, weights, tmp_path, preset):
    linears, other = weights
    packed, values, description = compressed(linears, preset)
    folder = write_folder(tmp_path / "packed", {**other, **packed}, description)
    plain = write_folder(tmp_path / "plain", {**other, **values})
    shown = halfbyte("inspect", folder)
    assert shown.code == 0 and "compressed-tensors" in shown.out and "note" not in shown.out, shown.out + shown.err
    for name, t in compare(halfbyte, folder, plain).items():
        assert t.get("equal"), (name, t)
    # Beside the BF16 weights the error is that of 4 bits.
    original = write_folder(tmp_path / "bf16", {**other, **{f"{m}.weight": w for m, w in linears.items()}})
    for name, t in compare(halfbyte, original, folder).items():
        assert t["equal"] != (name in linears), (name, t)
        assert t["equal"] or 17 < t["snr_db"] < 23, (name, t)
    assert logprobs(halfbyte, folder, "f32") == logprobs(halfbyte, plain, "f32")


def test_nvfp4_is_one_model_under_every_name(halfbyte, weights, tmp_path):
    linears, other = weights
    packed, _, description = compressed(linears, "NVFP4A16")
    ours = write_folder(tmp_path / "ct", {**other, **packed}, description)
    modelopt = write_folder(tmp_path / "modelopt", {**other, **as_modelopt(packed)}, hf_quant={
        "producer": {"name": "modelopt", "version": "0.47.0"},
        "quantization": {"quant_algo": "W4A16_NVFP4", "kv_cache_quant_algo": None, "group_size": 16, "exclude_modules": ["lm_head"]}})
    assert all(t.get("equal") for t in compare(halfbyte, ours, modelopt).values())
    assert logprobs(halfbyte, ours) == logprobs(halfbyte, modelopt)
    gguf_file = write_gguf(tmp_path / "m.gguf", other, packed)
    assert all(t.get("equal") for t in compare(halfbyte, ours, gguf_file).values())


def write_gguf(path, other, packed):
    """The same codes, scales and tensor scales as NVFP4 blocks of a GGUF file, whose values the gguf package agrees with."""
    gguf = pytest.importorskip("gguf")
    if not hasattr(gguf.GGMLQuantizationType, "NVFP4"):
        pytest.skip("this gguf package does not know NVFP4")
    writer = gguf.GGUFWriter(str(path), "qwen3")
    writer.add_block_count(LAYERS)
    writer.add_context_length(256)
    writer.add_embedding_length(HIDDEN)
    writer.add_feed_forward_length(MLP)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV)
    writer.add_key_length(DIM)
    writer.add_value_length(DIM)
    writer.add_rope_freq_base(10000.0)
    writer.add_layer_norm_rms_eps(1e-6)
    names = {"self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output",
             "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down", "input_layernorm": "attn_norm",
             "post_attention_layernorm": "ffn_norm", "self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm"}
    top = {"model.embed_tokens": "token_embd", "lm_head": "output", "model.norm": "output_norm"}

    def renamed(module):
        if module in top:
            return top[module]
        _, _, layer, part = module.split(".", 3)
        return f"blk.{layer}.{names[part]}"

    for name, t in other.items():
        module = name.rsplit(".", 1)[0]
        writer.add_tensor(renamed(module) + ".weight", t.float().numpy())
    for module in sorted({name.rsplit(".", 1)[0] for name in packed}):
        bytes_ = packed[f"{module}.weight_packed"].numpy()
        scales = packed[f"{module}.weight_scale"].view(torch.uint8).numpy()
        n, k = bytes_.shape[0], bytes_.shape[1] * 2
        codes = np.stack([bytes_ & 15, bytes_ >> 4], -1).reshape(n, k // 64, 4, 16)
        runs = (codes[..., :8] | codes[..., 8:] << 4).reshape(n, k // 64, 32)
        blocks = np.concatenate([scales.reshape(n, k // 64, 4), runs], -1).reshape(n, -1).astype(np.uint8)
        multiplier = (1.0 / packed[f"{module}.weight_global_scale"]).numpy()
        writer.add_tensor(renamed(module) + ".weight", blocks, raw_dtype=gguf.GGMLQuantizationType.NVFP4)
        writer.add_tensor(renamed(module) + ".scale", multiplier.astype(np.float32))
        values = gguf.quants.dequantize(blocks, gguf.GGMLQuantizationType.NVFP4)
        table = np.array([0, .5, 1, 1.5, 2, 3, 4, 6, 0, -.5, -1, -1.5, -2, -3, -4, -6], np.float32)
        expected = table[codes.reshape(n, k)] * packed[f"{module}.weight_scale"].float().repeat_interleave(16, -1).numpy()
        assert np.array_equal(values, expected)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def test_gguf_mxfp4(halfbyte, weights, tmp_path):
    """MXFP4 of the gguf package beside the values it says they are."""
    gguf = pytest.importorskip("gguf")
    from gguf import quants
    linears, other = weights
    kind = gguf.GGMLQuantizationType.MXFP4
    packed, values = {}, {}
    for module, w in linears.items():
        blocks = quants.quantize(w.float().numpy(), kind).reshape(w.shape[0], -1, 17)
        values[f"{module}.weight"] = torch.from_numpy(quants.dequantize(blocks.reshape(w.shape[0], -1), kind).copy())
        low, high = blocks[..., 1:] & 15, blocks[..., 1:] >> 4
        codes = np.concatenate([low, high], -1).reshape(w.shape)
        packed[f"{module}.weight"] = torch.from_numpy((codes[:, 0::2] | codes[:, 1::2] << 4).astype(np.uint8))
        packed[f"{module}.weight_scale"] = torch.from_numpy(blocks[..., 0].copy())
    folder = write_folder(tmp_path / "mx", {**other, **packed}, {"quant_method": "modelopt", "quant_algo": "mxfp4", "ignore": ["lm_head"]})
    plain = write_folder(tmp_path / "plain", {**other, **values})
    for name, t in compare(halfbyte, folder, plain).items():
        assert t.get("equal"), (name, t)


def test_modelopt(halfbyte, weights, tmp_path):
    """ModelOpt's own quantiser and dequantiser."""
    tensor = pytest.importorskip("modelopt.torch.quantization.qtensor.nvfp4_tensor")
    linears, other = weights
    packed, values = {}, {}
    for module, w in linears.items():
        q, block, second = tensor.NVFP4QTensor.quantize(w, 16)
        packed[f"{module}.weight"] = q._quantized_data
        packed[f"{module}.weight_scale"] = block.to(torch.float8_e4m3fn)
        packed[f"{module}.weight_scale_2"] = second.float().reshape(())
        values[f"{module}.weight"] = q.dequantize(dtype=torch.float32, scale=block, double_scale=second, block_sizes={-1: 16})
    folder = write_folder(tmp_path / "modelopt", {**other, **packed}, hf_quant={
        "producer": {"name": "modelopt", "version": "0.47.0"},
        "quantization": {"quant_algo": "W4A16_NVFP4", "kv_cache_quant_algo": None, "group_size": 16, "exclude_modules": ["lm_head"]}})
    plain = write_folder(tmp_path / "plain", {**other, **values})
    for name, t in compare(halfbyte, folder, plain).items():
        # ModelOpt multiplies the two scales first: its values differ from (code * scale) * second by FP32's rounding.
        assert t.get("equal") or t["snr_db"] > 130, (name, t)
    # A ModelOpt folder of the same weights by our exporter rounds to the same codes.
    original = write_folder(tmp_path / "bf16", {**other, **{f"{m}.weight": w for m, w in linears.items()}})
    assert halfbyte("quantize", original, "-o", tmp_path / "ours", "--recipe", "rtn").code == 0
    for name, t in compare(halfbyte, original, folder).items():
        assert t["equal"] or 17 < t["snr_db"] < 23, (name, t)


def test_quark_nvfp4(halfbyte, weights, tmp_path):
    """AMD Quark's scheme "nvfp4", quantised by its own two stages; its values are code * scale * weight_scale_2."""
    template = pytest.importorskip("quark.torch.quantization.config.template", exc_type=ImportError)
    from quark.torch.export.nn.modules.realquantizer import get_real_quantizer
    from quark.torch.quantization.tensor_quantize import FakeQuantizeBase
    stages = template.FP4Block16ScaleE4M3Scheme().config.weight
    linears, other = weights
    packed, values = {}, {}
    table = torch.tensor([0, .5, 1, 1.5, 2, 3, 4, 6, 0, -.5, -1, -1.5, -2, -3, -4, -6])
    for module, w in linears.items():
        observer = FakeQuantizeBase.get_fake_quantize(stages, device="cpu")
        observer.enable_observer()
        observer.disable_fake_quant()
        with torch.no_grad():
            observer(w)
            real = get_real_quantizer(qspec=stages, quantizer=observer, reorder=True, real_quantized=True, float_dtype=w.dtype, device="cpu")
            second = real[1].scale.float().reshape(())
            codes = real.to_real_quantize_params(w)
            real.maybe_convert_and_transpose_scale()
            for stage in observer:
                stage.enable_fake_quant()
            faked = observer(w).float()
        packed |= {f"{module}.weight": codes, f"{module}.weight_scale": real[0].scale, f"{module}.weight_scale_2": second}
        nibbles = torch.stack([codes & 15, codes >> 4], -1).reshape(w.shape).long()
        values[f"{module}.weight"] = table[nibbles] * real[0].scale.float().repeat_interleave(16, -1) * second
        # What the library itself makes of the weight, which it rounds to BF16.
        assert (values[f"{module}.weight"] - faked).abs().max() <= faked.abs().max() * 2 ** -7
    spec = {"dtype": "fp4", "qscheme": "per_group", "group_size": 16, "ch_axis": -1, "scale_format": "float32"}
    scale_spec = {"dtype": "fp8_e4m3", "qscheme": "per_tensor", "is_scale_quant": True}
    folder = write_folder(tmp_path / "quark", {**other, **packed}, {
        "quant_method": "quark", "global_quant_config": {"weight": [spec, scale_spec]}, "exclude": ["lm_head"]})
    shown = halfbyte("inspect", folder)
    assert shown.code == 0 and "Quark" in shown.out and "note" not in shown.out, shown.out + shown.err
    plain = write_folder(tmp_path / "plain", {**other, **values})
    for name, t in compare(halfbyte, folder, plain).items():
        assert t.get("equal"), (name, t)
