"""Countdown: reach a target from all given numbers with + - * / (every intermediate a positive integer below 1000).

The search is shown as it happens: a good move with some probability, otherwise any move, then "no" and "back to"."""

import re

from .core import DOUBTS, Text, opening

NAME = "countdown"
LEVELS = {1: 3, 2: 4}                                  # numbers given
WARM_UP = (3,)
GOOD_MOVE = {2: .9, 3: .7, 4: .6}                      # numbers left -> how often the search takes a good move
LONGEST = 1400                                         # characters; a longer search is drawn again


def moves(numbers):
    """(i, j, op, value) of all moves."""
    found = []
    for i, a in enumerate(numbers):
        for j, b in enumerate(numbers):
            if i < j:
                if a + b < 1000:
                    found.append((i, j, "+", a + b))
                if a > 1 and b > 1 and a * b < 1000:
                    found.append((i, j, "*", a * b))
            if i != j and a > b:
                found.append((i, j, "-", a - b))
            if i != j and b > 1 and a % b == 0:
                found.append((i, j, "/", a // b))
    return found


def after(numbers, move):
    return [n for k, n in enumerate(numbers) if k not in move[:2]] + [move[3]]


def facts(rand, count):
    """(numbers, target, path): one way there."""
    while True:
        numbers = state = [rand.between(1, 25) for _ in range(count)]
        path = {}
        while len(state) > 1:
            possible = moves(state)
            kind = rand.pick(sorted({m[2] for m in possible}))
            move = rand.pick([m for m in possible if m[2] == kind])
            path[tuple(state)] = move
            state = after(state, move)
        if 10 <= state[0] <= 250 and state[0] not in numbers:
            return numbers, state[0], path


def key(problem):
    numbers, target, _ = problem
    return f"{sorted(numbers)}:{target}"


def question(rand, problem):
    numbers, target, path = problem
    state, equations = numbers, []
    while len(state) > 1:
        i, j, op, value = move = path[tuple(state)]
        equations.append(f"{state[i]}{op}{state[j]}={value}")
        state = after(state, move)
    prompt = f"make {target} from {', '.join(map(str, numbers))}"
    return prompt, ", ".join(equations), {"numbers": numbers, "target": target}


class Search:
    def __init__(self, rand, problem):
        self.rand, self.text, self.equations = rand, Text(), []
        self.numbers, self.target, self.path = problem

    def good_moves(self, state, possible):
        if len(state) == 2:
            return [m for m in possible if m[3] == self.target]
        if len(state) == 3:
            return [m for m in possible if any(n[3] == self.target for n in moves(after(state, m)))]
        return [self.path[tuple(state)]] if tuple(state) in self.path else []

    def step(self, text):
        self.text.add(opening(self.rand) + text)
        self.text.end_step()

    def run(self, state):
        """True: reached; False: gave this state up; None: the text is too long."""
        possible = moves(state)
        good = self.good_moves(state, possible)
        patience = len(possible) if good or len(state) > 3 else self.rand.between(1, 2)
        tried = set()
        while len(tried) < min(patience, len(possible)):
            if len(self.text) > LONGEST:
                return None
            hopeful = [m for m in good if m not in tried]
            lucky = hopeful and self.rand.unit() < GOOD_MOVE[len(state)]
            move = self.rand.pick(hopeful if lucky else [m for m in possible if m not in tried])
            tried.add(move)
            i, j, op, value = move
            equation = f"{state[i]}{op}{state[j]}={value}"
            self.equations.append(equation)
            rest = after(state, move)
            if len(rest) == 1:
                reached = value == self.target
                self.step(f"try {equation}, {'yes' if reached else 'no'}")
            else:
                self.step(f"try {equation}, left {', '.join(map(str, rest))}")
                reached = self.run(rest)
                if reached is False:
                    self.step(f"{self.rand.pick(DOUBTS)}, back to {', '.join(map(str, state))}")
            if reached is not False:
                return reached
            self.equations.pop()
        return False


def search(rand, problem):
    """(Text, answer) of a search that ends well."""
    while True:
        attempt = Search(rand, problem)
        if attempt.run(problem[0]):
            return attempt.text, ", ".join(attempt.equations)


def solution(rand, problem, asked):
    return search(rand, problem)


EQUATION = re.compile(r"(\d+)([-+*/])(\d+)=(\d+)")


def grade(question, answer):
    """Equations "a op b=c, ..." that use every number once and end in the target."""
    if answer is None:
        return False
    left = list(question.extra["numbers"])
    for part in answer.split(", "):
        match = EQUATION.fullmatch(part)
        if not match or max(map(len, match.groups())) > 9:
            return False
        a, op, b, c = int(match[1]), match[2], int(match[3]), int(match[4])
        for n in (a, b):
            if n not in left:
                return False
            left.remove(n)
        if op == "/":
            right = b > 0 and a == b * c
        else:
            right = c == (a + b if op == "+" else a - b if op == "-" else a * b)
        if not right:
            return False
        left.append(c)
    return left == [question.extra["target"]]
