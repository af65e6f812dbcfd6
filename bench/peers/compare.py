#!/usr/bin/env python3
"""Halfbyte beside llama.cpp (and PyTorch, for prompts) on the same model, one measurement of each in turn.

usage: PYTHON bench/peers/compare.py MODEL.gguf [options]      PYTHON: the one that bench/peers/install makes

Each round measures, for every contestant in turn and in an order that rotates: a prompt, decode steps of one sequence at a
context, and decode steps of several sequences. Ratios are made within a round, so what changes on the machine between rounds
cancels. Fixed beforehand: threads, CPUs, context, batch 512, KV in 16 bits on both sides, greedy choice of the next token.

Loading and a first run of every case, which fills the contexts, happen before the rounds, all contestants at once on all CPUs.
"""

import argparse
import contextlib
import json
import multiprocessing
import os
import pathlib
import platform
import statistics
import subprocess
import sys
import threading
import time

import llama

ROOT = pathlib.Path(__file__).resolve().parents[2]


def parse():
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.environ.get("HOME", "/tmp"), ".cache")
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("model", help="a GGUF file, best in BF16")
    p.add_argument("--halfbyte", default=str(ROOT / "build/release/bin/halfbyte"), help="the binary (%(default)s)")
    p.add_argument("--plans", default="w4a16;w4a4;w4a16-mxfp4", help="Halfbyte's plans, with ; between them; PLAN@SET forces kernels (%(default)s)")
    p.add_argument("--prompt-plans", default="", help="those of them that prompts are measured with (all)")
    p.add_argument("--rows-plans", default="", help="those of them that several sequences are measured with (all)")
    p.add_argument("--earlier", default="", help="another build of Halfbyte, for plans written earlier:PLAN")
    p.add_argument("--types", default="q4_0,q8_0,mxfp4,nvfp4", help="llama.cpp's types; TYPE+noflash: with its flash attention off (%(default)s)")
    p.add_argument("--prompt-types", default="q4_0,q8_0", help="those of them that prompts are measured with (%(default)s); some take minutes")
    p.add_argument("--rows-types", default="", help="those of them that several sequences are measured with (none)")
    p.add_argument("--torch", action="store_true", help="also PyTorch in BF16, prompts only")
    p.add_argument("--threads", type=int, default=2)
    p.add_argument("--cpus", default="", help="CPUs that everything runs on while it is measured, e.g. 0,1: name cores that share no units (all)")
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
        binary = options.earlier if plan.startswith("earlier:") else options.halfbyte
        plan, _, kernels = plan.removeprefix("earlier:").partition("@")
        command = [binary, "bench", options.model, "--plan", plan, "--threads", str(options.threads), "--stepped"]
        if kernels:
            command += ["--kernels", kernels]
        self.child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def prepare(self):
        self.facts = self.read()

    def read(self):
        line = self.child.stdout.readline()
        if not line:
            raise RuntimeError(f"halfbyte ended with code {self.child.wait()}")
        return json.loads(line)

    def ask(self, text):
        with contextlib.suppress(BrokenPipeError):  # it has ended, which reading says
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
        self.path, self.threads = path, threads

    def prepare(self):
        import gguf
        import torch
        import transformers
        self.torch = torch
        torch.set_num_threads(self.threads)
        reader = gguf.GGUFReader(self.path)
        arch = reader.fields["general.architecture"].contents()
        value = lambda key: reader.fields[f"{arch}.{key}"].contents()
        self.vocab = next(int(t.shape[1]) for t in reader.tensors if t.name == "token_embd.weight")
        kind = {"llama": transformers.LlamaConfig, "qwen2": transformers.Qwen2Config, "qwen3": transformers.Qwen3Config}[arch]
        config = kind(hidden_size=value("embedding_length"), intermediate_size=value("feed_forward_length"), num_hidden_layers=value("block_count"),
                      num_attention_heads=value("attention.head_count"), num_key_value_heads=value("attention.head_count_kv"), vocab_size=self.vocab,
                      max_position_embeddings=8192, tie_word_embeddings=True)
        # On the meta device first: the library's own initialisation of every weight takes minutes.
        with torch.device("meta"):
            model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16, attn_implementation="sdpa")
        model = model.to_empty(device="cpu").eval()
        model.tie_weights()
        model.model.rotary_emb = type(model.model.rotary_emb)(config=config)
        pool = torch.randn(1 << 20).to(torch.bfloat16) * 0.02
        with torch.no_grad():
            for weight in model.parameters():
                flat = weight.view(-1)
                for first in range(0, flat.numel(), pool.numel()):
                    part = flat[first:first + pool.numel()]
                    part.copy_(pool[:part.numel()])
        self.model = model
        self.facts = {"torch": torch.__version__, "transformers": transformers.__version__}

    def prompt(self, tokens, salt):
        ids = self.torch.tensor([[(i * 7919 + salt * 104729 + 17) % self.vocab for i in range(tokens)]])
        start = time.perf_counter()
        with self.torch.inference_mode():
            self.model(ids, logits_to_keep=1, use_cache=True).logits[0, -1].argmax().item()
        return time.perf_counter() - start


