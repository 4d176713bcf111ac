// api/messages/turns.h - the messages of an Anthropic body to the internal form, checked in list order.
//
// Threads: pure functions.
#pragma once

#include "api/messages/body.h"
#include "api/profile.h"

namespace deepinfer {

// Fills conversation.messages; `body.system` first.
Status convert_messages_turns(const MessagesBody& body, const ApiOptions& options, Conversation& conversation);

}  // namespace deepinfer
