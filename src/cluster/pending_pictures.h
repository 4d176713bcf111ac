// cluster/pending_pictures.h - pictures that workers are encoding for this router.
//
// Threads: plain data; the router guards it. The futures are waited for without it.
#pragma once

#include <cstdint>
#include <future>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/result.h"

namespace deepinfer {

using PictureRows = Result<std::vector<uint16_t>>;

class PendingPictures {
 public:
  std::future<PictureRows> add(uint64_t number, int32_t worker) {
    Entry& entry = entries_[number];
    entry.worker = worker;
    return entry.rows.get_future();
  }
  // By another worker than the one it was given to: nothing happens.
  void give(uint64_t number, int32_t worker, PictureRows rows) {
    const auto found = entries_.find(number);
    if (found == entries_.end() || found->second.worker != worker) return;
    found->second.rows.set_value(std::move(rows));
    entries_.erase(found);
  }
  void forget(uint64_t number) { entries_.erase(number); }
  void lose(int32_t worker) {
    for (auto at = entries_.begin(); at != entries_.end();) {
      Entry& entry = at->second;
      const bool lost = entry.worker == worker;
      if (lost) entry.rows.set_value(Error{ErrorCode::kUnavailable, "the worker that encoded the picture is gone: try again"});
      at = lost ? entries_.erase(at) : std::next(at);
    }
  }

 private:
  struct Entry {
    std::promise<PictureRows> rows;
    int32_t worker = -1;
  };
  std::unordered_map<uint64_t, Entry> entries_;
};

}  // namespace deepinfer
