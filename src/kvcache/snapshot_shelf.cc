#include "kvcache/snapshot_shelf.h"

namespace deepinfer {

SnapshotShelf::SnapshotShelf(int64_t bytes_each, int32_t capacity, int32_t num_pages)
    : bytes_each_(bytes_each),
      buffers_(static_cast<size_t>(capacity)),
      page_of_(static_cast<size_t>(capacity), kNone),
      of_page_(static_cast<size_t>(num_pages), kNone),
      used_us_(static_cast<size_t>(capacity)),
      attached_(capacity) {
  for (int32_t id = capacity; id-- > 0;) free_.push_back(id);
}

void SnapshotShelf::advance(int64_t now_us) {
  now_us_ = now_us;
  for (;;) {
    const int32_t id = attached_.oldest();
    if (id == LruList::kNone || used_us_[static_cast<size_t>(id)] > now_us - kLifeUs) return;
    forget(page_of_[static_cast<size_t>(id)]);
    buffers_[static_cast<size_t>(id)].reset();
  }
}

int32_t SnapshotShelf::take() {
  if (free_.empty()) {
    if (attached_.oldest() == LruList::kNone) return kNone;
    forget(page_of_[static_cast<size_t>(attached_.oldest())]);
  }
  const int32_t id = free_.back();
  free_.pop_back();
  auto& buffer = buffers_[static_cast<size_t>(id)];
  if (!buffer) buffer = std::make_unique_for_overwrite<uint8_t[]>(static_cast<size_t>(bytes_each_));
  return id;
}

void SnapshotShelf::attach(int32_t id, int32_t page) {
  forget(page);
  page_of_[static_cast<size_t>(id)] = page;
  of_page_[static_cast<size_t>(page)] = id;
  attached_.add(id);
  used_us_[static_cast<size_t>(id)] = now_us_;
  ++num_attached_;
}

void SnapshotShelf::release(int32_t id) { free_.push_back(id); }

void SnapshotShelf::forget(int32_t page) {
  int32_t& id = of_page_[static_cast<size_t>(page)];
  if (id == kNone) return;
  attached_.remove(id);
  --num_attached_;
  page_of_[static_cast<size_t>(id)] = kNone;
  free_.push_back(id);
  id = kNone;
}

void SnapshotShelf::touch(int32_t id) {
  attached_.remove(id);
  attached_.add(id);
  used_us_[static_cast<size_t>(id)] = now_us_;
}

}  // namespace deepinfer
