"""Fixtures: the binary, and the tiny model whose answers are known."""

import os
import pathlib
import subprocess
import sys
import time

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import tiny_chat  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[2]
BINARY = str(pathlib.Path(os.environ.get("HALFBYTE_BIN", ROOT / "build" / "dev" / "bin")) / "halfbyte")


def clean_environment(**changes):
    """The tests' own variables must not reach the binary: each flag has one named HALFBYTE_..."""
    env = {k: v for k, v in os.environ.items() if not k.startswith("HALFBYTE_") and k not in ("NO_COLOR", "TERM")}
    env["TERM"] = "xterm"
    env.update(changes)
    return {k: v for k, v in env.items() if v is not None}


class Result:
    def __init__(self, done):
        self.code, self.out, self.err = done.returncode, done.stdout, done.stderr


def run_halfbyte(*args, stdin="", env=None, timeout=120, cwd=None, binary_input=False):
    done = subprocess.run([BINARY, *map(str, args)], input=stdin, capture_output=True, text=not binary_input, timeout=timeout,
                          env=env if env is not None else clean_environment(), cwd=cwd)
    return Result(done)


def wait_until_it_catches(process, signal):
    """Waits until the process has a handler for the signal, however slow the machine is."""
    status = pathlib.Path(f"/proc/{process.pid}/status")
    while not int(status.read_text().split("SigCgt:")[1].split()[0], 16) >> (signal - 1) & 1:
        assert process.poll() is None, process.stderr.read()
        time.sleep(0.01)


@pytest.fixture(scope="session")
def model(tmp_path_factory):
    if not os.path.exists(BINARY):
        pytest.fail(f"{BINARY} is not built")
    return tiny_chat.write_model(tmp_path_factory.mktemp("tiny") / "model")


@pytest.fixture
def halfbyte():
    return run_halfbyte


@pytest.fixture(scope="session")
def smollm2():
    given = os.environ.get("HALFBYTE_SMOLLM2")
    cache = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache") / "halfbyte" / "models"
    found = [given] if given else sorted(str(p) for p in cache.glob("SmolLM2*.gguf"))
    if not found or not os.path.exists(found[0]):
        pytest.skip("SmolLM2 is not here: scripts/get-model smollm2")
    return found[0]
