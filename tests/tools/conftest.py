"""Fixtures: the binary, and the tiny model whose answers are known."""

import array
import contextlib
import fcntl
import json
import os
import pathlib
import subprocess
import sys
import termios
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


# How long anything may take, in seconds: many times what it needs, so that only a command that hangs is ended by it.
PATIENCE = 300


class Result:
    def __init__(self, done):
        self.code, self.out, self.err = done.returncode, done.stdout, done.stderr


@contextlib.contextmanager
def filled_pipe(data):
    """The end to read of a pipe that has the bytes and its end before any process looks at it."""
    reader, writer = os.pipe()
    try:
        os.set_blocking(writer, False)
        try:
            assert os.write(writer, data) == len(data), "more than a pipe holds"
        finally:
            os.close(writer)
        yield reader
    finally:
        os.close(reader)


def run_halfbyte(*args, stdin="", env=None, timeout=PATIENCE, cwd=None):
    with filled_pipe(stdin.encode()) as pipe:
        done = subprocess.run([BINARY, *map(str, args)], stdin=pipe, capture_output=True, text=True, timeout=timeout,
                              env=env if env is not None else clean_environment(), cwd=cwd)
    return Result(done)


def start_blocked(*args, **streams):
    """The command with so small a pipe for its stdout that it has to wait, in the middle of its work, until somebody reads."""
    streams = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "env": clean_environment()} | streams
    return subprocess.Popen([BINARY, *map(str, args)], pipesize=4096, **streams)


def wait_until_it_catches(process, signal):
    """Waits until the process has a handler for the signal, however slow the machine is."""
    status = pathlib.Path(f"/proc/{process.pid}/status")
    while not int(status.read_text().split("SigCgt:")[1].split()[0], 16) >> (signal - 1) & 1:
        assert process.poll() is None, process.stderr.read()
        time.sleep(0.01)


def wait_until_it_waits(process):
    """Waits until the process, which has one thread, has handled its signals and sleeps because the pipe of its stdout is full."""
    def sleeps():
        fields = dict(line.split(":", 1) for line in pathlib.Path(f"/proc/{process.pid}/status").read_text().splitlines())
        return "S" in fields["State"].split()[0] and not int(fields["SigPnd"], 16) | int(fields["ShdPnd"], 16)
    waiting = array.array("i", [0])
    while waiting[0] < fcntl.fcntl(process.stdout, fcntl.F_GETPIPE_SZ) or not sleeps():
        assert process.poll() is None, process.stderr.read()
        time.sleep(0.01)
        fcntl.ioctl(process.stdout, termios.FIONREAD, waiting)


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


@pytest.fixture(scope="session")
def answerer(tmp_path_factory):
    """Says "<think>k</think>answer: 7"."""
    chains = tiny_chat.CHAINS
    tiny_chat.CHAINS = [["\n", "<think>", "k", "</think>", *"answer: 7", "<|im_end|>"], ["z", "y", "z"]]
    try:
        return tiny_chat.write_model(tmp_path_factory.mktemp("eval") / "model")
    finally:
        tiny_chat.CHAINS = chains


@pytest.fixture
def questions(tmp_path):
    path = tmp_path / "q.jsonl"
    path.write_text("".join(json.dumps({"id": f"q{i}", "task": "sums", "level": i % 2 + 1, "prompt": f"What is {i}?",
                                        "answer": "7" if i % 4 else "8"}) + "\n" for i in range(12)))
    return path
