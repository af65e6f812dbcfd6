#include "eval/sandbox.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <linux/securebits.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <sstream>
#include <system_error>

#include "base/file_descriptor.h"
#include "base/quote.h"
#include "eval/seccomp_filter.h"

namespace halfbyte {
namespace {

namespace fs = std::filesystem;
using Descriptor = std::unique_ptr<FileDescriptor>;

constexpr int64_t kMostOutput = int64_t{16} << 20;
constexpr rlim_t kMostFileBytes = rlim_t{16} << 20;

// --- Landlock; its header is younger than some distributions, and the numbers never change (linux/landlock.h) ---
constexpr int64_t kCreateRuleset = 444, kAddRule = 445, kRestrictSelf = 446;
constexpr uint64_t kExecute = 1u << 0, kWriteFile = 1u << 1, kReadFile = 1u << 2, kReadDir = 1u << 3,
                   kRemoveFile = 1u << 5, kMakeReg = 1u << 8, kTruncate = 1u << 14;
constexpr int kLeastLandlock = 3;  // the first that sees truncation

struct RulesetAttr {
  uint64_t handled_fs, handled_net, scoped;
};
struct [[gnu::packed]] PathAttr {
  uint64_t allowed;
  int32_t parent;
};

int landlock_version() {
  const int64_t version = ::syscall(kCreateRuleset, nullptr, 0, /*LANDLOCK_CREATE_RULESET_VERSION=*/1);
  return version >= kLeastLandlock ? static_cast<int>(version) : 0;
}

Status refused(const char* what) {
  const int error = errno;
  return {StatusCode::kUnsupported,
          fmt::format("the sandbox cannot {}: {}; code is not run", what, std::strerror(error))};
}

// Everything that the version knows is forbidden where no rule allows it.
Result<Descriptor> make_ruleset(int version) {
  RulesetAttr attr{};
  attr.handled_fs = (uint64_t{1} << (version >= 5 ? 16 : 15)) - 1;
  attr.handled_net = version >= 4 ? 3 : 0;
  attr.scoped = version >= 6 ? 3 : 0;
  const auto fd = static_cast<int>(::syscall(kCreateRuleset, &attr, sizeof attr, 0));
  if (fd < 0) return refused("make Landlock rules");
  return std::make_unique<FileDescriptor>(fd);
}

Status allow(const FileDescriptor& ruleset, const std::string& path, uint64_t rights) {
  const FileDescriptor fd(::open(path.c_str(), O_PATH | O_CLOEXEC));
  if (fd.get() < 0) return errno == ENOENT ? Status() : refused("open a path of Python");
  const PathAttr rule{rights, fd.get()};
  if (::syscall(kAddRule, ruleset.get(), /*LANDLOCK_RULE_PATH_BENEATH=*/1, &rule, 0) != 0)
    return refused("add a Landlock rule");
  return {};
}

// --- one run ---
struct Folder {
  std::string path;
  Folder() = default;
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  ~Folder() {
    std::error_code ignored;
    if (!path.empty()) fs::remove_all(path, ignored);
  }

  Status make(const Sandbox::Files& files) {
    std::error_code failure;
    std::string name = (fs::temp_directory_path(failure) / "halfbyte-code-XXXXXX").string();
    if (failure || ::mkdtemp(name.data()) == nullptr) return refused("make its folder");
    path = name;
    for (const auto& [file, content] : files) {
      std::ofstream out(path + "/" + file, std::ios::binary);
      out << content;
      out.close();
      if (!out) return refused("write into its folder");
    }
    return {};
  }

