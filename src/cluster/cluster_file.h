// cluster/cluster_file.h - the description of a cluster on one machine, as `deepinfer up` reads it.
//
// Tables [router] and [worker]; their keys are flags of `deepinfer route` and `deepinfer serve`. `count` says how many workers
// there are, or `min` and `max` between which numbers they follow the load, as [scale] has it. [etcd] lets the workers enter
// themselves there: in that of `endpoints`, or with `start` in one that is a child, too. Whether a flag exists is for the command
// to say. Threads: pure.
//
//   DI_TRY(const ClusterFile cluster, parse_cluster_file(text, "local.toml"));
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "policy/autoscale.h"

namespace deepinfer {

struct ClusterFile {
  std::vector<std::string> router;  // as words of a command line
  std::vector<std::string> worker;
  int32_t min_workers = 1, max_workers = 1;
  ScaleOptions scale;  // with these limits
  std::string etcd;    // endpoints; "" = the router gets a list
  bool starts_etcd = false;
  std::string scale_key;  // an API key for the router's /scale where it asks for one
};

inline constexpr int32_t kMaxLocalWorkers = 64;

// Errors name file and line.
Result<ClusterFile> parse_cluster_file(std::string_view text, std::string_view name);

}  // namespace deepinfer
