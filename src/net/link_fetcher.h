// net/link_fetcher.h - what lies behind a link that a stranger gave, without becoming the stranger's hand inside the network.
//
// Promise: https only, certificates verified, no proxy; a host any of whose addresses is not public is refused, and the
// connection goes to an address that was checked (no second resolution a rebinding name could answer differently); each
// redirect is checked the same way. Bytes, time and redirects are bounded.
// Threads: any; blocks for `timeout_us` at most, besides the system's resolution of a name.
//
//   LinkFetcher fetcher({});
//   DI_TRY(std::string bytes, fetcher.fetch("https://example.com/cat.png", 32 << 20));
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/result.h"

namespace deepinfer {

struct LinkFetcherOptions {
  int64_t timeout_us = 10'000'000;  // of one link, redirects included
  int max_redirects = 3;
  std::string ca_file;  // PEM; "" = the system's
  // For tests, and for a network that decides otherwise. Empty = the system's names, public addresses.
  std::function<Result<std::vector<std::string>>(const std::string& host)> resolve;
  std::function<bool(const std::string& address)> is_allowed;
};

class LinkFetcher {
 public:
  explicit LinkFetcher(LinkFetcherOptions options);

  // The body of a 200 answer. kUnsupported: not https; kPermission: an address that is not public; kTooLarge; kDeadline;
  // kCancelled: `cancelled` was set by any thread; kUnavailable: everything else between here and the body.
  Result<std::string> fetch(const std::string& url, size_t max_bytes, const std::atomic<bool>* cancelled = nullptr) const;

 private:
  Result<std::vector<std::string>> checked_addresses(const std::string& host) const;

  LinkFetcherOptions options_;
};

// An address of the global internet in text form: not private, loopback, link-local, unique local, multicast, shared,
// documentation or otherwise special, nor an IPv6 form that leads to IPv4 (mapped ones count as what they map).
bool is_public_address(const std::string& address);

// What the system knows as the addresses of a host.
Result<std::vector<std::string>> resolve_host(const std::string& host);

}  // namespace deepinfer
