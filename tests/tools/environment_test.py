"""A hostile environment: closed and full streams, signals, limits, readers that go away, files that change."""

import json
import os
import pathlib
import resource
import shutil
import signal
import subprocess
import time

import pytest
import tiny_chat
from conftest import BINARY, PATIENCE, clean_environment, start_blocked, wait_until_it_catches


@pytest.fixture(scope="module")
def wide(tmp_path_factory):
    return tiny_chat.write_wide_model(tmp_path_factory.mktemp("wide") / "model")


SANITIZER = os.environ.get("HALFBYTE_SANITIZE", "")
# A sanitizer reserves terabytes of addresses, so no limit on them can be set.
limits_addresses = pytest.mark.skipif(SANITIZER != "", reason="a sanitizer's program needs unlimited addresses")


def start(args, prepare=None, environment=None, **streams):
    streams = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE} | streams
    return subprocess.Popen([BINARY, *map(str, args)], preexec_fn=prepare, env=clean_environment() | (environment or {}), **streams)


def finish(process):
    out, err = process.communicate(timeout=PATIENCE)
    return process.returncode, (out or b"").decode(), (err or b"").decode()


def closed(fd):
    return lambda: os.close(fd)


# --- streams ---

def test_closed_stdout_does_not_become_the_model_file(halfbyte, model, tmp_path):
    # The number of a closed stdout would go to the weight file, and the report's lines into the weights.
    code, _, err = finish(start(["quantize", model, "-o", tmp_path / "out"], closed(1), stdout=None))
    assert code == 2 and err.startswith("error: stdout cannot be written") and err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []
    for args in (["run", model, "Hi"], ["run", model, "Hi", "--json"], ["inspect", model], ["tokenize", model, "Hi"]):
        assert finish(start(args, closed(1), stdout=None))[0] == 2, args


def test_closed_stderr_changes_nothing(model, tmp_path):
    code, out, _ = finish(start(["run", model, "Hi", "--verbose"], closed(2), stderr=None))
    assert (code, out) == (0, "Done\n")
    assert finish(start(["run", tmp_path / "nowhere", "Hi"], closed(2), stderr=None))[0] == 2
    assert finish(start(["quantize", model, "-o", tmp_path / "out", "--json"], closed(2), stderr=None))[0] == 0


def test_closed_stdin(model):
    code, _, err = finish(start(["run", model], closed(0), stdin=None))
    assert code == 2 and "stdin is empty" in err
    assert finish(start(["run", model, "Hi"], closed(0), stdin=None))[:2] == (0, "Done\n")


@pytest.mark.parametrize("args", [["run", "MODEL", "Hi"], ["run", "MODEL", "Hi", "--json"], ["inspect", "MODEL"], ["tokenize", "MODEL", "Hi"],
                                  ["quantize", "MODEL", "-o", "OUT"], ["--version"], ["--help"], ["run", "--help"],
                                  ["bench", "--synthetic", "tiny", "--prompt-tokens", "4", "--tokens", "2", "--repeat", "1"]])
def test_full_disk_behind_stdout(model, tmp_path, args):
    args = [model if a == "MODEL" else tmp_path / "out" if a == "OUT" else a for a in args]
    with open("/dev/full", "w") as full:
        code, _, err = finish(start(args, stdout=full))
    assert code == 2 and "stdout cannot be written: No space left" in err and err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


# --- signals ---

@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_quantize_that_is_ended_leaves_nothing(wide, tmp_path, number):
    process = start_blocked("quantize", wide, "-o", tmp_path / "out", "--threads", "1")
    assert process.stdout.read1(4096)  # the first tensor's line
    process.send_signal(number)
    code, _, err = finish(process)
    assert (code, err) == (-number, "")
    assert list(tmp_path.iterdir()) == []


def test_a_reader_that_goes_away_leaves_nothing(wide, tmp_path):
    process = start_blocked("quantize", wide, "-o", tmp_path / "out", "--threads", "1")
    assert process.stdout.read1(4096)
    process.stdout.close()
    process.wait(timeout=PATIENCE)
    assert process.returncode == -signal.SIGPIPE
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("args", [["run", "MODEL"], ["tokenize", "MODEL"]])
def test_interrupt_while_stdin_is_read(model, args):
    # The part that has come must not be taken for the whole prompt.
    process = start([model if a == "MODEL" else a for a in args], stdin=subprocess.PIPE)
    process.stdin.write(b"Hi")
    process.stdin.flush()
    wait_until_it_catches(process, signal.SIGINT)
    process.send_signal(signal.SIGINT)
    assert finish(process) == (130, "", "")