  // Flat: the code can make no folders in it.
  struct Content {
    int files = 0;
    int64_t bytes = 0;
  };
  Content content() const {
    Content out;
    std::error_code failure;
    for (fs::directory_iterator at(path, failure), end; !failure && at != end; at.increment(failure)) {
      std::error_code gone;
      const auto size = at->file_size(gone);
      ++out.files;
      out.bytes += gone ? 0 : static_cast<int64_t>(size);
    }
    return out;
  }
};

// Of a process; none where /proc does not say.
std::optional<int> thread_count(pid_t pid) {
  std::ifstream stat(fmt::format("/proc/{}/stat", pid));
  std::string text;
  std::getline(stat, text);
  // Behind the name, which may hold anything: the 18th field is their number (proc(5), num_threads).
  std::istringstream fields(text.substr(std::min(text.rfind(')') + 1, text.size())));
  std::string skipped;
  for (int i = 0; i < 17; ++i) fields >> skipped;
  int count = 0;
  return fields >> count ? std::optional(count) : std::nullopt;
}

// What the child needs, made before it is: between fork and exec it may only make system calls.
struct Child {
  std::vector<const char*> arguments, environment;
  std::string folder;
  std::array<std::pair<int, rlimit>, 5> limits;
  std::vector<sock_filter> filter;                                      // empty: none
  size_t own_process = 0;                                               // its instruction that wants the child's id
  int input = -1, output = -1, errors = -1, status = -1, ruleset = -1;  // ruleset -1: no Landlock
  pid_t parent = 0;

  [[noreturn]] void fail(int8_t stage) const {
    const int8_t message[2] = {stage, static_cast<int8_t>(errno)};
    const ssize_t ignored = ::write(4, message, sizeof message);
    ::_exit(ignored == 2 ? 127 : 126);
  }

  // Its descriptors are 0 to 4 and no others: input, output, errors, rules, and 4, on which it says what failed.
  void place_descriptors() const {
    const int in = ::fcntl(input, F_DUPFD, 10), out = ::fcntl(output, F_DUPFD, 10), err = ::fcntl(errors, F_DUPFD, 10),
              said = ::fcntl(status, F_DUPFD, 10), rules = ruleset < 0 ? -1 : ::fcntl(ruleset, F_DUPFD, 10);
    if (said < 0 || ::dup3(said, 4, O_CLOEXEC) < 0) ::_exit(126);
    if (in < 0 || out < 0 || err < 0 || (ruleset >= 0 && rules < 0)) fail(8);
    if (::dup2(in, 0) < 0 || ::dup2(out, 1) < 0 || ::dup2(err, 2) < 0) fail(8);
    if (rules >= 0 && ::dup2(rules, 3) < 0) fail(8);
    if (::syscall(/*close_range*/ 436, 5u, ~0u, 0u) != 0) {
      for (int fd = 5; fd < 4096; ++fd) ::close(fd);
    }
  }

  // Whoever started this process may have had some ignored or blocked, and code gets what it is used to.
  static void default_signals() {
    for (int number = 1; number < NSIG; ++number) ::signal(number, SIG_DFL);
    sigset_t none;
    ::sigemptyset(&none);
    ::sigprocmask(SIG_SETMASK, &none, nullptr);
  }

  // Stages are indices of kStages.
  [[noreturn]] void run() {
    default_signals();
    place_descriptors();
    ::setsid();
    if (::chdir(folder.c_str()) != 0) fail(0);
    if (::prctl(PR_SET_PDEATHSIG, SIGKILL) != 0 || ::getppid() != parent) fail(1);
    for (const auto& [what, limit] : limits) {
      if (::setrlimit(static_cast<__rlimit_resource>(what), &limit) != 0) fail(2);
    }
    if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) fail(3);
    // Root without its powers. An ordinary user has none, and may not lock these bits.
    ::prctl(PR_SET_SECUREBITS, SECBIT_NOROOT | SECBIT_NOROOT_LOCKED);
    __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
    const __user_cap_data_struct none[2] = {};
    if (::syscall(SYS_capset, &header, none) != 0) fail(4);
    if (ruleset >= 0 && ::syscall(kRestrictSelf, 3, 0) != 0) fail(5);
    ::close(3);
    if (!filter.empty()) {
      filter[own_process].k = static_cast<uint32_t>(::getpid());
      const sock_fprog program{static_cast<unsigned short>(filter.size()), filter.data()};
      if (::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0) fail(6);
    }
    ::execve(arguments.front(), const_cast<char* const*>(arguments.data()),
             const_cast<char* const*>(environment.data()));
    fail(7);
  }
};

constexpr std::array kStages{"enter its folder",     "follow its parent", "set limits",
                             "forgo new privileges", "drop capabilities", "restrict itself by Landlock",
                             "install its filter",   "start Python",      "place its descriptors"};

// What came of a run that was started, until it ended or had to be ended.
class Watch {
 public:
  Watch(pid_t pid, int output, int status, const Folder& folder, Folder::Content given, double deadline_s)
      : pid_(pid), output_(output), status_(status), folder_(folder), given_(given), deadline_(now() + deadline_s) {}

