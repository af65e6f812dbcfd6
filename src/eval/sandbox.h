// Runs code that a model wrote where it can do no harm: it sees Python, its own folder and nothing else.
//
// What holds it, by the kernel's own means and for one process that cannot make others:
//   Landlock     no file but the system's programs and libraries and Python's (to read) and the run's folder; no TCP; from
//                version 6 on no signals to other processes
//   seccomp      a list of allowed system calls: no sockets, no new processes, no signals to others, no mounts, no change of
//                modes, owners, times, limits or priorities, no outliving of its parent
//   limits       address space, processor seconds, a deadline, threads, sizes of files and output; all capabilities dropped
// It may still learn that files exist (their names and sizes, not what is in them).
#pragma once

#include <cstdint>
#include <stop_token>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"

namespace halfbyte {

struct SandboxOptions {
  std::string python = "python3";           // a path, or a name in PATH
  double seconds = 10;                      // of the processor; the deadline is three times that and 5 s more
  int64_t memory_bytes = int64_t{1} << 30;  // of address space
  // Where the kernel lacks Landlock (Linux 6.2 and newer have what is needed) or seccomp: run with what there is.
  bool accept_weaker = false;
};

struct SandboxRun {
  enum class End : uint8_t { kExited, kSignalled, kTime, kOutput, kFiles, kThreads } end = End::kExited;
  int code = 0;        // exit status or signal
  std::string output;  // stdout, at most 16 MiB; stderr is thrown away
};

// Thread-safe, but not while another thread changes the process's directory or signal handlers.
class Sandbox {
 public:
  static constexpr int kMostThreads = 64;  // looked at every few milliseconds; more end the run
  // What a run may leave in its folder, beside the files that it was given.
  static constexpr int kMostFiles = 200;
  static constexpr int64_t kMostFolderBytes = int64_t{64} << 20;

  // Asks Python where it lies, and then tries from inside to open a file, a socket and a process. kUnsupported: one of them
  // could be had and accept_weaker is not set, the kernel refused something, or SIGCHLD is ignored; kNotFound: no such Python.
  static Result<Sandbox> open(const SandboxOptions& options);

  // What was in force when open() tried: "landlock 7, seccomp; files, network, processes and signals closed; 10 s, 1024 MiB".
  const std::string& isolation() const { return isolation_; }
  // What code could not have then.
  struct Closed {
    bool files = false, network = false, processes = false;  // processes: and signals
  };
  const Closed& closed() const { return closed_; }

  // Runs `python script` in a fresh folder that holds `files` (names and contents) and is deleted afterwards. `script` is
  // one of them. An error is the sandbox's own, never the code's; kCancelled soon after a stop was asked for.
  using Files = std::vector<std::pair<std::string, std::string>>;
  Result<SandboxRun> run(const Files& files, const std::string& script, std::string_view input,
                         const std::stop_token& stop = {}) const;

 private:
  Sandbox() = default;
  Status find_python(const std::string& python);
  Status try_out(bool accept_weaker);

  std::string python_;                 // its absolute path
  std::vector<std::string> readable_;  // files and folders
  double seconds_ = 0;
  int64_t memory_bytes_ = 0;
  int landlock_ = 0;  // the kernel's version; 0: none
  bool seccomp_ = false;
  std::string isolation_;
  Closed closed_;
};

}  // namespace halfbyte