def test_interrupted_bench_ends_at_once():
    process = start(["bench", "--synthetic", "qwen3-0.6b", "--repeat", "1000"])
    wait_until_it_catches(process, signal.SIGINT)
    process.send_signal(signal.SIGINT)
    assert finish(process) == (130, "", "")


# --- limits ---

def limited(kind, value):
    return lambda: resource.setrlimit(kind, (value, value))


def test_file_size_limit(wide, tmp_path):
    code, _, err = finish(start(["quantize", wide, "-o", tmp_path / "out", "-q"], limited(resource.RLIMIT_FSIZE, 1 << 20)))
    assert code == 2 and "File too large" in err and err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


@limits_addresses
def test_address_space_limit_is_seen_before_the_start(wide):
    size = os.path.getsize(pathlib.Path(wide) / "model.safetensors")
    code, out, err = finish(start(["run", wide, "Hi", "--plan", "bf16"], limited(resource.RLIMIT_AS, size + (64 << 20))))
    assert (code, out) == (2, "") and "of memory" in err and "are available" in err and err.count("\n") == 1


@limits_addresses
@pytest.mark.parametrize("command", ["run", "quantize"])
def test_threads_that_cannot_be_started(model, tmp_path, command):
    # Each thread reserves its stack.
    rest = {"run": ["Hi"], "quantize": ["-o", tmp_path / "out"]}[command]
    code, out, err = finish(start([command, model, *rest, "--threads", "500"], limited(resource.RLIMIT_AS, 1 << 30)))
    assert (code, out) == (2, "") and "500 threads were asked for, the system gives" in err and err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


# --- files ---

def test_a_source_that_shrinks_leaves_nothing(wide, tmp_path):
    copy = tmp_path / "model"
    copy.mkdir()
    for file in pathlib.Path(wide).iterdir():
        (copy / file.name).write_bytes(file.read_bytes())
    # The handler removes the folder with functions that allocate. The fault is a load from the mapping, never inside the
    # allocator, which the thread sanitizer does not know.
    unsafe = {"TSAN_OPTIONS": "report_signal_unsafe=0"}
    process = start_blocked("quantize", copy, "-o", tmp_path / "out", "--threads", "1", env=clean_environment() | unsafe)
    assert process.stdout.read1(4096)
    os.truncate(copy / "model.safetensors", 4096)
    code, _, err = finish(process)
    assert code == 2 and err.startswith("error: ") and "became shorter" in err and err.count("\n") == 1
    assert sorted(p.name for p in tmp_path.iterdir()) == ["model"]


def links_to(link, folder):
    try:
        return os.readlink(link).startswith(str(folder))
    except FileNotFoundError:  # closed meanwhile
        return False


@pytest.mark.parametrize("ending", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_nothing_is_left_of_a_file_that_was_being_written(tmp_path, ending):
    process = start(["bench", "--roofline", "--svg", tmp_path / "roofline.svg"])
    files = pathlib.Path(f"/proc/{process.pid}/fd")
    deadline = time.monotonic() + PATIENCE
    while not any(links_to(link, tmp_path) for link in files.iterdir()):
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.01)
    process.send_signal(ending)
    finish(process)
    assert list(tmp_path.iterdir()) == []


def test_output_names_that_cannot_be(halfbyte, model, tmp_path):
    r = halfbyte("quantize", model, "-o", tmp_path / ("x" * 300))
    assert r.code == 2 and "File name too long" in r.err and r.err.count("\n") == 1
    (tmp_path / "file").write_text("x")
    r = halfbyte("quantize", model, "-o", tmp_path / "file" / "out")
    assert r.code == 2 and "Not a directory" in r.err and r.err.count("\n") == 1


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write and read everything")
def test_folders_without_permission(halfbyte, model, tmp_path):
    locked = tmp_path / "locked"
    locked.mkdir(mode=0o555)
    r = halfbyte("quantize", model, "-o", locked / "out")
    assert r.code == 2 and "Permission denied" in r.err and "partial" not in r.err
    secret = tmp_path / "secret.gguf"
    secret.write_bytes(b"GGUF")
    secret.chmod(0)
    r = halfbyte("inspect", secret)
    assert r.code == 2 and "Permission denied" in r.err


