// core/token_service.h - where requests go: the engine of this process, or a router in front of many.
//
// Promise: submit() either refuses with an Error, or the request is accepted and its handler sees one event per token and
// then exactly one final event (Event::finish != kNone), whatever happens in between.
// Threads: every call from any thread. Handlers run on the service's thread, one at a time and in order; they must not
// block, and they may call submit(), cancel() and finish().
//
//   EventQueue queue;
//   DI_TRY(RequestId id, service.submit(request, queue.handler()));
//   for (Event event = queue.pop(); event.finish == FinishReason::kNone; event = queue.pop()) show(*event.token);
#pragma once

#include <functional>

#include "base/result.h"
#include "core/types.h"

namespace deepinfer {

using EventHandler = std::function<void(const Event&)>;

class TokenService {
 public:
  virtual ~TokenService() = default;

  // Takes the request over; Request::id is ignored, the service gives the id.
  virtual Result<RequestId> submit(Request request, EventHandler handler) = 0;
  // Ends the request at the next step border with kCancelled. Unknown and ended ids are ignored, so a late call is harmless.
  virtual void cancel(RequestId id) = 0;
  // The parser found the end of the answer: token `last_index` is the last one, -1 leaves none. Later tokens are not
  // counted, and not shown unless their event was delivered before this call. Ends with kStop.
  virtual void finish(RequestId id, int64_t last_index) = 0;
};

}  // namespace deepinfer
