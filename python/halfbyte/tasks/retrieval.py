"""Multi-needle retrieval: a long list of keys and values, and the sum of a few of them."""

from dataclasses import dataclass

from .core import Text, closing, opening, write_equation

NAME = "retrieval"
LEVELS = {1: 512, 2: 1024, 3: 2048, 4: 4096}           # tokens of the whole prompt, at most
WARM_UP = (48, 80, 160, 320)
MOST_NEEDLES = 6
LARGEST = 160                                          # of a value, so that six stay below 1000
LETTERS = "abcdefghijklmnopqrstuvwxyz"
# Two-letter words of the shipped tokenizer: as keys they would be one token instead of two.
RESERVED = {"as", "by", "do", "is", "no", "of", "so", "to", "up", "we"}
KEYS = [a + b for a in LETTERS for b in LETTERS if a + b not in RESERVED]
LINKS = (", ", ": ", "; ", " then ", " so ")
FRAME_TOKENS = 24                                      # the chat template and the wording around the list


@dataclass
class Haystack:
    needles: list        # (key, value) in the order asked for
    tokens: int          # of the whole prompt, at most


def entry_tokens(value):
    return 4 + len(str(value))                         # two letters, "=", digits, newline


def facts(rand, tokens):
    count = rand.between(2, min(MOST_NEEDLES, max(2, tokens // 40)))
    return Haystack([(k, rand.between(10, LARGEST)) for k in rand.sample(KEYS, count)], tokens)


def key(haystack):
    return ",".join(f"{k}={v}" for k, v in sorted(haystack.needles))


def question(rand, haystack):
    taken = {k for k, _ in haystack.needles}
    entries = list(haystack.needles)
    room = haystack.tokens - FRAME_TOKENS - 4 * len(entries) - sum(entry_tokens(v) for _, v in entries)
    for k in rand.sample(KEYS, min(len(KEYS), room // 6 + 2)):
        value = rand.between(10, LARGEST)
        if k in taken:
            continue
        room -= entry_tokens(value)
        if room < 0:
            break
        entries.append((k, value))
    rand.shuffle(entries)
    asked = ", ".join(k for k, _ in haystack.needles)
    prompt = "list\n" + "\n".join(f"{k}={v}" for k, v in entries) + f"\nsum of {asked}"
    return prompt, str(sum(v for _, v in haystack.needles)), {}


def solution(rand, haystack, asked):
    text, order = Text(), list(haystack.needles)
    rand.shuffle(order)
    k, total = order[0]
    text.add(f"{opening(rand)}{k}={total}{closing(rand)}")
    text.end_step()
    for k, value in order[1:]:
        total = write_equation(rand, text, f"{k}={value}{rand.pick(LINKS)}", total, "+", value)
    return text
