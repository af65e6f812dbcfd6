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


def question(rand, graph):
    names, item = rand.sample(NAMES, len(graph.values)), rand.pick(ITEMS)
    sentences = []
    for name, value, node in zip(names, graph.values, graph.nodes):
        if node is None:
            sentences.append(f"{name} has {value} {item}.")
            continue
        op, x, y, c = node
        if op == "+" and y is not None:
            sentences.append(f"{name} has as many {item} as {names[x]} and {names[y]} together.")
        elif op == "+":
            sentences.append(f"{name} has {c} more {item} than {names[x]}.")
        elif op == "-":
            sentences.append(f"{name} has fewer {item} than {names[x]}: less what {names[y]} has.")
        else:
            sentences.append(f"{name} has {c} times as many {item} as {names[x]}.")
    rand.shuffle(sentences)
    who, answer = names[graph.target], graph.values[graph.target]
    if graph.second >= 0:
        who, answer = f"{who} and {names[graph.second]}", answer + graph.values[graph.second]
    prompt = " ".join(sentences) + f" how many {item} do{'' if graph.second >= 0 else 'es'} {who} have?"
    return prompt, str(answer), {"names": names}


COMPARED = {"+": "more", "-": "fewer", "*": "times"}


def solution(rand, graph, asked):
    names, text = asked[2]["names"], Text()
    for node in solving_order(rand, graph):
        op, x, y, c = graph.nodes[node]
        a, b = graph.values[x], graph.operand(node)
        u = rand.unit()
        if u < .35:
            before = f"for {names[node]}: "
        elif u < .6:
            before = f"we know {names[x]} has {a}, so {names[node]} has "
        elif u < .8:
            before = f"{names[node]} has {c if y is None else names[y]} {COMPARED[op]}: "
        else:
            before = f"compute {names[node]}: "
        write_equation(rand, text, before, a, op, b)
    if graph.second >= 0:
        write_equation(rand, text, "together: ", graph.values[graph.target], "+", graph.values[graph.second])
    return text
