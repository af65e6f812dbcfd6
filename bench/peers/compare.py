#!/usr/bin/env python3
"""Halfbyte beside llama.cpp (and PyTorch, for prompts) on the same model, one measurement of each in turn.

usage: PYTHON bench/peers/compare.py MODEL.gguf [options]      PYTHON: the one that bench/peers/install makes

Each round measures, for every contestant in turn and in an order that rotates: a prompt, decode steps of one sequence at a
context, and decode steps of several sequences. Ratios are made within a round, so what changes on the machine between rounds
cancels. Fixed beforehand: threads, context, batch 512, KV in 16 bits on both sides, greedy choice of the next token.
"""

import argparse
import json
import os
import pathlib
import platform
import statistics
import subprocess
import sys
import time

import llama

ROOT = pathlib.Path(__file__).resolve().parents[2]


def parse():
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.environ.get("HOME", "/tmp"), ".cache")
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("model", help="a GGUF file, best in BF16")
    p.add_argument("--halfbyte", default=str(ROOT / "build/release/bin/halfbyte"), help="the binary (%(default)s)")
    p.add_argument("--plans", default="w4a16;w4a4;w4a16-mxfp4", help="Halfbyte's plans, with ; between them (%(default)s)")
    p.add_argument("--kernels", default="", help="as halfbyte's --kernels")
    p.add_argument("--types", default="q4_0,q8_0,mxfp4,nvfp4", help="llama.cpp's types (%(default)s)")
    p.add_argument("--prompt-types", default="q4_0,q8_0", help="those of them that prompts are measured with (%(default)s); some take minutes")
    p.add_argument("--torch", action="store_true", help="also PyTorch in BF16, prompts only")
    p.add_argument("--threads", type=int, default=2)
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--prompt", type=int, default=512, help="tokens; 0: leave out")
    p.add_argument("--context", type=int, default=2048, help="tokens before the one sequence decodes (%(default)s); 0: leave out")
    p.add_argument("--steps", type=int, default=16, help="decode steps a round")
    p.add_argument("--rows", type=int, default=8, help="sequences of the third measurement, at a context of 16; 0: leave out")
    p.add_argument("--work", default=os.path.join(cache, "halfbyte/peers/models"), help="where quantised files go (%(default)s)")
    p.add_argument("--json", metavar="FILE", help="write everything that was measured")
    return p.parse_args()


def say(text):
    print(f"== {text}", file=sys.stderr, flush=True)


class Halfbyte:
    """`halfbyte bench --stepped` as a child."""

    def __init__(self, options, plan):
        command = [options.halfbyte, "bench", options.model, "--plan", plan, "--threads", str(options.threads), "--stepped"]
        if options.kernels:
            command += ["--kernels", options.kernels]
        self.child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.ready = self.read()

    def read(self):
        line = self.child.stdout.readline()
        if not line:
            sys.exit(f"error: halfbyte ended with code {self.child.wait()}")
        return json.loads(line)

    def ask(self, text):
        self.child.stdin.write(text + "\n")
        self.child.stdin.flush()
        return self.read()

    def prompt(self, tokens, _salt):
        return self.ask(f"prompt {tokens}")["seconds"]

    def steps(self, rows, context, count):
        return self.ask(f"decode {rows} {context} {count}")["seconds"]


class Torch:
    """The same shape in PyTorch, BF16 with random weights (speed does not depend on their values), through oneDNN."""

    def __init__(self, path, threads):
        import gguf
        import torch
        import transformers
        self.torch = torch
        torch.set_num_threads(threads)
        reader = gguf.GGUFReader(path)
        arch = reader.fields["general.architecture"].contents()
        value = lambda key: reader.fields[f"{arch}.{key}"].contents()
        self.vocab = next(int(t.shape[1]) for t in reader.tensors if t.name == "token_embd.weight")
        kind = {"llama": transformers.LlamaConfig, "qwen2": transformers.Qwen2Config, "qwen3": transformers.Qwen3Config}[arch]
        config = kind(hidden_size=value("embedding_length"), intermediate_size=value("feed_forward_length"), num_hidden_layers=value("block_count"),
                      num_attention_heads=value("attention.head_count"), num_key_value_heads=value("attention.head_count_kv"), vocab_size=self.vocab,
                      max_position_embeddings=8192, tie_word_embeddings=True, dtype=torch.bfloat16)
        torch.set_default_dtype(torch.bfloat16)
        self.model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="sdpa").eval()

    def prompt(self, tokens, salt):
        ids = self.torch.tensor([[(i * 7919 + salt * 104729 + 17) % self.vocab for i in range(tokens)]])
        start = time.perf_counter()
        with self.torch.inference_mode():
            self.model(ids, logits_to_keep=1, use_cache=True).logits[0, -1].argmax().item()
        return time.perf_counter() - start


