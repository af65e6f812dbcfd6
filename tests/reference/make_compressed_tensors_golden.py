"""What the compressed-tensors package (vLLM's checkpoint format) makes of fixed inputs: writes tests/reference/compressed_tensors.hbg.

It needs PyTorch, which is too large to install for every test run; its answers are kept here instead. Needs compressed-tensors
0.11 or newer; compressed_tensors_test.py compares the stored answers with the package wherever it is installed.
"""

import argparse
import os
import pathlib
import sys

import numpy as np

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "python"))

from halfbyte_reference import container  # noqa: E402

GOLDEN = pathlib.Path(__file__).with_name("compressed_tensors.hbg")


def inputs():
    rng = np.random.default_rng(21)
    weight = rng.standard_normal((32, 128)).astype(np.float32)
    amax = np.exp2(rng.uniform(-100, 100, 2000)).astype(np.float32)
    return {
        "unpack/codes": np.arange(256, dtype=np.uint8).reshape(16, 16),
        "round/x": np.concatenate([weight.ravel()[:1000] * 4, np.arange(-64, 65) / 8]).astype(np.float32),
        "mx/amax": np.concatenate([amax, np.float32([1, 1.5, 1.75, 1.7499999, 6, 7, 6.9999995])]),
        "nvfp4/weight": weight,
    }


def answers(given):
    """name -> array; `given` is what inputs() returned."""
    os.environ.setdefault("TORCHDYNAMO_DISABLE", "1")  # its FP4 cast is a torch.compile function; plain PyTorch is enough
    import torch
    from compressed_tensors.compressors.nvfp4.helpers import pack_fp4_to_uint8, unpack_fp4_from_uint8
    from compressed_tensors.quantization.utils.fp4_utils import cast_to_fp4
    from compressed_tensors.quantization.utils.helpers import generate_gparam
    from compressed_tensors.quantization.utils.mxfp_utils import generate_mx_scales

    torch.set_num_threads(1)
    values = unpack_fp4_from_uint8(torch.from_numpy(given["unpack/codes"]), 16, 32, dtype=torch.float32)
    w = torch.from_numpy(given["nvfp4/weight"]).reshape(32, 8, 16)
    divisor = generate_gparam(w.min(), w.max())  # 2688 / amax
    scales = torch.clamp(divisor * (w.abs().amax(dim=2) / 6.0), max=448).to(torch.float8_e4m3fn)
    step = (scales.float() / divisor).unsqueeze(2)
    return {
        "unpack/values": values.numpy(),
        "unpack/packed_again": pack_fp4_to_uint8(values).numpy(),
        "round/values": cast_to_fp4(torch.from_numpy(np.clip(given["round/x"], -6, 6))).numpy(),
        "mx/exponents": (generate_mx_scales(torch.from_numpy(given["mx/amax"])).numpy().astype(np.int64) - 127).astype(np.int32),
        "nvfp4/divisor": divisor.float().numpy().reshape(1),
        "nvfp4/scales": scales.view(torch.uint8).numpy(),
        "nvfp4/values": (cast_to_fp4(torch.clamp(w / step, -6, 6)) * step).reshape(32, 128).numpy(),
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=pathlib.Path, default=GOLDEN)
    writer = container.Writer()
    given = inputs()
    for name, value in {**given, **answers(given)}.items():
        writer.add(name, value)
    writer.save(parser.parse_args().out)
