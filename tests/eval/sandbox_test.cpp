// Code that a model might write, held by the sandbox. Where this kernel lacks a part of it, the tests of that part are skipped.
#include "eval/sandbox.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <vector>

#include "eval/code_grader.h"
#include "eval/grader.h"

namespace halfbyte {
namespace {

using ::testing::HasSubstr;

class SandboxTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    auto opened = Sandbox::open(options(kPatience));
    if (opened.ok()) {
      sandbox_ = new Sandbox(std::move(*opened));
    } else {
      reason_ = opened.status().message();
    }
  }
  static void TearDownTestSuite() {
    delete sandbox_;
    sandbox_ = nullptr;
  }
  void SetUp() override {
    if (sandbox_ == nullptr) GTEST_SKIP() << reason_;
  }

  // What a test needs that this kernel may lack.
  static bool closes_files() { return sandbox_->closed().files; }
  static bool closes_network() { return sandbox_->closed().network; }
  static bool closes_processes() { return sandbox_->closed().processes; }

  static SandboxRun run(const std::string& code, const std::string& input = "") {
    return run_in(*sandbox_, code, input);
  }
  // What is to be ended by its time.
  static SandboxRun run_for_a_second(const std::string& code) {
    const auto hasty = Sandbox::open(options(1));
    EXPECT_TRUE(hasty.ok()) << hasty.status().message();
    return hasty.ok() ? run_in(*hasty, code, "") : SandboxRun{};
  }
  static SandboxRun run_in(const Sandbox& sandbox, const std::string& code, const std::string& input) {
    auto done = sandbox.run({{"main.py", code}}, "main.py", input);
    EXPECT_TRUE(done.ok()) << done.status().message();
    return done.ok() ? *done : SandboxRun{};
  }
  // What a line of code raises, "nothing" if it does not; "" where anything may be raised.
  struct Line {
    std::string code, raises;
  };
  // All in one run.
  static void expect_raised(const std::vector<Line>& lines) {
    std::string code = "import os, sys, socket, threading\n";
    for (const Line& line : lines) {
      code += "try:\n  " + line.code + "\n  print('nothing')\nexcept BaseException as e: print(type(e).__name__)\n";
    }
    std::istringstream output(run(code).output);
    for (const Line& line : lines) {
      std::string found;
      std::getline(output, found);
      if (line.raises.empty()) {
        EXPECT_NE(found, "nothing") << line.code;
        EXPECT_NE(found, "") << line.code;
      } else {
        EXPECT_EQ(found, line.raises) << line.code;
      }
    }
  }

  // Many times what anything here needs: only what hangs is ended by it.
  static constexpr double kPatience = 100;
  static SandboxOptions options(double seconds) {
    return {.seconds = seconds, .memory_bytes = int64_t{512} << 20, .accept_weaker = true};
  }

  inline static Sandbox* sandbox_ = nullptr;
  inline static std::string reason_;
};

TEST_F(SandboxTest, RunsOrdinaryPrograms) {
  EXPECT_THAT(sandbox_->isolation(), HasSubstr("; 100 s, 512 MiB"));
  const bool whole = closes_files() && closes_network() && closes_processes();
  EXPECT_EQ(sandbox_->isolation().find("files, network, processes and signals closed") != std::string::npos, whole);
  const SandboxRun sum =
      run("import sys, json, math, collections, itertools\nprint(sum(map(int, sys.stdin.read().split())))", "3\n4\n");
  EXPECT_EQ(sum.output, "7\n");
  EXPECT_EQ(sum.end, SandboxRun::End::kExited);
  EXPECT_EQ(sum.code, 0);
  EXPECT_EQ(run("import sys; sys.exit(3)").code, 3);
  EXPECT_EQ(run("import os; os.abort()").end, SandboxRun::End::kSignalled) << "it may signal itself";
  EXPECT_EQ(
      run("import threading\nt = threading.Thread(target=lambda: print('in a thread'))\nt.start(); t.join()").output,
      "in a thread\n");
  EXPECT_EQ(run("open('own', 'w').write('kept')\nprint(open('own').read())\nimport os; os.remove('own')").output,
            "kept\n");
  EXPECT_EQ(run("print(hash('a') == " + run("print(hash('a'))").output + ")").output, "True\n")
      << "the same order of sets in each run";
}

