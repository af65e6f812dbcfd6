"""Random choices that stay the same on every Python: only random.Random.random() is promised to, so all are made of it."""

import random


class Rand:
    """A seeded stream. Not thread-safe. `plain`: solutions made from it have few words, no checks and no slips."""

    __slots__ = ("unit", "plain")

    def __init__(self, seed, plain=False):
        self.unit = random.Random(seed).random      # a float in [0, 1)
        self.plain = plain

    def below(self, n):
        return int(self.unit() * n)

    def between(self, low, high):
        """An integer in [low, high], both included."""
        return low + int(self.unit() * (high - low + 1))

    def pick(self, items):
        return items[int(self.unit() * len(items))]

    def shuffle(self, items):
        for i in range(len(items) - 1, 0, -1):
            j = int(self.unit() * (i + 1))
            items[i], items[j] = items[j], items[i]

    def sample(self, items, k):
        """k different items in random order."""
        pool = list(items)
        for i in range(k):
            j = i + int(self.unit() * (len(pool) - i))
            pool[i], pool[j] = pool[j], pool[i]
        return pool[:k]
