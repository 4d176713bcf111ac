// cluster/cluster_file.h - the description of a cluster on one machine, as `deepinfer up` reads it.
//
// Tables [router] and [worker], or [encode], [prefill] and [decode] for workers of that role; their keys are flags of `deepinfer
// route` and `deepinfer serve`. `count` says how many workers of a table there are, or `min` and `max` between which numbers they
// follow the load, as [scale] has it. [etcd] lets the workers enter themselves there: in that of `endpoints`, or with `start` in
// one that is a child, too. Whether a flag exists is for the command to say. Threads: pure.
//
//   DI_TRY(const ClusterFile cluster, parse_cluster_file(text, "local.toml"));
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "policy/autoscale.h"

namespace deepinfer {

struct WorkerGroup {
  std::string role = "all";
  std::vector<std::string> words;
  int32_t min = 1, max = 1;
};

struct ClusterFile {
  std::vector<std::string> router;  // as words of a command line
  std::vector<WorkerGroup> groups;
  ScaleOptions scale;  // its limits are the groups'
  std::string etcd;    // endpoints; "" = the router gets a list
  bool starts_etcd = false;
  std::string scale_key;  // an API key for the router's /scale where it asks for one
};

inline constexpr int32_t kMaxLocalWorkers = 64;

// Errors name file and line.
Result<ClusterFile> parse_cluster_file(std::string_view text, std::string_view name);

}  // namespace deepinfer