# --- what is typed ---

@pytest.mark.parametrize("words", [["[1,2]"], ["a", "[1, 2]", "b"], ["[]"], ["{}"], ["%%"], ["[x"], ["'q'"], ['"q"']])
def test_words_are_taken_as_they_are(halfbyte, model, words):
    wanted = list(" ".join(words).encode())
    assert json.loads(halfbyte("tokenize", model, *words, "--json").out)["ids"] == wanted
    if len(words) == 1:
        assert json.loads(halfbyte("tokenize", model, "--text", words[0], "--json").out)["ids"] == wanted


@pytest.mark.parametrize("option", ["--plan", "--temperature", "--ctx", "--max-tokens", "--kernels", "--seed"])
def test_an_empty_value_is_refused(halfbyte, model, option):
    r = halfbyte("run", model, "Hi", option, "")
    assert r.code == 2 and f"{option}: the value is empty" in r.err


def test_an_empty_model_is_not_the_default_one(halfbyte):
    r = halfbyte("run", "", "Hi")
    assert r.code == 2 and "MODEL: the value is empty" in r.err


@pytest.mark.parametrize("option, value, words", [
    ("--seed", "-1", "'-1'"), ("--seed", "18446744073709551616", "18446744073709551615"), ("--top-k", "99999999999", "2147483647"),
    ("--threads", "two", "'two'"), ("--logprobs", "21", "0 to 20"), ("--ctx", "0", "1 or more"), ("--max-tokens", "0", "1 or more"),
    ("--top-p", "0", "top_p is 0,"), ("--frequency-penalty", "1e30", "found '1e30', expected -2 to 2"),
    ("--temperature", "1e300", "--temperature: found '1e300', expected 0 to 100"), ("--temperature", "nan", "expected a number"),
    ("--repetition-penalty", "0", "expected 0.001 to 1000"), ("--think-budget", "-1", "--think-budget is -1, expected 1 or more"), ("--temperature", "warm", "expected a number")])
def test_numbers_out_of_range(halfbyte, model, option, value, words):
    r = halfbyte("run", model, "Hi", option, value)
    assert r.code == 2 and words in r.err and r.err.count("\n") == 1, r.err


def test_the_command_line_wins_over_the_environment(halfbyte, model):
    env = clean_environment(HALFBYTE_PROMPT="x", HALFBYTE_TEXT="x")
    assert halfbyte("run", model, "Hi", env=env).out == "Done\n"
    assert json.loads(halfbyte("tokenize", model, "a", "--json", env=env).out)["ids"] == [ord("a")]
    assert halfbyte("run", model, "Hi", "-p", "Ho").code == 2


def test_a_bad_value_of_the_environment_names_its_variable(halfbyte, model):
    r = halfbyte("run", model, "Hi", env=clean_environment(HALFBYTE_TEMPERATURE="warm"))
    assert r.code == 2 and "HALFBYTE_TEMPERATURE" in r.err
    r = halfbyte("run", model, "Hi", "--temperature", "hot", env=clean_environment(HALFBYTE_TEMPERATURE="1"))
    assert r.code == 2 and "HALFBYTE_TEMPERATURE" not in r.err


@pytest.mark.parametrize("variable", ["SAMPLES", "LIMIT", "CONCURRENT", "REPEAT", "WARMUP", "LEVELS", "FIT", "CHAT", "T_LOW", "TOP_P", "INSPECT_KERNELS", "OUT"])
def test_a_variable_of_another_command_means_nothing(halfbyte, model, variable):
    env = clean_environment(**{f"HALFBYTE_{variable}": "x"})
    assert halfbyte("inspect" if variable in ("TOP_P", "CHAT") else "tokenize" if variable in ("FIT", "INSPECT_KERNELS") else "run", model,
                    *([] if variable in ("TOP_P", "CHAT") else ["Hi"]), env=env).code == 0


def test_help_comes_whatever_the_environment_says(halfbyte):
    env = clean_environment(HALFBYTE_TOP_P="x", HALFBYTE_FIT="maybe")
    for command in ("run", "inspect"):
        r = halfbyte(command, "--help", env=env)
        assert r.code == 0 and "--threads" in r.out and r.err == ""


