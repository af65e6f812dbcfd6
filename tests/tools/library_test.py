"""The programs of examples/, on the tiny model; and Halfbyte as a part of another CMake project."""

import pathlib
import shutil
import subprocess

import pytest
from conftest import BINARY, PATIENCE, ROOT, clean_environment


def run_example(name, *args):
    program = pathlib.Path(BINARY).with_name(f"example_{name}")
    return subprocess.run([program, *args], capture_output=True, text=True, timeout=PATIENCE, env=clean_environment())


def test_chat(model):
    r = run_example("chat", model, "Well?")
    assert (r.returncode, r.stderr) == (0, "")
    assert r.stdout == "Done\n[9 tokens, 4 of them reasoning; stop]\n"


def test_batch(model):
    r = run_example("batch", model, "One?", "Two?", "Three?")
    assert (r.returncode, r.stderr) == (0, "")
    assert r.stdout == 3 * "<think>ab</think>Done\n"


@pytest.mark.parametrize("name", ["chat", "batch"])
def test_a_missing_model_is_one_line(name, tmp_path):
    r = run_example(name, tmp_path / "none", "x")
    assert r.returncode == 1 and r.stdout == ""
    assert r.stderr.startswith("error: ") and r.stderr.count("\n") == 1


def test_another_project_can_configure(tmp_path):
    if shutil.which("cmake") is None or shutil.which("ninja") is None:
        pytest.skip("cmake or ninja is not installed")
    (tmp_path / "halfbyte").symlink_to(ROOT)
    (tmp_path / "main.cpp").write_text("int main() {}\n")
    (tmp_path / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.25)\nproject(other LANGUAGES CXX)\n"
        "add_subdirectory(halfbyte EXCLUDE_FROM_ALL)\nadd_executable(other main.cpp)\n"
        "target_link_libraries(other PRIVATE halfbyte::halfbyte)\n")
    r = subprocess.run(["cmake", "-G", "Ninja", "-S", tmp_path, "-B", tmp_path / "build"], capture_output=True, text=True)
    assert r.returncode == 0, r.stderr
    plan = subprocess.run(["ninja", "-C", tmp_path / "build", "-n", "other"], capture_output=True, text=True)
    assert plan.returncode == 0 and "completion.cpp" in plan.stdout, plan.stdout + plan.stderr
    assert "halfbyte/tests/" not in plan.stdout, "another project must not build the tests"
