#include "cluster/flight.h"

#include <fmt/format.h>

#include <algorithm>

namespace deepinfer {

Event final_event(const Flight& flight, FinishReason reason, std::string error) {
  Event event;
  event.index = static_cast<int64_t>(flight.request.answered.size());
  if (reason == FinishReason::kStop && flight.cut >= 0) event.index = std::min(event.index, flight.cut);
  event.finish = reason;
  event.error = std::move(error);
  event.usage = flight.usage;
  event.usage.prompt_tokens = static_cast<int64_t>(flight.request.prompt.size());
  event.usage.completion_tokens = event.index;
  return event;
}

std::optional<Event> end_without_worker(const Flight& flight, int64_t now_us, int32_t max_moves, const std::string& why) {
  const int64_t have = static_cast<int64_t>(flight.request.answered.size());
  if (flight.cancelled) return final_event(flight, FinishReason::kCancelled, "");
  if (flight.cut >= 0 && have >= flight.cut) return final_event(flight, FinishReason::kStop, "");
  if (have >= flight.limit) return final_event(flight, FinishReason::kLength, "");
  if (flight.request.deadline_us > 0 && now_us >= flight.request.deadline_us)
    return final_event(flight, FinishReason::kDeadline, "the deadline of the request passed");
  if (flight.moves > max_moves)
    return final_event(flight, FinishReason::kError, fmt::format("{} workers were tried, the last one: {}", flight.moves, why));
  return std::nullopt;
}

bool follow(Flight& flight, Event& event) {
  const int64_t have = static_cast<int64_t>(flight.request.answered.size());
  if (event.token && event.index != have) return false;
  if (flight.moves > 0) {
    event.usage.cached_tokens = flight.usage.cached_tokens;
    event.usage.replayed_tokens = std::min(event.usage.replayed_tokens, event.usage.cached_tokens);
  }
  if (event.token) {
    flight.usage.cached_tokens = event.usage.cached_tokens;
    flight.request.answered.push_back(*event.token);
    flight.avoided.clear();
  }
  return true;
}

}  // namespace deepinfer