// What programs of Python's library and of competitions do; all of it in one run, which says what did not work.
TEST_F(SandboxTest, RunsWhatProgramsDo) {
  const SandboxRun done = run(R"py(
import sys, traceback
def works(name, code):
    try: exec(code, {"__name__": "__main__"})
    except BaseException as e: print(name, repr(e))
works("json", "import json; assert json.loads(json.dumps({'a': [1, None]})) == {'a': [1, None]}")
works("re", "import re; assert re.sub(r'(a+)b', r'<\\1>', 'aab') == '<aa>'")
works("math", "import math, cmath, fractions, decimal, statistics; assert math.isclose(math.gamma(5), 24)")
works("itertools", "import itertools, functools, collections, heapq, bisect; assert len(list(itertools.permutations(range(4)))) == 24")
works("random", "import random, secrets, uuid, hashlib; random.shuffle([1, 2]); secrets.token_hex(); uuid.uuid4(); hashlib.sha256(b'x').hexdigest()")
works("time", "import time, datetime; time.sleep(.001); time.time(); datetime.datetime.now().astimezone()")
works("threading", """
import threading, queue, concurrent.futures
q = queue.Queue()
t = threading.Thread(target=lambda: q.put(threading.current_thread().name), name='named', daemon=True); t.start(); t.join()
assert q.get(timeout=5) == 'named'
with concurrent.futures.ThreadPoolExecutor(4) as pool: assert sum(pool.map(lambda x: x * x, range(50))) == 40425
e = threading.Event(); assert not e.wait(.001)
""")
works("deep", """
import sys, threading
sys.setrecursionlimit(100000); threading.stack_size(64 << 20)
def down(n): return 0 if n == 0 else 1 + down(n - 1)
t = threading.Thread(target=down, args=(20000,)); t.start(); t.join()
""")
works("signals", """
import signal
def rung(*_):
    signal.setitimer(signal.ITIMER_REAL, 0)
    raise TimeoutError
signal.signal(signal.SIGALRM, rung)
try:
    signal.setitimer(signal.ITIMER_REAL, .01, .01)  # again, should the first come before the pause
    signal.pause()
    assert False
except TimeoutError: pass
signal.raise_signal(signal.SIGUSR1) if signal.signal(signal.SIGUSR1, signal.SIG_IGN) else None
""")
works("files", """
import os, tempfile, shutil, glob, pathlib, mmap, sqlite3
with tempfile.TemporaryFile() as f: f.write(b'x'); f.seek(0); assert f.read() == b'x'
open('a', 'w').write('1'); shutil.copyfile('a', 'b'); os.rename('b', 'c'); assert sorted(glob.glob('[ac]')) == ['a', 'c']
assert pathlib.Path('c').stat().st_size == 1; os.remove('a'); os.remove('c')
m = mmap.mmap(-1, 4096); m[0] = 1
d = sqlite3.connect(':memory:'); assert d.execute('select 1 + 1').fetchone() == (2,)
""")
works("io", "import io, select, os; r, w = os.pipe(); os.write(w, b'x'); assert select.select([r], [], [], 1)[0] == [r]; sys = __import__('sys'); sys.stdout.isatty(); sys.stdin.isatty()")
works("ctypes", "import ctypes; assert ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int)(lambda x: x + 1)(1) == 2")
works("text", "import zlib, gzip, lzma, bz2, base64, csv, pickle, textwrap, string, unicodedata, locale; assert zlib.decompress(zlib.compress(b'a')) == b'a'")
works("os", "import os, platform, resource; os.getpid(); os.getcwd(); os.cpu_count(); os.times(); platform.system(); resource.getrusage(resource.RUSAGE_SELF); resource.getrlimit(resource.RLIMIT_AS)")
print("end")
)py");
  EXPECT_EQ(done.output, "end\n");
}