  Result<SandboxRun> finish(const std::stop_token& stop) {
    ::fcntl(output_, F_SETFL, O_NONBLOCK);
    siginfo_t info{};
    int waited = 0;
    // Left unreaped, so that its number stays its group's until the group is ended.
    for (int64_t round = 0;
         (waited = ::waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOHANG | WNOWAIT)) == 0; ++round) {
      if (info.si_pid == pid_) break;
      pollfd waiting{open_ ? output_ : -1, POLLIN, 0};
      ::poll(&waiting, 1, round < 20 ? 2 : 5);
      read_output();
      if (thread_count(pid_).value_or(0) > Sandbox::kMostThreads) end(SandboxRun::End::kThreads);
      if (round % 16 == 15 && too_full()) end(SandboxRun::End::kFiles);
      if (now() > deadline_ || stop.stop_requested()) end(SandboxRun::End::kTime);
    }
    ::kill(-pid_, SIGKILL);  // where no seccomp kept it from making processes
    int state = 0;
    if (waited == 0) waited = ::waitpid(pid_, &state, 0);
    if (waited < 0) return refused("wait for its end");
    read_output();
    int8_t message[2] = {};
    if (::read(status_, message, sizeof message) == 2) {
      errno = static_cast<uint8_t>(message[1]);
      return refused(kStages[static_cast<size_t>(message[0])]);
    }
    if (stop.stop_requested()) return cancelled("the grading of code was stopped");
    if (ended_) return run_;
    run_.end = WIFEXITED(state) ? SandboxRun::End::kExited : SandboxRun::End::kSignalled;
    run_.code = WIFEXITED(state) ? WEXITSTATUS(state) : WTERMSIG(state);
    // The limit of processor time ends with one of these.
    if (run_.end == SandboxRun::End::kSignalled && (run_.code == SIGXCPU || run_.code == SIGKILL))
      run_.end = SandboxRun::End::kTime;
    return run_;
  }

 private:
  static double now() {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
  }

  bool too_full() const {
    const Folder::Content now = folder_.content();
    return now.files > given_.files + Sandbox::kMostFiles || now.bytes > given_.bytes + Sandbox::kMostFolderBytes;
  }

  void end(SandboxRun::End why) {
    if (ended_) return;
    ended_ = true;
    run_.end = why;
    ::kill(pid_, SIGKILL);
  }

  void read_output() {
    std::array<char, 65536> buffer;
    while (open_) {
      const ssize_t n = ::read(output_, buffer.data(), buffer.size());
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) return;
      if (n == 0) open_ = false;
      run_.output.append(buffer.data(), static_cast<size_t>(n));
      if (static_cast<int64_t>(run_.output.size()) <= kMostOutput) continue;
      run_.output.resize(static_cast<size_t>(kMostOutput));
      open_ = false;
      end(SandboxRun::End::kOutput);
    }
  }

  pid_t pid_;
  int output_, status_;
  const Folder& folder_;
  Folder::Content given_;  // what was there before it ran
  double deadline_;
  bool open_ = true, ended_ = false;
  SandboxRun run_;
};

rlimit both(rlim_t value) {
  return {value, value};
}

struct Pipe {
  Descriptor read, write;
};
Result<Pipe> make_pipe() {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return refused("make a pipe");
  return Pipe{std::make_unique<FileDescriptor>(ends[0]), std::make_unique<FileDescriptor>(ends[1])};
}

// What Python says about itself, a line each: the program, then folders it reads.
constexpr const char* kAbout = R"(import os, sys
print(os.path.abspath(sys.executable))
for p in {sys.prefix, sys.exec_prefix, sys.base_prefix, sys.base_exec_prefix}:
    for part in "lib", "lib64", "bin", "pyvenv.cfg": print(os.path.join(os.path.realpath(p), part)))";

// Says what it could have, a letter each; nothing is what is wanted.
constexpr const char* kTrial = R"(import fcntl, os, socket
def could(letter, what):
    try: what()
    except OSError: return
    print(letter, end="")