def serve_torch(path, threads, pipe):
    """Answers {"value": ...} or {"error": text}: not every exception survives the way."""
    side = Torch(path, threads)

    def answer(call, *arguments):
        try:
            pipe.send({"value": call(*arguments)})
        except Exception as e:
            pipe.send({"error": f"{type(e).__name__}: {e}"})

    def prepare():
        side.prepare()
        return side.facts

    answer(prepare)
    with contextlib.suppress(EOFError):  # whoever asked has ended
        while True:
            answer(side.prompt, *pipe.recv())


class TorchProcess:
    """Torch in a process of its own: oneDNN and llama.cpp each set the tiles of AMX for all that run after them, and the other
    then stops with an illegal instruction."""

    def __init__(self, path, threads):
        self.path, self.threads = path, threads

    def prepare(self):
        context = multiprocessing.get_context("spawn")
        self.pipe, theirs = context.Pipe()
        self.child = context.Process(target=serve_torch, args=(self.path, self.threads, theirs), daemon=True)
        self.child.start()
        theirs.close()
        self.facts = self.answer()

    def answer(self):
        try:
            answer = self.pipe.recv()
        except (EOFError, ConnectionResetError):
            self.child.join()
            raise RuntimeError(f"PyTorch's process ended with code {self.child.exitcode}") from None
        if "error" in answer:
            raise RuntimeError(answer["error"])
        return answer["value"]

    def prompt(self, tokens, salt):
        with contextlib.suppress(BrokenPipeError):  # it has ended, which answer() says
            self.pipe.send((tokens, salt))
        return self.answer()


class LlamaCpp:
    """llama.cpp on the model in one of its types, which it writes itself."""

    def __init__(self, options, lib, kind):
        self.options, self.lib, self.kind = options, lib, kind

    def prepare(self):
        kind, _, without_flash = self.kind.partition("+")
        target = os.path.join(self.options.work, f"{pathlib.Path(self.options.model).stem}.{kind}.gguf")
        llama.quantize(self.lib, self.options.model, target, kind, os.cpu_count())
        self.side = llama.Llama(self.lib, target, self.options.threads, flash=0 if without_flash else -1)
        self.facts = {"bytes": os.path.getsize(target), "load_seconds": self.side.load_seconds}

    def prompt(self, tokens, salt):
        return self.side.prompt(tokens, salt)

    def steps(self, rows, context, count):
        return self.side.steps(rows, context, count)


def contestants(options):
    """{name: side}, not yet loaded, and what is to be known of the peers' builds."""
    out, facts = {}, {}
    for plan in options.plans.split(";"):
        out[f"halfbyte {plan}"] = Halfbyte(options, plan)
    kinds = [t for t in options.types.split(",") if t]
    if kinds:
        lib = llama.load()
        os.makedirs(options.work, exist_ok=True)
        facts["llama.cpp"] = lib.llama_print_system_info().decode().strip()
        for kind in kinds:
            out[f"llama.cpp {kind}"] = LlamaCpp(options, lib, kind)
    if options.torch:
        out["pytorch bf16"] = TorchProcess(options.model, options.threads)
    return out, facts


def skipped(options, case, name):
    side, _, what = name.partition(" ")
    prompt = case.startswith("prompt")
    if side == "pytorch":
        return not prompt
    if side == "llama.cpp":
        types = options.prompt_types if prompt else options.rows_types if "row" in case else options.types
        return what not in types.split(",")
    plans = options.prompt_plans if prompt else options.rows_plans if "row" in case else ""
    return bool(plans) and what not in plans.split(";")


def cases_of(options):
    """{case: figure(side, round)}: prompt in tokens/s, decode in steps/s."""
    cases = {}
    if options.prompt:
        cases[f"prompt {options.prompt}"] = lambda s, i: options.prompt / s.prompt(options.prompt, i)
    if options.context:
        cases[f"decode at {options.context}"] = lambda s, i: 1 / statistics.median(s.steps(1, options.context, options.steps))
    if options.rows:
        cases["1 row"] = lambda s, i: 1 / statistics.median(s.steps(1, 16, options.steps))
        cases[f"{options.rows} rows"] = lambda s, i: 1 / statistics.median(s.steps(options.rows, 16, options.steps))
    return cases


def told(e):
    """An exception in one line; what is raised here says all in its text."""
    text = " ".join(str(e).split()).removeprefix("error: ")
    return text if type(e) in (RuntimeError, SystemExit) and text else f"{type(e).__name__}: {text}"


@contextlib.contextmanager
def or_end(what):
    """What goes wrong in a round ends the comparison with one line: the rounds before are in --json."""
    try:
        yield
    except Exception as e:
        sys.exit(f"error: {what}: {told(e)}")


