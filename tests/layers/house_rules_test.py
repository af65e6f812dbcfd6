"""The house rules on the tree, and one planted violation of each."""

import pathlib
import subprocess

import pytest

import house_rules as rules

ROOT = pathlib.Path(__file__).resolve().parents[2]


@pytest.fixture
def tree(tmp_path):
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    return tmp_path


def plant(tree, path, text):
    file = tree / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, encoding="utf-8")


def require_git():
    try:
        rules.tracked_files(ROOT)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("the tree is not a git checkout")


def test_files_and_functions_are_short():
    require_git()
    violations = rules.length_violations(ROOT)
    assert not violations, "\n" + "\n".join(violations)


def test_no_forbidden_words():
    require_git()
    violations = rules.word_violations(ROOT)
    assert not violations, "\n" + "\n".join(violations)


def test_untrusted_text_is_quoted():
    require_git()
    violations = rules.quote_violations(ROOT)
    assert not violations, "\n" + "\n".join(violations)


def test_a_planted_quote_is_found(tree):
    plant(tree, "src/a/ok.cpp", 'f("tensor " + quote(name) + " is gone");\n')
    assert rules.quote_violations(tree) == []
    plant(tree, "src/a/bad.cpp", '\nf("tensor \'" + name + "\' is gone");\n')
    assert rules.quote_violations(tree) == ["src/a/bad.cpp:2: text put between ' and ' by hand; use quote()"]


def test_a_planted_quote_in_a_format_is_found(tree):
    plant(tree, "tools/ok.cpp", 'fmt::format("<circle fill=\'{}\'/>", colour);\n')
    assert rules.quote_violations(tree) == []
    plant(tree, "tools/bad.cpp", '\nfmt::format("--device is \'{}\'", device);\n')
    assert rules.quote_violations(tree) == ["tools/bad.cpp:2: text put between ' and ' by hand; use quote()"]


def test_the_functions_of_the_tree_are_seen():
    text = (ROOT / "src/base/json.cpp").read_text(encoding="utf-8")
    assert len(list(rules.cpp_functions(text))) > 15


def test_a_planted_long_file_is_found(tree):
    plant(tree, "src/a/ok.cpp", "int x;\n" * 799)
    assert rules.length_violations(tree) == []
    plant(tree, "src/a/bad.cpp", "int x;\n" * 800)
    assert rules.length_violations(tree) == ["src/a/bad.cpp: 800 lines, the limit is 800"]


@pytest.mark.parametrize("head, tail, indent", [
    ("int f() {", "}", ""),
    ("namespace a {\nint f(int x,\n      int y) {", "}\n}  // namespace a", ""),
    ("class A {\n public:\n  int f() const {", "  }\n};", "  "),
    ("TEST(A, b) {", "}", ""),
])
def test_a_planted_long_function_is_found(tree, head, tail, indent):
    def body(lines):
        return head + "\n" + f"{indent}  if (x) {{\n{indent}  }}\n" * (lines // 2) + tail + "\n"

    around = 3 if "int y" in head else 2  # lines of signature and closing brace
    plant(tree, "src/a/x.cpp", body(76))
    assert rules.length_violations(tree) == []
    plant(tree, "src/a/x.cpp", body(80))
    violations = rules.length_violations(tree)
    assert len(violations) == 1 and f"a function of {80 + around} lines" in violations[0], violations


def test_a_planted_long_python_function_is_found(tree):
    plant(tree, "tests/x.py", "def f():\n" + "    pass\n" * 80)
    assert rules.length_violations(tree) == ["tests/x.py:1: a function of 81 lines, the limit is 80"]


def test_tables_and_classes_are_no_functions(tree):
    members = "  void f() {\n    g();\n  }\n" * 40
    plant(tree, "src/a/type.h", f"template <class A, int kB>\nstruct C {{\n{members}}};\n")
    rows = "    {1, 2},\n" * 200
    plant(tree, "src/a/table.cpp", f"constexpr Row kTable[] = {{\n{rows}}};\nstruct B {{\n" + "  int x;\n" * 200 + "};\n")
    assert rules.length_violations(tree) == []


@pytest.mark.parametrize("text", ["see /wo" + "rk/x", "cd /ro" + "ot/build", "from py" + "pi.org", "http://deb.deb" + "ian.org/x"])
def test_a_planted_word_is_found(tree, text):
    plant(tree, "docs/x.md", "fine\n" + text + "\n")
    violations = rules.word_violations(tree)
    assert len(violations) == 1 and violations[0].startswith("docs/x.md:2: "), violations


def test_binary_files_are_left_alone(tree):
    (tree / "data.bin").write_bytes(b"\0/wo" + b"rk/x")
    assert rules.word_violations(tree) == []
