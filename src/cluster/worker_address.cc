#include "cluster/worker_address.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

namespace deepinfer {

std::string address_text(const WorkerAddress& address) {
  const bool is_v6 = address.host.find(':') != std::string::npos;
  return is_v6 ? fmt::format("[{}]:{}", address.host, address.port) : fmt::format("{}:{}", address.host, address.port);
}

Result<std::vector<WorkerAddress>> parse_worker_addresses(const std::string& text) {
  std::vector<WorkerAddress> out;
  for (size_t at = 0; at < text.size();) {
    const size_t comma = std::min(text.find(',', at), text.size());
    const std::string one = text.substr(at, comma - at);
    at = comma + 1;
    const size_t colon = one.rfind(':');
    WorkerAddress address;
    const char* end = one.data() + one.size();
    if (colon != std::string::npos) address.host = one.substr(0, colon);
    if (address.host.starts_with('[') && address.host.ends_with(']'))
      address.host = address.host.substr(1, address.host.size() - 2);
    const bool reads = colon != std::string::npos && std::from_chars(one.data() + colon + 1, end, address.port).ptr == end;
    if (!reads || address.host.empty() || address.port == 0)
      return invalid_argument(fmt::format("'{}' is not HOST:PORT: name workers as 10.0.0.7:8101,10.0.0.8:8101", one));
    if (std::find(out.begin(), out.end(), address) != out.end()) return invalid_argument(fmt::format("'{}' is there twice", one));
    out.push_back(std::move(address));
  }
  return out;
}

}  // namespace deepinfer
