// lab/eval/seccomp_filter.h - the system calls a sandboxed Python may make. Inside lab/eval only.
//
// An allow list for x86-64: what is not listed fails with EPERM (clone3 and openat2 with ENOSYS, so that the C library falls
// back to calls whose arguments a filter can see). Opens for writing, process creation, and limits of other processes are
// told apart by their arguments.
// Threads: install() is safe between fork and exec.
#pragma once

#include <linux/filter.h>

#include <vector>

namespace deepinfer {

std::vector<sock_filter> python_filter();

// Puts the filter on this process for good. 0, or errno.
int install_filter(const std::vector<sock_filter>& filter);

}  // namespace deepinfer
