"""jinja2 set up as transformers sets it up for chat templates (utils/chat_template_utils.py): trim_blocks, lstrip_blocks,
the immutable sandbox, loop controls, generation blocks, and its own tojson."""

import copy
import datetime
import functools
import json

import jinja2
import jinja2.ext
import jinja2.sandbox


class Generation(jinja2.ext.Extension):
    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("_text"), [], [], body).set_lineno(line)

    def _text(self, caller):
        return caller()


@functools.lru_cache(maxsize=None)
def environment(now=None):
    env = jinja2.sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols])

    def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

    def raise_exception(message):
        raise jinja2.exceptions.TemplateError(message)

    def strftime_now(format):
        return (now or datetime.datetime.now()).strftime(format)

    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    env.globals["strftime_now"] = strftime_now
    return env


def render(template, messages=(), tools=None, add_generation_prompt=True, now=None, **variables):
    """The text, or an Exception."""
    try:
        # A deep copy: a filter such as indent changes a list in place.
        messages, tools, variables = copy.deepcopy((messages, tools, variables))
        compiled = environment(now).from_string(template)
        return compiled.render(messages=messages, tools=tools, documents=None, add_generation_prompt=add_generation_prompt,
                               **variables)
    except Exception as failure:  # noqa: BLE001: whatever jinja2 says, the caller compares
        return failure
