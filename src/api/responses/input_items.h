// api/responses/input_items.h - the list of what a kept response was asked, page by page.
//
// Threads: pure functions.
#pragma once

#include <string>
#include <string_view>

#include "base/json.h"
#include "base/result.h"

namespace deepinfer {

// A page (api/list_page.h) of `input`, each item with an id made of `response_id` and its place where it has none, the content of
// messages as a list of parts.
Result<Json> input_item_list(const std::string& response_id, const Json& input, std::string_view query);

}  // namespace deepinfer
