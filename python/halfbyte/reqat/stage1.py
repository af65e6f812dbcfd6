"""Stage 1: trains the reasoner in BF16 on shards that other processes write meanwhile (halfbyte.reqat.data).

    python -m halfbyte.reqat.stage1 SHARDS OUT --architecture qwen3 --seconds 150

AdamW, warm-up, then linear to 0 over the given seconds or steps. Writes OUT/model.safetensors (BF16), config.json, the
tokenizer and log.jsonl; with --checkpoint-seconds the weights so far as well. On a GPU a step is one CUDA graph.
"""

import argparse
import json
import pathlib
import time

import numpy as np
import torch
from safetensors.torch import save_file

from ..reasoner import tokenizer
from .data import BATCH_TOKENS, LEARN, LONGEST, MOST_DOCUMENTS, shard_path
from .network import Config, Network, check_attention, to_hf


class Shards:
    """Batches in a fixed order: every `long_every`-th is a long one, once the small questions are over. A shard that is
    not written after half a second of waiting is replaced by an earlier one, which is counted."""

    def __init__(self, folder, device, warm_up, long_every):
        self.folder, self.device, self.warm_up, self.long_every = folder, device, warm_up, long_every
        self.next_index = {kind: 0 for kind in LONGEST}
        self.left = {kind: [] for kind in LONGEST}
        self.batches = self.reused = 0
        self.waited = 0.0

    def load(self, kind):
        index, start = self.next_index[kind], time.time()
        path, first = shard_path(self.folder, kind, index), self.warm_up if kind == "short" else 0
        while not path.exists():
            if time.time() - start > .5 and index > first:
                self.reused += 1
                path = shard_path(self.folder, kind, first + self.reused % (index - first))
            else:
                time.sleep(.02)
        self.waited += time.time() - start
        if path == shard_path(self.folder, kind, index):
            self.next_index[kind] += 1
        with np.load(path) as arrays:
            tokens, offsets = (torch.from_numpy(arrays[name]).to(self.device) for name in ("tokens", "offsets"))
        self.left[kind] = list(zip(tokens, offsets))

    def batch(self):
        """(kind, what a step reads)."""
        self.batches += 1
        warm = self.next_index["short"] <= self.warm_up
        kind = "long" if not warm and self.batches % self.long_every == 0 else "short"
        if not self.left[kind]:
            self.load(kind)
        tokens, offsets = self.left[kind].pop(0)
        ids = (tokens & (LEARN - 1)).long()
        labels = torch.full_like(ids, -100)
        labels[:-1] = torch.where(tokens[1:] >= LEARN, ids[1:], -100)
        at = torch.arange(len(ids), device=self.device, dtype=torch.int32)
        begin = offsets[torch.searchsorted(offsets, at, right=True) - 1]
        return kind, {"ids": ids, "labels": labels, "positions": (at - begin).long(), "offsets": offsets}


