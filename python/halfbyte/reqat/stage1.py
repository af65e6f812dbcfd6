"""Stage 1: trains the reasoner in BF16 on shards that other processes write meanwhile (halfbyte.reqat.data).

    python -m halfbyte.reqat.stage1 SHARDS OUT --architecture qwen3 --seconds 330

AdamW over the given seconds or steps: small questions until looking up is learnt, then all. Writes OUT/model.safetensors
(BF16), config.json, the tokenizer and log.jsonl; with --checkpoint-seconds the weights so far as well. On a GPU a step is
one CUDA graph.
"""

import argparse
import json
import math
import pathlib
import random
import signal
import time

import numpy as np
import torch
from safetensors.torch import save_file

from ..reasoner import tokenizer
from .data import BATCH_TOKENS, LEARN, LONGEST, most_documents, shard_path
from .network import ATTENTION, Config, Network, check_attention, to_hf

LOOK_EVERY = 100                 # steps


class Shards:
    """All batches written so far, on the device. A batch not used yet comes first; when there is none, one that was."""

    def __init__(self, folder, device, long_every, seed):
        self.folder, self.device, self.long_every, self.warming = folder, device, long_every, True
        self.loaded = {kind: [] for kind in LONGEST}
        self.next_index, self.used = dict.fromkeys(LONGEST, 0), dict.fromkeys(LONGEST, 0)
        self.batches = self.again = 0
        self.rand = random.Random(seed)

    def load(self, kind):
        """The next shard, if it is there."""
        path = shard_path(self.folder, kind, self.next_index[kind])
        if path.exists():
            with np.load(path) as arrays:
                tokens, offsets = (torch.from_numpy(arrays[name]).to(self.device) for name in ("tokens", "offsets"))
            self.loaded[kind] += zip(tokens, offsets)
            self.next_index[kind] += 1

    def kind(self):
        """The present kind. While small questions are read, one batch in 8 is another, if there is one."""
        if not self.warming:
            return "long" if self.batches % self.long_every == 0 else "short"
        kind = {4: "short", 12: "long"}.get(self.batches % 16, "warm")
        if not self.loaded[kind]:
            self.load(kind)
        return kind if self.loaded[kind] else "warm"

    def batch(self):
        """(kind, what a step reads)."""
        self.batches += 1
        kind, start = self.kind(), time.time()
        loaded = self.loaded[kind]
        while self.used[kind] == len(loaded):
            self.load(kind)
            if loaded:
                break
            if time.time() - start > 60:
                raise RuntimeError(f"no shard {shard_path(self.folder, kind, 0)} after 60 s; is halfbyte.reqat.data running?")
            time.sleep(.02)
        if self.used[kind] < len(loaded):
            tokens, offsets = loaded[self.used[kind]]
            self.used[kind] += 1
        else:
            tokens, offsets = self.rand.choice(loaded)
            self.again += 1
        ids = (tokens & (LEARN - 1)).long()
        labels = torch.full_like(ids, -100)
        labels[:-1] = torch.where(tokens[1:] >= LEARN, ids[1:], -100)
        at = torch.arange(len(ids), device=self.device, dtype=torch.int32)
        begin = offsets[torch.searchsorted(offsets, at, right=True) - 1]
        return kind, {"ids": ids, "labels": labels, "positions": (at - begin).long(), "offsets": offsets}