could("r", lambda: os.listdir("/"))
could("r", lambda: open("/etc/passwd").read())
could("w", lambda: open(os.path.join(os.path.dirname(os.getcwd()), "halfbyte-code-trial"), "x").close())
could("n", lambda: socket.socket().close())
could("p", lambda: os.fork() or os._exit(0))
could("s", lambda: fcntl.fcntl(0, fcntl.F_SETOWN, os.getpid()))
open("own", "w").write("1")
print("done"))";

Result<std::string> first_output(const std::string& command) {
  FILE* const pipe = ::popen(command.c_str(), "re");
  if (pipe == nullptr) return refused("start a shell");
  std::string out;
  std::array<char, 4096> buffer;
  for (size_t n = 0; (n = std::fread(buffer.data(), 1, buffer.size(), pipe)) > 0;) out.append(buffer.data(), n);
  return ::pclose(pipe) == 0 ? out : std::string();
}

// Else the system reaps children itself, and nobody learns how code ended.
Status check_children_are_kept() {
  struct sigaction now = {};
  if (::sigaction(SIGCHLD, nullptr, &now) == 0 && now.sa_handler != SIG_IGN && (now.sa_flags & SA_NOCLDWAIT) == 0)
    return {};
  return {
      StatusCode::kUnsupported,
      "the sandbox cannot see how code ends, because this process ignores SIGCHLD; code is not run; give the signal "
      "its default"};
}

std::string shell_quoted(const std::string& text) {
  std::string out = "'";
  for (const char c : text) out += c == '\'' ? "'\\''" : std::string(1, c);
  return out + "'";
}

}  // namespace

Result<Sandbox> Sandbox::open(const SandboxOptions& options) {
  Sandbox sandbox;
  sandbox.seconds_ = options.seconds;
  sandbox.memory_bytes_ = options.memory_bytes;
  sandbox.landlock_ = landlock_version();
  const uint32_t action = SECCOMP_RET_ERRNO;
  sandbox.seccomp_ = ::syscall(SYS_seccomp, SECCOMP_GET_ACTION_AVAIL, 0, &action) == 0 && !seccomp_filter().empty();
  if (!thread_count(::getpid()))
    return Status(StatusCode::kUnsupported,
                  "the sandbox cannot count the threads of code; code is not run; mount /proc");
  HB_TRY(check_children_are_kept());
  HB_TRY(sandbox.find_python(options.python));
  HB_TRY(sandbox.try_out(options.accept_weaker));
  return sandbox;
}

Status Sandbox::find_python(const std::string& python) {
  HB_ASSIGN(std::string about, first_output(shell_quoted(python) + " -c " + shell_quoted(kAbout) + " 2>/dev/null"));
  for (size_t end = about.find('\n'); end != std::string::npos; end = about.find('\n')) {
    (python_.empty() ? python_ : readable_.emplace_back()) = about.substr(0, end);
    about.erase(0, end + 1);
  }
  if (python_.empty() || readable_.empty()) {
    return not_found(
        fmt::format("{}: is no Python that runs, and code is graded by running it; install python3", quote(python)));
  }
  for (const char* path :
       {"/usr", "/lib", "/lib64", "/bin", "/etc/ld.so.cache", "/dev/urandom", "/dev/random", "/dev/zero"})
    readable_.emplace_back(path);
  return {};
}

