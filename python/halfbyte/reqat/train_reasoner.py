"""The whole stage 1 of the reasoner on one GPU: writes shards on the CPU's cores and trains meanwhile.

    PYTHONPATH=python python3 -m halfbyte.reqat.train_reasoner OUT --seconds 165

Makes OUT/qwen3 and, with --also-after, OUT/qwen2: a sibling (QKV bias, no q/k norm) that starts later on the same shards
and ends with the first. Each folder has the model, its tokenizer and log.jsonl; OUT/shards may be removed afterwards.
"""

import argparse
import os
import pathlib
import signal
import subprocess
import sys
import time

COMPILATION_SECONDS = 30          # import and compilation on an H200's host; the sibling's, which finds the cache, takes less


def start(module, arguments, log, **environment):
    return subprocess.Popen([sys.executable, "-m", f"halfbyte.reqat.{module}", *map(str, arguments)], stdout=open(log, "w"),
                            stderr=subprocess.STDOUT, env=os.environ | environment)


def start_writers(args):
    shards = args.out / "shards"
    shards.mkdir(parents=True, exist_ok=True)
    sizes = ["--short", args.shards, "--long", args.shards // 8, "--warm-up", args.warm_up_shards, "--workers", args.workers]
    return [start("data", [shards, *sizes, "--worker", w], args.out / f"writer-{w}.log", OMP_NUM_THREADS="1") for w in range(args.workers)]


def start_training(args, architecture, seconds, *more):
    arguments = [args.out / "shards", args.out / architecture, "--architecture", architecture, "--seconds", seconds,
                 "--warm-up-shards", args.warm_up_shards, "--seed", args.seed, *more]
    return start("stage1", arguments, args.out / f"{architecture}.log", OMP_NUM_THREADS="4", TORCHINDUCTOR_COMPILE_THREADS="4")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--seconds", type=float, default=165)
    parser.add_argument("--also-after", type=float, default=0, help="seconds after which the sibling starts; 0: no sibling")
    parser.add_argument("--shards", type=int, default=1400, help="short shards of a million tokens")
    parser.add_argument("--warm-up-shards", type=int, default=60)
    parser.add_argument("--workers", type=int, default=max(1, (os.cpu_count() or 2) - 3))
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    writers, trainings = start_writers(args), {}
    try:
        trainings["qwen3"] = start_training(args, "qwen3", args.seconds, "--checkpoint-seconds", 10)
        if args.also_after:
            time.sleep(args.also_after)
            left = args.seconds - args.also_after - COMPILATION_SECONDS / 3
            trainings["qwen2"] = start_training(args, "qwen2", max(10, left), "--learning-rate", 1.5e-3)
        failed = [name for name, process in trainings.items() if process.wait()]
    finally:
        for process in [*writers, *trainings.values()]:
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
    if failed:
        sys.exit(f"training failed: {', '.join(str(args.out / name) + '.log' for name in failed)}")


if __name__ == "__main__":
    main()
