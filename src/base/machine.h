// base/machine.h - what of this machine the process may use.
//
// Processors: least of those it may run on (affinity), and the limits of time of its control groups, version 2 (cpu.max) and 1
// (cpu.cfs_quota_us), its own and those above. A limit of 1.5 processors gives 1: threads that use their group's time up are
// all stopped for the rest of a tenth of a second, in the middle of a step.
//
//   ThreadPool pool(available_processors());
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace deepinfer {

int available_processors();

// The least limit among the control groups that `membership` (the text of /proc/self/cgroup) names below `root`, in processors;
// 0 = none.
double processor_quota(const std::string& root, std::string_view membership);

// Bytes the system can still give without swapping, or -1 when it does not say.
int64_t available_memory();

}  // namespace deepinfer
