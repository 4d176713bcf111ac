// server/cache_log.h - what the prefix cache did for the last answers, for GET /v1/cache/why/{request_id}.
//
// Bounded: of more than `capacity` answers the oldest is forgotten. An id may be chosen by the client, so it counts within its
// key only; of two with one id the later one is kept.
// Threads: the server's.
//
//   log.add("req-1", "alice", {verdict, 300});
//   const CacheLog::Entry* entry = log.find("req-1", "alice");
#pragma once

#include <cstddef>
#include <deque>
#include <string>
#include <string_view>
#include <utility>

#include "core/prefix_verdict.h"
#include "recipe/prompt_map.h"

namespace deepinfer {

class CacheLog {
 public:
  struct Entry {
    std::string request_id, key;
    PrefixVerdict verdict;
    int64_t prompt_tokens = 0;
    PromptMap map;
  };

  explicit CacheLog(size_t capacity = 4096) : capacity_(capacity) {}

  void add(Entry entry) {
    if (entries_.size() == capacity_) entries_.pop_front();
    entries_.push_back(std::move(entry));
  }
  // Of that key's answers.
  const Entry* find(std::string_view request_id, std::string_view key) const {
    for (auto entry = entries_.rbegin(); entry != entries_.rend(); ++entry) {
      if (entry->request_id == request_id && entry->key == key) return &*entry;
    }
    return nullptr;
  }

 private:
  size_t capacity_;
  std::deque<Entry> entries_;
};

}  // namespace deepinfer
