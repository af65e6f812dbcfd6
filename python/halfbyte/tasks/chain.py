"""Chained modular arithmetic: variables defined in shuffled order, all values mod 100."""

from .core import Text, write_equation
from .graph import draw_graph, graph_key, solving_order

NAME = "chain"
LEVELS = {1: 4, 2: 8, 3: 12, 4: 16, 5: 20, 6: 24}      # computed variables, of which 60% or more are needed
WARM_UP = (2, 3, 4, 6)
MODULUS = 100
LETTERS = "abcdefghijklmnopqrstuvwxyz"


def facts(rand, steps):
    return draw_graph(rand, steps, leaf_max=99, times_max=9, modulus=MODULUS, cap=MODULUS - 1)


key = graph_key


def question(rand, graph):
    names = rand.sample(LETTERS, len(graph.values))
    lines = []
    for name, value, node in zip(names, graph.values, graph.nodes):
        if node is None:
            lines.append(f"{name}={value}")
        else:
            op, x, y, c = node
            lines.append(f"{name}={names[x]}{op}{c if y is None else names[y]}")
    rand.shuffle(lines)
    prompt = f"all mod {MODULUS}\n" + "\n".join(lines) + f"\nfind {names[graph.target]}"
    return prompt, str(graph.values[graph.target]), {"names": names}


def solution(rand, graph, asked):
    names, text = asked[2]["names"], Text()
    for node in solving_order(rand, graph):
        op, x, y, c = graph.nodes[node]
        a, b = graph.values[x], graph.operand(node)
        right = names[y] if y is not None else str(c)
        u, after = rand.unit(), ""
        if u < .3:
            before = f"{names[node]}={names[x]}{op}{right}="
        elif u < .55:
            also = f" and {names[y]} is {b}" if y is not None else ""
            before = f"we know {names[x]} is {a}{also}, so {names[node]}="
        elif u < .8:
            before = f"compute {names[node]}: "
        else:
            before, after = f"{names[x]}{op}{right}: ", f", that is {names[node]}"
        write_equation(rand, text, before, a, op, b, after, modulus=MODULUS)
    return text
