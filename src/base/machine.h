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
#include <vector>

namespace deepinfer {

int available_processors();

// The least limit among the control groups that `membership` (the text of /proc/self/cgroup) names below `root`, in processors;
// 0 = none.
double processor_quota(const std::string& root, std::string_view membership);

// Processors that this process may run on, by node of memory (folders node0, node1, ... of `root`, in the system
// /sys/devices/system/node); nodes without any are left out.
std::vector<std::vector<int>> processor_nodes(const std::string& root);
// Of so many threads each node gets as many neighbouring ones as it has processors of all; REQUIRES: nodes.
size_t node_of_part(const std::vector<std::vector<int>>& nodes, size_t part, size_t parts);

// Bytes that are left below the limits of memory of those control groups (memory.max, memory.limit_in_bytes), pages of files
// counted as left; -1 = no limit.
int64_t memory_left(const std::string& root, std::string_view membership);

// Bytes the system, and the process's control groups, can still give without swapping, or -1 when nobody says.
int64_t available_memory();

}  // namespace deepinfer
