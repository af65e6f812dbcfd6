"""run_pytest.py PATH...: pytest as one ctest test. Without numpy or pytest it exits with 77 (skipped) and says so.

With HALFBYTE_TEST_REPORTS and HALFBYTE_TEST_NAME set it writes REPORTS/NAME.xml, from which scripts/test counts the cases."""

import importlib.util
import os
import sys

missing = [name for name in ("numpy", "pytest") if importlib.util.find_spec(name) is None]
if missing:
    print(f"SKIPPED: {sys.executable} has no {' and no '.join(missing)}; run scripts/setup test, or set HALFBYTE_PYTHON to "
          "an interpreter that has them")
    sys.exit(77)

import pytest  # noqa: E402

sys.dont_write_bytecode = True
os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
arguments = ["-q", "-rs", "-p", "no:cacheprovider"]
reports, name = os.environ.get("HALFBYTE_TEST_REPORTS"), os.environ.get("HALFBYTE_TEST_NAME")
if reports and name:
    arguments.append(f"--junit-xml={reports}/{name}.xml")
code = pytest.main([*arguments, *sys.argv[1:]])
# 5: no tests were collected. A folder without tests is a mistake, not a pass.
sys.exit(code)
