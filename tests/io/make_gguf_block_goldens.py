"""Writes tests/io/gguf_blocks.hbg: blocks of every GGUF type that is read, and their values by the package gguf (numpy).

usage: PYTHONPATH=python python3 tests/io/make_gguf_block_goldens.py      (needs numpy and gguf; written with gguf 0.19)

The blocks are random bytes; the F16 factors among them are finite, and take in zero, subnormals and both signs.
"""

import pathlib

import gguf
import numpy as np

from halfbyte_reference.container import Writer

# Type -> offsets of its F16 factors; the scale bytes of MXFP4 and NVFP4 are set apart.
FACTORS = {"Q4_0": [0], "Q4_1": [0, 2], "Q5_0": [0], "Q5_1": [0, 2], "Q8_0": [0], "Q2_K": [80, 82], "Q3_K": [108], "Q4_K": [0, 2],
           "Q5_K": [0, 2], "Q6_K": [208], "IQ4_NL": [0], "IQ4_XS": [0], "MXFP4": [], "NVFP4": []}
F16 = np.array([0x3C00, 0x2E66, 0x9A31, 0x0001, 0x83FF, 0x0000, 0x7BFF, 0x5140], np.uint16)


def blocks_of(name, count, rng):
    elements, size = gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[name]]
    count = max(count, 8) if elements < 256 else count
    blocks = rng.integers(0, 256, (count, size), np.uint8)
    for block, row in enumerate(blocks):
        for i, offset in enumerate(FACTORS[name]):
            row[offset:offset + 2] = F16[(3 * i + block) % len(F16):][:1].view(np.uint8)
    if name == "MXFP4":
        blocks[:, 0] = np.resize([127, 0, 1, 2, 120, 250, 134, 251], count)
    if name == "NVFP4":
        blocks[:, :4] = np.resize([0x38, 0x01, 0x07, 0x08, 0x7E, 0x00, 0x35, 0x41, 0x50, 0x3F], (count, 4))
    return blocks


def main():
    rng, out = np.random.default_rng(20261129), Writer()
    for name in FACTORS:
        blocks = blocks_of(name, 3, rng)
        values = gguf.quants.dequantize(blocks, gguf.GGMLQuantizationType[name]).astype(np.float32)
        out.add(f"{name}/blocks", blocks)
        out.add(f"{name}/values", values)
    out.save(pathlib.Path(__file__).with_name("gguf_blocks.hbg"))


if __name__ == "__main__":
    main()