class Trainer:
    def __init__(self, args, device):
        self.args, self.device, self.on_gpu = args, device, device == "cuda"
        check_attention(device)
        torch.manual_seed(args.seed)
        self.network = Network(Config(architecture=args.architecture), compiled=args.compile).to(device)
        matrices = [p for p in self.network.parameters() if p.dim() == 2]
        others = [p for p in self.network.parameters() if p.dim() != 2]
        self.rate = torch.tensor(0.0, device=device)
        self.optimizer = torch.optim.AdamW(
            [{"params": matrices, "weight_decay": args.weight_decay}, {"params": others, "weight_decay": 0}],
            lr=self.rate, betas=(.9, .95), fused=self.on_gpu, capturable=self.on_gpu)
        self.shards = Shards(args.shards, device, args.warm_up_shards, args.long_every)
        self.dtype = torch.bfloat16 if self.on_gpu else torch.float32
        empty = torch.zeros(BATCH_TOKENS, dtype=torch.long, device=device)
        self.inputs = {"ids": empty, "labels": empty.clone(), "positions": empty.clone(),
                       "offsets": torch.zeros(MOST_DOCUMENTS + 1, dtype=torch.int32, device=device)}
        self.graphs, self.steps_of = {}, {kind: 0 for kind in LONGEST}
        self.losses = {kind: [] for kind in LONGEST}

    def compute(self, kind):
        """One step on `inputs`; the loss."""
        self.optimizer.zero_grad(set_to_none=True)
        with torch.autocast(self.device, torch.bfloat16, enabled=self.on_gpu, cache_enabled=False):
            loss = self.network.loss(**self.inputs, longest=LONGEST[kind], dtype=self.dtype)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.network.parameters(), 1.0)
        self.optimizer.step()
        return loss.detach()

    def compute_on_side_stream(self, kind):
        """As CUDA asks for before a capture: buffers and compiled code come into being outside of it."""
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            loss = self.compute(kind)
        torch.cuda.current_stream().wait_stream(stream)
        return loss

    def capture(self, kind):
        graph = torch.cuda.CUDAGraph()
        self.optimizer.zero_grad(set_to_none=True)
        with torch.cuda.graph(graph):
            loss = self.compute(kind)
        self.graphs[kind] = graph, loss

    def step(self, rate):
        kind, batch = self.shards.batch()
        for name, tensor in batch.items():
            self.inputs[name].copy_(tensor)
        self.rate.fill_(rate)
        self.steps_of[kind] += 1
        if not (self.on_gpu and self.args.graph):
            loss = self.compute(kind)
        elif self.steps_of[kind] <= 3:
            loss = self.compute_on_side_stream(kind)
        else:
            if kind not in self.graphs:
                self.capture(kind)
            graph, loss = self.graphs[kind]
            graph.replay()
            loss = loss.clone()
        self.losses[kind].append(loss)

    def save(self, name="model"):
        path = self.args.out / f"{name}.safetensors"
        part = path.with_suffix(".part")
        save_file(to_hf(self.network.config, self.network.state_dict()), part, metadata={"format": "pt"})
        part.replace(path)

    def progress(self, step, seconds):
        means = {k: round(float(torch.stack(v).mean()), 4) for k, v in self.losses.items() if v}
        self.losses = {kind: [] for kind in LONGEST}
        return {"step": step, "seconds": round(seconds, 1), "loss": means, "million_tokens": round(step * BATCH_TOKENS / 1e6, 1),
                "waited": round(self.shards.waited, 1), "reused_shards": self.shards.reused}

    def run(self, log):
        args, begin = self.args, time.time()
        self.step(1e-6)
        start, step, saved = time.time(), 1, time.time()
        log({"compiled_seconds": round(start - begin, 1), "parameters": sum(p.numel() for p in self.network.parameters()),
             "arguments": {k: str(v) for k, v in vars(args).items()}, "torch": torch.__version__,
             "device": torch.cuda.get_device_name() if self.on_gpu else "cpu"})
        while True:
            spent = time.time() - start
            done = step / args.steps if args.steps else spent / args.seconds
            if done >= 1:
                break
            self.step(args.learning_rate * min(1, step / args.warm_up_steps) * max(.005, 1 - done))
            step += 1
            if step % 20 == 0 and self.on_gpu:
                torch.cuda.synchronize()               # bounds the queue, so that seconds mean seconds
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
    parser.add_argument("--seconds", type=float, default=150, help="how long to train, without compilation")
    parser.add_argument("--steps", type=int, default=0, help="train this many steps instead")
    parser.add_argument("--learning-rate", type=float, default=2e-3)
    parser.add_argument("--weight-decay", type=float, default=.1)
    parser.add_argument("--warm-up-steps", type=int, default=150)
    parser.add_argument("--warm-up-shards", type=int, default=60, help="as given to halfbyte.reqat.data")
    parser.add_argument("--long-every", type=int, default=8, help="one batch of long documents in this many")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--log-every", type=int, default=250)
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
    (args.out / "config.json").write_text(json.dumps(trainer.network.config.hf_config(), indent=2) + "\n")
    tokenizer.write(args.out)
    with open(args.out / "log.jsonl", "w", encoding="utf-8", buffering=1) as out:
        def log(entry):
            print(json.dumps(entry), flush=True)
            out.write(json.dumps(entry) + "\n")
        trainer.run(log)


if __name__ == "__main__":
    main()
