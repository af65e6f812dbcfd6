#!/usr/bin/env python3
"""ReQAT's diagnostics: how often FP4 changes the likeliest token and how much probability leaks, by the entropy of the position, and
accuracy by the length of the reasoning."""

import sys

from tables import Benchmark, Failure, Reproduction, Row, Step, Table, arguments, guarded, percent, run

TRAINING = "needs ReQAT's training, of which Halfbyte has the BF16 stage for small models only (docs/methods.md)"

TABLE = Table(
    name="reqat_diagnostics",
    title="ReQAT: where FP4 goes wrong",
    paper="arXiv 2606.15682",
    models={"R1-Qwen-14B": "deepseek-ai/DeepSeek-R1-Distill-Qwen-14B", "R1-Llama-8B": "deepseek-ai/DeepSeek-R1-Distill-Llama-8B"},
    benchmarks={"AIME-120": Benchmark(120, "AIME 2022 to 2025, JSON lines with problem and answer"),
                "MATH-500": Benchmark(500, "MATH-500, JSON lines with problem and answer"),
                "GSM8K": Benchmark(1319, "GSM8K's test split, JSON lines with question and answer")},
    rows={"BF16": Row(("bf16",)), "MXFP4 W4A16": Row(("w4a16-mxfp4",)), "MXFP4 W4A4": Row(("w4a4-mxfp4",)), "NVFP4 W4A4": Row(("w4a4",)),
          "NVFP4 W4A4KV4": Row(("w4a4,kv=e1m2",)), "fine-tuned, QAT, TAQ, SEM": Row(missing=TRAINING),
          "Q-FIT": Row(missing="the key shift and its calibration are not in Halfbyte yet (docs/roadmap.md)")},
    samples=8, max_tokens=32768, sampling=("--temperature", "0.6", "--top-p", "0.95"),
    figures={("BF16", "AIME-120"): (56.83, 36.67), ("MXFP4 W4A16", "AIME-120"): (50.37, None), ("MXFP4 W4A4", "AIME-120"): (43.96, None),
             ("NVFP4 W4A4KV4", "AIME-120"): (50.13, 23.13), ("BF16", "MATH-500"): (None, 90.00), ("NVFP4 W4A4KV4", "MATH-500"): (None, 84.62),
             ("BF16", "GSM8K"): (None, 88.49), ("NVFP4 W4A4KV4", "GSM8K"): (None, 86.45)},
    notes=("R1-Qwen-14B on AIME-120 by reasoning tokens, 0-8K / 8-16K / 16-24K / 24-32K: BF16 92.1/55.1/21.9/12.9, NVFP4 W4A4KV4 84.6/48.5/14.7/6.3.",
           "A position's quarter is by BF16's entropy, over BF16's own texts (--forced of halfbyte eval sweep); tail is the ratio of 1 - p(top) + 1e-4.",
           "Whether the paper's KV4 without training is E1M2 or E2M1 is not known to us; kv=nvfp4 is E2M1."))


class Diagnostics(Reproduction):
    """One sweep a model and benchmark makes all rows."""

    def sweep(self, benchmark, model):
        t, o = self.table, self.options
        plans = [self.rows[row].arguments[0] for row in self.rows]
        folder = self.path("sweep", benchmark, model, kind="results")
        command = [self.binary, "eval", "sweep", self.models[model], "--tasks", self.questions[benchmark], "--plans", ",".join(plans), *t.sampling,
                   "--samples", str(self.samples(benchmark)), "--seed", str(t.seed), "--max-tokens", str(o.max_tokens), "--device", o.device,
                   "--json", "-o", str(folder), *self.optional(benchmark)]
        tokens = len(plans) * self.asked(benchmark) * self.samples(benchmark) * o.max_tokens
        return Step(f"sweep, {benchmark}, {model}", command, self.models[model], self.path("sweep", benchmark, model, kind="record"), tokens, (self.questions[benchmark],))

    def steps(self):
        return [self.sweep(benchmark, model) for model in self.models for benchmark in self.questions]

    def run_all(self):
        if "BF16" not in self.rows:
            raise Failure("--rows: BF16 is the reference of every figure; leave it in")
        for model in self.models:
            for benchmark in self.questions:
                try:
                    plans = run(self.sweep(benchmark, model))["tasks"][0]["plans"]
                    self.cells.update({(row, benchmark, model): plan for row, plan in zip(self.rows, plans)})
                except Failure as e:
                    self.failed.update({(row, benchmark, model): str(e) for row in self.rows})
                    print(f"failed: {e}", file=sys.stderr)
                self.write()

    def figures_of(self, result):
        out = [percent(result["accuracy"]["mean"], result["accuracy"]["ci95"])]
        if "versus_first" in result:
            f = result["forced"]
            out.append("other likeliest token " + "/".join(f"{100 * share:.2f}%" for share in f["quarter_mismatch"]))
            out.append("tail " + "/".join(f"{ratio:.2f}" for ratio in f["quarter_tail_ratio"]))
            out.append(f"symbolic error {f['symbolic_error']:.2e}")
            out.append("by length " + "/".join(f"{100 * b['reference']:.1f}>{100 * b['other']:.1f}" for b in result["versus_first"]["by_length"]))
        return out


if __name__ == "__main__":
    sys.exit(guarded(lambda: Diagnostics(TABLE, arguments(TABLE)).go()))
