"""Random computations: values computed from earlier ones. The facts of `chain` and `word`."""

from dataclasses import dataclass

from .core import apply, digest


@dataclass
class Graph:
    values: list         # node -> value
    nodes: list          # node -> None (given) or (op, x, y, c): values[x] op values[y], or op c where y is None
    needed: list         # nodes that the target depends on, ascending
    target: int
    second: int = -1     # another node whose value is added at the end, -1: none
    modulus: int = 0     # 0: none

    def operand(self, node):
        op, _, y, c = self.nodes[node]
        return self.values[y] if y is not None else c


def sources(node):
    """The nodes that a computed node reads."""
    _, x, y, _ = node
    return (x,) if y is None else (x, y)


def draw_node(rand, values, add_max, times_max, modulus, cap):
    """A computation over the last nodes and its value; None if this draw broke a limit."""
    x = rand.between(max(0, len(values) - 3), len(values) - 1)
    u = rand.unit()
    if u < .38 or .5 <= u < .75:
        y = rand.between(max(0, len(values) - 6), len(values) - 1)
        if x == y:
            return None
        op = "+" if u < .38 else "-"
        if op == "-" and values[y] > values[x]:
            x, y = y, x
        node = (op, x, y, None)
        value = apply(op, values[x], values[y], modulus)
    else:
        op, c = ("+", rand.between(2, add_max)) if u < .5 else ("*", rand.between(2, times_max))
        node = (op, x, None, c)
        value = apply(op, values[x], c, modulus)
    return (node, value) if value <= cap else None


def needed_for(nodes, targets):
    found, todo = set(), list(targets)
    while todo:
        node = todo.pop()
        if node not in found:
            found.add(node)
            if nodes[node] is not None:
                todo += sources(nodes[node])
    return sorted(found)


def draw_graph(rand, steps, leaf_max, times_max, modulus=0, cap=999):
    """Two given values and `steps` computed ones, at least 60% of which the last one needs."""
    while True:
        values, nodes = [rand.between(2, leaf_max), rand.between(2, leaf_max)], [None, None]
        for _ in range(30 * steps):
            drawn = draw_node(rand, values, leaf_max, times_max, modulus, cap)
            if drawn:
                nodes.append(drawn[0])
                values.append(drawn[1])
            if len(values) == steps + 2:
                break
        else:
            continue
        target = len(values) - 1
        needed = needed_for(nodes, [target])
        if sum(nodes[n] is not None for n in needed) >= max(2, int(.6 * steps)):
            return Graph(values, nodes, needed, target, modulus=modulus)


def graph_key(graph):
    """The same for graphs that compute the same expression, whatever the names, the order and what is not needed."""
    names = {}
    for n in graph.needed:
        if graph.nodes[n] is None:
            names[n] = str(graph.values[n])
            continue
        op, x, y, c = graph.nodes[n]
        left, right = names[x], names[y] if y is not None else f"#{c}"
        if op == "+" and y is not None and right < left:
            left, right = right, left
        names[n] = digest(f"{left}{op}{right}")
    ends = [names[graph.target]] + ([names[graph.second]] if graph.second >= 0 else [])
    return f"{graph.modulus}:" + "+".join(sorted(ends))


def solving_order(rand, graph):
    """The needed computed nodes in a random valid order."""
    done = {n for n in graph.needed if graph.nodes[n] is None}
    todo = [n for n in graph.needed if graph.nodes[n] is not None]
    while todo:
        ready = [n for n in todo if all(s in done for s in sources(graph.nodes[n]))]
        node = rand.pick(ready)
        todo.remove(node)
        done.add(node)
        yield node
