// api/responses/items.h - the input items of a Responses body to the internal form, checked in list order.
//
// Threads: pure functions.
#pragma once

#include "api/profile.h"
#include "api/responses/body.h"

namespace deepinfer {

// Fills conversation.messages; instructions first. Tools that tool searches found are appended to `found`, deferred.
Status convert_responses_items(const ResponsesBody& body, const ApiOptions& options, Conversation& conversation,
                               std::vector<ToolDefinition>& found);

}  // namespace deepinfer
