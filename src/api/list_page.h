// api/list_page.h - one page of a list, as the OpenAI API pages: limit, order, after.
//
// Threads: pure functions.
//
//   DI_TRY(Json page, list_page(std::move(items), "limit=2&after=file-1"));
//   page.at("has_more");
#pragma once

#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/result.h"

namespace deepinfer {

struct ListLimits {
  size_t standard = 20, most = 100;
};

// {"object": "list", "data", "first_id", "last_id", "has_more"} of `items`, oldest first, each with an "id". `query` is that of
// the request: limit (1 to limits.most), order (asc, desc; desc = newest first), after (the id of an item).
Result<Json> list_page(std::vector<Json> items, std::string_view query, const ListLimits& limits = {});

}  // namespace deepinfer
