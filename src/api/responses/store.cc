#include "api/responses/store.h"

#include <algorithm>
#include <iterator>

#include <fmt/format.h>

namespace deepinfer {

namespace {

// What a Json holds in memory, closely enough to bound it.
size_t weight(const Json& json) {
  size_t sum = sizeof(Json);
  if (json.is_string() || json.is_number()) sum += json.as_string().size();
  for (const Json& item : json.items()) sum += weight(item);
  for (const auto& [key, value] : json.members()) sum += key.size() + sizeof(std::string) + weight(value);
  return sum;
}

Error unknown(const std::string& id) { return not_found(fmt::format("Response with id '{}' not found.", id)); }

}  // namespace

std::string ResponseStore::key_of(std::string_view tenant, const std::string& id) {
  return fmt::format("{}:{}{}", tenant.size(), tenant, id);
}

ResponseStore::Place ResponseStore::locate(std::string_view tenant, const std::string& id, int64_t now_us) {
  const auto found = index_.find(key_of(tenant, id));
  if (found == index_.end()) return entries_.end();
  if (now_us - found->second->born_us > limits_.max_age_us && !found->second->value->is_running) {
    drop(found->second);
    return entries_.end();
  }
  entries_.splice(entries_.begin(), entries_, found->second);
  return found->second;
}

void ResponseStore::drop(Place place) {
  bytes_ -= place->bytes;
  Share& share = shares_[place->tenant];
  share.bytes -= place->bytes;
  if (--share.entries == 0) shares_.erase(place->tenant);
  index_.erase(place->key);
  entries_.erase(place);
}

// A tenant's share of the limit that is nearer decides; the newcomer counts as kept already.
ResponseStore::Place ResponseStore::oldest_of_largest(const std::string& tenant, size_t bytes) {
  const bool full = entries_.size() >= limits_.max_entries;
  const auto size = [&](const std::string& owner, const Share& share) {
    const bool is_own = owner == tenant;
    return full ? share.entries + (is_own ? 1 : 0) : share.bytes + (is_own ? bytes : 0);
  };
  Place chosen = entries_.end();
  size_t most = 0;
  for (auto entry = entries_.rbegin(); entry != entries_.rend(); ++entry) {
    if (entry->value->is_running) continue;
    const size_t held = size(entry->tenant, shares_.at(entry->tenant));
    if (chosen != entries_.end() && held <= most) continue;
    chosen = std::prev(entry.base());
    most = held;
  }
  return chosen;
}

// Beside those that run.
bool ResponseStore::fits(const Entry& entry) const {
  size_t bytes = entry.bytes, entries = 1;
  for (const Entry& other : entries_) {
    if (!other.value->is_running || other.key == entry.key) continue;
    bytes += other.bytes;
    ++entries;
  }
  return bytes <= limits_.max_bytes && entries <= limits_.max_entries;
}

bool ResponseStore::can_hold(const Json& input, const Json& items) const {
  return weight(input) + weight(items) <= limits_.max_bytes;
}

bool ResponseStore::put(std::string_view tenant, const std::string& id, StoredResponse response, int64_t now_us) {
  Entry entry;
  entry.key = key_of(tenant, id);
  entry.tenant = tenant;
  entry.bytes = weight(response.response) + weight(response.input) + weight(response.items);
  entry.born_us = now_us;
  entry.value = std::make_shared<const StoredResponse>(std::move(response));
  const std::lock_guard lock(mutex_);
  if (!fits(entry)) return false;
  if (const auto found = index_.find(entry.key); found != index_.end()) {
    entry.born_us = found->second->born_us;
    drop(found->second);
  }
  while (entries_.size() >= limits_.max_entries || bytes_ + entry.bytes > limits_.max_bytes) {
    drop(oldest_of_largest(entry.tenant, entry.bytes));
  }
  Share& share = shares_[entry.tenant];
  ++share.entries;
  share.bytes += entry.bytes;
  bytes_ += entry.bytes;
  entries_.push_front(std::move(entry));
  index_[entries_.front().key] = entries_.begin();
  return true;
}

std::shared_ptr<const StoredResponse> ResponseStore::find(std::string_view tenant, const std::string& id, int64_t now_us) {
  const std::lock_guard lock(mutex_);
  const Place place = locate(tenant, id, now_us);
  return place == entries_.end() ? nullptr : place->value;
}

Result<Json> ResponseStore::cancel(std::string_view tenant, const std::string& id, int64_t now_us) {
  std::shared_ptr<const StoredResponse> value = find(tenant, id, now_us);
  if (value && value->is_running) {
    if (value->cancel) value->cancel();
    value = find(tenant, id, now_us);
  }
  if (!value) return unknown(id);
  if (!value->is_running) {
    if (value->response.at("status") == Json("cancelled")) return value->response;
    return invalid_argument("Cannot cancel a completed response.");
  }
  // Whoever ran it is gone.
  StoredResponse changed{value->response, value->input, value->items, false, nullptr};
  changed.response.set("status", "cancelled");
  Json cancelled = changed.response;
  put(tenant, id, std::move(changed), now_us);
  return cancelled;
}

Result<Json> ResponseStore::remove(std::string_view tenant, const std::string& id, int64_t now_us) {
  std::shared_ptr<const StoredResponse> value;
  {
    const std::lock_guard lock(mutex_);
    const Place place = locate(tenant, id, now_us);
    if (place == entries_.end()) return unknown(id);
    value = place->value;
    drop(place);
  }
  if (value->is_running && value->cancel) value->cancel();
  return Json::object({{"id", id}, {"object", "response.deleted"}, {"deleted", true}});
}

size_t ResponseStore::size() const {
  const std::lock_guard lock(mutex_);
  return entries_.size();
}

size_t ResponseStore::bytes() const {
  const std::lock_guard lock(mutex_);
  return bytes_;
}

}  // namespace deepinfer
