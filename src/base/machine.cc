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

}  // namespace

double processor_quota(const std::string& root, std::string_view membership) {
  double least = 0;
  while (!membership.empty()) {
    const std::string_view line = membership.substr(0, membership.find('\n'));
    membership.remove_prefix(std::min(membership.size(), line.size() + 1));
    // "0::/path" of version 2, "4:cpu,cpuacct:/path" of version 1.
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (second == std::string_view::npos || !line.substr(second + 1).starts_with('/')) continue;
    const std::string controllers(line.substr(first + 1, second - first - 1));
    if (!controllers.empty() && (',' + controllers + ',').find(",cpu,") == std::string::npos) continue;
    const std::string base = controllers.empty() ? root : root + "/" + controllers;
    // Inside a container the path may be the host's, with only its end in sight: folders that are not there say nothing.
    for (std::string path(line.substr(second + 1));; path.resize(path.rfind('/'))) {
      while (path.ends_with('/')) path.pop_back();
      const double quota = quota_of(base + path);
      if (quota > 0) least = least > 0 ? std::min(least, quota) : quota;
      if (path.empty()) break;
    }
  }
  return least;
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
  const std::string text = text_of("/proc/meminfo");
  constexpr std::string_view kKey = "MemAvailable:";
  const size_t at = text.find(kKey), digits = at == text.npos ? at : text.find_first_not_of(' ', at + kKey.size());
  int64_t kib = -1;
  if (digits != text.npos) std::from_chars(text.data() + digits, text.data() + text.size(), kib);
  return kib < 0 ? -1 : kib * 1024;
}

}  // namespace deepinfer