@pytest.mark.parametrize("variable, value, words", [
    ("PLAN", "w2a2", "--plan: plan 'w2a2' is not known"), ("KV", "int3", "--kv: "), ("KERNELS", "sse", "--kernels: "), ("DEVICE", "gpu", "--device: "),
    ("POLICY", "warm", "--policy: "), ("JSON", "2", "--json: is '2', expected true or false"), ("THINK", "2", "expected true or false"),
    ("THREADS", "many", "--threads: ")])
def test_a_refused_variable_is_named(halfbyte, model, variable, value, words):
    r = halfbyte("run", model, "Hi", env=clean_environment(**{f"HALFBYTE_{variable}": value}))
    assert r.code == 2 and words in r.err and f"(from HALFBYTE_{variable})" in r.err and r.err.count("\n") == 1, r.err


def test_each_command_has_a_variable_of_its_own_for_what_it_writes(halfbyte, model, tmp_path):
    env = clean_environment(HALFBYTE_QUANTIZE_OUT=str(tmp_path / "out"))
    assert halfbyte("quantize", model, "-q", env=env).code == 0 and (tmp_path / "out" / "config.json").exists()


@pytest.mark.parametrize("args, words", [
    (["--frob"], ["'--frob' is no option of halfbyte itself", "run, inspect"]),
    (["--max-tokens", "3", "run", "MODEL", "Hi"], ["'--max-tokens'", "a command comes first"]),
    (["run", "MODEL", "Hi", "--max-tokens"], ["--max-tokens: the value is missing"]),
    (["run", "MODEL", "Hi", "--max-tokens", "--raw"], ["--max-tokens: '--raw' is not a size"]),
    (["run", "MODEL", "Hi", "--ctx", "64", "--ctx", "65"], ["--ctx: is given 2 times, expected once"]),
    (["run", "MODEL", "Hi", "--think", "--no-think"], ["--think: is given 2 times (--no-think counts)"]),
    (["run", "MODEL", "Hi", "--temperature", "0x1"], ["--temperature: is '0x1', expected a number"]),
    (["run", "MODEL", "Hi", "--temperature", "nan"], ["--temperature: is 'nan', expected a number"]),
    (["run", "MODEL", "Hi", "--top-p", "1e999"], ["--top-p: is '1e999', expected a number"]),
    (["bench", "MODEL", "--repeat", "99999999999"], ["--repeat: is '99999999999', expected a whole number from 1 to "]),
    (["bench", "MODEL", "--repeat", "1.5"], ["--repeat: is '1.5', expected a whole number"]),
    (["bench", "MODEL", "--warmup", "-1"], ["--warmup: is '-1', expected a whole number from 0"]),
    (["eval", "MODEL", "--levels", "1,b"], ["--levels: is '1,b', expected a whole number"])])
def test_what_the_parser_refuses_is_said_in_plain_words(halfbyte, model, args, words):
    r = halfbyte(*[model if a == "MODEL" else a for a in args])
    assert r.code == 2 and r.out == "" and r.err.count("\n") == 1
    for word in words:
        assert word in r.err, r.err


def test_a_pattern_that_matches_nothing(halfbyte, model):
    r = halfbyte("run", model, "Hi", "--plan", "w4a16,layer.0.*:weights=bf16")
    assert r.code == 2 and "'layer.0.*'" in r.err and "lm_head" in r.err


def test_a_model_by_its_name_on_the_hub(halfbyte):
    r = halfbyte("run", "Qwen/Qwen3-0.6B", "Hi")
    assert r.code == 2 and "must be downloaded first" in r.err
    r = halfbyte("run", "Why", "is", "the", "sky", "blue?")
    assert r.code == 2 and "--prompt" in r.err


def test_no_home(tmp_path):
    copy = tmp_path / "a" / "b" / "c" / "d" / "halfbyte"  # far from the model that lies in the tree
    copy.parent.mkdir(parents=True)
    shutil.copy2(BINARY, copy)
    r = subprocess.run([copy, "run", "-p", "Hi"], capture_output=True, text=True, stdin=subprocess.DEVNULL,
                       env=clean_environment(HOME=None, XDG_CACHE_HOME=None))
    assert r.returncode == 2 and "HOME is not set" in r.stderr