class Trainer:
    def __init__(self, args, device):
        self.args, self.device, self.on_gpu = args, device, device == "cuda"
        if args.attention == "documents":
            check_attention(device)
        torch.manual_seed(args.seed)
        self.network = Network(Config(architecture=args.architecture), args.compile, args.attention).to(device)
        matrices = [p for p in self.network.parameters() if p.dim() == 2]
        others = [p for p in self.network.parameters() if p.dim() != 2]
        self.rate = torch.tensor(0.0, device=device)
        self.optimizer = torch.optim.AdamW(
            [{"params": matrices, "weight_decay": args.weight_decay}, {"params": others, "weight_decay": 0}],
            lr=self.rate, betas=(.9, .95), fused=self.on_gpu, capturable=self.on_gpu)
        self.shards = Shards(args.shards, device, args.long_every, args.seed)
        self.dtype = torch.bfloat16 if self.on_gpu else torch.float32
        empty = torch.zeros(args.batch_tokens, dtype=torch.long, device=device)
        self.inputs = {"ids": empty, "labels": empty.clone(), "positions": empty.clone(),
                       "offsets": torch.zeros(most_documents(args.batch_tokens) + 1, dtype=torch.int32, device=device)}
        self.graphs, self.steps_of = {}, {}            # by the longest document
        self.losses = {kind: [] for kind in LONGEST}   # of the steps since the last report: (all labels, digits)
        self.stopped = False

    def compute(self, longest):
        """One step on `inputs`; its two losses."""
        self.optimizer.zero_grad(set_to_none=True)
        with torch.autocast(self.device, torch.bfloat16, enabled=self.on_gpu, cache_enabled=False):
            loss, of_digits = self.network.loss(**self.inputs, longest=longest, dtype=self.dtype)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.network.parameters(), 1.0)
        self.optimizer.step()
        return torch.stack([loss.detach(), of_digits])

    def compute_on_side_stream(self, longest):
        """As CUDA asks for before a capture: buffers and compiled code come into being outside of it."""
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            loss = self.compute(longest)
        torch.cuda.current_stream().wait_stream(stream)
        return loss

    def capture(self, longest):
        graph = torch.cuda.CUDAGraph()
        self.optimizer.zero_grad(set_to_none=True)
        with torch.cuda.graph(graph):
            loss = self.compute(longest)
        self.graphs[longest] = graph, loss

    def step(self, rate):
        kind, batch = self.shards.batch()
        longest = LONGEST[kind]
        for name, tensor in batch.items():
            self.inputs[name].copy_(tensor)
        self.rate.fill_(rate)
        self.steps_of[longest] = self.steps_of.get(longest, 0) + 1
        if not (self.on_gpu and self.args.graph):
            loss = self.compute(longest)
        elif self.steps_of[longest] <= 3:
            loss = self.compute_on_side_stream(longest)
        else:
            if longest not in self.graphs:
                self.capture(longest)
            graph, loss = self.graphs[longest]
            graph.replay()
        self.losses[kind].append(loss.clone())

    def save(self, name="model"):
        path = self.args.out / f"{name}.safetensors"
        part = path.with_suffix(".part")
        save_file(to_hf(self.network.config, self.network.state_dict()), part, metadata={"format": "pt"})
        part.replace(path)

    def look(self, done, log):
        """Ends the small questions once their digits are looked up, or when they have had their share of the time."""
        recent = {kind: torch.stack(losses[-LOOK_EVERY:]).mean(0).tolist() for kind, losses in self.losses.items() if losses}
        if not all(math.isfinite(x) for pair in recent.values() for x in pair):
            raise RuntimeError(f"the loss is not finite: {recent}")
        if self.shards.warming and "warm" in recent:
            learnt = recent["warm"][1] < self.args.warm_digit_loss
            if learnt or done > self.args.warm_at_most:
                self.shards.warming = False
                log({"warm_ends": "learnt" if learnt else "out of time", "digit_loss": round(recent["warm"][1], 4)})

    def progress(self, step, seconds):
        means = {k: [round(x, 4) for x in torch.stack(v).mean(0).tolist()] for k, v in self.losses.items() if v}
        self.losses = {kind: [] for kind in LONGEST}
        return {"step": step, "seconds": round(seconds, 1), "loss": {k: m[0] for k, m in means.items()},
                "digit_loss": {k: m[1] for k, m in means.items()}, "million_tokens": round(step * self.args.batch_tokens / 1e6, 1),
                "batches_again": self.shards.again, "shards": sum(self.shards.next_index.values())}

    def rate_at(self, step, done):
        """Warm-up, `hold` of the time at the top, then linear to 0."""
        falling = min(1, (1 - done) / (1 - self.args.hold))
        return self.args.learning_rate * min(1, step / self.args.warm_up_steps) * max(.002, falling)

    def run(self, log):
        args, begin = self.args, time.time()
        self.step(1e-6)
        if self.on_gpu:
            torch.cuda.synchronize()
        start, step, saved = time.time(), 1, time.time()
        seconds = max(10, args.deadline - start) if args.deadline else args.seconds
        log({"compiled_seconds": round(start - begin, 1), "parameters": sum(p.numel() for p in self.network.parameters()),
             "seconds_to_train": round(seconds, 1), "arguments": {k: str(v) for k, v in vars(args).items()}, "torch": torch.__version__,
             "device": torch.cuda.get_device_name() if self.on_gpu else "cpu"})
        while not self.stopped:
            spent = time.time() - start
            done = step / args.steps if args.steps else spent / seconds
            if done >= 1:
                break
            self.step(self.rate_at(step, done))
            step += 1
            if step % 20 == 0 and self.on_gpu:
                torch.cuda.synchronize()               # bounds the queue, so that seconds mean seconds
            if step % LOOK_EVERY == 0:
                self.look(done, log)
            if step % args.log_every == 0:
                log(self.progress(step, time.time() - start))
            if args.checkpoint_seconds and time.time() - saved > args.checkpoint_seconds:
                self.save("checkpoint")
                saved = time.time()
        log({"end": True} | self.progress(step, time.time() - start))
        self.save()


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("shards", type=pathlib.Path)
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--architecture", choices=("qwen3", "qwen2"), default="qwen3")
    parser.add_argument("--seconds", type=float, default=330, help="how long to train, without compilation")
    parser.add_argument("--deadline", type=float, default=0, help="train until this time (seconds since 1970) instead")
    parser.add_argument("--steps", type=int, default=0, help="train this many steps instead")
    parser.add_argument("--learning-rate", type=float, default=2e-3)
    parser.add_argument("--hold", type=float, default=.45, help="share of the training before the rate falls")
    parser.add_argument("--weight-decay", type=float, default=.1)
    parser.add_argument("--warm-up-steps", type=int, default=300)
    parser.add_argument("--warm-digit-loss", type=float, default=.15, help="of small questions, at which the others begin")
    parser.add_argument("--warm-at-most", type=float, default=.4, help="share of the training for small questions")
    parser.add_argument("--long-every", type=int, default=6, help="one batch of long documents in this many")
    parser.add_argument("--batch-tokens", type=int, default=BATCH_TOKENS, help="as given to halfbyte.reqat.data")
    parser.add_argument("--attention", choices=ATTENTION, default="documents", help="rows: documents see those before them")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--log-every", type=int, default=200)
    parser.add_argument("--checkpoint-seconds", type=float, default=0)
    parser.add_argument("--no-compile", dest="compile", action="store_false")
    parser.add_argument("--no-graph", dest="graph", action="store_false")
    return parser.parse_args()


def main():
    args = parse_arguments()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.backends.cuda.matmul.allow_tf32 = True
    args.out.mkdir(parents=True, exist_ok=True)
    trainer = Trainer(args, device)
    signal.signal(signal.SIGTERM, lambda *_: setattr(trainer, "stopped", True))      # ends well, with what it has learnt
    ids = {"eos_token_id": tokenizer.IDS[tokenizer.END], "pad_token_id": tokenizer.IDS[tokenizer.END_OF_TEXT]}
    (args.out / "config.json").write_text(json.dumps(trainer.network.config.hf_config() | ids, indent=2) + "\n")
    tokenizer.write(args.out)
    with open(args.out / "log.jsonl", "w", encoding="utf-8", buffering=1) as out:
        def log(entry):
            print(json.dumps(entry), flush=True)
            out.write(json.dumps(entry) + "\n")
        trainer.run(log)


if __name__ == "__main__":
    main()
