#include "kvcache/tiers/write_queue.h"

#include <cerrno>

#include "base/result.h"

namespace deepinfer {
namespace {
constexpr uint64_t kNobody = ~uint64_t{0};
}  // namespace

std::unique_ptr<WriteQueue> WriteQueue::open() {
  std::unique_ptr<WriteQueue> queue(new WriteQueue());
  if (io_uring_queue_init(kMost, &queue->ring_, 0) == 0) return queue;
  queue->ring_.ring_fd = -1;
  return nullptr;
}

WriteQueue::~WriteQueue() {
  if (ring_.ring_fd < 0) return;
  while (under_way() > 0) take();
  io_uring_queue_exit(&ring_);
}

void WriteQueue::start(int fd, int64_t offset, std::span<const std::span<const uint8_t>> parts) {
  DI_CHECK(!full() && parts.size() <= kMostParts);
  Write& write = at(begun_);
  write.offset = offset, write.count = parts.size(), write.bytes = 0, write.over = false;
  for (size_t i = 0; i < parts.size(); ++i) {
    write.parts[i] = {const_cast<uint8_t*>(parts[i].data()), parts[i].size()};
    write.bytes += static_cast<int64_t>(parts[i].size());
  }
  io_uring_sqe* entry = io_uring_get_sqe(&ring_);
  DI_CHECK(entry != nullptr);  // as many as there are writes, and each submitted at once
  io_uring_prep_writev(entry, fd, write.parts.data(), static_cast<unsigned>(write.count), static_cast<uint64_t>(offset));
  io_uring_sqe_set_data64(entry, begun_++);
  const int sent = io_uring_submit(&ring_);
  if (sent >= 1) return;  // more: entries that were made empty before
  // It stays in the ring and goes with the next one, when its parts are another's.
  io_uring_prep_nop(entry);
  io_uring_sqe_set_data64(entry, kNobody);
  write.result = sent < 0 ? sent : -EIO;
  write.over = true;
}

WriteQueue::Done WriteQueue::take() {
  DI_CHECK(under_way() > 0);
  Write& oldest = at(taken_);
  while (!oldest.over) {
    io_uring_cqe* entry = nullptr;
    const int got = io_uring_wait_cqe(&ring_, &entry);
    if (got == -EINTR) continue;
    DI_CHECK(got == 0);
    if (const uint64_t of = io_uring_cqe_get_data64(entry); of != kNobody) {
      at(of).result = entry->res;
      at(of).over = true;
    }
    io_uring_cqe_seen(&ring_, entry);
  }
  ++taken_;
  return {oldest.offset, std::span(oldest.parts).first(oldest.count), oldest.result == oldest.bytes};
}

}  // namespace deepinfer
