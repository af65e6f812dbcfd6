"""Our quantiser against the compressed-tensors package (vLLM's checkpoint format), which has its own arithmetic.

Known differences, so not compared: tiny and zero NVFP4 blocks (it stores 0.125), the sign of zero.
"""

import os

import numpy as np
import pytest

os.environ.setdefault("TORCHDYNAMO_DISABLE", "1")     # its FP4 cast is a torch.compile function; plain PyTorch is enough
torch = pytest.importorskip("torch", reason="torch is not installed: no comparison with compressed-tensors")
pytest.importorskip("compressed_tensors", reason="compressed-tensors is not installed: no comparison with it")

from compressed_tensors.compressors.nvfp4.helpers import pack_fp4_to_uint8, unpack_fp4_from_uint8  # noqa: E402
from compressed_tensors.quantization.utils.fp4_utils import cast_to_fp4  # noqa: E402
from compressed_tensors.quantization.utils.helpers import generate_gparam  # noqa: E402
from compressed_tensors.quantization.utils.mxfp_utils import generate_mx_scales  # noqa: E402

from halfbyte_reference import blocks, formats  # noqa: E402
from halfbyte_reference.arith import F32  # noqa: E402


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    torch.set_num_threads(1)


def weight():
    return np.random.default_rng(21).standard_normal((64, 256)).astype(F32)


def test_packing_and_every_value():
    codes = np.arange(256, dtype=np.uint8).reshape(16, 16)
    values = unpack_fp4_from_uint8(torch.from_numpy(codes), 16, 32, dtype=torch.float32).numpy()
    assert np.array_equal(values, formats.e2m1_decode(formats.unpack_nibbles(codes)))
    assert np.array_equal(pack_fp4_to_uint8(torch.from_numpy(values)).numpy(), codes)


def test_rounding():
    x = np.concatenate([weight().ravel() * 4, np.arange(-64, 65) / 8]).astype(F32)
    assert np.array_equal(cast_to_fp4(torch.from_numpy(np.clip(x, -6, 6))).numpy(), formats.e2m1_decode(formats.e2m1_encode(x)))


def test_round74_is_its_mxfp4_rule():
    amax = np.exp2(np.random.default_rng(22).uniform(-100, 100, 20000)).astype(F32)
    amax = np.concatenate([amax, F32([1, 1.5, 1.75, 1.7499999, 6, 7, 6.9999995])])
    theirs = generate_mx_scales(torch.from_numpy(amax)).numpy() - 127
    assert np.array_equal(theirs, blocks.mx_exponent(amax, "round74"))


def test_nvfp4_weight():
    """Global scale 2688/amax is a divisor there; a scale may differ where its multiply rounds other than our division."""
    w = weight()
    ours = blocks.quantise_nvfp4_weight(w)
    t = torch.from_numpy(w)
    g = generate_gparam(t.min(), t.max())
    assert float(g) == pytest.approx(1 / float(ours.alpha[0]), rel=2e-7)
    local = g * (t.reshape(64, 16, 16).abs().amax(dim=2) / 6.0)
    scales = torch.clamp(local, max=448).to(torch.float8_e4m3fn)
    same = scales.view(torch.uint8).numpy() == ours.scales
    assert same.mean() > 0.999
    step = (scales.float() / g).unsqueeze(2)
    values = cast_to_fp4(torch.clamp(t.reshape(64, 16, 16) / step, -6, 6)) * step
    mine = ours.dequantise().reshape(64, 16, 16)
    close = np.isclose(values.numpy(), mine, rtol=1e-6, atol=0)
    assert close[same].mean() > 0.9999              # the rest are ties that the two divisions see differently
