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


LEADS = ("", "", "compute ", "for ", "as ", "we know ")
LINKS = (", so ", ", then ", ", that is ", ", now ")


def solution(rand, graph, asked):
    """Each step says again what defines a variable, finds the values, computes, and says the result in the prompt's form."""
    names, text = asked[2]["names"], Text()
    for node in solving_order(rand, graph):
        op, x, y, c = graph.nodes[node]
        a, b = graph.values[x], graph.operand(node)
        defined = f"{names[node]}={names[x]}{op}{names[y] if y is not None else c}"
        if op == "+" and y is not None and rand.unit() < .5:
            x, y, a, b = y, x, b, a
        found = [f"{names[x]}={a}"] + ([f"{names[y]}={b}"] if y is not None else [])
        lead = rand.pick(LEADS)
        before = f"{lead}{defined}, {rand.pick((', ', ' and ')).join(found)}, "
        after = f"{rand.pick(LINKS)}{names[node]}={graph.values[node]}"
        write_equation(rand, text, before, a, op, b, after, modulus=MODULUS)
    return text
