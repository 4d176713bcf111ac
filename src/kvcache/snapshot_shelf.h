// kvcache/snapshot_shelf.h - copies of the state that is not paged, taken at page borders, in host memory.
//
// A snapshot is taken into a free buffer, then attached to the page whose end it belongs to. The shelf holds a fixed number
// of equal buffers, allocated when first needed and reused; when all are taken the one attached or used the longest time
// ago is forgotten. One that nobody used for its life goes, too, and its memory with it: after minutes the next turn rarely
// comes, and where there is a store on a disk it has a copy. Threads: one thread.
//
//   SnapshotShelf shelf(bytes, 64, num_pages);
//   const int32_t id = shelf.take();      // -1: every buffer is being filled
//   device.download(shelf.data(id), state, bytes);
//   shelf.attach(id, page);
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/lru_list.h"

namespace deepinfer {

class SnapshotShelf {
 public:
  static constexpr int32_t kNone = -1;

  static constexpr int64_t kLifeUs = int64_t{30} * 60 * 1'000'000;

  SnapshotShelf(int64_t bytes_each, int32_t capacity, int32_t num_pages);

  // The time it is from now on.
  void advance(int64_t now_us);

  // A buffer to fill, which is nobody's else until attach() or release().
  int32_t take();
  void attach(int32_t id, int32_t page);  // forgets what the page had
  void release(int32_t id);               // of take()
  void forget(int32_t page);              // no-op when it has none
  int32_t of_page(int32_t page) const { return of_page_[static_cast<size_t>(page)]; }
  void touch(int32_t id);  // used again; of an attached one

  uint8_t* data(int32_t id) { return buffers_[static_cast<size_t>(id)].get(); }
  // Puts another buffer into the place of one that take() gave, which is returned: the device may still read it.
  std::unique_ptr<uint8_t[]> exchange(int32_t id, std::unique_ptr<uint8_t[]> buffer) {
    std::swap(buffers_[static_cast<size_t>(id)], buffer);
    return buffer;
  }
  int64_t bytes_each() const { return bytes_each_; }
  int32_t num_attached() const { return num_attached_; }

 private:
  int64_t bytes_each_;
  std::vector<std::unique_ptr<uint8_t[]>> buffers_;
  std::vector<int32_t> free_;
  std::vector<int32_t> page_of_, of_page_;
  std::vector<int64_t> used_us_;
  int64_t now_us_ = 0;
  LruList attached_;
  int32_t num_attached_ = 0;
};

}  // namespace deepinfer
