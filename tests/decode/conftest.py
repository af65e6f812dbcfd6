"""Puts python/ on the path, so that the tests run from a clean clone without installing anything."""

import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "python"))
