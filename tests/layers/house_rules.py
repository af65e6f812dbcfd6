"""Rules on the text of the tree: lengths of files and functions, and words that do not belong in it."""

import ast
import pathlib
import re
import subprocess

MAX_FILE_LINES = 800
MAX_FUNCTION_LINES = 80
CODE = {".h", ".cpp", ".cu", ".cuh", ".py", ".cmake", ""}
CODE_FOLDERS = ("src/", "tools/", "include/", "tests/", "fuzz/", "bench/", "python/", "scripts/", "cmake/", "examples/")

# One variant of a kernel a function, to be read from top to bottom; none of it is shipped.
LADDERS = ("bench/ladder/",)

# Written in parts, so that this file does not break its own rule.
FORBIDDEN = [
    (re.compile(r"(?<![\w.])/" + r"work/"), "a path of a build machine"),
    (re.compile(r"/ro" + r"ot/\w"), "a path of a build machine"),
    (re.compile(r"\b(pypi\.o" + r"rg|pythonhosted\.o" + r"rg|deb\.debian\.o" + r"rg|archive\.ubuntu\.c" + r"om)\b"),
     "the host name of a package registry"),
]


# Text from a file or a user enters a message by quote() of base/quote.h: one line, valid UTF-8, never long.
QUOTED_BY_HAND = re.compile(r"'\"\s*\+(?!\s*std::to_string)")
# The same with fmt. Chat templates (src/text) put the names of their own types between ' and ' in this way, as Python does;
# fuzz_chat_template looks at their messages.
FORMATTED_BY_HAND = re.compile(r"(?<!=)'\{\}'")


def tracked_files(root):
    """Files that git knows or would add, relative to the root."""
    out = subprocess.run(["git", "-c", "safe.directory=*", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
                         cwd=root, check=True, capture_output=True)
    names = [name for name in out.stdout.decode().split("\0") if name]
    return sorted(name for name in names if (pathlib.Path(root) / name).is_file())


def text_of(path):
    """The file's text, or None for a binary one."""
    data = path.read_bytes()
    if b"\0" in data[:8192]:
        return None
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return None


def is_code(name):
    return name.startswith(CODE_FOLDERS) and pathlib.PurePath(name).suffix in CODE and not name.startswith("fuzz/corpus/")


# What opens a brace at the level of a namespace or class and is no function.
NO_FUNCTION = re.compile(r"^\s*(inline\s+)?(namespace|class|struct|enum|union|extern \"C\"|template\s*<.*>\s*(class|struct|union))\b|=\s*\{$")


def statement_start(lines, at):
    """The line on which the statement that line `at` ends began."""
    while at > 0:
        before = lines[at - 1].rstrip()
        if not before or before.endswith((";", "{", "}", ":")) or before.lstrip().startswith(("//", "#")):
            break
        at -= 1
    return at


def cpp_functions(text):
    """(first line, lines) of each function, told apart by the layout of formatted code: a statement at column 0, or at 2
    inside a class, that ends in "{"; its end is the next "}" at the same column. Line numbers from 1."""
    lines = text.split("\n")
    at = 0
    while at < len(lines):
        start = statement_start(lines, at) if lines[at].endswith("{") else at
        indent = len(lines[start]) - len(lines[start].lstrip(" "))
        statement = " ".join(lines[start:at + 1])
        if not lines[at].endswith("{") or indent not in (0, 2) or NO_FUNCTION.search(statement):
            at += 1
            continue
        closing = " " * indent + "}"
        end = next((i for i in range(at + 1, len(lines)) if lines[i].rstrip(" ;)") == closing), None)
        if end is not None:
            yield start + 1, end - start + 1
        at = end + 1 if end is not None else at + 1


def python_functions(text):
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield node.lineno, node.end_lineno - node.lineno + 1


def length_violations(root):
    violations = []
    for name in filter(is_code, tracked_files(root)):
        text = text_of(pathlib.Path(root) / name)
        if text is None:
            continue
        count = text.count("\n")
        if count >= MAX_FILE_LINES:
            violations.append(f"{name}: {count} lines, the limit is {MAX_FILE_LINES}")
        functions = []
        if name.startswith(LADDERS):
            continue
        if name.endswith((".h", ".cpp", ".cu", ".cuh")):
            functions = cpp_functions(text)
        elif name.endswith(".py"):
            functions = python_functions(text)
        violations += [f"{name}:{line}: a function of {length} lines, the limit is {MAX_FUNCTION_LINES}"
                       for line, length in functions if length > MAX_FUNCTION_LINES]
    return violations


def word_violations(root):
    violations = []
    for name in tracked_files(root):
        text = text_of(pathlib.Path(root) / name)
        if text is None:
            continue
        for word, what in FORBIDDEN:
            for match in word.finditer(text):
                violations.append(f"{name}:{text.count(chr(10), 0, match.start()) + 1}: {what}: {match.group(0)}")
    return violations


def quote_violations(root):
    violations = []
    for name in tracked_files(root):
        if name.startswith(("src/", "tools/")) and name.endswith((".h", ".cpp")):
            text = text_of(pathlib.Path(root) / name)
            matches = list(QUOTED_BY_HAND.finditer(text))
            if not name.startswith("src/text/"):
                matches += FORMATTED_BY_HAND.finditer(text)
            violations += [f"{name}:{text.count(chr(10), 0, match.start()) + 1}: text put between ' and ' by hand; use quote()"
                           for match in matches]
    return violations
