// api/chat/messages.h - the messages of a Chat Completions body to the internal form, checked in list order.
//
// Threads: pure functions.
#pragma once

#include "api/chat/body.h"

namespace deepinfer {

// Fills conversation.messages. `conversation` must already know thinking and the answer format.
Status convert_chat_messages(const ChatBody& body, Conversation& conversation);

}  // namespace deepinfer
