"""Logits of tiny models under every plan, exactly as the contract orders the sums: writes tests/parity/plans.hbg.

Needs numpy only. An engine must give these bits, not numbers near them.
"""

import argparse
import pathlib

import numpy as np

import tiny_models
from halfbyte_reference import container, decoder

MODELS = ("llama_llama3", "qwen2_tied", "qwen3_mqa")
TOKENS, POSITIONS = 20, (3, 19)


def plan_variants():
    """(name in the file, plan, fast form of W4A16, format of the cache or the plan's, plan of the head or the preset's)."""
    for plan, (_, mode) in decoder.PLANS.items():
        yield plan, plan, False, None, None
        if mode == "a16":
            yield f"{plan}-a16i16", plan, True, None, None
    for kv in ("f32", "fp8", "nvfp4", "e1m2"):
        yield f"bf16-kv-{kv}", "bf16", False, kv, None
    for suffix, fast in (("", False), ("-a16i16", True)):
        yield f"w4a16-head-nvfp4{suffix}", "w4a16", fast, None, "w4a16"
    yield "bf16-head-fp8", "bf16", False, None, "w8a16"


def write(path, models=MODELS):
    goldens = container.load(pathlib.Path(__file__).with_name("tiny.hbg"))
    w = container.Writer()
    w.add("positions", np.array(POSITIONS, np.int32))
    for name in models:
        config, tensors = tiny_models.read_config(name), tiny_models.read_tensors(name)
        prompt = goldens[f"{name}/prompt"][:TOKENS]
        w.add(f"{name}/prompt", prompt)
        for variant, plan, fast, kv, head in plan_variants():
            logits = decoder.Decoder(config, tensors, plan, fast, kv, head).logits(prompt)
            w.add(f"{name}/{variant}", logits[list(POSITIONS)])
    w.save(path)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path(__file__).with_name("plans.hbg"))
    write(parser.parse_args().out)
