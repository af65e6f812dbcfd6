"""The numpy definition of a whole decoder against transformers' logits, and the plan goldens against the definition."""

import pathlib
import sys

import numpy as np
import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

import make_plan_goldens  # noqa: E402
import tiny_models  # noqa: E402
from halfbyte_reference import container, decoder  # noqa: E402

HERE = pathlib.Path(__file__).resolve().parent
TINY = container.load(HERE / "tiny.hbg")


@pytest.mark.parametrize("name", tiny_models.model_names())
def test_float32_logits_are_transformers(name):
    model = decoder.Decoder(tiny_models.read_config(name), tiny_models.read_tensors(name), "f32")
    tokens = TINY[f"{name}/prompt"][:32]
    rows = [i for i, p in enumerate(TINY[f"{name}/positions"]) if p < len(tokens)]
    expected = TINY[f"{name}/logits"][rows]
    logits = model.logits(tokens)[TINY[f"{name}/positions"][rows]]
    assert np.abs(logits - expected).max() < 5e-6 * np.abs(expected).max()


def test_plan_goldens_are_what_the_definition_gives(tmp_path):
    make_plan_goldens.write(tmp_path / "plans.hbg")
    assert (tmp_path / "plans.hbg").read_bytes() == (HERE / "plans.hbg").read_bytes()


def test_plans_differ_and_more_bits_are_nearer():
    """Mean squared distance to the float32 logits: the order that the number of bits gives, over the three models."""
    goldens = container.load(HERE / "plans.hbg")
    error = {plan: 0.0 for plan, *_ in make_plan_goldens.plan_variants()}
    for name in make_plan_goldens.MODELS:
        for plan in error:
            error[plan] += float(np.mean((goldens[f"{name}/{plan}"].astype(np.float64) - goldens[f"{name}/f32"]) ** 2))
    assert error["f32"] == 0 < error["bf16"] < 0.01 * error["w4a16"]
    for suffix in ("", "-mxfp4"):
        assert error[f"w4a16{suffix}"] < error[f"w4a4{suffix}"] and error[f"w4a8{suffix}"] < error[f"w4a4{suffix}"]
        assert 0 < abs(error[f"w4a16{suffix}-a16i16"] - error[f"w4a16{suffix}"]) < 0.05 * error[f"w4a16{suffix}"]
    assert error["w4a16"] < error["w4a16-mxfp4"]
