#!/usr/bin/env python3
"""ResServe, table 3: the error of linear operators on Qwen3-32B. No row can be made yet; the paper's figures, and what is missing."""

from tables import Row, Table, main

CAPTURE = "no command writes a model's real inputs of its linears, nor the error of an operator on them"
RESIDUES = "M-Ext is not in the engine (python/halfbyte_reference/residue.py defines it)"
# NMSE, MSE against an FP32 product of the unrounded operands, over 72 real inputs.
PAPER = {"NVFP4": (.008401, .295745), "NVFP4 M-Ext": (.007007, .246697), "NVFP4 W4A8": (.009320, .328123),
         "MXFP4": (.022450, .790377), "MXFP4 M-Ext": (.017903, .630280), "MXFP4 W4A8": (.017767, .625482)}

TABLE = Table(
    name="resserve_table3",
    title="ResServe: error of linear operators",
    paper="arXiv 2611.08713, table 3",
    models={"Qwen3-32B": "Qwen/Qwen3-32B"},
    benchmarks={},
    rows={name: Row(missing=f"{RESIDUES}, and {CAPTURE}" if "M-Ext" in name else CAPTURE) for name in PAPER},
    samples=1, max_tokens=1, sampling=(),
    notes=tuple(f"{name} in the paper: NMSE {nmse:.6f}, MSE {mse:.6f}" for name, (nmse, mse) in PAPER.items()))

if __name__ == "__main__":
    main(TABLE)
