#!/usr/bin/env python3
"""ReSET's accuracy table: NVFP4 against NVFP4 with ReSET, on AIME-120, GPQA-Diamond and LiveCodeBench."""

from tables import Benchmark, Row, Table, main

OTHER_QUANTISERS = "Halfbyte rounds to nearest; BRQ, Four Over Six and MR-GPTQ are not in it"

TABLE = Table(
    name="reset_accuracy",
    title="ReSET: accuracy of NVFP4 reasoning",
    paper="Lee et al., arXiv 2606.13233",
    models={"R1-Qwen-7B": "deepseek-ai/DeepSeek-R1-Distill-Qwen-7B", "R1-Qwen-14B": "deepseek-ai/DeepSeek-R1-Distill-Qwen-14B",
            "Qwen3-8B": "Qwen/Qwen3-8B", "Qwen3-14B": "Qwen/Qwen3-14B", "Qwen3-32B": "Qwen/Qwen3-32B"},
    benchmarks={"AIME-120": Benchmark(120, "AIME 2022 to 2025, JSON lines with problem and answer"),
                "GPQA-Diamond": Benchmark(198, "GPQA-Diamond as published, as JSON lines"),
                "LiveCodeBench": Benchmark(0, "LiveCodeBench; the paper's release and number of problems are not known to us", code=True)},
    rows={"BF16": Row(("--plan", "bf16")),
          "NVFP4": Row(("--plan", "w4a4"), against="BF16"),
          "ReSET": Row(("--plan", "w4a4", "--policy", "reset"), against="NVFP4", calibrated=True),
          "BRQ, Four Over Six, MR-GPTQ": Row(missing=OTHER_QUANTISERS)},
    samples=8, max_tokens=32768, sampling=("--temperature", "0.6", "--top-p", "0.95", "--top-k", "0"),
    figures={("NVFP4", "AIME-120"): (39.6, 52.4, 62.5, 70.4, 74.4), ("ReSET", "AIME-120"): (43.8, 54.0, 64.9, 72.1, 77.5),
             ("NVFP4", "GPQA-Diamond"): (47.1, 53.7, 50.7, 57.4, 62.8), ("ReSET", "GPQA-Diamond"): (46.0, 57.6, 53.2, 58.5, 62.9),
             ("NVFP4", "LiveCodeBench"): (29.5, 37.1, 36.4, 46.7, 46.5), ("ReSET", "LiveCodeBench"): (28.4, 37.9, 42.1, 46.1, 46.7)},
    notes=("BF16 over the five models: AIME-120 65.1, GPQA-Diamond 57.3, LiveCodeBench 41.3 (the paper gives the mean alone); the other quantisers' means "
           "on AIME-120: BRQ 57.0, Four Over Six 60.6, MR-GPTQ 60.0.",
           "The paper's NVFP4 is ModelOpt's, with static input scales from 32 C4 samples. w4a4 of a BF16 folder makes its input scales per token; give "
           "ModelOpt's folder as the model for its own weights.",
           "Without --prompts, tau0 is the published one of each model; the paper took it from 5 problems of NuminaMath-1.5."))

if __name__ == "__main__":
    main(TABLE)
