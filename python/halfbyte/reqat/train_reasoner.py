"""The whole stage 1 of the reasoner on one GPU: writes shards on the CPU's cores and trains meanwhile.

    PYTHONPATH=python python3 -m halfbyte.reqat.train_reasoner OUT --seconds 350 --sibling-seconds 120

Makes OUT/qwen3 and then OUT/qwen2, a sibling (QKV bias, no q/k norm) from the same shards; its compilation overlaps the end
of the first. Each folder has the model, its tokenizer and log.jsonl; OUT/shards may be removed afterwards. A training that
ends with an error, or shows no progress, is begun again in a plainer form: without a CUDA graph, then without compilation
and with attention that torch alone provides.
"""

import argparse
import os
import pathlib
import signal
import subprocess
import sys
import time

FORMS = ([], ["--no-graph"], ["--no-graph", "--no-compile", "--attention", "rows"])
FIRST_STEPS_SECONDS = 100         # import, compilation and the first 200 steps take less on an H200's host
OVERLAP_SECONDS = 22              # before the end of the first training, the sibling begins to import and compile


def start(module, arguments, log, **environment):
    with open(log, "a") as out:
        return subprocess.Popen([sys.executable, "-m", f"halfbyte.reqat.{module}", *map(str, arguments)], stdout=out,
                                stderr=subprocess.STDOUT, env=os.environ | environment)


def start_writers(args):
    shards = args.out / "shards"
    shards.mkdir(parents=True, exist_ok=True)
    sizes = ["--shards", args.shards, "--warm", args.warm_shards, "--batch-tokens", args.batch_tokens, "--workers", args.workers]
    return [start("data", [shards, *sizes, "--worker", w], args.out / f"writer-{w}.log", OMP_NUM_THREADS="1") for w in range(args.workers)]


class Training:
    def __init__(self, args, architecture, deadline, *more):
        self.args, self.architecture, self.deadline, self.more = args, architecture, deadline, more
        self.folder, self.forms = args.out / architecture, list(FORMS)
        self.begin()

    def begin(self):
        form, self.begun = self.forms.pop(0), time.time()
        arguments = [self.args.out / "shards", self.folder, "--architecture", self.architecture, "--deadline", self.deadline,
                     "--batch-tokens", self.args.batch_tokens, "--seed", self.args.seed, "--checkpoint-seconds", 15, *self.more, *form]
        self.process = start("stage1", arguments, self.args.out / f"{self.architecture}.log", OMP_NUM_THREADS="4",
                             TORCHINDUCTOR_COMPILE_THREADS="4")

    def progressed(self):
        log = self.folder / "log.jsonl"
        return log.exists() and '"step"' in log.read_text()

    def watch(self):
        """To be called about once a second; whether it has ended."""
        now = time.time()
        if self.process.poll() is None:
            if now - self.begun > FIRST_STEPS_SECONDS and not self.progressed():
                self.process.kill()
            elif now > self.deadline + 15:
                self.process.terminate()               # it saves what it has
            return False
        if self.process.returncode and not (self.folder / "model.safetensors").exists() and self.forms and now < self.deadline - 40:
            print(f"{self.architecture} ended with {self.process.returncode}; begun again with {self.forms[0]}", flush=True)
            self.begin()
            return False
        return True


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--seconds", type=float, default=350, help="of the first training, compilation included")
    parser.add_argument("--sibling-seconds", type=float, default=0, help="after that; 0: no sibling")
    parser.add_argument("--shards", type=int, default=3000, help="of half a million tokens, at most")
    parser.add_argument("--warm-shards", type=int, default=120)
    parser.add_argument("--batch-tokens", type=int, default=32768)
    parser.add_argument("--workers", type=int, default=max(1, (os.cpu_count() or 2) - 3))
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    begin, waiting = time.time(), [("qwen3", args.seconds, 0, [])]
    if args.sibling_seconds:
        waiting.append(("qwen2", args.seconds + args.sibling_seconds, args.seconds - OVERLAP_SECONDS, ["--learning-rate", "1.5e-3"]))
    writers, trainings = start_writers(args), []
    try:
        while not all([t.watch() for t in trainings]) or waiting:
            if waiting and time.time() - begin >= waiting[0][2]:
                architecture, end, _, more = waiting.pop(0)
                trainings.append(Training(args, architecture, begin + end, *more))
            time.sleep(.5)
            if time.time() - begin > args.seconds + 5:
                for process in writers:
                    process.terminate()
    finally:
        for process in [*writers, *(t.process for t in trainings)]:
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
    failed = [t.architecture for t in trainings if not (t.folder / "model.safetensors").exists()]
    if failed:
        sys.exit(f"training failed: {', '.join(str(args.out / name) + '.log' for name in failed)}")


if __name__ == "__main__":
    main()
