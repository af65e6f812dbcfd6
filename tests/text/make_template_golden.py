"""make_template_golden.py OUT: renders template_cases.py with jinja2 (3.1.6) and writes one JSON object a line:
{"template", "expected"} or {"template", "refused": true}. The first line holds what all of them see."""

import datetime
import json
import sys

import jinja_reference
import template_cases

NOW = datetime.datetime(2025, 7, 26, 12, 0)


def lines():
    yield {"messages": template_cases.MESSAGES, "kwargs": template_cases.VALUES, "bos_token": "<s>"}
    for template in template_cases.CASES:
        text = jinja_reference.render(template, template_cases.MESSAGES, now=NOW, bos_token="<s>", **template_cases.VALUES)
        if isinstance(text, Exception):
            yield {"template": template, "refused": True}
        else:
            yield {"template": template, "expected": text}


if __name__ == "__main__":
    with open(sys.argv[1], "w", encoding="utf-8", newline="\n") as out:
        for line in lines():
            out.write(json.dumps(line, ensure_ascii=False) + "\n")
