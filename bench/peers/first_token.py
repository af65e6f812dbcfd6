#!/usr/bin/env python3
"""Seconds from the start of `halfbyte run` to its first token, with the file in the page cache.

usage: first_token.py HALFBYTE MODEL.gguf [--threads N] [--runs N] [--as TYPE]      --as: have llama.cpp write the model as TYPE first
"""

import argparse
import os
import pathlib
import select
import statistics
import subprocess
import time


def main():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("halfbyte")
    p.add_argument("model")
    p.add_argument("--threads", type=int, default=2)
    p.add_argument("--runs", type=int, default=5)
    p.add_argument("--plan", default="w4a16")
    p.add_argument("--as", dest="kind", default="")
    options = p.parse_args()
    model = options.model
    if options.kind:
        import llama
        model = str(pathlib.Path(model).with_suffix(f".{options.kind}.gguf"))
        llama.quantize(llama.load(), options.model, model, options.kind, os.cpu_count())
    command = [options.halfbyte, "run", model, "--plan", options.plan, "--threads", str(options.threads), "--raw", "--temperature", "0", "--quiet", "a b"]
    pathlib.Path(model).read_bytes()  # into the page cache
    seconds = []
    for _ in range(options.runs):
        start = time.perf_counter()
        child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
        first = child.stdout.read(1) if select.select([child.stdout], [], [], 60)[0] else b""
        seconds.append(time.perf_counter() - start)
        child.terminate()
        child.communicate()
        if not first:
            raise SystemExit(f"error: {' '.join(command)} printed nothing")
    print(f"{os.path.basename(model)}, {os.path.getsize(model) / 1e6:.0f} MB, plan {options.plan}, {options.threads} threads: first token after "
          f"{statistics.median(seconds):.2f} s [{min(seconds):.2f} {max(seconds):.2f}], {options.runs} runs, file in the page cache")


if __name__ == "__main__":
    main()
