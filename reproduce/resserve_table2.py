#!/usr/bin/env python3
"""ResServe, table 2, with the W4A8 rows of its table 7: system accuracy on LiveCodeBench, HMMT and AIME."""

from tables import Benchmark, Row, Table, main

RESIDUES = "the residues (M-Ext in decode, K-Ext in prefill) and ResAttn are not in Halfbyte yet (docs/roadmap.md)"

TABLE = Table(
    name="resserve_table2",
    title="ResServe: system accuracy",
    paper="arXiv 2611.08713, tables 2 and 7",
    models={"Qwen3-4B": "Qwen/Qwen3-4B", "Qwen3-8B": "Qwen/Qwen3-8B", "Qwen3-32B": "Qwen/Qwen3-32B"},
    benchmarks={"LCB Hard350": Benchmark(350, "the 350 hard problems of LiveCodeBench v6", samples=1, code=True),
                "HMMT": Benchmark(30, "HMMT November 2025, JSON lines with problem and answer"),
                "AIME": Benchmark(30, "AIME 2026, JSON lines with problem and answer")},
    rows={"BF16": Row(("--plan", "bf16")),
          "NVFP4 W4A4": Row(("--plan", "w4a4,kv=nvfp4"), against="BF16"),
          "NVFP4 W4A8": Row(("--plan", "w4a8,kv=nvfp4"), against="NVFP4 W4A4"),
          "NVFP4 ResServe": Row(missing=RESIDUES),
          "MXFP4 W4A4": Row(("--plan", "w4a4-mxfp4,kv=nvfp4"), against="BF16"),
          "MXFP4 W4A8": Row(("--plan", "w4a8-mxfp4,kv=nvfp4"), against="MXFP4 W4A4"),
          "MXFP4 ResServe": Row(missing=RESIDUES)},
    samples=16, seed=42, max_tokens=38912, sampling=("--temperature", "0.6", "--top-p", "0.95", "--top-k", "20"),
    figures={("BF16", "LCB Hard350"): (36.57, 45.14, 51.14), ("BF16", "HMMT"): (51.25, 55.83, 64.38), ("BF16", "AIME"): (63.13, 68.33, 75.63),
             ("NVFP4 W4A4", "LCB Hard350"): (23.71, 24.29, 42.29), ("NVFP4 W4A4", "HMMT"): (31.88, 43.13, 55.21),
             ("NVFP4 W4A4", "AIME"): (50.00, 56.25, 71.46),
             ("NVFP4 W4A8", "LCB Hard350"): (23.43, 30.86, 46.57), ("NVFP4 W4A8", "HMMT"): (33.75, 45.63, 58.75),
             ("NVFP4 W4A8", "AIME"): (48.75, 60.21, 70.42),
             ("NVFP4 ResServe", "LCB Hard350"): (28.86, 35.14, 46.29), ("NVFP4 ResServe", "HMMT"): (37.92, 48.96, 61.67),
             ("NVFP4 ResServe", "AIME"): (58.75, 61.04, 71.25),
             ("MXFP4 W4A4", "LCB Hard350"): (10.57, 12.00, 31.43), ("MXFP4 W4A4", "HMMT"): (14.58, 22.08, 45.83),
             ("MXFP4 W4A4", "AIME"): (28.13, 36.88, 57.71),
             ("MXFP4 W4A8", "LCB Hard350"): (19.43, 21.43, 40.29), ("MXFP4 W4A8", "HMMT"): (29.17, 38.33, 55.00),
             ("MXFP4 W4A8", "AIME"): (48.33, 51.88, 64.58),
             ("MXFP4 ResServe", "LCB Hard350"): (20.86, 27.14, 38.00), ("MXFP4 ResServe", "HMMT"): (33.96, 40.63, 52.50),
             ("MXFP4 ResServe", "AIME"): (50.83, 55.21, 67.08)},
    notes=("The paper's Qwen3.8-27B and Swift-27B are hybrid models with linear attention, which Halfbyte does not run.",
           "The paper's W4A4 and W4A8 rows turn queries into FP8 before they meet NVFP4 keys; here queries stay FP32.",
           "On a CUDA device 4-bit KV caches are not there yet (docs/cuda.md): these rows run with --device cpu.",
           "The paper bounds the context (40,960 tokens), not the answer; and its 16 seeds are 42 to 57, here one seed and 16 samples."))

if __name__ == "__main__":
    main(TABLE)
