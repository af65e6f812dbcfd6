"""Reads every #include of src, tools and include against the table; then plants one violation of each kind and expects it
to be found."""

import pathlib
import re

import pytest

import include_table as table

ROOT = pathlib.Path(__file__).resolve().parents[2]


def report(violations):
    return "\n" + "\n".join(violations)


def test_includes_follow_the_table():
    violations = table.include_violations(ROOT)
    assert not violations, report(violations)


def test_forbidden_words():
    violations = table.word_violations(ROOT)
    assert not violations, report(violations)


def test_no_include_cycles():
    cycles = table.include_cycles(ROOT)
    assert not cycles, report(cycles)


def test_libraries_link_what_they_may_include():
    violations = table.link_violations(ROOT)
    assert not violations, report(violations)


def test_the_sources_are_really_read():
    assert len(table.sources(ROOT)) > 50
    assert ('"', "base/result.h") in table.includes_of(ROOT, "src/base/json.h")


def test_the_table_itself_has_no_cycle():
    order = list(table.MAY_INCLUDE)
    for folder, allowed in table.MAY_INCLUDE.items():
        for other in allowed:
            assert other in table.MAY_INCLUDE
            assert folder not in table.MAY_INCLUDE[other], f"{folder} and {other} may include each other"
            assert order.index(other) < order.index(folder) or other == "io", f"{other} stands after {folder}"


def test_hacking_prints_the_same_table():
    text = (ROOT / "HACKING.md").read_text(encoding="utf-8")
    rows = dict(re.findall(r"^\| `(\w+)` \| ([^|]*) \|", text, re.MULTILINE))
    for folder, allowed in table.MAY_INCLUDE.items():
        assert folder in rows, f"HACKING.md has no row for {folder}"
        assert set(rows[folder].replace("`", "").replace(",", " ").split()) == set(allowed or ["nothing"]), folder


@pytest.fixture
def tree(tmp_path):
    """A small tree that breaks no rule, and a way to add files to it."""

    def write(path, text=""):
        file = tmp_path / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")

    for header in ("base/result.h", "formats/e2m1.h", "tensor/dtype.h", "kernels/api.h", "kernels/ref/x.h", "kernels/cpu/x.h",
                   "io/gguf.h", "text/tokenizer.h", "decode/sampler.h", "model/config.h", "engine/runner.h",
                   "quantize/rtn.h", "server/http.h"):
        write(f"src/{header}", "#pragma once\n")
    for header in ("status.h", "plan.h", "engine.h", "model.h"):
        write(f"include/halfbyte/{header}", "#pragma once\n")
    write("tools/run.cpp", '#include "engine/runner.h"\n#include "halfbyte/engine.h"\n#include <CLI/CLI.hpp>\n')
    write("src/model/a.cpp", '#include "model/config.h"\n#include "kernels/api.h"\n#include "halfbyte/plan.h"\n#include <vector>\n')
    return Tree(tmp_path, write)


class Tree:
    def __init__(self, root, write):
        self.root, self.write = root, write


def test_the_planted_tree_is_clean(tree):
    assert table.include_violations(tree.root) == []
    assert table.word_violations(tree.root) == []
    assert table.include_cycles(tree.root) == []


@pytest.mark.parametrize("path, include", [
    ("src/base/bad.h", '"tensor/dtype.h"'),
    ("src/formats/bad.h", '"tensor/dtype.h"'),
    ("src/kernels/bad.cpp", '"model/config.h"'),
    ("src/kernels/bad.cpp", '"halfbyte/plan.h"'),
    ("src/kernels/ref/bad.cpp", '"kernels/cpu/x.h"'),
    ("src/model/bad.cpp", '"kernels/ref/x.h"'),
    ("src/model/bad.cpp", '"engine/runner.h"'),
    ("src/model/bad.cpp", '"text/tokenizer.h"'),
    ("src/text/bad.cpp", '"io/gguf.h"'),
    ("src/decode/bad.cpp", '"model/config.h"'),
    ("src/io/bad.cpp", '"model/config.h"'),
    ("src/engine/bad.cpp", '"server/http.h"'),
    ("src/engine/bad.cpp", '"io/gguf.h"'),
    ("src/engine/bad.cpp", "<nlohmann/json.hpp>"),
    ("src/engine/bad.cpp", "<boost/beast.hpp>"),
    ("src/model/bad.h", "<nlohmann/json.hpp>"),
    ("src/model/bad.cpp", "<simdjson.h>"),
    ("src/kernels/cpu/bad.cpp", "<cuda_runtime.h>"),
    ("src/quantize/bad.cpp", '"run.cpp"'),
    ("include/halfbyte/bad.h", '"base/result.h"'),
    ("src/model/bad.cpp", '"config.h"'),
    ("src/model/bad.cpp", '"no/such/file.h"'),
    ("src/newfolder/bad.cpp", '"base/result.h"'),
])
def test_a_planted_include_is_found(tree, path, include):
    tree.write(path, f"#include {include}\n")
    violations = table.include_violations(tree.root)
    assert len(violations) == 1 and violations[0].startswith(path), violations


@pytest.mark.parametrize("path, line", [
    ("src/kernels/ref/bad.cpp", "// as Qwen3 wants it"),
    ("src/kernels/bad.h", "void llama_rope();"),
    ("src/engine/bad.cpp", "// parses JSON"),
    ("src/engine/bad.h", "class HttpX; // http"),
    ("include/halfbyte/bad.h", "nlohmann::json dump();"),
])
def test_a_planted_word_is_found(tree, path, line):
    tree.write(path, line + "\n")
    violations = table.word_violations(tree.root)
    assert len(violations) == 1 and violations[0].startswith(path), violations


def test_a_planted_cycle_is_found(tree):
    tree.write("src/model/x.h", '#include "model/y.h"\n')
    tree.write("src/model/y.h", '#include "model/z.h"\n')
    tree.write("src/model/z.h", '#include "model/x.h"\n')
    assert len(table.include_cycles(tree.root)) == 1


def test_a_planted_link_is_found(tree):
    tree.write("src/text/CMakeLists.txt", "hb_library(text\n  SRCS a.cpp\n  DEPS base model\n  SYSTEM_DEPS fmt::fmt)\n")
    assert table.link_violations(tree.root) == ["src/text/CMakeLists.txt: hb_library(text) may not link model"]
    tree.write("src/text/CMakeLists.txt", "hb_library(text SRCS a.cpp DEPS base tensor SYSTEM_DEPS fmt::fmt)\n")
    assert table.link_violations(tree.root) == []
