#include "api/responses/input_items.h"

#include <vector>

#include <fmt/format.h>

#include "api/list_page.h"

namespace deepinfer {

namespace {

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
  std::vector<Json> items;
  for (size_t i = 0; i < input.size(); ++i) items.push_back(shown(response_id, i, input[i]));
  return list_page(std::move(items), query);
}

}  // namespace deepinfer
