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


@pytest.mark.parametrize(("given", "said"), [
    ("90", "'90', expected 80, 86, 89, 90a, 100a or 120a: 90a, the kernels"),
    ("80;75", "'75', expected 80, 86"),
    ("90a-virtual", "'90a-virtual', expected 80, 86, 89, 90a, 100a or 120a: 90a alone"),
    ("native", "'native', expected"),
    ("", "is empty, expected a list"),
])
def test_a_wrong_one_lists_the_right_ones(tmp_path, given, said):
    done = configure(tmp_path, given)
    assert done.returncode != 0
    assert said in " ".join(done.stderr.split()), done.stderr
