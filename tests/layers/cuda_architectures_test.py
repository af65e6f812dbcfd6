"""The list of CUDA architectures: what CMake makes of it, and what it says of a wrong one. Needs no nvcc."""

import pathlib
import subprocess

import pytest

SCRIPT = pathlib.Path(__file__).resolve().parents[2] / "cmake" / "HalfbyteCudaArchitectures.cmake"


def configure(tmp_path, architectures):
    run = tmp_path / "run.cmake"
    run.write_text(f'cmake_minimum_required(VERSION 3.25)\ninclude("{SCRIPT}")\nmessage("code ${{HALFBYTE_CUDA_CODE}}")\n', encoding="utf-8")
    return subprocess.run(["cmake", f"-DHALFBYTE_CUDA_ARCHITECTURES={architectures}", "-P", str(run)], capture_output=True, text=True, check=False)


def test_each_is_machine_code(tmp_path):
    done = configure(tmp_path, "80;86;89;90a;100a;120a;90a")
    assert done.returncode == 0, done.stderr
    assert "code 80-real;86-real;89-real;90a-real;100a-real;120a-real\n" in done.stderr


def test_an_empty_element_is_none(tmp_path):
    done = configure(tmp_path, "89;")
    assert done.returncode == 0 and "code 89-real\n" in done.stderr, done.stderr


@pytest.mark.parametrize(("given", "said"), [
    ("90", "'90', expected 80, 86, 89, 90a, 100a or 120a: 90a, the kernels"),
    ("80;75", "'75', expected 80, 86"),
    ("90a-virtual", "'90a-virtual', expected 80, 86, 89, 90a, 100a or 120a: 90a alone"),
    ("native", "'native', expected 80, 86, 89, 90a, 100a or 120a: no device is asked here"),
    ("80,90a", "'80,90a', expected 80, 86, 89, 90a, 100a or 120a: semicolons between them, \"80;90a\""),
    ("80 90a", "semicolons between them, \"80;90a\""),
    ("sm_89", "'sm_89', expected 80, 86, 89, 90a, 100a or 120a: 89"),
    ("8.9", "'8.9', expected 80, 86, 89, 90a, 100a or 120a: 89"),
    ("90A", "'90A', expected 80, 86, 89, 90a, 100a or 120a: 90a"),
    ("12.0", "'12.0', expected 80, 86, 89, 90a, 100a or 120a: 120a, the kernels"),
    ("87", "'87', expected 80, 86, 89, 90a, 100a or 120a: 86, whose code"),
    (";", "is empty, expected a list"),
    ("", "is empty, expected a list"),
])
def test_a_wrong_one_lists_the_right_ones(tmp_path, given, said):
    done = configure(tmp_path, given)
    assert done.returncode != 0
    assert said in " ".join(done.stderr.split()), done.stderr
