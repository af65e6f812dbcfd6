#!/usr/bin/env python3
"""The token inflation of INT4 and INT3 weights (CTIR), and what is tried against it."""

from tables import Benchmark, Row, Table, main

OTHER_QUANTISERS = "Halfbyte rounds to nearest; GPTQ, AWQ and HQQ are not in it"
INT3 = ("--plan", "int3")

TABLE = Table(
    name="ctir",
    title="Token inflation of weight-only quantisation",
    paper='"Quantization Inflates Reasoning", arXiv 2606.25519; marker penalty: Lotfi et al., arXiv 2606.00206',
    models={"Qwen3-4B": "Qwen/Qwen3-4B", "Qwen3-8B": "Qwen/Qwen3-8B", "Qwen3-14B": "Qwen/Qwen3-14B"},
    benchmarks={"GSM8K": Benchmark(1319, "GSM8K's test split, JSON lines with question and answer"),
                "MATH-500": Benchmark(500, "MATH-500, JSON lines with problem and answer"),
                "GPQA-Diamond": Benchmark(198, "GPQA-Diamond as published, as JSON lines")},
    rows={"BF16": Row(("--plan", "bf16")),
          "INT4": Row(("--plan", "int4"), against="BF16"),
          "INT3": Row(INT3, against="BF16"),
          "INT3, asked to be concise": Row(INT3 + ("--prompt-suffix", "Please think briefly and answer as soon as you are sure."), against="BF16"),
          "INT3, temperature 0.3": Row(INT3 + ("--temperature", "0.3"), against="BF16"),
          "INT3, temperature 1": Row(INT3 + ("--temperature", "1"), against="BF16"),
          "INT3, marker penalty 1": Row(INT3 + ("--marker-penalty", "1"), against="BF16"),
          "INT3, marker penalty 4": Row(INT3 + ("--marker-penalty", "4"), against="BF16"),
          "GPTQ, AWQ, HQQ": Row(missing=OTHER_QUANTISERS),
          "quantisation-aware training": Row(missing="Halfbyte trains small models in BF16 only (docs/methods.md, ReQAT)")},
    samples=1, seed=0, max_tokens=32768, sampling=("--temperature", "0.6", "--top-p", "0.95", "--top-k", "20"),
    notes=("The paper's range: INT4 +3.7% tokens (Qwen3-30B, GPTQ) to +43.0% (30B, round to nearest); INT3 +19.0% to +292.1% (4B, HQQ), the worst benchmark +957.4% "
           "(MBPP, INT3 AWQ). Figures by model and benchmark are not known to us.",
           "CTIR of the paper is the plain mean over benchmarks; a cell here is one benchmark's ratio of mean reasoning tokens.",
           "The wording of the paper's prompts is not known to us; the marker penalty's authors report 12 to 23% fewer tokens for penalties of 0.5 to 4.",
           "int4 and int3 are groups of 128, asymmetric, rounded to nearest, kept as BF16: they say what the rounding does to a model, not how fast it is.",
           "BBH and the agentic benchmark of the paper have no grader here."))

if __name__ == "__main__":
    main(TABLE)