def prepare(options, sides, cases):
    """Loads every side and runs every case once, all sides at the same time; llama.cpp's files one after the other, since
    later ones take the first one's context."""
    def run(names):
        for name in names:
            try:
                start = time.perf_counter()
                sides[name].prepare()
                loaded = time.perf_counter()
                for case, figure in cases.items():
                    if not skipped(options, case, name):
                        figure(sides[name], 0)
                say(f"{name}: loaded in {loaded - start:.1f} s, ran once in {time.perf_counter() - loaded:.1f} s")
            except BaseException as e:
                say(f"{name} is left out: {told(e)}")
                left_out.append(name)

    left_out = []
    together = [n for n in sides if n.startswith("llama.cpp")]
    threads = [threading.Thread(target=run, args=(names,)) for names in [[n] for n in sides if n not in together] + [together]]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    for name in left_out:
        del sides[name]
    if not any(name.startswith("halfbyte") for name in sides):
        sys.exit("error: halfbyte itself did not run")


def pin(sides, cpus):
    """Every thread of this process and of the children to the CPUs; threads that start later inherit it."""
    for pid in [os.getpid()] + [s.child.pid for s in sides.values() if hasattr(s, "child")]:
        for task in os.listdir(f"/proc/{pid}/task"):
            with contextlib.suppress(ProcessLookupError):  # ended meanwhile
                os.sched_setaffinity(int(task), cpus)


def measure(options, sides, cases, keep):
    """{case: {contestant: [one figure a round]}}, and memory in GB/s. keep(results) is called after every round."""
    results = {case: {} for case in cases}
    results["read"] = {"GB/s": []}
    names = list(sides)
    own = next(side for name, side in sides.items() if name.startswith("halfbyte"))
    for i in range(options.rounds):
        say(f"round {i + 1} of {options.rounds}")
        for case, figure in cases.items():
            for name in names[i % len(names):] + names[:i % len(names)]:
                if not skipped(options, case, name):
                    with or_end(f"{name}, {case}, round {i + 1} of {options.rounds}"):
                        results[case].setdefault(name, []).append(figure(sides[name], i + 1))
        with or_end(f"read bandwidth, round {i + 1} of {options.rounds}"):
            results["read"]["GB/s"].append(own.ask("read")["GBps"])
        keep(results)
    return results


def spread(values):
    return f"{statistics.median(values):9.2f} [{min(values):8.2f} {max(values):8.2f}]"


def ratio(ours, theirs):
    return spread([a / b for a, b in zip(ours, theirs)])


def report(options, results, facts):
    own = [n for n in facts if n.startswith("halfbyte")]
    first = facts[own[0]]
    where = f" on CPUs {options.cpus}" if options.cpus else ""
    lines = [f"{first['cpu']}, {options.threads} threads{where}, {os.path.basename(options.model)}, {options.rounds} alternating rounds: median [lowest highest]",
             f"read bandwidth {max(results['read']['GB/s']):.2f} GB/s"]
    for case, by_name in results.items():
        if case == "read":
            continue
        unit = "tokens/s" if case.startswith("prompt") else "steps/s"
        lines += ["", f"{case}, {unit}"]
        lines += [f"  {name:<26} {spread(values)}" + (share(values, facts[name], results, options.context) if case.startswith("decode") and name in own else "")
                  for name, values in by_name.items()]
        for mine in (n for n in own if n in by_name):
            lines += [f"  {mine} over {name}: {ratio(by_name[mine], values)}" for name, values in by_name.items()
                      if name not in own or name == mine.replace("halfbyte ", "halfbyte earlier:")]
    if options.rows:
        many = results[f"{options.rows} rows"]
        lines += ["", f"time of a step of {options.rows} rows over one of 1 row"]
        lines += [f"  {name:<26} {ratio(results['1 row'][name], values)}" for name, values in many.items()]
    return "\n".join(lines) + "\n"


def share(values, facts, results, context):
    """A step reads all weights and, in each layer, the keys and values of the context."""
    read = facts["decode_bytes_per_token"] + context * facts["kv_bytes_per_token"]
    rate = statistics.median(values) * read / 1e9
    return f"  {rate:6.2f} GB/s of weights and cache, {100 * rate / max(results['read']['GB/s']):.1f}% of read"


def main():
    options = parse()
    if not os.access(options.halfbyte, os.X_OK):
        sys.exit(f"error: there is no {options.halfbyte}\n  build it (cmake --build --preset release), or name it with --halfbyte")
    # Before any contestant is started.
    llama.need(*(("llama_cpp", "numpy") if options.types else ()), *(("torch", "transformers", "gguf") if options.torch else ()))
    cpus = {int(c) for c in options.cpus.split(",")} if options.cpus else None
    sides, facts = contestants(options)
    cases = cases_of(options)
    prepare(options, sides, cases)
    facts.update({name: side.facts for name, side in sides.items()})
    if cpus:
        pin(sides, cpus)

    def keep(results):
        if options.json:
            everything = {"model": os.path.basename(options.model), "threads": options.threads, "rounds": options.rounds, "context": options.context,
                          "machine": platform.machine(), "cpus": sorted(os.sched_getaffinity(0)), "facts": facts, "results": results}
            pathlib.Path(options.json).write_text(json.dumps(everything, indent=1) + "\n")

    print(report(options, measure(options, sides, cases, keep), facts), end="")


if __name__ == "__main__":
    main()
