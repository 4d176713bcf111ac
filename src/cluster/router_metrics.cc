#include "cluster/page_exchange.h"
#include "cluster/router.h"
#include "server/metric_text.h"

namespace deepinfer {

std::string metrics_text(const RouterStats& stats) {
  using Worker = RouterStats::Worker;
  std::vector<Figure> out;
  const auto per_worker = [&](const char* name, const char* help, bool is_counter, auto value) {
    for (const Worker& worker : stats.workers)
      out.push_back({name, help, is_counter, static_cast<double>(value(worker)), "worker", worker.address});
  };
  const auto one = [&](const char* name, const char* help, bool is_counter, int64_t value) {
    out.push_back({name, help, is_counter, static_cast<double>(value)});
  };
  per_worker("deepinfer_router_worker_ready", "1 = it would get a request now", false,
             [](const Worker& worker) { return worker.trouble.empty() ? 1 : 0; });
  per_worker("deepinfer_router_worker_requests", "Requests of this router on it", false,
             [](const Worker& worker) { return worker.inside; });
  per_worker("deepinfer_router_placed_total", "Placements on it", true, [](const Worker& worker) { return worker.placed; });
  one("deepinfer_router_moved_total", "Requests that went on at another worker", true, stats.moved);
  one("deepinfer_router_refused_total", "Refused for their key's share or their predicted first token", true, stats.refused);
  one("deepinfer_router_handed_total", "Prompts that went on where their pages were sent", true, stats.handed);
  one("deepinfer_router_requests", "Accepted requests that have not ended", false, stats.inside);
  one("deepinfer_router_waiting", "Of those, without a worker now", false, stats.waiting);
  return metric_text(out);
}

std::string metrics_text(const PageExchangeStats& stats) {
  std::vector<Figure> out;
  const auto count = [&](const char* name, const char* help, int64_t value) {
    out.push_back({std::string("deepinfer_hand_over_") + name, help, true, static_cast<double>(value)});
  };
  const auto pages_sent = [&](const char* transport, int64_t pages) {
    out.push_back({"deepinfer_hand_over_pages_sent_total", "Pages sent to workers that go on with their prompts", true,
                   static_cast<double>(pages), "transport", transport});
  };
  pages_sent("tcp", stats.pages_sent - stats.pages_sent_beside);
  pages_sent("ucx", stats.pages_sent_beside);
  count("pages_received_total", "Pages received of prompts that go on here", stats.pages_received);
  count("bytes_received_total", "Bytes of pages and states received", stats.bytes_received);
  count("sent_total", "Hand-overs from here that came whole", stats.sent);
  count("lost_total", "Hand-overs from here that did not", stats.lost);
  count("retried_total", "Hand-overs whose connection broke and was tried again", stats.retried);
  count("received_total", "Hand-overs to here that came whole", stats.received);
  count("late_total", "Hand-overs to here whose rest was computed", stats.late);
  count("refused_total", "Hand-overs to here without memory for them", stats.refused);
  count("receive_microseconds_total", "From the first byte to the last of whole ones", stats.receive_us);
  return metric_text(out);
}

}  // namespace deepinfer
