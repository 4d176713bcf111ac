#include "base/machine.h"

#include <sched.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <thread>

#include "base/file.h"

namespace deepinfer {
namespace {

std::string text_of(const std::string& path) {
  Result<std::string> text = read_file(path);
  return text ? *std::move(text) : "";
}

// "150000 100000" of version 2, "max ..." is none; of version 1 the same numbers are two files.
double quota_of(const std::string& folder) {
  std::string quota = text_of(folder + "/cpu.max"), period;
  if (const size_t space = quota.find(' '); space != std::string::npos) {
    period = quota.substr(space + 1);
  } else {
    quota = text_of(folder + "/cpu.cfs_quota_us");
    period = text_of(folder + "/cpu.cfs_period_us");
  }
  const double of = std::strtod(quota.c_str(), nullptr), in = std::strtod(period.c_str(), nullptr);
  return of > 0 && in > 0 ? of / in : 0;
}

// Calls `look` with the folder of each control group of `controller` that the process is in, and with those above.
template <class Look>
void each_group(const std::string& root, std::string_view membership, std::string_view controller, Look look) {
  while (!membership.empty()) {
    const std::string_view line = membership.substr(0, membership.find('\n'));
    membership.remove_prefix(std::min(membership.size(), line.size() + 1));
    // "0::/path" of version 2, "4:cpu,cpuacct:/path" of version 1.
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (second == std::string_view::npos || !line.substr(second + 1).starts_with('/')) continue;
    const std::string controllers(line.substr(first + 1, second - first - 1));
    if (!controllers.empty() && (',' + controllers + ',').find(',' + std::string(controller) + ',') == std::string::npos)
      continue;
    const std::string base = controllers.empty() ? root : root + "/" + controllers;
    // Inside a container the path may be the host's, with only its end in sight: folders that are not there say nothing.
    for (std::string path(line.substr(second + 1));; path.resize(path.rfind('/'))) {
      while (path.ends_with('/')) path.pop_back();
      look(base + path);
      if (path.empty()) break;
    }
  }
}

// The number behind `key` and spaces, or -1.
int64_t number_behind(std::string_view text, std::string_view key) {
  const size_t at = text.find(key), digits = at == text.npos ? at : text.find_first_not_of(' ', at + key.size());
  int64_t value = -1;
  if (digits != text.npos) std::from_chars(text.data() + digits, text.data() + text.size(), value);
  return value;
}

// What is left below a group's limit, file pages counted as free; -1 without one.
int64_t memory_left_of(const std::string& folder) {
  const bool two = !text_of(folder + "/memory.max").empty();
  const std::string limit = text_of(folder + (two ? "/memory.max" : "/memory.limit_in_bytes"));
  const int64_t most = number_behind(limit, ""),
                used = number_behind(text_of(folder + (two ? "/memory.current" : "/memory.usage_in_bytes")), "");
  if (most < 0 || used < 0) return -1;  // "max" is no number
  const std::string stat = text_of(folder + "/memory.stat");
  int64_t files = 0;
  for (const char* key : {"inactive_file ", "active_file "}) {
    // Version 1 has sums over the groups below under names of their own, and "active" is the end of "inactive".
    const std::string name = std::string(two ? "\n" : "\ntotal_") + key;
    files += std::max<int64_t>(0, number_behind('\n' + stat, name));
  }
  return std::max<int64_t>(0, most - used + std::min(files, used));
}

}  // namespace

double processor_quota(const std::string& root, std::string_view membership) {
  double least = 0;
  each_group(root, membership, "cpu", [&](const std::string& folder) {
    const double quota = quota_of(folder);
    if (quota > 0) least = least > 0 ? std::min(least, quota) : quota;
  });
  return least;
}

int64_t memory_left(const std::string& root, std::string_view membership) {
  int64_t least = -1;
  each_group(root, membership, "memory", [&](const std::string& folder) {
    const int64_t left = memory_left_of(folder);
    if (left >= 0) least = least < 0 ? left : std::min(least, left);
  });
  return least;
}

std::vector<std::vector<int>> processor_nodes(const std::string& root) {
  cpu_set_t usable;
  std::vector<std::vector<int>> nodes;
  if (::sched_getaffinity(0, sizeof usable, &usable) != 0) return nodes;
  constexpr int kMostMissing = 8;  // numbers need not follow one another
  for (int node = 0, missing = 0; missing < kMostMissing; ++node) {
    std::string list = text_of(root + "/node" + std::to_string(node) + "/cpulist");  // "0-3,8-11"
    if (list.empty() && ++missing > 0) continue;
    missing = 0;
    std::vector<int> processors;
    for (const char* at = list.c_str(); *at >= '0' && *at <= '9';) {
      char* end = nullptr;
      const long first = std::strtol(at, &end, 10), last = *end == '-' ? std::strtol(end + 1, &end, 10) : first;
      for (long i = first; i <= last && i < CPU_SETSIZE; ++i) {
        if (CPU_ISSET(i, &usable)) processors.push_back(static_cast<int>(i));
      }
      at = *end == ',' ? end + 1 : end;
    }
    if (!processors.empty()) nodes.push_back(std::move(processors));
  }
  return nodes;
}

size_t node_of_part(const std::vector<std::vector<int>>& nodes, size_t part, size_t parts) {
  size_t all = 0, node = 0;
  for (const auto& processors : nodes) all += processors.size();
  for (size_t at = part * all / parts; node + 1 < nodes.size() && at >= nodes[node].size(); ++node) at -= nodes[node].size();
  return node;
}

int available_processors() {
  cpu_set_t set;
  int processors = static_cast<int>(std::thread::hardware_concurrency());
  if (::sched_getaffinity(0, sizeof set, &set) == 0) processors = CPU_COUNT(&set);
  const double quota = processor_quota("/sys/fs/cgroup", text_of("/proc/self/cgroup"));
  if (quota > 0) processors = static_cast<int>(std::min<double>(processors, quota));
  return std::max(1, processors);
}

int64_t available_memory() {
  const int64_t kib = number_behind(text_of("/proc/meminfo"), "MemAvailable:");
  const int64_t group = memory_left("/sys/fs/cgroup", text_of("/proc/self/cgroup"));
  if (kib < 0) return group;
  return group < 0 ? kib * 1024 : std::min(kib * 1024, group);
}

}  // namespace deepinfer
