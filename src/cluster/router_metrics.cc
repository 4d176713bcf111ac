#include <fmt/format.h>

#include "cluster/page_exchange.h"
#include "cluster/router.h"

namespace deepinfer {
namespace {

void head(std::string& out, const char* name, const char* type, const char* help) {
  out += fmt::format("# HELP {0} {2}\n# TYPE {0} {1}\n", name, type, help);
}

template <class F>
void per_worker(std::string& out, const RouterStats& stats, const char* name, const char* type, const char* help, F value) {
  head(out, name, type, help);
  for (const auto& worker : stats.workers) out += fmt::format("{}{{worker=\"{}\"}} {}\n", name, worker.address, value(worker));
}

void one(std::string& out, const char* name, const char* type, const char* help, int64_t value) {
  head(out, name, type, help);
  out += fmt::format("{} {}\n", name, value);
}

}  // namespace

std::string metrics_text(const RouterStats& stats) {
  using Worker = RouterStats::Worker;
  std::string out;
  per_worker(out, stats, "deepinfer_router_worker_ready", "gauge", "1 = it would get a request now",
             [](const Worker& worker) { return worker.trouble.empty() ? 1 : 0; });
  per_worker(out, stats, "deepinfer_router_worker_requests", "gauge", "Requests of this router on it",
             [](const Worker& worker) { return worker.inside; });
  per_worker(out, stats, "deepinfer_router_placed_total", "counter", "Placements on it",
             [](const Worker& worker) { return worker.placed; });
  one(out, "deepinfer_router_moved_total", "counter", "Requests that went on at another worker", stats.moved);
  one(out, "deepinfer_router_refused_total", "counter", "Refused for their key's share or their predicted first token",
      stats.refused);
  one(out, "deepinfer_router_handed_total", "counter", "Prompts that went on where their pages were sent", stats.handed);
  one(out, "deepinfer_router_requests", "gauge", "Accepted requests that have not ended", stats.inside);
  one(out, "deepinfer_router_waiting", "gauge", "Of those, without a worker now", stats.waiting);
  return out;
}

std::string metrics_text(const PageExchangeStats& stats) {
  std::string out;
  const auto count = [&](const char* name, const char* help, int64_t value) {
    one(out, fmt::format("deepinfer_hand_over_{}", name).c_str(), "counter", help, value);
  };
  head(out, "deepinfer_hand_over_pages_sent_total", "counter", "Pages sent to workers that go on with their prompts");
  out +=
      fmt::format("deepinfer_hand_over_pages_sent_total{{transport=\"tcp\"}} {}\n", stats.pages_sent - stats.pages_sent_beside);
  out += fmt::format("deepinfer_hand_over_pages_sent_total{{transport=\"ucx\"}} {}\n", stats.pages_sent_beside);
  count("pages_received_total", "Pages received of prompts that go on here", stats.pages_received);
  count("bytes_received_total", "Bytes of pages and states received", stats.bytes_received);
  count("sent_total", "Hand-overs from here that came whole", stats.sent);
  count("lost_total", "Hand-overs from here that did not", stats.lost);
  count("retried_total", "Hand-overs whose connection broke and was tried again", stats.retried);
  count("received_total", "Hand-overs to here that came whole", stats.received);
  count("late_total", "Hand-overs to here whose rest was computed", stats.late);
  count("refused_total", "Hand-overs to here without memory for them", stats.refused);
  count("receive_microseconds_total", "From the first byte to the last of whole ones", stats.receive_us);
  return out;
}

}  // namespace deepinfer
