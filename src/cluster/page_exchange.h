// cluster/page_exchange.h - pages of prompts between workers: sent while the prompt is still computed, kept until it goes on.
//
// A worker that computes a prompt for another one gives its engine a sink; what comes into it goes over a connection that carries
// nothing else, as fast as the other side takes it, then its states, then the word that this is all. The other worker
// keeps what comes under the number of the hand-over and gives it to its own engine as a load. Promise: nobody waits for a peer
// longer than `stall_us` without a byte of it; a connection that breaks is tried once more from where it broke; what is wanted by
// nobody goes after `lease_us`, on both sides; whatever fails, the receiving engine computes what it lacks. Peers that run
// another program, model or layout refuse each other. Threads: any; the sink and the load as kvcache/page_transfer.h says.
//
//   DI_TRY(auto exchange, PageExchange::open({.hub = {.security = {.secret = secret}, .address = "0.0.0.0"}}));
//   exchange->serve({.fingerprint = ..., .page_bytes = ..., ...});
//   engine.submit(request, handler, {.out = exchange->send({.host = "10.0.0.8", .port = 8201, .number = n, .end = 512})});
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "base/result.h"
#include "kvcache/page_transfer.h"
#include "net/frame_hub.h"

namespace deepinfer {

struct PageExchangeOptions {
  FrameHubOptions hub;
  int64_t max_bytes = int64_t{2} << 30;  // kept for hand-overs that have not been taken
  int64_t stall_us = 1'000'000, lease_us = 30'000'000;
};

// What peers must have in common.
struct PageFormat {
  std::string fingerprint;
  size_t page_bytes = 0, state_bytes = 0, whole_bytes = 0;
};

// Pages [first, end) of a prompt, for the worker whose exchange is there.
struct PageAddress {
  std::string host;
  uint16_t port = 0;
  uint64_t number = 0;  // of the hand-over, drawn at random
  size_t first = 0, end = 0;
};

struct PageExchangeStats {
  int64_t pages_sent = 0, pages_sent_beside = 0;  // all, and those of them that went beside their connection: by UCX
  int64_t pages_received = 0, bytes_received = 0;
  int64_t sent = 0, lost = 0, retried = 0;  // hand-overs from here: whole, not, and begun again
  int64_t received = 0, late = 0,
          refused = 0;     // hand-overs to here: whole, not whole when they were due, without memory for them
  int64_t receive_us = 0;  // of the whole ones, from their first page to their last byte
};

class PageExchange {
 public:
  static Result<std::unique_ptr<PageExchange>> open(const PageExchangeOptions& options);
  virtual ~PageExchange() = default;

  virtual uint16_t port() const = 0;
  // Before it nobody is spoken to.
  virtual void serve(PageFormat format) = 0;
  virtual std::shared_ptr<PageSink> send(const PageAddress& to) = 0;
  virtual std::shared_ptr<PageLoad> expect(uint64_t number) = 0;
  virtual std::string lane() const = 0;  // FrameHub's
  virtual PageExchangeStats stats() const = 0;
};

// In the text form of Prometheus (docs/operations.md has the table).
std::string metrics_text(const PageExchangeStats& stats);

}  // namespace deepinfer
