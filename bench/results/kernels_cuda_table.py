#!/usr/bin/env python3
"""Joins the JSON of several `bench_kernels_cuda --json` processes: for each shape, format, kernel and M the median of the processes'
paired medians with their least and most, and the figures over the 12 shapes of the ReSET table. Prints Markdown.

usage: kernels_cuda_table.py OUT.json RUN.json [RUN.json ...] [--note TEXT]     join and write OUT.json, print its tables
       kernels_cuda_table.py OUT.json                                            print the tables of a file written before"""

import argparse
import json
import pathlib
import statistics
import sys

PAPER_SHAPES = ["8B qkv", "8B o", "8B gate", "8B down", "14B qkv", "14B o", "14B gate", "14B down", "32B qkv", "32B o", "32B gate", "32B down"]


def spread(values):
    return {"median": round(statistics.median(values), 4), "min": round(min(values), 4), "max": round(max(values), 4)}


def per_process(run):
    """What one process says of the 12 shapes, a format at a time; ratios within the process only."""
    us = {(c["shape"], c["format"], c["m"]): c["us"] for c in run["cases"] if "shape" in c}
    ratio = {(c["shape"], c["format"], c["m"]): c["ratio"] for c in run["cases"] if "shape" in c}
    out = {}
    for form in ("nvfp4", "mxfp4"):
        shapes = [s for s in PAPER_SHAPES if (s, form, 1) in us]
        if not shapes:
            continue
        over_read = [ratio[s, form, 1] for s in shapes]
        out[form, "M=1 over the read, median"] = statistics.median(over_read)
        out[form, "M=1 over the read, worst"] = max(over_read)
        for m in (2, 4, 8, 16):
            pairs = [us[s, form, m] / us[s, form, 1] for s in shapes if (s, form, m) in us]
            if pairs:
                out[form, f"M={m} over M=1, median"] = statistics.median(pairs)
        pairs = [us[s, "bf16", 1] / us[s, form, 1] for s in shapes if (s, "bf16", 1) in us]
        if pairs:
            out[form, "cuBLAS BF16 over M=1, median"] = statistics.median(pairs)
    return out


def join(runs):
    rows = {}
    for run in runs:
        for c in run["cases"]:
            key = (c.get("shape", ""), c["n"], c["k"], c["implementation"], c["format"], c["m"])
            rows.setdefault(key, []).append(c)
    summaries = [per_process(run) for run in runs]
    keys = list(dict.fromkeys(k for s in summaries for k in s))
    names = ("shape", "n", "k", "implementation", "format", "m")
    return {
        "processes": len(runs),
        "machine": runs[0]["machine"],
        "summary_over_12_shapes": [{"format": f, "what": what, **spread([s[f, what] for s in summaries if (f, what) in s])} for f, what in keys],
        "rows": [{**dict(zip(names, key)), "us": spread([c["us"] for c in cases]),
                  **({"read_us": spread([c["read_us"] for c in cases]), "ratio": spread([c["ratio"] for c in cases])} if "ratio" in cases[0] else {})}
                 for key, cases in rows.items()],
    }


def tables(results):
    lines = ["| over the 12 shapes | format | median of processes | least | most |", "|---|---|---|---|---|"]
    lines += [f"| {s['what']} | {s['format']} | {s['median']:.3f} | {s['min']:.3f} | {s['max']:.3f} |" for s in results["summary_over_12_shapes"]]
    rows = {(r["shape"], r["format"], r["m"]): r for r in results["rows"]}
    tokens = sorted({r["m"] for r in results["rows"] if r["format"] != "bf16"})
    lines += ["", "| shape | N x K | format | read us | M=1 us | " + " | ".join(f"M={m}" for m in tokens) + " | M=8 / M=1 | BF16 / M=1 |",
              "|" + "---|" * (len(tokens) + 7)]
    for (shape, form, m), r in rows.items():
        if form == "bf16" or m != 1 or not shape:
            continue
        own = [rows.get((shape, form, t)) for t in tokens]
        eight, bf16 = rows.get((shape, form, 8)), rows.get((shape, "bf16", 1))
        over = [f"{x['us']['median'] / r['us']['median']:.3f}" if x else "" for x in (eight, bf16)]
        cells = [f"{o['ratio']['median']:.3f} [{o['ratio']['min']:.3f}, {o['ratio']['max']:.3f}]" if o else "" for o in own]
        lines.append(f"| {shape} | {r['n']} x {r['k']} | {form} | {r['read_us']['median']:.2f} | {r['us']['median']:.2f} | " + " | ".join(cells + over) + " |")
    return "\n".join(lines)


def read(path):
    """The JSON object of a run or of a file written before; ends the program with what is wrong with it."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        sys.exit(f"kernels_cuda_table: {path}: {error.strerror}")
    except ValueError as error:
        sys.exit(f"kernels_cuda_table: {path}: no JSON: {error}")


def expect(condition, path, wanted):
    if not condition:
        sys.exit(f"kernels_cuda_table: {path}: expected {wanted}")


def read_run(path):
    run = read(path)
    expect(isinstance(run, dict) and isinstance(run.get("machine"), dict) and isinstance(run.get("cases"), list) and run["cases"],
           path, "what bench_kernels_cuda --json prints, with 'machine' and 'cases'")
    wanted = {"n", "k", "implementation", "format", "m", "us"}
    expect(all(isinstance(c, dict) and wanted <= c.keys() for c in run["cases"]), path, "cases with " + ", ".join(sorted(wanted)))
    expect(all({"read_us", "ratio"} <= c.keys() for c in run["cases"] if "shape" in c), path, "cases of a shape with read_us and ratio")
    return run


def read_joined(path):
    results = read(path)
    expect(isinstance(results, dict) and {"summary_over_12_shapes", "rows"} <= results.keys(), path,
           "a file that this program wrote, with 'summary_over_12_shapes' and 'rows'; to make one, name the runs, too")
    return results


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("runs", nargs="*", type=pathlib.Path)
    parser.add_argument("--note", default="", help="date, command, conditions: kept in OUT")
    arguments = parser.parse_args()
    if arguments.runs:
        runs = [read_run(p) for p in arguments.runs]
        if len({json.dumps({k: v for k, v in r["machine"].items() if not k.endswith("_mhz")}) for r in runs}) != 1:
            sys.exit("kernels_cuda_table: the runs are of different machines, builds or options")
        results = {"note": arguments.note, **join(runs)}
        head = json.dumps({k: v for k, v in results.items() if k != "rows"}, indent=1)
        body = ",\n".join("  " + json.dumps(r) for r in results["rows"])
        try:
            arguments.out.write_text(head[:-2] + ',\n "rows": [\n' + body + "\n ]\n}\n", encoding="utf-8")
        except OSError as error:
            sys.exit(f"kernels_cuda_table: {arguments.out}: {error.strerror}")
    print(tables(read_joined(arguments.out)))


if __name__ == "__main__":
    main()
