"""Long addition and multiplication, worked digit by digit, checked by casting out nines."""

from .core import DOUBTS, Text, opening

NAME = "arithmetic"
# (operation, digits of the first number, digits of the second)
LEVELS = {1: ("+", 6, 6), 2: ("*", 2, 2), 3: ("*", 3, 2), 4: ("*", 3, 3), 5: ("*", 4, 3)}
WARM_UP = (("+", 3, 3), ("*", 2, 2), ("*", 2, 1))
SLIP_RATE, CHECK_RATE = .2, .5
LINKS = ("; ", ", ", " then ", " and ", " next ")


def number(rand, digits):
    return rand.between(10 ** (digits - 1), 10 ** digits - 1)


def facts(rand, parameters):
    op, first, second = parameters
    a, b = number(rand, first), number(rand, second)
    return (a, b, op) if first == second or rand.unit() < .8 else (b, a, op)


def key(problem):
    a, b, op = problem
    return f"{min(a, b)}{op}{max(a, b)}"


def question(rand, problem):
    a, b, op = problem
    return f"find {a}{op}{b}", str(a + b if op == "+" else a * b), {}


def nines(n):
    return n % 9


class Worker:
    """Writes one attempt. `slip_at`: the digit operation (from 1) that goes wrong, 0: none."""

    def __init__(self, rand, text, slip_at=0):
        self.rand, self.text, self.slip_at, self.count = rand, text, slip_at, 0

    def operation(self, left, value):
        """"left=value"; the value as written."""
        self.count += 1
        slip = self.count == self.slip_at
        if slip:
            value = min(99, max(0, value + self.rand.pick((-10, -2, -1, 1, 2, 10))))
        self.text.add(left + "=")
        self.text.add(str(value), learn=not slip)
        return value

    def either(self, x, y):
        return (x, y) if self.rand.unit() < .5 else (y, x)

    def link(self, last):
        self.text.add(": " if last else self.rand.pick(LINKS))

    def add(self, a, b):
        digits_a, digits_b = str(a)[::-1], str(b)[::-1]
        places = max(len(digits_a), len(digits_b))
        self.text.add(f"{opening(self.rand)}add {a} and {b}: ")
        carry, low = 0, ""
        for i in range(places):
            x, y = digits_a[i:i + 1] or "0", digits_b[i:i + 1] or "0"
            first, second = self.either(x, y)
            value = self.operation(f"{first}+{second}+{carry}", int(x) + int(y) + carry)
            self.link(i == places - 1)
            carry, low = value // 10, str(value % 10) + low
        total = int(f"{carry}{low}")
        self.text.add(f"so {total}")
        self.text.end_step()
        return total

    def partial(self, a, digit, place):
        """a * digit * 10^place."""
        shift = f" put {'0' * place}" if place else ""
        self.text.add(f"{opening(self.rand)}compute {digit}*{a}{shift}: ")
        carry, low, digits = 0, "", str(a)[::-1]
        for i, d in enumerate(digits):
            first, second = self.either(d, digit)
            value = self.operation(f"{first}*{second}+{carry}", int(d) * digit + carry)
            self.link(i == len(digits) - 1)
            carry, low = value // 10, str(value % 10) + low
        product = int(f"{carry}{low}") * 10 ** place
        self.text.add(f"so {product}")
        self.text.end_step()
        return product

    def solve(self, a, b, op):
        if op == "+":
            return self.add(a, b)
        places = list(range(len(str(b))))
        self.rand.shuffle(places)
        total = None
        parts = [self.partial(a, int(str(b)[-1 - place]), place) for place in places]
        for part in parts:
            total = part if total is None else self.add(total, part)
        return total


def solution(rand, problem, asked):
    a, b, op = problem
    right = int(asked[1])
    operations = len(str(a)) * (1 if op == "+" else len(str(b)))
    while True:
        text = Text()
        slip_at = rand.between(1, operations) if rand.unit() < SLIP_RATE else 0
        total = Worker(rand, text, slip_at).solve(a, b, op)
        if not slip_at and rand.unit() >= CHECK_RATE:
            return text
        expected = nines(a) + nines(b) if op == "+" else nines(a) * nines(b)
        agrees = nines(total) == nines(expected)
        if agrees and total != right:
            continue                                   # a slip that nines do not see teaches a wrong answer
        text.add(f"check: {a} gives {nines(a)}, {b} gives {nines(b)}, {nines(a)}{op}{nines(b)}={expected} gives "
                 f"{nines(expected)}, {total} gives {nines(total)} {'yes' if agrees else 'no'}")
        text.end_step()
        if not agrees:
            text.add(f"{rand.pick(DOUBTS)}, redo")
            text.end_step()
            Worker(rand, text).solve(a, b, op)
        return text