TEST_F(SandboxTest, BoundsThreads) {
  const std::string start =
      "import threading\nstay = threading.Event()\n"
      "def some(n):\n  for _ in range(n): threading.Thread(target=stay.wait, daemon=True).start()\n";
  EXPECT_EQ(run(start + "threading.stack_size(1 << 16)\nsome(40)\nprint('well')").output, "well\n");
  EXPECT_EQ(run(start + "threading.stack_size(1 << 15)\nsome(100)\nstay.wait()").end, SandboxRun::End::kThreads);
  const SandboxRun bomb = run(
      "import threading\nthreading.stack_size(1 << 15)\n"
      "def burst():\n  while True:\n    try: threading.Thread(target=burst).start()\n    except RuntimeError: pass\n"
      "burst()");
  EXPECT_EQ(bomb.end, SandboxRun::End::kThreads);
}

TEST_F(SandboxTest, IsStoppedWhenItsGraderStops) {
  std::stop_source stop;
  stop.request_stop();
  const auto done = sandbox_->run({{"main.py", "while True: pass"}}, "main.py", "", stop.get_token());
  EXPECT_EQ(done.status().code(), StatusCode::kCancelled);
  if (!closes_processes()) GTEST_SKIP() << sandbox_->isolation();
  EXPECT_EQ(run("import ctypes\nprint(ctypes.CDLL(None).prctl(1, 0, 0, 0, 0))").output, "-1\n")
      << "PR_SET_PDEATHSIG: it could outlive the process that grades it";
}

TEST_F(SandboxTest, LargeTestsAreNotTheCodesOwnFiles) {
  const std::string input(static_cast<size_t>(Sandbox::kMostFolderBytes) + 1, 'x');
  const SandboxRun done = run("import sys, time\nn = len(sys.stdin.read())\ntime.sleep(.3)\nprint(n)", input);
  EXPECT_EQ(done.end, SandboxRun::End::kExited);
  EXPECT_EQ(done.output, std::to_string(input.size()) + "\n");
  EXPECT_EQ(run("i = 0\nwhile True:\n  open(str(i), 'wb').write(bytes(10 << 20)); i += 1", input).end,
            SandboxRun::End::kFiles)
      << "what it writes itself is bounded all the same";
}

TEST_F(SandboxTest, EndsWhatDoesNotEnd) {
  EXPECT_EQ(run_for_a_second("while True: pass").end, SandboxRun::End::kTime);
  EXPECT_EQ(run("while True: print('x' * 100000)").end, SandboxRun::End::kOutput);
  EXPECT_EQ(run("i = 0\nwhile True:\n  open(str(i), 'w').write('x'); i += 1").end, SandboxRun::End::kFiles);
}

TEST_F(SandboxTest, BoundsMemoryAndFiles) {
  expect_raised({
      {"x = bytearray(1 << 30)", "MemoryError"},
      {"open('big', 'wb').write(bytes(32 << 20))", "OSError"},
  });
  EXPECT_NE(run("x = []\nwhile True: x.append(bytearray(1 << 20))").code, 0);
}

TEST_F(SandboxTest, MakesNoProcesses) {
  if (!closes_processes()) GTEST_SKIP() << sandbox_->isolation();
  expect_raised({
      {"os.fork()", "PermissionError"},
      {"import subprocess; subprocess.run(['/bin/true'])", "PermissionError"},
      {"os.system('true') and os.kill(os.getpid(), 0)", "PermissionError"},  // system() fails, and so does kill()
      {"os.kill(os.getppid(), 0)", "PermissionError"},
      // A file's owner gets a signal when the file is ready: another way to send one.
      {"import fcntl; fcntl.fcntl(0, fcntl.F_SETOWN, os.getppid())", "PermissionError"},
      {"import fcntl, struct; fcntl.fcntl(0, 15, struct.pack('ii', 1, os.getppid()))", "PermissionError"},
  });
  const SandboxRun bomb =
      run("import os\nn = 0\nfor _ in range(1000):\n  try: os.fork()\n  except PermissionError: n += 1\nprint(n)");
  EXPECT_EQ(bomb.output, "1000\n");
}

TEST_F(SandboxTest, HasNoNetwork) {
  if (!closes_network()) GTEST_SKIP() << sandbox_->isolation();
  expect_raised({
      {"socket.socket()", "PermissionError"},
      {"socket.socket(socket.AF_UNIX)", "PermissionError"},
      {"socket.create_connection(('127.0.0.1', 9), 1)", "PermissionError"},
      {"socket.socketpair()", "PermissionError"},
  });
}

