#include "eval/seccomp_filter.h"

#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/sched.h>
#include <linux/seccomp.h>
#include <sys/syscall.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <initializer_list>

namespace halfbyte {
namespace {

#if defined(__x86_64__)
constexpr uint32_t kArchitecture = AUDIT_ARCH_X86_64;
#elif defined(__aarch64__)
constexpr uint32_t kArchitecture = AUDIT_ARCH_AARCH64;
#else
constexpr uint32_t kArchitecture = 0;
#endif

constexpr uint32_t kSetOwnEx = 15;            // F_SETOWN_EX, which only GNU's headers name
constexpr uint32_t kOwnProcess = 0xFFFFFFFE;  // no process has this id
constexpr uint32_t kLowHalf = 0;              // of an argument, on a little-endian machine

// Numbers that older headers lack are the same everywhere from 424 on.
constexpr int64_t kClone3 = 435, kPidfdOpen = 434, kPidfdGetfd = 438, kPidfdSendSignal = 424, kIoUringSetup = 425,
                  kIoUringEnter = 426, kIoUringRegister = 427, kOpenTree = 428, kMoveMount = 429, kFsopen = 430,
                  kFsconfig = 431, kFsmount = 432, kFspick = 433, kProcessMadvise = 440, kMountSetattr = 442,
                  kMemfdSecret = 447, kFchmodat2 = 452, kSetxattrat = 463, kRemovexattrat = 466;

// Not there for the code: the library then takes an older call, which the filter sees through.
constexpr int64_t kUnknown[] = {kClone3, kIoUringSetup, kIoUringEnter, kIoUringRegister};

constexpr int64_t kForbidden[] = {
    // Network.
    __NR_socket,
    __NR_socketpair,
    // Other processes.
    __NR_kill,
    __NR_tkill,
    __NR_rt_sigqueueinfo,
    __NR_rt_tgsigqueueinfo,
    kPidfdSendSignal,
    kPidfdOpen,
    kPidfdGetfd,
    __NR_ptrace,
    __NR_process_vm_readv,
    __NR_process_vm_writev,
    kProcessMadvise,
    __NR_kcmp,
    __NR_setpriority,
    __NR_sched_setaffinity,
    __NR_sched_setscheduler,
    __NR_sched_setparam,
    __NR_sched_setattr,
    __NR_ioprio_set,
    __NR_setrlimit,
    // What Landlock does not cover of files: modes, owners, times, attributes; memory that no limit counts.
    __NR_fchmod,
    __NR_fchmodat,
    kFchmodat2,
    __NR_fchown,
    __NR_fchownat,
    __NR_utimensat,
    __NR_setxattr,
    __NR_lsetxattr,
    __NR_fsetxattr,
    __NR_removexattr,
    __NR_lremovexattr,
    __NR_fremovexattr,
    kSetxattrat,
    kRemovexattrat,
    __NR_memfd_create,
    kMemfdSecret,
    __NR_open_by_handle_at,
    // Memory and queues shared by name.
    __NR_shmget,
    __NR_shmat,
    __NR_shmctl,
    __NR_shmdt,
    __NR_msgget,
    __NR_msgctl,
    __NR_msgsnd,
    __NR_msgrcv,
    __NR_semget,
    __NR_semctl,
    __NR_semop,
    __NR_semtimedop,
    __NR_mq_open,
    __NR_mq_unlink,
    // The machine.
    __NR_mount,
    __NR_umount2,
    __NR_pivot_root,
    __NR_chroot,
    __NR_unshare,
    __NR_setns,
    kOpenTree,
    kMoveMount,
    kFsopen,
    kFsconfig,
    kFsmount,
    kFspick,
    kMountSetattr,
    __NR_bpf,
    __NR_perf_event_open,
    __NR_userfaultfd,
    __NR_keyctl,
    __NR_add_key,
    __NR_request_key,
    __NR_init_module,
    __NR_finit_module,
    __NR_delete_module,
    __NR_kexec_load,
    __NR_kexec_file_load,
    __NR_reboot,
    __NR_swapon,
    __NR_swapoff,
    __NR_syslog,
    __NR_acct,
    __NR_sethostname,
    __NR_setdomainname,
    __NR_settimeofday,
    __NR_clock_settime,
    __NR_clock_adjtime,
    __NR_adjtimex,
    __NR_quotactl,
    __NR_fanotify_init,
#if defined(__x86_64__)
    __NR_fork,
    __NR_vfork,
    __NR_chmod,
    __NR_chown,
    __NR_lchown,
    __NR_utime,
    __NR_utimes,
    __NR_futimesat,
    __NR_iopl,
    __NR_ioperm,
    __NR_modify_ldt,
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

constexpr uint32_t kRefuse = SECCOMP_RET_ERRNO | EPERM;
constexpr uint32_t kAbsent = SECCOMP_RET_ERRNO | ENOSYS;

}  // namespace

std::vector<sock_filter> seccomp_filter() {
  if (kArchitecture == 0) return {};
  std::vector<sock_filter> f;
  const auto add = [&](std::initializer_list<sock_filter> more) { f.insert(f.end(), more); };
  add({load(offsetof(seccomp_data, arch)), BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, kArchitecture, 1, 0),
       answer(SECCOMP_RET_KILL_PROCESS), load(offsetof(seccomp_data, nr))});
  // x32 has the same architecture and other numbers.
  add({BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, 0x40000000u, 0, 1), answer(kAbsent)});
  for (const int64_t call : kUnknown) add({unless_equal(static_cast<uint32_t>(call), 1), answer(kAbsent)});
  for (const int64_t call : kForbidden) add({unless_equal(static_cast<uint32_t>(call), 1), answer(kRefuse)});
  // A thread is no new process.
  add({unless_equal(__NR_clone, 4), load(argument(0)), BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, CLONE_THREAD, 1, 0),
       answer(kRefuse), answer(SECCOMP_RET_ALLOW)});
  // Limits may be read.
  add({unless_equal(__NR_prlimit64, 6), load(argument(2)), unless_equal(0, 3), load(argument(2) + 4),
       unless_equal(0, 1), answer(SECCOMP_RET_ALLOW), answer(kRefuse)});
  // A file's owner gets signals when the file is ready: a way to signal other processes.
  add({unless_equal(__NR_fcntl, 6), load(argument(1)), unless_equal(F_SETOWN, 1), answer(kRefuse),
       unless_equal(kSetOwnEx, 1), answer(kRefuse), answer(SECCOMP_RET_ALLOW)});
  // abort() signals its own thread.
  add({unless_equal(__NR_tgkill, 4), load(argument(0)), unless_equal(kOwnProcess, 1), answer(SECCOMP_RET_ALLOW),
       answer(kRefuse)});
  add({answer(SECCOMP_RET_ALLOW)});
  return f;
}

size_t own_process_at(const std::vector<sock_filter>& filter) {
  size_t at = 0;
  while (at < filter.size() && filter[at].k != kOwnProcess) ++at;
  return at;
}

}  // namespace halfbyte
