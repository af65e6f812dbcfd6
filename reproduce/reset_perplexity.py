#!/usr/bin/env python3
"""ReSET's perplexities: WikiText-2 of BF16 and of NVFP4 rounded to nearest."""

import sys

from tables import Benchmark, Reproduction, Row, Step, Table, arguments, guarded

WIKITEXT = "WikiText-2"
TABLE = Table(
    name="reset_perplexity",
    title="ReSET: perplexity of NVFP4",
    paper="Lee et al., arXiv 2606.13233",
    models={"Qwen3-8B": "Qwen/Qwen3-8B", "Qwen3-14B": "Qwen/Qwen3-14B", "Qwen3-32B": "Qwen/Qwen3-32B"},
    benchmarks={WIKITEXT: Benchmark(1, "the test split of WikiText-2 (raw) as one text file; here --questions names it")},
    rows={"BF16": Row(("--plan", "bf16")), "NVFP4": Row(("--plan", "w4a4"))},
    samples=1, max_tokens=0, sampling=(),
    figures={("BF16", WIKITEXT): (9.72, 8.65, 7.61), ("NVFP4", WIKITEXT): (10.10, 8.91, 8.01)},
    notes=("Windows of 2,048 tokens; how the paper cuts the text is not known to us.", "Nothing is generated: every token of the text is scored once."))


class Perplexities(Reproduction):
    def evaluation(self, row, benchmark, model, extra=()):
        text = self.questions[benchmark]
        command = [self.binary, "eval", self.models[model], "--task", "perplexity", "--text", text, *self.rows[row].arguments, "--device",
                   self.options.device, "--json"]
        return Step(f"{row}, {benchmark}, {model}", command, self.models[model], self.path(row, benchmark, model, kind="record"), 0, (text,))

    def conditions(self):
        return "Perplexity; windows of 2,048 tokens; beside it the paper's figure."

    def heading(self, benchmark):
        return benchmark

    def cell(self, row, benchmark, model):
        at, paper = (row, benchmark, model), self.table.figures[row, benchmark][list(self.table.models).index(model)]
        own = f"{self.cells[at]['perplexity']:.4f}" if at in self.cells else "failed" if at in self.failed else "-"
        return f"{own}; paper {paper}"


if __name__ == "__main__":
    sys.exit(guarded(lambda: Perplexities(TABLE, arguments(TABLE)).go()))
