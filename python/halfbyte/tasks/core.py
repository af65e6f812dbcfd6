"""What every task is made of: questions, splits, texts with marked slips, and the answer's form.

A task is a module with
  NAME, LEVELS      level -> parameters of `facts`, easiest first
  WARM_UP           shorter parameters, for the start of a training
  facts(rand, parameters)      what the question is about, without its wording
  key(facts)                   the canonical question: equal for questions that differ only in wording, names or order
  question(rand, facts)        (the user's message, the answer, what the grader needs besides)
  solution(rand, facts, asked) the worked solution as a Text; asked = what question() returned
"""

import hashlib
import re
from dataclasses import dataclass, field

# A change that gives other questions for the same seed is a new version, with new question files.
VERSION = 1
SPLITS = ("train", "validation", "test")
BUCKETS = 64


@dataclass
class Question:
    task: str
    level: int
    prompt: str              # the user's message
    answer: str              # one right answer, as the model writes it behind "answer: "
    key: str                 # the canonical question
    extra: dict = field(default_factory=dict)      # what the grader needs besides the answer
    facts: object = None


class Text:
    """A worked solution: steps that a blank line separates. Slips are marked, so that no training learns to make them."""

    __slots__ = ("parts",)

    def __init__(self):
        self.parts = []          # [text, learn]

    def add(self, text, learn=True):
        if not text:
            return
        if self.parts and self.parts[-1][1] == learn:
            self.parts[-1][0] += text
        else:
            self.parts.append([text, learn])

    def end_step(self):
        self.add("\n\n")

    def finish(self):
        """The parts; the last step ends with one newline."""
        last = self.parts[-1]
        assert last[1] and last[0].endswith("\n\n")
        last[0] = last[0][:-1]
        return self.parts

    def __len__(self):
        return sum(len(text) for text, _ in self.parts)


def digest(text):
    """A short stable hash of text, for keys of nested facts."""
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


def split_of(task, key):
    """The split a canonical question belongs to: 1 of 64 buckets is test, 1 validation, the others training."""
    bucket = int.from_bytes(hashlib.blake2b(f"{task}|{key}".encode(), digest_size=8).digest(), "little") % BUCKETS
    return "test" if bucket == 0 else "validation" if bucket == 1 else "train"


# ---- wording: the part of a step that nothing decides

OPENERS = "okay so now next then well good right fine first see let".split()
CLOSERS = ("", "", ". good", ". okay", ", fine", ", right", ";")
DOUBTS = ("wait", "hmm")


def opening(rand, more=True):
    """0 to 3 harmless words in random order, followed by a space if `more` text follows."""
    u = rand.unit()
    words = rand.sample(OPENERS, (u < .2) if rand.plain else 0 if u < .1 else 1 if u < .5 else 2 if u < .85 else 3)
    return " ".join(words) + (" " if words and more else "")


def closing(rand):
    return "" if rand.plain else rand.pick(CLOSERS)


def wrong_value(rand, value, limit):
    """Another number below `limit` that a slip might give."""
    while True:
        if rand.unit() < .5:
            other = value + rand.pick((-1, 1)) * rand.pick((1, 10, 100))
        else:
            digits = list(str(value))
            digits[rand.below(len(digits))] = rand.pick("0123456789")
            other = int("".join(digits))
        if 0 <= other < limit and other != value:
            return other


def apply(op, a, b, modulus=None):
    value = a + b if op == "+" else a - b if op == "-" else a * b
    return value % modulus if modulus else value


SLIP_RATE, CHECK_RATE = .05, .15


def write_equation(rand, text, before, a, op, b, after="", modulus=None, limit=1000):
    """A step "<opening><before>a op b=value<after>". Sometimes a check follows; sometimes the value is a slip, and then a
    check, "no" and the repair follow. `modulus`: values are taken mod it and checked by computing again."""
    value = apply(op, a, b, modulus)
    text.add(f"{opening(rand)}{before}{a}{op}{b}=")
    slip = not rand.plain and rand.unit() < SLIP_RATE
    written = wrong_value(rand, value, modulus or limit) if slip else value
    if slip:
        text.add(str(written), learn=False)
    else:
        text.add(str(written) + after + closing(rand))
    text.end_step()
    if not slip and (rand.plain or rand.unit() >= CHECK_RATE):
        return value
    verdict = "no" if slip else "yes"
    if modulus or op == "*":
        text.add(f"check: again {a}{op}{b}={value} {verdict}")
    elif op == "+":
        back = written - b
        text.add(f"check: {written}-{b}" + (f"={back}" if back >= 0 else "") + f" {verdict}")
    else:
        text.add(f"check: {written}+{b}={written + b} {verdict}")
    text.end_step()
    if slip:
        text.add(f"{rand.pick(DOUBTS)}, redo {a}{op}{b}={value}{after}")
        text.end_step()
    return value


# ---- answers

ANSWER = re.compile(r"answer: ([^\n]*)")


def final_answer(completion):
    """What a completion answers: behind the last "</think>", the text of "answer: ..." alone; None if there is none."""
    _, tag, rest = completion.rpartition("</think>")
    if not tag and "<think>" in completion:
        return None
    match = ANSWER.fullmatch(rest.removesuffix("<|im_end|>").strip())
    return match.group(1).strip() if match else None


def grade_integer(question, answer):
    return answer is not None and answer == question.answer
