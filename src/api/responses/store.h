// api/responses/store.h - responses kept for later: retrieve, continue from, cancel, delete.
//
// In memory, bounded in number, bytes and age. Where room is needed, the least recently used one of the tenant that holds most
// goes, so that nobody's flood costs others theirs; one that still runs stays. A tenant sees its own responses only: another's id
// and an unknown one look the same.
// Promise: never more than its limits; what they leave no room for is not kept (put() says so).
// Threads: any; a call holds the lock only to look up or to link in.
//
//   ResponseStore store({.max_bytes = 64 << 20});
//   store.put(tenant, id, {response, items}, now_us);
//   if (auto found = store.find(tenant, id, now_us)) reply(found->response.dump());
#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>

#include "base/json.h"
#include "base/result.h"

namespace deepinfer {

struct StoredResponse {
  Json response;  // the object as it is retrieved
  Json input;     // its input items, history not included
  Json items;     // everything a later response continues from: history, input, output
  bool is_running = false;
  std::function<void()> cancel;  // stops it and puts what had come; only while it runs
};

struct ResponseStoreLimits {
  size_t max_entries = 4096;
  size_t max_bytes = size_t{64} << 20;
  int64_t max_age_us = int64_t{24} * 3600 * 1000000;
};

class ResponseStore {
 public:
  explicit ResponseStore(ResponseStoreLimits limits) : limits_(limits) {}

  // Adds or replaces. False: there is no room, and what was kept by this id still is.
  bool put(std::string_view tenant, const std::string& id, StoredResponse response, int64_t now_us);
  std::shared_ptr<const StoredResponse> find(std::string_view tenant, const std::string& id, int64_t now_us);
  // Stops a running response and marks it cancelled; the response as it then is, the second time, too. kNotFound;
  // kInvalidArgument when it ended otherwise.
  Result<Json> cancel(std::string_view tenant, const std::string& id, int64_t now_us);
  // {"id", "object": "response.deleted", "deleted": true}, or kNotFound. A running one is stopped.
  Result<Json> remove(std::string_view tenant, const std::string& id, int64_t now_us);

  // False: larger than everything that may be kept.
  bool can_hold(const Json& input, const Json& items) const;

  size_t size() const;
  size_t bytes() const;

 private:
  struct Share {
    size_t entries = 0, bytes = 0;
  };
  struct Entry {
    std::string key, tenant;
    std::shared_ptr<const StoredResponse> value;
    size_t bytes = 0;
    int64_t born_us = 0;
  };
  using Place = std::list<Entry>::iterator;
  static std::string key_of(std::string_view tenant, const std::string& id);
  Place locate(std::string_view tenant, const std::string& id, int64_t now_us);
  void drop(Place place);
  bool fits(const Entry& entry) const;
  Place oldest_of_largest(const std::string& tenant, size_t bytes);

  ResponseStoreLimits limits_;
  mutable std::mutex mutex_;
  std::list<Entry> entries_;  // most recently used first
  std::unordered_map<std::string, Place> index_;
  std::unordered_map<std::string, Share> shares_;  // by tenant
  size_t bytes_ = 0;
};

}  // namespace deepinfer
