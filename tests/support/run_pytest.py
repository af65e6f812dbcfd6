"""run_pytest.py FOLDER [arguments]: pytest as one ctest test. Without numpy or pytest it exits with 77 (skipped) and says so."""

import importlib.util
import os
import sys

missing = [name for name in ("numpy", "pytest") if importlib.util.find_spec(name) is None]
if missing:
    print(f"SKIPPED: {sys.executable} has no {' and no '.join(missing)}; set HALFBYTE_PYTHON to an interpreter that has, "
          "e.g. of a virtual environment with: pip install numpy pytest ml_dtypes")
    sys.exit(77)

import pytest  # noqa: E402

sys.dont_write_bytecode = True
os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
sys.exit(pytest.main(["-q", "-rs", "-p", "no:cacheprovider", *sys.argv[1:]]))
