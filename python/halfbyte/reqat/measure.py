"""Measures a trained reasoner under precision plans: accuracy, length, entropy, and what each plan costs, by task and level.

    python -m halfbyte.reqat.measure MODEL OUT --split validation --samples 2 --plans "bf16;w4a4"

Writes OUT/SPLIT.json (a summary) and OUT/SPLIT.npz (a row a question: correct, reasoning tokens, truncated; the entropy
histogram of each task and level). Intervals: 10,000 bootstraps over questions, paired with BF16 where a plan is compared.
"""

import argparse
import json
import pathlib
import time

import numpy as np
import torch
from safetensors.torch import load_file

from .. import tasks
from ..tasks import files
from ..reasoner.tokenizer import END_THINK, IDS, END, decode, encode, prompt_text
from .generate import PLANS, Model, generate
from .network import Config, from_hf

QUESTIONS = files.COUNTS              # a level
LIMITS = {"arithmetic": 1024, "word": 640, "chain": 1024, "countdown": 704, "retrieval": 256}  # new tokens
BINS = np.concatenate([[0], np.logspace(-6, np.log10(6), 49)])


def questions(split, only, scale):
    return [q for task in only for level in tasks.TASKS[task].LEVELS
            for q in tasks.numbered(task, level, split, max(1, int(QUESTIONS[task] * scale)))]


def read_questions(folder, split, only, scale):
    """The same from question files, which is faster than drawing."""
    found = []
    for task in only:
        lines = [json.loads(line) for line in (folder / f"{task}-{split}.jsonl").read_text().splitlines()]
        for level in tasks.TASKS[task].LEVELS:
            mine = [files.read_line(line) for line in lines if line["level"] == level]
            found += mine[:max(1, int(QUESTIONS[task] * scale))]
    return found


def batches(chosen):
    """Index lists: what runs together. Long prompts apart, so that the others keep short caches."""
    short = [i for i, q in enumerate(chosen) if q.task != "retrieval"]
    long = [[i for i, q in enumerate(chosen) if q.task == "retrieval" and q.level in levels] for levels in ((1, 2), (3, 4))]
    return [b for b in [short, *long] if b]