TEST_F(SandboxTest, SeesNoFilesButItsOwn) {
  if (!closes_files() || !closes_processes()) GTEST_SKIP() << sandbox_->isolation();
  const auto folder = std::filesystem::path(::testing::TempDir()) / "sandbox_test_secrets";
  std::filesystem::create_directories(folder);
  const std::string secret = (folder / "secret").string(), fresh = (folder / "fresh").string();
  std::ofstream(secret) << "do not tell";
  expect_raised({
      {"print(open('" + secret + "').read())", "PermissionError"},
      {"open('" + secret + "', 'a')", "PermissionError"},
      {"os.truncate('" + secret + "', 0)", "PermissionError"},
      {"os.remove('" + secret + "')", "PermissionError"},
      {"os.chmod('" + secret + "', 0o777)", "PermissionError"},
      {"os.utime('" + secret + "', (1, 1))", "PermissionError"},
      {"os.symlink('" + secret + "', 'link')", "PermissionError"},
      {"os.link('" + secret + "', 'link')", ""},
      {"os.rename('" + secret + "', 'mine')", ""},
      {"open('" + fresh + "', 'w')", "PermissionError"},
      {"os.mkdir('" + fresh + "')", "PermissionError"},
      {"os.listdir('/')", "PermissionError"},
      {"open('/proc/self/environ').read()", "PermissionError"},
  });
  EXPECT_FALSE(std::filesystem::exists(fresh));
  std::ifstream in(secret);
  EXPECT_EQ(std::string(std::istreambuf_iterator<char>(in), {}), "do not tell");
  std::filesystem::remove_all(folder);
}

TEST_F(SandboxTest, HasACleanEnvironmentAndLeavesNothing) {
  ::setenv("HALFBYTE_SECRET_TOKEN", "do not tell", 1);
  EXPECT_EQ(run("import os; print('HALFBYTE_SECRET_TOKEN' in os.environ)").output, "False\n");
  ::unsetenv("HALFBYTE_SECRET_TOKEN");
  const std::string folder = run("import os; print(os.getcwd(), end='')").output;
  EXPECT_THAT(folder, HasSubstr("halfbyte-code-"));
  EXPECT_FALSE(std::filesystem::exists(folder));
  if (closes_processes()) {
    expect_raised({
        {"import resource; resource.setrlimit(resource.RLIMIT_AS, (1, 1))", "ValueError"},
    });
  }
  EXPECT_EQ(run("import os\nfor fd in range(3, 64):\n  try: os.fstat(fd); print(fd)\n  except OSError: pass\n").output,
            "")
      << "nothing of the parent's is open";
}

TEST_F(SandboxTest, GradesCodeByItsTests) {
  CodeTests checks{.before = "import math\ndef double(x):\n    \"\"\"Twice x.\"\"\"\n",
                   .checks = "assert double(4) == 8\n",
                   .function = "",
                   .tests = {}};
  const auto passes = [&](const CodeTests& tests, const std::string& code) {
    const auto right = grade_code(*sandbox_, tests, code);
    EXPECT_TRUE(right.ok()) << right.status().message();
    return right.ok() && *right;
  };
  EXPECT_TRUE(passes(checks, "def double(x):\n    return 2 * x\n"));
  EXPECT_TRUE(passes(checks, "    return 2 * x\n")) << "the body alone";
  EXPECT_FALSE(passes(checks, "def double(x):\n    return x\n"));
  EXPECT_FALSE(passes(checks, "def double(x) return"));
  EXPECT_FALSE(passes(checks, ""));
  EXPECT_FALSE(passes(checks, "import sys; sys.exit(0)")) << "left before the tests";
  EXPECT_FALSE(passes(checks, "import os; os._exit(0)"));
  const CodeTests program{.before = "", .checks = "", .function = "", .tests = {{"3\n", "9\n"}, {"-4\n", "16.0\n"}}};
  EXPECT_TRUE(passes(program, "if __name__ == '__main__':\n  print(int(input()) ** 2)\n"));
  EXPECT_TRUE(passes(program, "print(int(input()) ** 2); exit()\n"));
  EXPECT_FALSE(passes(program, "print(int(input()) * 3)\n")) << "passes the first test alone";
  EXPECT_FALSE(passes(program, "print(int(input()) ** 2); exit(1)\n"));
  const CodeTests method{
      .before = "", .checks = "", .function = "add", .tests = {{"[1, 2]\n3", "[4, 5]"}, {"[]\n1", "[]"}}};
  EXPECT_TRUE(
      passes(method, "class Solution:\n  def add(self, xs: List[int], k: int):\n    return [x + k for x in xs]\n"));
  EXPECT_TRUE(passes(method, "def add(xs, k): return tuple(x + k for x in xs)\n"));
  EXPECT_FALSE(passes(method, "def add(xs, k): return xs\n"));
  EXPECT_FALSE(passes(method, "def plus(xs, k): return xs\n"));
  const CodeTests bare{.before = "", .checks = "", .function = "nine", .tests = {{"", "9"}, {" \n", "9"}}};
  EXPECT_TRUE(passes(bare, "def nine(): return 9\n")) << "no arguments";
}

