#include "cluster/flight.h"

#include <fmt/format.h>

#include <algorithm>

namespace deepinfer {

Event final_event(const Flight& flight, FinishReason reason, std::string error, ErrorCode code) {
  Event event;
  event.error_code = code;
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
    return final_event(flight, FinishReason::kError, fmt::format("{} workers were tried; the last one {}", flight.moves, why),
                       ErrorCode::kUnavailable);
  return std::nullopt;
}

bool follow(Flight& flight, Event& event) {
  const int64_t have = static_cast<int64_t>(flight.request.answered.size());
  const bool is_final = event.finish != FinishReason::kNone;
  const int64_t shown = flight.cut >= 0 ? std::min(have, flight.cut) : have;
  if (event.token.has_value() == is_final || (event.token && event.index != have)) return false;
  if (is_final && (event.index < shown || event.index > have)) return false;
  Usage& usage = event.usage;
  const auto prompt = static_cast<int64_t>(flight.request.prompt.size());
  // What was cached was so for whoever began; the drafts of all count.
  if (flight.has_begun) usage.cached_tokens = flight.usage.cached_tokens;
  if (event.report) {
    if (!flight.has_begun) flight.prefix = event.report->prefix;
    event.report->prefix = flight.prefix;
  }
  usage.cached_tokens = std::clamp<int64_t>(usage.cached_tokens, 0, prompt);
  usage.replayed_tokens = std::clamp<int64_t>(usage.replayed_tokens, 0, usage.cached_tokens);
  if (is_final) {
    usage.prompt_tokens = prompt;
    usage.completion_tokens = event.index;
    usage.drafted_tokens = std::max<int64_t>(0, usage.drafted_tokens);
    usage.accepted_tokens = std::clamp<int64_t>(usage.accepted_tokens, 0, std::min(usage.drafted_tokens, event.index));
    return true;
  }
  flight.has_begun = true;
  flight.usage.cached_tokens = usage.cached_tokens;
  flight.request.answered.push_back(*event.token);
  flight.avoided.clear();
  flight.moves = 0;  // it gets on
  return true;
}

}  // namespace deepinfer
