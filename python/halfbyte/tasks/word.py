"""Word problems of several steps about who has how many."""

from .core import Text, write_equation
from .graph import draw_graph, graph_key, solving_order

NAME = "word"
LEVELS = {1: 3, 2: 5, 3: 7, 4: 9, 5: 11}               # computed quantities, of which 60% or more are needed
WARM_UP = (2, 3, 4)
NAMES = "tom sam ann bob eve max lea kim joe amy dan ivy leo mia".split()
ITEMS = "apples books coins cards pens eggs keys cups".split()
LARGEST = 999


def facts(rand, steps):
    while True:
        graph = draw_graph(rand, steps, leaf_max=60, times_max=6, cap=LARGEST)
        if rand.unit() < .4:                           # the question asks for two people together
            graph.second = rand.pick([n for n in graph.needed if n != graph.target])
            if graph.values[graph.target] + graph.values[graph.second] > LARGEST:
                continue
        return graph


key = graph_key


def definition(graph, names, node):
    """What is said of a computed quantity, in the prompt and again in the solution."""
    op, x, y, c = graph.nodes[node]
    if y is None:
        return f"{names[node]} has {c} more than {names[x]}" if op == "+" else f"{names[node]} has {c} times what {names[x]} has"
    if op == "+":
        return f"{names[node]} has what {names[x]} and {names[y]} have"
    return f"{names[node]} has what {names[x]} has less what {names[y]} has"


def question(rand, graph):
    names, item = rand.sample(NAMES, len(graph.values)), rand.pick(ITEMS)
    sentences = [f"{name} has {value} {item}" if node is None else definition(graph, names, n)
                 for n, (name, value, node) in enumerate(zip(names, graph.values, graph.nodes))]
    rand.shuffle(sentences)
    who, answer = names[graph.target], graph.values[graph.target]
    if graph.second >= 0:
        who, answer = f"{who} and {names[graph.second]}", answer + graph.values[graph.second]
    prompt = f"we know {'. '.join(sentences)}. how many {item} do{'' if graph.second >= 0 else 'es'} {who} have?"
    return prompt, str(answer), {"names": names}


LEADS = ("we know ", "as ", "for ")
LINKS = (", so ", ", then ", ", that is ", ", we have ")


def solution(rand, graph, asked):
    """Each step names whom it is about, says again how, finds the numbers, computes, and says the result in the prompt's form,
    so that every token follows from one place in the text before it."""
    names, text = asked[2]["names"], Text()
    for node in solving_order(rand, graph):
        op, x, y, c = graph.nodes[node]
        a, b = graph.values[x], graph.operand(node)
        if op == "+" and y is not None and rand.unit() < .5:
            x, y, a, b = y, x, b, a
        found = [f"{names[x]} has {a}"] + ([f"{names[y]} has {b}"] if y is not None else [])
        before = f"{rand.pick(LEADS)}{definition(graph, names, node)}: {rand.pick((', ', ' and ')).join(found)}, "
        after = f"{rand.pick(LINKS)}{names[node]} has {graph.values[node]}"
        write_equation(rand, text, before, a, op, b, after)
    if graph.second >= 0:
        a, b = graph.values[graph.target], graph.values[graph.second]
        write_equation(rand, text, f"together: {names[graph.target]} has {a} and {names[graph.second]} has {b}, ", a, "+", b)
    return text