// What whoever started the grader did to its signals does not reach the code.
TEST_F(SandboxTest, CodeHasTheDefaultSignals) {
  const auto before = std::signal(SIGUSR2, SIG_IGN);
  sigset_t blocked, old;
  sigemptyset(&blocked);
  sigaddset(&blocked, SIGALRM);
  pthread_sigmask(SIG_BLOCK, &blocked, &old);
  const SandboxRun done =
      run("import signal\nprint(signal.getsignal(signal.SIGUSR2) == signal.SIG_DFL, "
          "signal.pthread_sigmask(signal.SIG_BLOCK, "
          "[]))");
  pthread_sigmask(SIG_SETMASK, &old, nullptr);
  std::signal(SIGUSR2, before);
  EXPECT_EQ(done.output, "True set()\n");
}

// The system tells nobody then how a child ended.
TEST_F(SandboxTest, IsNotOpenedWhereEndedChildrenAreIgnored) {
  const auto before = std::signal(SIGCHLD, SIG_IGN);
  const auto opened = Sandbox::open(options(kPatience));
  std::signal(SIGCHLD, before);
  ASSERT_FALSE(opened.ok());
  EXPECT_EQ(opened.status().code(), StatusCode::kUnsupported);
  EXPECT_THAT(opened.status().message(), HasSubstr("this process ignores SIGCHLD"));
}

TEST(SandboxOpen, SaysWhatIsMissing) {
  const auto none = Sandbox::open({.python = "no-such-python"});
  ASSERT_FALSE(none.ok());
  EXPECT_EQ(none.status().code(), StatusCode::kNotFound);
  EXPECT_THAT(none.status().message(), HasSubstr("'no-such-python': is no Python that runs"));
}

TEST(CodeAnswer, IsTheLastFencedBlock) {
  EXPECT_EQ(code_answer("Try\n```python\na\n```\nor\n```\nb\nc\n```\ndone"), "b\nc\n");
  EXPECT_EQ(code_answer("<think>\n```\nx\n```\n</think>\n```py\n  y\n```"), "  y\n");
  EXPECT_EQ(code_answer("```python\na\n```\n```python\ncut off"), "a\n");
  EXPECT_EQ(code_answer("print(1)"), std::nullopt);
  EXPECT_EQ(code_answer("<think>\n```\nx\n```"), std::nullopt);
  EXPECT_EQ(code_answer("```\n```"), "");
}

TEST(SameOutput, ComparesLinesAndNumbers) {
  for (const auto& [a, b] :
       {std::pair("7\n", "7"), std::pair(" a b \n c\n\n", "a b\nc"), std::pair("1.50 2", "1.5 2.000"),
        std::pair("1e3", "1000"), std::pair("-0", "0"), std::pair("007", "7"), std::pair("", "\n")}) {
    EXPECT_TRUE(same_output(a, b)) << a << " and " << b;
  }
  for (const auto& [a, b] :
       {std::pair("7", "8"), std::pair("7\n7", "7"), std::pair("a  b", "a b"), std::pair("YES", "yes"),
        std::pair("1 2", "1"), std::pair("1.0000001", "1"), std::pair("-1", "1"), std::pair("10", "1"),
        std::pair("1e999999999999999999999", "1"), std::pair("1e-9223372036854775808", "0")}) {
    EXPECT_FALSE(same_output(a, b)) << a << " and " << b;
  }
}

}  // namespace
}  // namespace halfbyte
