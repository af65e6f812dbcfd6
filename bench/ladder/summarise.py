#!/usr/bin/env python3
"""Joins the JSON lines of several `ladder time --json` processes: for each (shape, version, M) the median of the processes' paired medians,
with their least and most, and over the 12 shapes of the ReSET table the median and worst.

usage: summarise.py OUT.json META.json RUN.json [RUN.json ...]   (META: device, driver, commit, command, date; copied into OUT)
"""
import json
import statistics
import sys

PAPER_SHAPES = 12


def main() -> int:
    out, meta, runs = sys.argv[1], json.load(open(sys.argv[2])), sys.argv[3:]
    rows: dict[tuple, dict] = {}
    shapes: list[str] = []
    for run in runs:
        for line in open(run):
            r = json.loads(line)
            if r["shape"] not in shapes:
                shapes.append(r["shape"])
            key = (r["shape"], r["name"], r["m"])
            row = rows.setdefault(key, {"shape": r["shape"], "n": r["n"], "k": r["k"], "name": r["name"], "m": r["m"],
                                        "us": [], "read_us": [], "ratio": []})
            for field in ("us", "read_us", "ratio"):
                row[field].append(r[field])
    table = []
    for row in rows.values():
        table.append({**{f: row[f] for f in ("shape", "n", "k", "name", "m")},
                      "us": round(statistics.median(row["us"]), 3), "read_us": round(statistics.median(row["read_us"]), 3),
                      "ratio": round(statistics.median(row["ratio"]), 3),
                      "ratio_min": round(min(row["ratio"]), 3), "ratio_max": round(max(row["ratio"]), 3)})
    by_version: dict[tuple, list] = {}
    for r in table:
        if r["shape"] in shapes[:PAPER_SHAPES]:
            by_version.setdefault((r["name"], r["m"]), []).append(r["ratio"])
    summary = [{"name": n, "m": m, "median": round(statistics.median(v), 3), "worst": max(v), "shapes": len(v)}
               for (n, m), v in by_version.items()]
    with open(out, "w") as f:
        head = {**meta, "processes": len(runs), "summary_over_12_shapes": summary}
        f.write(json.dumps(head, indent=1)[:-2] + ',\n "rows": [\n' + ",\n".join("  " + json.dumps(r) for r in table) + "\n ]\n}\n")
    for s in summary:
        print(f"{s['name']:34} M={s['m']:<3} median {s['median']:.3f}  worst {s['worst']:.3f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