Status Sandbox::try_out(bool accept_weaker) {
  HB_ASSIGN(const SandboxRun trial, run({{"trial.py", kTrial}}, "trial.py", ""));
  std::string_view found(trial.output);
  if (!found.ends_with("done\n")) {
    return {
        StatusCode::kUnsupported,
        fmt::format("Python does not run in the sandbox ({} {}, {} bytes said); code is not run; are {} MiB of memory "
                    "enough for it, and is {} with all it reads below the folders that it names?",
                    trial.end == SandboxRun::End::kExited ? "exit code" : "ended by", trial.code, found.size(),
                    memory_bytes_ >> 20, quote(python_))};
  }
  found.remove_suffix(5);
  const auto open_to = [&](std::string_view letters) { return found.find_first_of(letters) != std::string_view::npos; };
  closed_ = {.files = !open_to("rw"), .network = !open_to("n"), .processes = !open_to("ps")};
  std::string closed, open;
  for (const auto& [letters, name] :
       {std::pair("rw", "files"), std::pair("n", "network"), std::pair("ps", "processes and signals")})
    (open_to(letters) ? open : closed) += std::string((open_to(letters) ? open : closed).empty() ? "" : ", ") + name;
  std::error_code ignored;
  fs::remove(fs::temp_directory_path(ignored) / "halfbyte-code-trial", ignored);
  if (!open.empty() && !accept_weaker) {
    return {StatusCode::kUnsupported,
            fmt::format(
                "this kernel gives no whole sandbox: code could have {} (Landlock {}, seccomp {}); code is not run; "
                "Linux 6.2 or newer with both is needed, or accept it for code that you trust",
                open, landlock_ > 0 ? "is there" : "is missing or old", seccomp_ ? "is there" : "is missing")};
  }
  isolation_ = fmt::format("{}, {}; {} closed{}; {} s, {} MiB",
                           landlock_ > 0 ? fmt::format("landlock {}", landlock_) : "no landlock",
                           seccomp_ ? "seccomp" : "no seccomp", closed.empty() ? "nothing" : closed,
                           open.empty() ? "" : "; " + open + " open", seconds_, memory_bytes_ >> 20);
  return {};
}

Result<SandboxRun> Sandbox::run(const Files& files, const std::string& script, std::string_view input,
                                const std::stop_token& stop) const {
  Folder folder;
  Files all = files;
  all.emplace_back("stdin", std::string(input));
  HB_TRY(folder.make(all));
  const FileDescriptor stdin_file(::open((folder.path + "/stdin").c_str(), O_RDONLY | O_CLOEXEC));
  const FileDescriptor nowhere(::open("/dev/null", O_RDWR | O_CLOEXEC));
  if (stdin_file.get() < 0 || nowhere.get() < 0) return refused("open its input");
  HB_ASSIGN(Pipe output, make_pipe());
  HB_ASSIGN(Pipe status, make_pipe());
  Descriptor ruleset;
  if (landlock_ > 0) {
    HB_ASSIGN(ruleset, make_ruleset(landlock_));
    for (const std::string& path : readable_) {
      std::error_code failure;
      const bool is_folder = fs::is_directory(path, failure);
      HB_TRY(allow(*ruleset, path, kReadFile | kExecute | (is_folder ? kReadDir : 0)));
    }
    HB_TRY(allow(*ruleset, "/dev/null", kReadFile | kWriteFile));
    HB_TRY(allow(*ruleset, folder.path, kReadFile | kReadDir | kWriteFile | kTruncate | kMakeReg | kRemoveFile));
  }
  const std::string home = "HOME=" + folder.path, temporary = "TMPDIR=" + folder.path;
  Child child;
  child.arguments = {python_.c_str(), "-B", "-s", script.c_str(), nullptr};
  child.environment = {
      "PATH=/usr/bin:/bin", "LANG=C.UTF-8",           home.c_str(), temporary.c_str(), "PYTHONHASHSEED=0",
      "OMP_NUM_THREADS=1",  "OPENBLAS_NUM_THREADS=1", nullptr};
  child.folder = folder.path;
  const auto cpu = static_cast<rlim_t>(std::max(seconds_, 1.0) + .999);
  child.limits = {{{RLIMIT_AS, both(static_cast<rlim_t>(memory_bytes_))},
                   {RLIMIT_CPU, {cpu, cpu + 1}},
                   {RLIMIT_FSIZE, both(kMostFileBytes)},
                   {RLIMIT_NOFILE, both(64)},
                   {RLIMIT_CORE, both(0)}}};
  if (seccomp_) child.filter = seccomp_filter();
  child.own_process = own_process_at(child.filter);
  child.input = stdin_file.get();
  child.output = output.write->get();
  child.errors = nowhere.get();
  child.status = status.write->get();
  child.ruleset = ruleset ? ruleset->get() : -1;
  child.parent = ::getpid();
  const Folder::Content given = folder.content();
  const pid_t pid = ::fork();
  if (pid < 0) return refused("start a process");
  if (pid == 0) child.run();
  output.write.reset();
  status.write.reset();
  return Watch(pid, output.read->get(), status.read->get(), folder, given, 3 * seconds_ + 5).finish(stop);
}

}  // namespace halfbyte
