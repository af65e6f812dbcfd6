"""Training documents of the reasoner, packed into batches, written as shards by as many processes as there are.

A batch is a flat stream of 65,536 tokens made of whole documents; attention stays inside a document. `short` batches hold
documents of up to 1,152 tokens, `long` ones up to 4,352, for prompts of up to 4,096. A shard is an .npz file:
  tokens   int16 [batches, 65536]: token id, plus LEARN where the loss counts (the model's own text without slips)
  offsets  int32 [batches, 1537]: where each document begins, then 65536 up to the end

    python -m halfbyte.reqat.data FOLDER --short 1000 --long 130 --warm-up 60 --worker 0 --workers 13
"""

import argparse
import os
import pathlib

import numpy as np

from .. import tasks
from ..reasoner.tokenizer import encode, prompt_text

LEARN = 1 << 14
BATCH_TOKENS, MOST_DOCUMENTS, BATCHES_A_SHARD = 65536, 1536, 16
LONGEST = {"short": 1152, "long": 4352}

# Task -> share of the tokens, about.
SHARES = {"short": {"arithmetic": .14, "word": .29, "chain": .31, "countdown": .12, "retrieval": .14},
          "long": {"arithmetic": .04, "word": .07, "chain": .07, "countdown": .02, "retrieval": .8}}
NO_THINKING = .04                                      # of the documents; small questions, answered at once
# Two of three countdowns have three numbers: with four, the search is long and mostly chance.
PARAMETERS = {name: list(module.LEVELS.values()) for name, module in tasks.TASKS.items()} | {"countdown": [3, 3, 4]}
RETRIEVAL = {"short": (64, 900), "long": (900, 4096)}  # prompt tokens, drawn between
NEWLINE = np.array(encode("\n"), np.int16)             # follows a turn in the chat format


def parameters_for(rand, task, kind, warm_up):
    if warm_up:
        return rand.pick(tasks.TASKS[task].WARM_UP)
    return rand.between(*RETRIEVAL[kind]) if task == "retrieval" else rand.pick(PARAMETERS[task])


def document(rand, task, parameters, thinking=True):
    """int16 array of one question with its worked solution."""
    asked = tasks.draw_with(rand, task, parameters, "train")
    prompt = encode(prompt_text(asked.prompt, thinking))
    pieces = [np.array(prompt, np.int16)]
    if thinking:
        steps, answer = tasks.solution(rand, asked)
        parts = [["<think>\n", True], *steps, [f"</think>\n\nanswer: {answer}<|im_end|>", True]]
    else:
        parts = [[f"answer: {asked.answer}<|im_end|>", True]]
    for text, learn in parts:
        pieces.append(np.array(encode(text), np.int16) + np.int16(LEARN if learn else 0))
    return np.concatenate([*pieces, NEWLINE])


class Documents:
    """An endless stream of documents of one kind."""

    def __init__(self, rand, kind, warm_up):
        self.rand, self.kind, self.warm_up = rand, kind, warm_up
        weights = {}
        for task, share in SHARES[kind].items():       # chances by number of documents, from measured lengths
            lengths = [len(document(rand, task, parameters_for(rand, task, kind, warm_up))) for _ in range(40)]
            weights[task] = share / (sum(lengths) / len(lengths))
        total, self.chances = sum(weights.values()), []
        for task, weight in weights.items():
            self.chances.append((task, weight / total + (self.chances[-1][1] if self.chances else 0)))

    def next(self):
        while True:
            u = self.rand.unit()
            task = next((t for t, c in self.chances if u < c), self.chances[-1][0])
            thinking = task == "countdown" or self.rand.unit() >= NO_THINKING
            doc = document(self.rand, task, parameters_for(self.rand, task, self.kind, self.warm_up or not thinking), thinking)
            if len(doc) <= LONGEST[self.kind]:
                return doc


def fill(tokens, offsets, documents, pool):
    """Packs one batch: documents as they come, and at the end the longest of `pool` that still fit."""
    count, at = 0, 0
    while count < len(offsets) - 2:
        while len(pool) < 32:
            pool.append(documents.next())
        left = len(tokens) - at
        if len(pool[0]) <= left:
            doc = pool.pop(0)
        else:
            fitting = [i for i, d in enumerate(pool) if len(d) <= left]
            if not fitting:
                break
            doc = pool.pop(max(fitting, key=lambda i: len(pool[i])))
        tokens[at:at + len(doc)] = doc
        offsets[count] = at
        at, count = at + len(doc), count + 1
    offsets[count] = at                                # the padding is a document of its own


def shard(seed, kind, warm_up=False, batches=BATCHES_A_SHARD):
    """(tokens, offsets) as in a file."""
    rand = tasks.Rand(f"{kind} {seed} {warm_up} v{tasks.VERSION}")
    documents, pool = Documents(rand, kind, warm_up), []
    tokens = np.zeros((batches, BATCH_TOKENS), np.int16)
    offsets = np.full((batches, MOST_DOCUMENTS + 1), BATCH_TOKENS, np.int32)
    for b in range(batches):
        fill(tokens[b], offsets[b], documents, pool)
    return tokens, offsets


def shard_path(folder, kind, index):
    return pathlib.Path(folder) / f"{kind}-{index:04d}.npz"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--short", type=int, default=1000, help="short shards in all")
    parser.add_argument("--long", type=int, default=130, help="long shards in all")
    parser.add_argument("--warm-up", type=int, default=60, help="short shards at the start with small questions")
    parser.add_argument("--worker", type=int, default=0)
    parser.add_argument("--workers", type=int, default=1)
    args = parser.parse_args()
    # Long shards are needed from the end of the warm-up on: in the order in which training reads them.
    span = max(1, args.short - args.warm_up)
    todo = [(index, "short", index) for index in range(args.short)]
    todo += [(args.warm_up / 2 + index * span / max(1, args.long), "long", index) for index in range(args.long)]
    for _, kind, index in sorted(todo)[args.worker::args.workers]:
        path = shard_path(args.folder, kind, index)
        part = path.with_suffix(f".{os.getpid()}.part")
        tokens, offsets = shard(index, kind, kind == "short" and index < args.warm_up)
        with open(part, "wb") as out:
            np.savez(out, tokens=tokens, offsets=offsets)
        os.replace(part, path)


if __name__ == "__main__":
    main()
