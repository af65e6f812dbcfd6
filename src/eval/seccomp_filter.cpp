#include "eval/seccomp_filter.h"

#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/sched.h>
#include <linux/seccomp.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <utility>

namespace halfbyte {
namespace {

#if defined(__x86_64__)
constexpr uint32_t kArchitecture = AUDIT_ARCH_X86_64;
#elif defined(__aarch64__)
constexpr uint32_t kArchitecture = AUDIT_ARCH_AARCH64;
#else
constexpr uint32_t kArchitecture = 0;
#endif

constexpr uint32_t kOwnProcess = 0xFFFFFFFE;  // no process has this id
constexpr uint32_t kLowHalf = 0;              // of an argument, on a little-endian machine

// From this number on (Linux 5.1) calls have the same number everywhere, and libraries take an older one where one is
// missing: clone3 becomes clone, which the filter sees through. x32's numbers are above it, too.
constexpr uint32_t kYoung = 424;
constexpr int64_t kCloseRange = 436, kOpenat2 = 437, kFaccessat2 = 439;  // older headers lack them

// Whatever they are called with. No sockets, no other processes, no signals to them, no modes, owners, times or attributes
// of files, no limits or priorities, no namespaces, mounts, keys, tracing or memory without a file's or the process's limit.
constexpr int64_t kAllowed[] = {
    // Files, which Landlock guards.
    __NR_openat,
    kOpenat2,
    __NR_close,
    kCloseRange,
    __NR_read,
    __NR_readv,
    __NR_pread64,
    __NR_preadv,
    __NR_preadv2,
    __NR_write,
    __NR_writev,
    __NR_pwrite64,
    __NR_pwritev,
    __NR_pwritev2,
    __NR_lseek,
    __NR_fstat,
    __NR_newfstatat,
    __NR_statx,
    __NR_statfs,
    __NR_fstatfs,
    __NR_faccessat,
    kFaccessat2,
    __NR_readlinkat,
    __NR_getdents64,
    __NR_getcwd,
    __NR_chdir,
    __NR_fchdir,
    __NR_unlinkat,
    __NR_mkdirat,
    __NR_renameat,
    __NR_renameat2,
    __NR_linkat,
    __NR_symlinkat,
    __NR_truncate,
    __NR_ftruncate,
    __NR_fallocate,
    __NR_fadvise64,
    __NR_fsync,
    __NR_fdatasync,
    __NR_flock,
    __NR_umask,
    __NR_sendfile,
    __NR_copy_file_range,
    // Descriptors.
    __NR_dup,
    __NR_dup3,
    __NR_pipe2,
    __NR_eventfd2,
    __NR_ppoll,
    __NR_pselect6,
    __NR_epoll_create1,
    __NR_epoll_ctl,
    __NR_epoll_pwait,
    // Memory, which a limit bounds.
    __NR_brk,
    __NR_mmap,
    __NR_munmap,
    __NR_mremap,
    __NR_mprotect,
    __NR_madvise,
    __NR_mincore,
    __NR_msync,
    __NR_membarrier,
    // The process and its threads.
    __NR_execve,
    __NR_exit,
    __NR_exit_group,
    __NR_wait4,
    __NR_waitid,
    __NR_futex,
    __NR_set_tid_address,
    __NR_set_robust_list,
    __NR_get_robust_list,
    __NR_rseq,
    __NR_getpid,
    __NR_getppid,
    __NR_gettid,
    __NR_getpgid,
    __NR_getsid,
    __NR_getuid,
    __NR_geteuid,
    __NR_getgid,
    __NR_getegid,
    __NR_getresuid,
    __NR_getresgid,
    __NR_getgroups,
    __NR_getrlimit,
    __NR_getrusage,
    __NR_getpriority,
    __NR_sched_yield,
    __NR_sched_getaffinity,
    __NR_sched_getparam,
    __NR_sched_getscheduler,
    __NR_sched_get_priority_max,
    __NR_sched_get_priority_min,
    __NR_getcpu,
    __NR_uname,
    __NR_sysinfo,
    // Its own signals.
    __NR_rt_sigaction,
    __NR_rt_sigprocmask,
    __NR_rt_sigreturn,
    __NR_rt_sigpending,
    __NR_rt_sigsuspend,
    __NR_rt_sigtimedwait,
    __NR_sigaltstack,
    __NR_restart_syscall,
    __NR_setitimer,
    __NR_getitimer,
    // Time and chance.
    __NR_clock_gettime,
    __NR_clock_getres,
    __NR_clock_nanosleep,
    __NR_nanosleep,
    __NR_gettimeofday,
    __NR_times,
    __NR_getrandom,
#if defined(__x86_64__)
    __NR_arch_prctl,
    // Older forms of the above.
    __NR_open,
    __NR_creat,
    __NR_stat,
    __NR_lstat,
    __NR_access,
    __NR_readlink,
    __NR_getdents,
    __NR_unlink,
    __NR_mkdir,
    __NR_rmdir,
    __NR_rename,
    __NR_link,
    __NR_symlink,
    __NR_dup2,
    __NR_pipe,
    __NR_eventfd,
    __NR_poll,
    __NR_select,
    __NR_epoll_create,
    __NR_epoll_wait,
    __NR_getpgrp,
    __NR_alarm,
    __NR_pause,
    __NR_time,
#endif
};

sock_filter load(size_t offset) {
  return BPF_STMT(BPF_LD | BPF_W | BPF_ABS, static_cast<uint32_t>(offset));
}
sock_filter answer(uint32_t action) {
  return BPF_STMT(BPF_RET | BPF_K, action);
}
size_t argument(size_t index) {
  return offsetof(seccomp_data, args) + index * sizeof(uint64_t) + kLowHalf;
}
// Skips `skipped` instructions unless the loaded word is `value`.
sock_filter unless_equal(uint32_t value, uint8_t skipped) {
  return BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, value, 0, skipped);
}

constexpr uint32_t kAllow = SECCOMP_RET_ALLOW;
constexpr uint32_t kRefuse = SECCOMP_RET_ERRNO | EPERM;
constexpr uint32_t kAbsent = SECCOMP_RET_ERRNO | ENOSYS;
constexpr uint32_t kNoTerminal = SECCOMP_RET_ERRNO | ENOTTY;

class Filter {
 public:
  void add(std::initializer_list<sock_filter> more) { code_.insert(code_.end(), more); }
  // The call, where its argument is one of these ints; its answer otherwise. The call's number is loaded before.
  void allow_with(uint32_t call, size_t index, std::initializer_list<uint32_t> values, uint32_t otherwise) {
    add({unless_equal(call, static_cast<uint8_t>(2 + 2 * values.size())), load(argument(index))});
    for (const uint32_t value : values) add({unless_equal(value, 1), answer(kAllow)});
    add({answer(otherwise)});
  }
  std::vector<sock_filter> take() { return std::move(code_); }

