#include "api/responses/input_items.h"

#include <algorithm>
#include <charconv>
#include <vector>

#include <fmt/format.h>

namespace deepinfer {

namespace {

struct Page {
  size_t limit = 20;
  bool ascending = false;
  std::string after;
};

Result<Page> read_page(std::string_view query) {
  Page page;
  while (!query.empty()) {
    const std::string_view pair = query.substr(0, query.find('&'));
    query.remove_prefix(std::min(pair.size() + 1, query.size()));
    const size_t sign = std::min(pair.find('='), pair.size());
    const std::string_view name = pair.substr(0, sign), value = pair.substr(std::min(sign + 1, pair.size()));
    if (name == "after") page.after = value;
    if (name == "order") {
      if (value != "asc" && value != "desc") return invalid_argument(fmt::format("order must be asc or desc, not '{}'", value));
      page.ascending = value == "asc";
    }
    if (name == "limit") {
      const auto [end, status] = std::from_chars(value.data(), value.data() + value.size(), page.limit);
      if (status != std::errc() || end != value.data() + value.size() || page.limit < 1 || page.limit > 100)
        return invalid_argument(fmt::format("limit must be a number from 1 to 100, not '{}'", value));
    }
  }
  return page;
}

Json shown(const std::string& response_id, size_t place, Json item) {
  if (!item.find("type")) item.set("type", "message");
  if (!item.at("id").is_string()) item.set("id", fmt::format("in_{}_{}", response_id, place));
  const bool is_assistant = item.at("role") == Json("assistant");
  if (const Json content = item.at("content"); item.at("type") == Json("message") && content.is_string()) {
    Json part = Json::object({{"type", is_assistant ? "output_text" : "input_text"}, {"text", content}});
    if (is_assistant) part.set("annotations", Json::array());
    item.set("content", Json::array({std::move(part)}));
  }
  return item;
}

}  // namespace

Result<Json> input_item_list(const std::string& response_id, const Json& input, std::string_view query) {
  DI_TRY(const Page page, read_page(query));
  std::vector<Json> items;
  for (size_t i = 0; i < input.size(); ++i) items.push_back(shown(response_id, i, input[i]));
  if (!page.ascending) std::reverse(items.begin(), items.end());
  size_t begin = 0;
  if (!page.after.empty()) {
    const auto found =
        std::find_if(items.begin(), items.end(), [&](const Json& item) { return item.at("id") == Json(page.after); });
    if (found == items.end()) return not_found(fmt::format("No item with id '{}' in this response.", page.after.substr(0, 200)));
    begin = static_cast<size_t>(found - items.begin()) + 1;
  }
  const size_t end = std::min(items.size(), begin + page.limit);
  Json data = Json::array();
  for (size_t i = begin; i < end; ++i) data.push_back(items[i]);
  Json first = begin < end ? items[begin].at("id") : Json(), last = begin < end ? items[end - 1].at("id") : Json();
  return Json::object({{"object", "list"},
                       {"data", std::move(data)},
                       {"first_id", std::move(first)},
                       {"last_id", std::move(last)},
                       {"has_more", end < items.size()}});
}

}  // namespace deepinfer
