"""A card that cannot be used, played by a stand-in for a driver's library that is too old: what --device auto says of it. ctest runs
this, in builds with CUDA, with the stand-in first on the library path."""

import os

import pytest

pytestmark = pytest.mark.skipif("HALFBYTE_OLD_DRIVER" not in os.environ, reason="run by ctest, with a stand-in for libcuda.so.1")


def test_a_note_says_why_it_is_the_cpu(halfbyte, model):
    for command in (("run", model, "Hi", "--device", "auto"), ("trace", model, "Hi", "--jsonl", "-")):
        r = halfbyte(*command)
        assert r.code == 0 and r.err.count("\n") == 1, r.err
        assert r.err.startswith("note: on the CPU: ") and "the driver is for CUDA 11.4" in r.err, r.err


def test_quiet_is_quiet(halfbyte, model):
    r = halfbyte("run", model, "Hi", "--quiet")
    assert (r.code, r.out, r.err) == (0, "Done\n", "")
    assert halfbyte("trace", model, "Hi", "--jsonl", "-", "--quiet").err == ""
    asked = halfbyte("run", model, "Hi", "--quiet", "--device", "cuda")
    assert asked.code == 2 and asked.err.startswith("error: ") and "the driver is for CUDA 11.4" in asked.err, "an error is said"
