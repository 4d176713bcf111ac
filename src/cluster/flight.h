// cluster/flight.h - one request on its way through a router: what the client has of it, and where it is now.
//
// Threads: plain data; the router guards it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/token_service.h"
#include "kvcache/page_key.h"
#include "policy/routing.h"

namespace deepinfer {

// One request from its acceptance to its final event.
struct Flight {
  RequestId id = 0;
  Request request;  // with `answered`: what the client has
  EventHandler handler;
  std::vector<PageKey> keys;  // of its prompt
  int64_t limit = 0;          // tokens of the whole answer
  Placement placed;           // worker < 0: it waits for one
  uint64_t number = 0;        // of this placement, on its link
  // This placement ends behind the first token; the pages of its prompt go to that worker meanwhile, where it goes on. -1: none.
  int32_t decode = -1;
  uint64_t hand_over = 0;        // the number they go under
  int64_t coming_tokens = 0;     // counted there for it
  bool computing = false;        // the placement's work is still counted
  std::vector<int32_t> avoided;  // workers that refused it or were lost, since it last moved
  bool has_begun = false;        // a token has come
  int32_t moves = 0;             // since then, or since the last one
  int64_t waits_since_us = 0;
  int64_t cut = -1;  // finish(): tokens that count, -1 = none was said
  bool cancelled = false;
  int32_t account = -1;                 // of its tenant
  bool is_queued = false;               // it stands in the lanes and has not been placed yet
  Usage usage;                          // of the first placement
  std::optional<PrefixVerdict> prefix;  // the same
};

// Its prompt is computed, and the rest of the answer is somebody else's.
inline bool hands_on(const Flight& flight, const Event& event) {
  return event.finish == FinishReason::kLength && flight.decode >= 0 &&
         static_cast<int64_t>(flight.request.answered.size()) < flight.limit;
}
// Its last event if that needs no worker: it was cancelled, cut, is as long as it may be or too late, or has moved more than
// `max_moves` times, the last time because of `why`.
std::optional<Event> end_without_worker(const Flight& flight, int64_t now_us, int32_t max_moves, const std::string& why);
// A final event by the router's own word; its tokens are those the client has.
Event final_event(const Flight& flight, FinishReason reason, std::string error, ErrorCode code = ErrorCode::kInternal);
// An event of a worker as the client is to see it: cached tokens are those of the first placement. False: it is no event that can
// come next. REQUIRES: of the flight's present placement.
bool follow(Flight& flight, Event& event);

}  // namespace deepinfer
