#!/usr/bin/env python3
"""ResServe, table 4: its components on LiveCodeBench, with the tokens that each saves."""

from resserve_table2 import TABLE as SYSTEM
from tables import Row, Table, main

M_EXT = "M-Ext is not in Halfbyte yet (docs/roadmap.md)"
ATTENTION = "ResAttn is not in Halfbyte yet (docs/roadmap.md)"
BOTH = "ResAttn, M-Ext and K-Ext are not in Halfbyte yet (docs/roadmap.md)"
# (score, tokens saved in percent) of Qwen3-4B, 8B and 32B.
PAPER = {"BF16": ((36.57,), (45.14,), (51.14,)),
         "NVFP4, BF16 KV": ((25.14, 0), (32.00, 0), (41.71, 0)), "NVFP4, BF16 KV, M-Ext": ((28.86, 6.04), (36.29, 4.52), (45.43, 5.25)),
         "MXFP4, BF16 KV": ((19.71, 0), (17.43, 0), (35.14, 0)), "MXFP4, BF16 KV, M-Ext": ((26.57, 12.75), (25.71, 10.43), (34.57, 4.94)),
         "BF16, NVFP4 KV": ((32.86,), (40.29,), (46.86,)), "BF16, NVFP4 KV, ResAttn": ((33.14,), (40.00,), (48.29,)),
         "NVFP4, NVFP4 KV": ((23.71, 0), (24.29, 0), (42.29, 0)), "NVFP4, NVFP4 KV, ResAttn": ((26.00, 8.13), (30.29, 1.06), (41.71, -3.33)),
         "NVFP4, NVFP4 KV, ResAttn, M-Ext": ((28.86, 11.31), (35.14, 6.25), (46.29, -1.25)),
         "MXFP4, NVFP4 KV": ((10.57, 0), (12.00, 0), (31.43, 0)), "MXFP4, NVFP4 KV, ResAttn": ((14.86, 3.30), (13.14, 3.69), (33.71, -1.65)),
         "MXFP4, NVFP4 KV, ResAttn, M-Ext": ((23.43, 15.40), (22.29, 9.36), (34.86, 5.46)),
         "MXFP4, NVFP4 KV, ResAttn, M-Ext, K-Ext 1/4": ((20.86, 13.98), (27.14, 5.51), (38.00, 5.42))}
PLANS = {"BF16": "bf16", "NVFP4, BF16 KV": "w4a4", "MXFP4, BF16 KV": "w4a4-mxfp4", "BF16, NVFP4 KV": "bf16,kv=nvfp4",
         "NVFP4, NVFP4 KV": "w4a4,kv=nvfp4", "MXFP4, NVFP4 KV": "w4a4-mxfp4,kv=nvfp4"}


def row(name):
    if name in PLANS:
        return Row(("--plan", PLANS[name]), against="" if name == "BF16" else "BF16")
    return Row(missing=BOTH if "ResAttn" in name and "Ext" in name else ATTENTION if "ResAttn" in name else M_EXT)


def shown(score, *saved):
    return f"{score:.2f}, tokens saved {saved[0]:.2f}%" if saved else f"{score:.2f}"


TABLE = Table(
    name="resserve_table4",
    title="ResServe: components on LiveCodeBench",
    paper="arXiv 2611.08713, table 4",
    models=SYSTEM.models,
    benchmarks={"LCB Hard350": SYSTEM.benchmarks["LCB Hard350"]},
    rows={name: row(name) for name in PAPER},
    samples=1, seed=42, max_tokens=SYSTEM.max_tokens, sampling=SYSTEM.sampling,
    figures={(name, "LCB Hard350"): tuple(shown(*figures) for figures in models) for name, models in PAPER.items()},
    notes=("The paper's tokens saved are against the row of the same weights and KV format without components; those of the rows that run here are "
           "against BF16.", *SYSTEM.notes[:3]))

if __name__ == "__main__":
    main(TABLE)
