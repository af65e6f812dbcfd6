"""C++ sources are formatted as clang-format 14 does it with the tree's file. Skipped without that version."""

import pathlib
import re
import shutil
import subprocess

import pytest

import house_rules

ROOT = pathlib.Path(__file__).resolve().parents[2]


def clang_format_14():
    for name in ("clang-format-14", "clang-format"):
        tool = shutil.which(name)
        if tool and re.search(r"version 14\.", subprocess.run([tool, "--version"], capture_output=True, text=True).stdout):
            return tool
    pytest.skip("clang-format 14 is not installed")


def unformatted(tool, root, files):
    out = subprocess.run([tool, "--dry-run", "--style=file", *files], cwd=root, capture_output=True, text=True)
    return sorted(set(re.findall(r"^([^:\n]+):\d+:\d+: warning: code should be clang-formatted", out.stderr, re.MULTILINE)))


def test_sources_are_formatted():
    tool = clang_format_14()
    files = [name for name in house_rules.tracked_files(ROOT) if name.endswith((".h", ".cpp", ".cu", ".cuh"))]
    assert files
    bad = unformatted(tool, ROOT, files)
    assert not bad, "run scripts/format:\n" + "\n".join(bad)


def test_a_planted_file_is_found(tmp_path):
    tool = clang_format_14()
    shutil.copy(ROOT / ".clang-format", tmp_path)
    (tmp_path / "good.cpp").write_text("int* p;\n")
    (tmp_path / "bad.cpp").write_text("int *p;\n")
    assert unformatted(tool, tmp_path, ["good.cpp", "bad.cpp"]) == ["bad.cpp"]
