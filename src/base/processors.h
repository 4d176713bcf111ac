// base/processors.h - how many processors this process may keep busy.
//
// Least of: those it may run on (affinity), and the limits of time of its control groups, version 2 (cpu.max) and 1
// (cpu.cfs_quota_us), its own and those above. A limit of 1.5 processors gives 1: threads that use their group's time up are
// all stopped for the rest of a tenth of a second, in the middle of a step.
//
//   ThreadPool pool(available_processors());
#pragma once

#include <string>
#include <string_view>

namespace deepinfer {

int available_processors();

// The least limit among the control groups that `membership` (the text of /proc/self/cgroup) names below `root`, in processors;
// 0 = none.
double processor_quota(const std::string& root, std::string_view membership);

}  // namespace deepinfer
