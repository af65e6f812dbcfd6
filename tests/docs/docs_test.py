"""The examples of docs/ are the ones that the tests compile, and links inside the documents lead somewhere."""

import pathlib
import re
import subprocess
import sys
import textwrap

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGES = sorted([*ROOT.glob("*.md"), ROOT / "reproduce" / "README.md", *(ROOT / "docs").rglob("*.md")])
EXAMPLES = [("docs/formats.md", ["tests/docs/formats_example_test.cpp"]), ("docs/reset.md", ["tests/docs/reset_example_test.cpp"]),
            ("docs/library.md", ["examples/chat.cpp", "examples/batch.cpp"])]


def blocks(page):
    return re.findall(r"^```cpp\n(.*?)^```$", (ROOT / page).read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("page, sources", EXAMPLES)
def test_examples_are_compiled(page, sources):
    compiled = []
    for source in sources:
        text = (ROOT / source).read_text(encoding="utf-8")
        lines = text.split(f"// {page}: begin\n")[1].split(f"// {page}: end\n")[0]
        compiled.append(textwrap.dedent(lines.rsplit("\n", 1)[0] + "\n"))
    assert blocks(page) == compiled, f"copy the examples of {', '.join(sources)} into {page}"


def test_the_table_of_a_cuda_device_is_the_results():
    script = ROOT / "bench" / "results" / "cuda_table.py"
    done = subprocess.run([sys.executable, script, "--check"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_programs_use_the_public_api_alone():
    programs = sorted((ROOT / "examples").glob("*.cpp"))
    assert len(programs) >= 2
    for program in programs:
        for name in re.findall(r'#include "([^"]+)"', program.read_text(encoding="utf-8")):
            assert name.startswith("halfbyte/"), f"{program.name} includes {name}"


def test_every_cpp_block_is_compiled():
    known = {page for page, _ in EXAMPLES}
    for page in PAGES:
        name = page.relative_to(ROOT).as_posix()
        assert name in known or not blocks(name), f"{name}: a C++ example that no test compiles"


def broken_links(page, text):
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if not re.match(r"[a-z]+:", target) and not (page.parent / target.split("#")[0]).exists():
            yield target


def test_links_lead_somewhere():
    assert len(PAGES) > 8
    for page in PAGES:
        assert not list(broken_links(page, page.read_text(encoding="utf-8"))), page
    assert list(broken_links(ROOT / "README.md", "see [x](docs/no-such-page.md)")) == ["docs/no-such-page.md"]
