// server/body_work.h - what is done with the body of a request, where it holds nobody up.
//
// Small bodies are worked on at once, on the server's thread: about 2 ms at most. Large and compressed ones, and all that may
// hold pictures (decoded, run through the vision tower, perhaps fetched) or a format or tools to compile, go to the workers; from
// there pictures go on to workers of their own, for which nothing else waits. What is at work is bounded in bytes: beyond that a
// request is refused with 503 and told to come again. Threads: the server's.
//
//   work_on_body(context, call, [&context, call](const std::string& body) -> Reply {
//     auto ids = expensive(body);                        // any thread
//     return [call, ids] { call->respond_json(200, ids); };   // the server's
//   });
#pragma once

#include <functional>
#include <string>

#include "server/context.h"

namespace deepinfer {

using Reply = std::function<void()>;

// `work` gets the decompressed body; its reply runs on the server's thread unless the client is gone by then. A body that
// cannot be decompressed is answered here.
void work_on_body(ServerContext& context, const CallPtr& call, std::function<Reply(const std::string& body)> work);

}  // namespace deepinfer
