#include "api/list_page.h"

#include <algorithm>
#include <charconv>
#include <string>

#include <fmt/format.h>

namespace deepinfer {

namespace {

struct Page {
  size_t limit = 0;
  bool ascending = false;
  std::string after;
};

Result<Page> read_page(std::string_view query, const ListLimits& limits) {
  Page page;
  page.limit = limits.standard;
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
      if (status != std::errc() || end != value.data() + value.size() || page.limit < 1 || page.limit > limits.most)
        return invalid_argument(fmt::format("limit must be a number from 1 to {}, not '{}'", limits.most, value));
    }
  }
  return page;
}

}  // namespace

Result<Json> list_page(std::vector<Json> items, std::string_view query, const ListLimits& limits) {
  DI_TRY(const Page page, read_page(query, limits));
  if (!page.ascending) std::reverse(items.begin(), items.end());
  size_t begin = 0;
  if (!page.after.empty()) {
    const auto found =
        std::find_if(items.begin(), items.end(), [&](const Json& item) { return item.at("id") == Json(page.after); });
    if (found == items.end()) return not_found(fmt::format("No item with id '{}' in this list.", page.after.substr(0, 200)));
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
