// server/chat_options.h - a checked chat request in terms of the host; shared by the server and batch files.
//
// Threads: pure functions.
#pragma once

#include "api/chat/request.h"
#include "host/ask.h"

namespace deepinfer {

// What the request says; what it leaves open is decided by the model's folder.
AskOptions chat_ask_options(const ChatRequest& request);
void set_foreign(const ForeignFields& foreign, AskOptions& options);

}  // namespace deepinfer
