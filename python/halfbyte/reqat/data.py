"""Training documents of the reasoner, packed into batches, written as shards by as many processes as there are.

A batch is a flat stream of tokens made of whole documents; attention stays inside a document. Kinds:
  warm   small questions worked in plain words, where most tokens are looked up: from these the model learns to look up
  short  all tasks, documents of up to 1,152 tokens
  long   of up to 4,352 tokens, mostly retrieval
A shard is an .npz file:
  tokens   int16 [batches, batch tokens]: token id, plus LEARN where the loss counts (the model's own text without slips)
  offsets  int32 [batches, documents + 1]: where each document begins, then the number of tokens up to the end

    python -m halfbyte.reqat.data FOLDER --worker 0 --workers 5
"""

import argparse
import os
import pathlib
import re

import numpy as np

from .. import tasks
from ..reasoner.tokenizer import encode, prompt_text
from ..tasks import retrieval

LEARN = 1 << 14
BATCH_TOKENS, BATCHES_A_SHARD = 32768, 16
LONGEST = {"warm": 1152, "short": 1152, "long": 4352}

# Task -> share of the tokens, about.
SHARES = {"warm": {"arithmetic": .06, "word": .26, "chain": .26, "retrieval": .42},
          "short": {"arithmetic": .15, "word": .30, "chain": .24, "countdown": .13, "retrieval": .18},
          "long": {"word": .08, "chain": .08, "retrieval": .84}}
NO_THINKING = .03                                      # of the documents; small questions, answered at once
SMALL = .08                                            # of the documents of other kinds are as small as those of "warm"
# Small levels are as frequent as large ones or more, by documents.
PARAMETERS = {name: list(module.LEVELS.values()) for name, module in tasks.TASKS.items()} | {
    "countdown": [3, 3, 4], "chain": [4, 4, 8, 8, 12, 12, 16, 20, 24], "word": [3, 5, 5, 7, 7, 9, 11]}
RETRIEVAL = {"warm": (44, 200), "short": (64, 900), "long": (900, 4096)}  # prompt tokens; their logarithm is drawn evenly
MOST_TURNS = 8                                         # questions about one list
NEWLINE = np.array(encode("\n"), np.int16)             # follows a turn in the chat format


def most_documents(batch_tokens):
    return batch_tokens // 24


def parameters_for(rand, task, kind, small):
    if task == "retrieval":
        low, high = RETRIEVAL["warm" if small else kind]
        return int(low * (high / low) ** rand.unit())
    return rand.pick(tasks.TASKS[task].WARM_UP if small else PARAMETERS[task])


def turn(prompt, thinking, steps, answer):
    """int16 pieces of one question and its answer."""
    pieces = [np.array(encode(prompt_text(prompt, thinking)), np.int16)]
    parts = [["<think>\n", True], *steps] if thinking else []
    for text, learn in [*parts, [("</think>\n\n" if thinking else "") + f"answer: {answer}<|im_end|>", True]]:
        pieces.append(np.array(encode(text), np.int16) + np.int16(LEARN if learn else 0))
    return [*pieces, NEWLINE]


def further_turns(rand, prompt, count):
    """More questions about the list of a retrieval's prompt. None of another split: its key is the needles alone."""
    entries = [(k, int(v)) for k, v in re.findall(r"^([a-z]{2})=(\d+)$", prompt, re.M)]
    pieces = []
    for _ in range(count):
        needles = rand.sample(entries, rand.between(2, min(retrieval.MOST_NEEDLES, len(entries))))
        haystack = retrieval.Haystack(needles, 0)
        if tasks.split_of(retrieval.NAME, retrieval.key(haystack)) == "train":
            steps = retrieval.solution(rand, haystack, None).finish()
            pieces += turn(f"sum of {', '.join(k for k, _ in needles)}", True, steps, sum(v for _, v in needles))
    return pieces


def document(rand, task, parameters, thinking=True):
    """int16 array of one question with its worked solution; several about one list, since a list is long."""
    asked = tasks.draw_with(rand, task, parameters, "train")
    if not thinking:
        return np.concatenate(turn(asked.prompt, False, [], asked.answer))
    pieces = turn(asked.prompt, True, *tasks.solution(rand, asked))
    if task == retrieval.NAME:
        pieces += further_turns(rand, asked.prompt, rand.below(1 + min(MOST_TURNS, 2 + parameters // 200)))
    return np.concatenate(pieces)


class Documents:
    """An endless stream of documents of one kind."""

    def __init__(self, rand, kind):
        self.rand, self.kind, self.warm = rand, kind, kind == "warm"
        rand.plain = self.warm
        weights = {}
        for task, share in SHARES[kind].items():       # chances by number of documents, from measured lengths
            lengths = [len(document(rand, task, parameters_for(rand, task, kind, self.warm))) for _ in range(40)]
            weights[task] = share / (sum(lengths) / len(lengths))
        total, self.chances = sum(weights.values()), []
        for task, weight in weights.items():
            self.chances.append((task, weight / total + (self.chances[-1][1] if self.chances else 0)))

    def next(self):
        rand = self.rand
        while True:
            u = rand.unit()
            task = next((t for t, c in self.chances if u < c), self.chances[-1][0])
            thinking = self.warm or task == "countdown" or rand.unit() >= NO_THINKING
            small = self.warm or not thinking or rand.unit() < SMALL
            doc = document(rand, task, parameters_for(rand, task, self.kind, small), thinking)
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


def shard(seed, kind, batches=BATCHES_A_SHARD, batch_tokens=BATCH_TOKENS):
    """(tokens, offsets) as in a file."""
    rand = tasks.Rand(f"{kind} {seed} v{tasks.VERSION}")
    documents, pool = Documents(rand, kind), []
    tokens = np.zeros((batches, batch_tokens), np.int16)
    offsets = np.full((batches, most_documents(batch_tokens) + 1), batch_tokens, np.int32)
    for b in range(batches):
        fill(tokens[b], offsets[b], documents, pool)
    return tokens, offsets


def shard_path(folder, kind, index):
    return pathlib.Path(folder) / f"{kind}-{index:04d}.npz"


def shards_in_order(warm):
    """(kind, index) endlessly: a third of the `warm` first, the rest of them among the others; a long one to seven short."""
    first = warm // 3
    for index in range(first):
        yield "warm", index
    index = 0
    while True:
        if first + index < warm:
            yield "warm", first + index
        yield ("long", index // 8) if index % 8 == 4 else ("short", index - (index + 4) // 8)
        index += 1


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--shards", type=int, default=3000, help="in all")
    parser.add_argument("--warm", type=int, default=120, help="of these, of small questions")
    parser.add_argument("--batch-tokens", type=int, default=BATCH_TOKENS)
    parser.add_argument("--worker", type=int, default=0)
    parser.add_argument("--workers", type=int, default=1)
    args = parser.parse_args()
    os.nice(5)                                         # the training beside it goes first
    for number, (kind, index) in zip(range(args.shards), shards_in_order(args.warm)):
        if number % args.workers != args.worker:
            continue
        path = shard_path(args.folder, kind, index)
        part = path.with_suffix(f".{os.getpid()}.part")
        tokens, offsets = shard(index, kind, batch_tokens=args.batch_tokens)
        with open(part, "wb") as out:
            np.savez(out, tokens=tokens, offsets=offsets)
        os.replace(part, path)


if __name__ == "__main__":
    main()
