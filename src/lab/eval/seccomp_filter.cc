#include "lab/eval/seccomp_filter.h"

#include <fcntl.h>
#include <linux/audit.h>
#include <linux/futex.h>
#include <linux/seccomp.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <initializer_list>

namespace deepinfer {
namespace {

constexpr int kAllowed[] = {
    // memory
    SYS_brk, SYS_mmap, SYS_munmap, SYS_mremap, SYS_mprotect, SYS_madvise, SYS_mincore,
    // reading; writing to what is open
    SYS_read, SYS_readv, SYS_pread64, SYS_preadv, SYS_write, SYS_writev, SYS_close, SYS_lseek, SYS_dup, SYS_dup2, SYS_dup3,
    SYS_stat, SYS_fstat, SYS_lstat, SYS_newfstatat, SYS_statx, SYS_statfs, SYS_fstatfs, SYS_access, SYS_faccessat, SYS_faccessat2,
    SYS_readlink, SYS_readlinkat, SYS_getcwd, SYS_getdents64, SYS_poll, SYS_select, SYS_pselect6, SYS_ppoll, SYS_fadvise64,
    // time, identity, randomness
    SYS_clock_gettime, SYS_clock_getres, SYS_clock_nanosleep, SYS_nanosleep, SYS_gettimeofday, SYS_time, SYS_times, SYS_getrusage,
    SYS_getpid, SYS_getppid, SYS_gettid, SYS_getuid, SYS_geteuid, SYS_getgid, SYS_getegid, SYS_getgroups, SYS_getpgrp, SYS_getsid,
    SYS_uname, SYS_sysinfo, SYS_getrandom, SYS_getcpu, SYS_sched_getaffinity, SYS_sched_yield, SYS_getrlimit,
    // the process itself
    SYS_execve, SYS_exit, SYS_exit_group, SYS_arch_prctl, SYS_set_tid_address, SYS_set_robust_list, SYS_rseq, SYS_futex,
    SYS_rt_sigaction, SYS_rt_sigprocmask, SYS_rt_sigreturn, SYS_sigaltstack, SYS_restart_syscall};

constexpr uint32_t kX32Bit = 0x40000000;
constexpr uint32_t kWriting = O_WRONLY | O_RDWR | O_CREAT | O_TRUNC | O_APPEND | (O_TMPFILE & ~O_DIRECTORY);

sock_filter load(uint32_t offset) { return BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offset); }
sock_filter answer(uint32_t action) { return BPF_STMT(BPF_RET | BPF_K, action); }
sock_filter refuse(int error) { return answer(SECCOMP_RET_ERRNO | static_cast<uint32_t>(error)); }
// Goes on when equal, else steps over `skip` instructions.
sock_filter unless_equal_skip(uint32_t value, uint8_t skip) { return BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, value, 0, skip); }

constexpr uint32_t argument(int index) {
  return static_cast<uint32_t>(offsetof(seccomp_data, args)) + 8 * static_cast<uint32_t>(index);
}

// `call` is allowed when the low word of its argument has none of `bits`.
void allow_without_bits(std::vector<sock_filter>& out, int call, int index, uint32_t bits) {
  out.push_back(unless_equal_skip(static_cast<uint32_t>(call), 4));
  out.push_back(load(argument(index)));
  out.push_back(BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, bits, 0, 1));
  out.push_back(refuse(EPERM));
  out.push_back(answer(SECCOMP_RET_ALLOW));
}

// `call` is allowed when the low word of its argument is one of `values`.
void allow_with_values(std::vector<sock_filter>& out, int call, int index, std::initializer_list<uint32_t> values) {
  out.push_back(unless_equal_skip(static_cast<uint32_t>(call), static_cast<uint8_t>(2 + 2 * values.size())));
  out.push_back(load(argument(index)));
  for (const uint32_t value : values) {
    out.push_back(unless_equal_skip(value, 1));
    out.push_back(answer(SECCOMP_RET_ALLOW));
  }
  out.push_back(refuse(EPERM));
}

void refuse_call(std::vector<sock_filter>& out, int call, int error) {
  out.push_back(unless_equal_skip(static_cast<uint32_t>(call), 1));
  out.push_back(refuse(error));
}

}  // namespace

std::vector<sock_filter> python_filter() {
  std::vector<sock_filter> out;
  out.push_back(load(offsetof(seccomp_data, arch)));
  out.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, AUDIT_ARCH_X86_64, 1, 0));
  out.push_back(answer(SECCOMP_RET_KILL_PROCESS));
  out.push_back(load(offsetof(seccomp_data, nr)));
  out.push_back(BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, kX32Bit, 0, 1));
  out.push_back(answer(SECCOMP_RET_KILL_PROCESS));
  for (const int call : kAllowed) {
    out.push_back(unless_equal_skip(static_cast<uint32_t>(call), 1));
    out.push_back(answer(SECCOMP_RET_ALLOW));
  }
  allow_without_bits(out, SYS_open, 1, kWriting);
  allow_without_bits(out, SYS_openat, 2, kWriting);
  allow_with_values(out, SYS_ioctl, 1, {TCGETS});  // isatty()
  allow_with_values(out, SYS_prlimit64, 2, {0});   // reading limits, not setting them
  // No F_SETOWN: it aims signals at other processes.
  allow_with_values(out, SYS_fcntl, 1, {F_GETFD, F_SETFD, F_GETFL, F_DUPFD, F_DUPFD_CLOEXEC});
  refuse_call(out, SYS_openat2, ENOSYS);
  refuse_call(out, SYS_clone3, ENOSYS);
  out.push_back(refuse(EPERM));
  return out;
}

int install_filter(const std::vector<sock_filter>& filter) {
  const sock_fprog program{static_cast<unsigned short>(filter.size()), const_cast<sock_filter*>(filter.data())};
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) return errno;
  if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program, 0, 0) != 0) return errno;
  return 0;
}

}  // namespace deepinfer
