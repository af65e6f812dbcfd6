#!/usr/bin/env python3
"""Writes the README's table of a CUDA device from the results file; with --check it only says whether the table is that."""

import argparse
import json
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
RESULTS = ROOT / "bench" / "results" / "h200_cuda_2026-11-30.json"
BEGIN, END = "<!-- cuda table: bench/results/cuda_table.py -->\n", "<!-- end of cuda table -->\n"
SHAPES = {"qwen3-8b": "Qwen3-8B", "qwen3-14b": "Qwen3-14B", "qwen3-32b": "Qwen3-32B"}


def row(rows, shape, plan, batch, context=1024):
    found = [r for r in rows if (r["shape"], r["plan"], r["batch"], r["context"]) == (shape, plan, batch, context)]
    return found[0] if found else None


def cell(r):
    return f"{r['ms']:.2f} ({r['share_of_read']:.0%})" if r else ""


def prompt(r):
    return f"{r['prompt_ms']:.0f}" if r and r.get("prompt_tokens") == 4096 else ""


def table(results):
    rows = results["rows"]
    lines = ["| shape | NVFP4, 1 sequence | 8 sequences | BF16, 1 sequence | 8 sequences | prompt of 4,096, NVFP4, ms |", "|---|---|---|---|---|---|"]
    for shape, name in SHAPES.items():
        cells = [cell(row(rows, shape, plan, batch)) for plan in ("w4a16", "bf16") for batch in (1, 8)]
        lines.append(f"| {name} | " + " | ".join([*cells, prompt(row(rows, shape, "w4a16", 1))]) + " |")
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; 1 when the README differs")
    arguments = parser.parse_args()
    readme = ROOT / "README.md"
    text = readme.read_text(encoding="utf-8")
    before, rest = text.split(BEGIN)
    _, after = rest.split(END)
    wanted = before + BEGIN + table(json.loads(RESULTS.read_text(encoding="utf-8"))) + END + after
    if wanted == text:
        return 0
    if arguments.check:
        print("README.md: the table of a CUDA device is not what bench/results/cuda_table.py writes", file=sys.stderr)
        return 1
    readme.write_text(wanted, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