def contestants(options):
    out, facts = {}, {}
    say(f"loading halfbyte: {options.plans}")
    for plan in options.plans.split(";"):
        side = Halfbyte(options, plan)
        out[f"halfbyte {plan}"] = side
        facts[f"halfbyte {plan}"] = side.ready
    kinds = [t for t in options.types.split(",") if t]
    if kinds:
        lib = llama.load()
        os.makedirs(options.work, exist_ok=True)
        facts["llama.cpp"] = lib.llama_print_system_info().decode().strip()
        for kind in kinds:
            target = os.path.join(options.work, f"{pathlib.Path(options.model).stem}.{kind}.gguf")
            say(f"llama.cpp: {kind}")
            llama.quantize(lib, options.model, target, kind, os.cpu_count())
            side = llama.Llama(lib, target, options.threads)
            out[f"llama.cpp {kind}"] = side
            facts[f"llama.cpp {kind}"] = {"bytes": os.path.getsize(target), "load_seconds": side.load_seconds}
    if options.torch:
        say("PyTorch")
        out["pytorch bf16"] = Torch(options.model, options.threads)
    return out, facts


def skipped(options, case, name):
    if not case.startswith("prompt"):
        return name.startswith("pytorch")
    return name.startswith("llama.cpp") and name.split()[1] not in options.prompt_types.split(",")


def measure(options, sides):
    """{case: {contestant: [one figure a round]}}: prompt in tokens/s, decode in steps/s, and memory in GB/s."""
    cases = {}
    if options.prompt:
        cases[f"prompt {options.prompt}"] = lambda s, i: options.prompt / s.prompt(options.prompt, i)
    if options.context:
        cases[f"decode at {options.context}"] = lambda s, i: 1 / statistics.median(s.steps(1, options.context, options.steps))
    if options.rows:
        cases["1 row"] = lambda s, i: 1 / statistics.median(s.steps(1, 16, options.steps))
        cases[f"{options.rows} rows"] = lambda s, i: 1 / statistics.median(s.steps(options.rows, 16, options.steps))
    results = {case: {} for case in cases}
    results["read"] = {"GB/s": []}
    names = list(sides)
    for i in range(-1, options.rounds):  # round -1 warms up and fills the contexts
        say(f"round {i + 1} of {options.rounds}" if i >= 0 else "warming up")
        for case, figure in cases.items():
            for name in names[i % len(names):] + names[:i % len(names)]:
                if skipped(options, case, name):
                    continue
                value = figure(sides[name], i + 1)
                if i >= 0:
                    results[case].setdefault(name, []).append(value)
        own = next(side for name, side in sides.items() if name.startswith("halfbyte"))
        results["read"]["GB/s"].append(own.ask("read")["GBps"])
    return results


def spread(values):
    return f"{statistics.median(values):9.2f} [{min(values):8.2f} {max(values):8.2f}]"


def ratio(ours, theirs):
    return spread([a / b for a, b in zip(ours, theirs)])


def report(options, results, facts):
    own = [n for n in facts if n.startswith("halfbyte")]
    first = facts[own[0]]
    lines = [f"{first['cpu']}, {options.threads} threads, {os.path.basename(options.model)}, {options.rounds} alternating rounds: median [lowest highest]",
             f"read bandwidth {max(results['read']['GB/s']):.2f} GB/s"]
    for case, by_name in results.items():
        if case == "read":
            continue
        unit = "tokens/s" if case.startswith("prompt") else "steps/s"
        lines += ["", f"{case}, {unit}"]
        lines += [f"  {name:<26} {spread(values)}" + (share(values, facts[name], results) if case.startswith("decode") and name in own else "")
                  for name, values in by_name.items()]
        for mine in own:
            lines += [f"  {mine} over {name}: {ratio(by_name[mine], values)}" for name, values in by_name.items() if name not in own]
    if options.rows:
        many = results[f"{options.rows} rows"]
        lines += ["", f"time of a step of {options.rows} rows over one of 1 row"]
        lines += [f"  {name:<26} {ratio(results['1 row'][name], values)}" for name, values in many.items()]
    return "\n".join(lines) + "\n"


def share(values, ready, results):
    rate = statistics.median(values) * ready["decode_bytes_per_token"] / 1e9
    return f"  {rate:6.2f} GB/s of weights, {100 * rate / max(results['read']['GB/s']):.1f}% of read"


def main():
    options = parse()
    if not os.access(options.halfbyte, os.X_OK):
        sys.exit(f"error: there is no {options.halfbyte}\n  build it (cmake --build --preset release), or name it with --halfbyte")
    sides, facts = contestants(options)
    results = measure(options, sides)
    print(report(options, results, facts), end="")
    if options.json:
        everything = {"model": os.path.basename(options.model), "threads": options.threads, "rounds": options.rounds, "machine": platform.machine(),
                      "affinity": len(os.sched_getaffinity(0)), "facts": facts, "results": results}
        pathlib.Path(options.json).write_text(json.dumps(everything, indent=1) + "\n")


if __name__ == "__main__":
    main()
