// cluster/worker_address.h - where a worker listens.
//
// Threads: pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"

namespace deepinfer {

struct WorkerAddress {
  std::string host;
  uint16_t port = 0;
  bool operator==(const WorkerAddress&) const = default;
};
std::string address_text(const WorkerAddress& address);
// "host:port,host:port"; [v6]:port too.
Result<std::vector<WorkerAddress>> parse_worker_addresses(const std::string& text);

}  // namespace deepinfer