def sample(model, chosen, samples, seed):
    """Arrays [questions, samples]: correct, reasoning tokens, tokens, truncated; entropies and texts as lists."""
    n, (end, end_think) = len(chosen), (IDS[END], IDS[END_THINK])
    out = {k: np.zeros((n, samples), np.int32) for k in ("correct", "reasoning", "tokens", "truncated")}
    entropies, texts = [[None] * samples for _ in range(n)], [[None] * samples for _ in range(n)]
    for group in batches(chosen):
        prompts = [encode(prompt_text(chosen[i].prompt)) for i in group for _ in range(samples)]
        limit = max(LIMITS[chosen[i].task] for i in group)
        ids, entropy = generate(model, prompts, limit, seed, end)
        for at, (row, h) in enumerate(zip(ids, entropy)):
            i, s = group[at // samples], at % samples
            own = LIMITS[chosen[i].task]
            row, h = row[:own], h[:own]
            text = decode(row.tolist())
            closed = np.flatnonzero(row == end_think)
            out["correct"][i, s] = tasks.grade(chosen[i], text)
            out["reasoning"][i, s] = (closed[0] if len(closed) else len(row)) - 2      # "<think>\n" is no reasoning
            out["tokens"][i, s] = len(row)
            out["truncated"][i, s] = row[-1] != end
            entropies[i][s], texts[i][s] = h, text
    return out, entropies, texts


def bootstrap(values, draws=10_000, seed=0):
    """95% interval of the mean of values [questions]."""
    rand = np.random.default_rng(seed)
    means = np.concatenate([values[rand.integers(0, len(values), (500, len(values)))].mean(1) for _ in range(draws // 500)])
    return [round(float(x), 4) for x in np.percentile(means, [2.5, 97.5])]


def summary(chosen, runs, draws=10_000):
    """plan -> group -> figures; a group is "task/level", a task, or "all"."""
    groups = {}
    for i, q in enumerate(chosen):
        for name in (f"{q.task}/{q.level}", q.task, "all"):
            groups.setdefault(name, []).append(i)
    base, figures = runs.get("bf16"), {}
    for plan, (out, entropies, _) in runs.items():
        figures[plan] = {}
        for name, rows in groups.items():
            correct = out["correct"][rows].mean(1)
            h = np.concatenate([e for i in rows for e in entropies[i]])
            f = {"n": len(rows), "accuracy": round(float(correct.mean()), 4),
                 "reasoning": round(float(out["reasoning"][rows].mean()), 1),
                 "truncated": round(float(out["truncated"][rows].mean()), 4),
                 "above_half_nat": round(float((h > .5).mean()), 4)}
            if "/" not in name:
                f["ci95"] = bootstrap(correct, draws)
            if base and plan != "bf16":
                loss = correct - base[0]["correct"][rows].mean(1)
                f["change"] = round(float(loss.mean()), 4)
                f["ctir"] = round(float(out["reasoning"][rows].mean() / base[0]["reasoning"][rows].mean()), 4)
                if "/" not in name:
                    f["change_ci95"] = bootstrap(loss, draws)
            figures[plan][name] = f
    return figures


def show(figures):
    for plan, groups in figures.items():
        cells = [f"{name} {f['accuracy']:.3f}" + (f"{f['change']:+.3f}" if "change" in f else "") +
                 f" {f['reasoning']:.0f}t h{f['above_half_nat']:.2f}" + (f" tr{f['truncated']:.2f}" if f["truncated"] > .01 else "")
                 + (f" {f.get('change_ci95', '')}" if "/" not in name else "") for name, f in groups.items()]
        print(f"{plan}: " + " | ".join(cells), flush=True)


def save(out, split, chosen, runs, figures, about):
    arrays = {"task": np.array([q.task for q in chosen]), "level": np.array([q.level for q in chosen])}
    for plan, (values, entropies, _) in runs.items():
        arrays |= {f"{plan}/{k}": v.astype(np.int16) for k, v in values.items()}
        arrays[f"{plan}/entropy_histogram"] = np.array([np.histogram(np.concatenate(e), BINS)[0] for e in entropies], np.int16)
    np.savez_compressed(out / f"{split}.npz", entropy_bins=BINS, **arrays)
    (out / f"{split}.json").write_text(json.dumps(about | {"figures": figures}, indent=1) + "\n")


def known(parser, flag, names, all_of):
    for name in names:
        if name not in all_of:
            parser.error(f"{flag}: there is no {name!r}, only {', '.join(repr(n) for n in all_of)}")
    return names


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("model", type=pathlib.Path)
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--weights", default="model", help="name of the safetensors file, without its ending")
    parser.add_argument("--split", choices=tasks.SPLITS, default="validation")
    parser.add_argument("--samples", type=int, default=2)
    parser.add_argument("--plans", default=";".join(PLANS), help="separated by ; (default: all)")
    parser.add_argument("--tasks", default=",".join(tasks.TASKS), help="separated by commas (default: all)")
    parser.add_argument("--questions", type=pathlib.Path, help="folder of question files; default: draws the questions")
    parser.add_argument("--scale", type=float, default=1, help="of the number of questions")
    parser.add_argument("--seed", type=int, default=11)
    parser.add_argument("--budget", type=float, default=1e9, help="seconds after which no further plan is begun")
    args = parser.parse_args()
    plans, only = known(parser, "--plans", args.plans.split(";"), PLANS), known(parser, "--tasks", args.tasks.split(","), tasks.TASKS)
    begin, device = time.time(), "cuda" if torch.cuda.is_available() else "cpu"
    raw = json.loads((args.model / "config.json").read_text())
    config = Config(architecture=raw["model_type"])
    state = from_hf(config, load_file(args.model / f"{args.weights}.safetensors"))
    chosen = read_questions(args.questions, args.split, only, args.scale) if args.questions else questions(args.split, only, args.scale)
    print(f"{len(chosen)} questions in {time.time() - begin:.1f} s", flush=True)
    args.out.mkdir(parents=True, exist_ok=True)
    runs, seconds, figures = {}, {}, {}
    for plan in plans:
        if time.time() - begin > args.budget:
            print(f"no time left for {plan}", flush=True)
            continue
        start = time.time()
        runs[plan] = sample(Model(config, state, PLANS[plan], device, 4608), chosen, args.samples, args.seed)
        seconds[plan] = round(time.time() - start, 1)
        figures |= summary(chosen, {k: runs[k] for k in ("bf16", plan) if k in runs}, draws=2000)
        show({plan: figures[plan]})
        print(f"{plan}: {seconds[plan]} s", flush=True)
        if plan == "bf16":
            for task in only:
                i = max(i for i, q in enumerate(chosen) if q.task == task and q.level <= 2)
                print(f"SAMPLE {task}: {chosen[i].prompt[-200:]!r} -> {runs[plan][2][i][0][:700]!r}", flush=True)
        about = {"split": args.split, "samples": args.samples, "seed": args.seed, "seconds": seconds, "temperature": .6, "top_p": .95,
                 "task_version": tasks.VERSION, "arithmetic": "float32 with fake quantisation"}
        save(args.out, args.split, chosen, runs, figures, about)       # after each plan, should the time end


if __name__ == "__main__":
    main()