 private:
  std::vector<sock_filter> code_;
};

}  // namespace

std::vector<sock_filter> seccomp_filter() {
  if (kArchitecture == 0) return {};
  Filter f;
  f.add({load(offsetof(seccomp_data, arch)), unless_equal(kArchitecture, 1), BPF_JUMP(BPF_JMP | BPF_JA, 1, 0, 0),
         answer(SECCOMP_RET_KILL_PROCESS), load(offsetof(seccomp_data, nr))});
  for (const int64_t call : kAllowed) f.add({unless_equal(static_cast<uint32_t>(call), 1), answer(kAllow)});
  // A thread is no new process.
  f.add({unless_equal(__NR_clone, 4), load(argument(0)), BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, CLONE_THREAD, 0, 1),
         answer(kAllow), answer(kRefuse)});
  // Limits may be read.
  f.add({unless_equal(__NR_prlimit64, 6), load(argument(2)), unless_equal(0, 3), load(argument(2) + 4),
         unless_equal(0, 1), answer(kAllow), answer(kRefuse)});
  // No owners of files (who get signals when a file is ready), no leases, no watching of folders.
  f.allow_with(__NR_fcntl, 1,
               {F_DUPFD, F_DUPFD_CLOEXEC, F_GETFD, F_SETFD, F_GETFL, F_SETFL, F_GETLK, F_SETLK, F_SETLKW, F_GETPIPE_SZ},
               kRefuse);
  // There is no terminal, and a file's flags are not the code's.
  f.allow_with(__NR_ioctl, 1, {TCGETS, TIOCGWINSZ, FIONREAD, FIONBIO, FIOCLEX, FIONCLEX}, kNoTerminal);
  // Above all not PR_SET_PDEATHSIG, which ends the code when its grader is killed.
  f.allow_with(__NR_prctl, 0, {PR_SET_NAME, PR_GET_NAME}, kRefuse);
  // abort() signals its own thread.
  f.allow_with(__NR_tgkill, 0, {kOwnProcess}, kRefuse);
  f.add({BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, kYoung, 0, 1), answer(kAbsent), answer(kRefuse)});
  return f.take();
}

size_t own_process_at(const std::vector<sock_filter>& filter) {
  size_t at = 0;
  while (at < filter.size() && filter[at].k != kOwnProcess) ++at;
  return at;
}

}  // namespace halfbyte
