"""Halfbyte's templates against jinja2 itself: the cases of template_cases.py, and random ones from template_generator.py.
The driver render_template lies in the folder that HALFBYTE_BIN names (ctest sets it)."""

import datetime
import json
import os
import subprocess
import sys
import warnings

import pytest

pytest.importorskip("jinja2")
sys.path.insert(0, os.path.dirname(__file__))

import jinja_reference  # noqa: E402
import make_template_golden  # noqa: E402
import template_cases  # noqa: E402
from template_generator import Generator  # noqa: E402

warnings.filterwarnings("ignore", category=SyntaxWarning)
DRIVER = os.path.join(os.environ.get("HALFBYTE_BIN", "build/dev/bin"), "render_template")
NOW = make_template_golden.NOW
RANDOM_TEMPLATES = 1000

# What Halfbyte refuses and jinja2 does not: it says so in these words. A slice of a constant that has none ("1[2:]") is
# undefined in jinja2, which folds constants, but a failure for a variable.
REFUSED_ON_PURPOSE = ("outside the template subset", "cannot be sliced")


def ours(templates):
    jobs = [json.dumps({"template": t, "messages": template_cases.MESSAGES, "kwargs": template_cases.VALUES, "bos_token": "<s>",
                        "now": int(NOW.timestamp())}) for t in templates]
    run = subprocess.run([DRIVER], input="\n".join(jobs) + "\n", capture_output=True, text=True, check=True)
    answers = [json.loads(line) for line in run.stdout.rstrip("\n").split("\n")]
    assert len(answers) == len(templates)
    return answers


def reference(template):
    return jinja_reference.render(template, template_cases.MESSAGES, now=NOW, bos_token="<s>", **template_cases.VALUES)


def difference(template, answer):
    """None when both agree."""
    expected = reference(template)
    if isinstance(expected, Exception):
        return None if "error" in answer else f"{template!r}: jinja2 fails with {expected!r}, ours gives {answer['text']!r}"
    if answer.get("text") == expected:
        return None
    if any(words in answer.get("error", "") for words in REFUSED_ON_PURPOSE):
        return None
    if "Markup(" in expected:  # the repr of jinja2's own string type
        return None
    return f"{template!r}: jinja2 gives {expected!r}, ours {answer!r}"


def test_cases():
    found = [difference(t, a) for t, a in zip(template_cases.CASES, ours(template_cases.CASES))]
    assert [f for f in found if f] == []


def test_golden_file_is_current():
    path = os.path.join(os.path.dirname(__file__), "..", "golden", "templates.jsonl")
    with open(path, encoding="utf-8") as file:
        stored = [json.loads(line) for line in file]
    assert stored == json.loads(json.dumps(list(make_template_golden.lines())))


def test_random_templates():
    templates = [Generator(seed).template() for seed in range(RANDOM_TEMPLATES)]
    answers = ours(templates)
    found = [difference(t, a) for t, a in zip(templates, answers)]
    assert [f for f in found if f] == []
    # The generator must not only make templates that both refuse.
    assert sum("text" in a for a in answers) > RANDOM_TEMPLATES // 10


def test_the_document_lists_the_subset():
    page = os.path.join(os.path.dirname(__file__), "..", "..", "docs", "chat-templates.md")
    with open(page, encoding="utf-8") as file:
        text = " ".join(file.read().split())
    for source, heading in (("{{ 1 | nothing }}", "Filters: "), ("{{ 1 is nothing }}", "Tests: ")):
        known = ours([source])[0]["error"].split("which has ")[1].split(", ")
        listed = text.split(heading)[1].split(".")[0]
        words = {name for name in known if name.isalpha()} - {"eq", "equalto", "ne", "lt", "le", "gt", "ge", "lessthan", "greaterthan"}
        assert words - set(listed.replace(",", " ").split()) == set(), heading


def test_dates():
    for now in (datetime.datetime(2024, 2, 29, 23, 59, 59), datetime.datetime(1999, 12, 31)):
        template = "{{ strftime_now('%d %B %Y, %H:%M:%S %j %a %A %b %y') }}"
        job = json.dumps({"template": template, "messages": [], "now": int(now.timestamp())})
        run = subprocess.run([DRIVER], input=job + "\n", capture_output=True, text=True, check=True)
        assert json.loads(run.stdout)["text"] == jinja_reference.render(template, now=now)
