"""tests/support/device_main.cpp: 77, ctest's skip, when every case is skipped, and only then."""

import os
import pathlib
import subprocess

import pytest


@pytest.mark.parametrize(("second", "code"), [(None, 77), ("passes", 0), ("fails", 1)])
def test_exit_code(second, code):
    program = pathlib.Path(os.environ["HALFBYTE_BIN"]) / "skipping_cases"
    environment = {k: v for k, v in os.environ.items() if not k.startswith("GTEST_") and k != "HALFBYTE_SECOND_CASE"}
    if second:
        environment["HALFBYTE_SECOND_CASE"] = second
    done = subprocess.run([program], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == code, done.stdout
