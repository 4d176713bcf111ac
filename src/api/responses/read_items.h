// api/responses/read_items.h - items and tools of a Responses body, decoded one by one.
//
// Threads: pure functions.
#pragma once

#include "api/responses/body.h"

namespace deepinfer {

Status read_responses_item(const Json& json, ResponsesItem& item);
Status read_responses_tool(const Json& json, ResponsesTool& tool);

}  // namespace deepinfer
