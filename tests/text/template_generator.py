"""Random templates: grammatical, over the values of template_cases.VALUES, with every white space sign."""

import random


class Generator:
    def __init__(self, seed):
        self.r = random.Random(seed)
        self.depth = 0

    def pick(self, *options):
        return self.r.choice(options)

    def name(self):
        return self.pick("s", "u", "e", "sp", "n", "z", "neg", "f", "t", "nul", "l", "ls", "el", "d", "q", "nest", "people", "x", "y",
                         "missing", "messages")

    def literal(self):
        return self.pick("0", "1", "2", "-1", "1.5", "'a'", "'é'", "\"b c\"", "''", "true", "none", "[]", "[1, 2]", "['b', 'a']", "{'a': 1}",
                         "(1, 'x')", "{}", "10", "'\\n'")

    def args(self):
        return ", ".join(self.expression() for _ in range(self.r.randint(0, 2)))

    def expression(self):
        self.depth += 1
        try:
            if self.depth > 4 or self.r.random() < 0.25:
                return self.pick(self.name, self.name, self.literal)()
            return self.pick(self.binary, self.binary, self.filtered, self.filtered, self.tested, self.attribute, self.index, self.method,
                             self.conditional, self.prefix, self.nested, self.compare)()
        finally:
            self.depth -= 1

    def binary(self):
        op = self.pick("+", "-", "*", "~", "~", "%", "/", "//", "and", "or", "~", "+")
        return f"{self.expression()} {op} {self.expression()}"

    def compare(self):
        op = self.pick("==", "!=", "<", ">", "<=", ">=", "in", "not in")
        return f"{self.expression()} {op} {self.expression()}"

    def filtered(self):
        f = self.pick("length", "string", "tojson", "tojson(indent=2)", "trim", "upper", "lower", "title", "capitalize", "first", "last", "list",
                      "join", "join(', ')", "default('d')", "default('d', true)", "sort", "int", "float", "abs", "sum", "min", "max",
                      "dictsort", "replace('a', 'bb')", "string | indent", "safe", "tojson(sort_keys=true)",
                      # jinja2 evaluates these when they are read, Halfbyte at once: read them at once.
                      "reverse | list", "unique | list", "map('string') | list", "select | list", "reject('none') | list", "items | list",
                      "map(attribute='name') | list", "selectattr('age') | list", "map('upper') | list")
        return f"{self.expression()} | {f}"

    def tested(self):
        t = self.pick("defined", "undefined", "none", "string", "number", "mapping", "iterable", "sequence", "true", "false", "integer", "float",
                      "boolean", "odd", "even", "eq(1)", "in [1, 'a']", "divisibleby(2)")
        return f"{self.expression()} is {self.pick('', 'not ')}{t}"

    def attribute(self):
        return f"({self.expression()}).{self.pick('name', 'age', 'a', 'b', 'k', 'role', 'content')}"

    def index(self):
        i = self.pick("0", "-1", "1", "'a'", "'b'", "1:", ":-1", "::-1", "::2", "n", "z:2", "-2:")
        return f"({self.expression()})[{i}]"

    def method(self):
        m = self.pick("strip()", "lstrip()", "rstrip('d')", "upper()", "title()", "split()", "split(',')", "split('l', 1)", "startswith('H')",
                      "endswith('d')", "replace('l', 'é')", "find('o')", "count('l')", "splitlines()", "get('a')", "get('zz', 1)", "rsplit('o')", "partition(' ')", "lower()", "capitalize()")
        if self.r.random() < 0.15:
            return f"(({self.expression()}).{self.pick('items()', 'keys()', 'values()')} | list)"
        return f"({self.expression()}).{m}"

    def conditional(self):
        tail = self.pick("", f" else {self.expression()}")
        return f"({self.expression()} if {self.expression()}{tail})"

    def prefix(self):
        return f"{self.pick('not ', '-', '+', 'not ')}({self.expression()})"

    def nested(self):
        return self.pick(f"[{self.expression()}, {self.expression()}]", f"({self.expression()},)", f"{{'k': {self.expression()}}}",
                         f"({self.expression()})", f"[{self.expression()}]")

    def text(self):
        return "".join(self.pick(" ", "\n", "a", "  ", "\t", "é", "{", "}", "%", "x\n", "\n\n", "", "-", "\r\n", "'") for _ in range(self.r.randint(0, 4)))

    def open(self):
        return "{%" + self.pick("", "", "-", "+") + self.pick(" ", " ", "\n ")

    def close(self):
        return self.pick(" ", "  ") + self.pick("", "", "-", "+") + "%}"

    def tag(self, inside):
        return self.open() + inside + self.close()

    def output(self):
        sign, end = self.pick("", "", "-", "+"), self.pick("", "", "-")
        return "{{" + sign + " " + self.expression() + " " + end + "}}"

    def body(self):
        self.depth += 1
        n = 1 if self.depth > 3 else self.r.randint(1, 3)
        out = "".join(self.text() + self.statement() for _ in range(n)) + self.text()
        self.depth -= 1
        return out

    def statement(self):
        if self.depth > 3:
            return self.output()
        return self.pick(self.output, self.output, self.output, self.set, self.condition, self.loop, self.comment, self.raw, self.set_block,
                         self.macro, self.scoped)()

    def set(self):
        return self.tag(f"set {self.pick('x', 'y', 's', 'n')} = {self.expression()}")

    def set_block(self):
        return self.tag(f"set {self.pick('x', 'y')}{self.pick('', ' | upper', ' | trim')}") + self.body() + self.tag("endset")

    def condition(self):
        out = self.tag(f"if {self.expression()}") + self.body()
        if self.r.random() < 0.3:
            out += self.tag(f"elif {self.expression()}") + self.body()
        if self.r.random() < 0.5:
            out += self.tag("else") + self.body()
        return out + self.tag("endif")

    def loop(self):
        target = self.pick("x", "x", "x, y", "y")
        filtered = self.pick("", "", "", f" if {self.name()}")
        inner = self.pick("", "{{ loop.index }}", "{% if loop.last %}!{% endif %}", "{{ loop.nextitem }}",
                          "{% if loop.index > 2 %}{% break %}{% endif %}")
        out = self.tag(f"for {target} in {self.expression()}{filtered}") + inner + self.body()
        if self.r.random() < 0.2:
            out += self.tag("else") + self.body()
        return out + self.tag("endfor")

    def macro(self):
        name = self.pick("mm", "mk")
        call = self.pick(f"{name}()", f"{name}(1)", f"{name}(x=s)", f"{name}(1, y=2)")
        return self.tag(f"macro {name}(x, y=n)") + self.body() + self.tag("endmacro") + "{{ " + call + " }}"

    def scoped(self):
        return self.pick(self.tag(f"with x = {self.expression()}") + self.body() + self.tag("endwith"),
                         self.tag("filter upper") + self.body() + self.tag("endfilter"),
                         self.tag("generation") + self.body() + self.tag("endgeneration"))

    def comment(self):
        return "{#" + self.pick("", "-", "+") + " c \n" + self.pick("", "-", "+") + "#}"

    def raw(self):
        return self.open() + "raw" + self.pick(" ", "") + self.pick("", "-") + "%}" + self.text() + "{{ x }}" + self.text() + self.tag("endraw")

    def template(self):
        self.depth = 0
        return self.body()
