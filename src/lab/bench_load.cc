#include "lab/bench_load.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>

#include "base/huge_pages.h"
#include "base/thread_pool.h"
#include "model/v41_model.h"

namespace deepinfer {
namespace {

constexpr int64_t kPiece = int64_t{4} << 20;

int64_t stored_bytes_of(const Matrix& w) {
  const int64_t count = int64_t{w.n} * w.k;
  if (w.format == WeightFormat::kBf16) return count * 2;
  return w.format == WeightFormat::kF8Tile ? count + count / 1024 : count / 2 + count / 32;
}

// Seconds of `bytes` bytes with all threads, `read(at, piece, to)` each piece, into memory that nobody touched before, as packing
// writes: a part after another, so that no second model must fit.
template <class Read>
double seconds_of_pieces(int threads, int64_t bytes, Read read) {
  constexpr int64_t kPart = 64 * kPiece;
  ThreadPool pool(threads);
  double seconds = 0;
  for (int64_t part = 0; part < bytes; part += kPart) {
    const int64_t size = std::min(kPart, bytes - part);
    const auto begin = std::chrono::steady_clock::now();
    void* room = ::mmap(nullptr, static_cast<size_t>(size), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (room == MAP_FAILED) return 0;
    ::madvise(room, static_cast<size_t>(size), MADV_HUGEPAGE);
    pool.run((size + kPiece - 1) / kPiece, [&](int64_t first, int64_t last, int) {
      for (int64_t at = first * kPiece; at < std::min(size, last * kPiece); at += kPiece)
        read(part + at, std::min(kPiece, size - at), static_cast<char*>(room) + at);
    });
    seconds += std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    ::munmap(room, static_cast<size_t>(size));
  }
  return seconds;
}

// Of a file that is read again and again until there were as many bytes; the first pass warms the page cache.
double seconds_of_file(const std::string& path, int threads, int64_t bytes) {
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) return 0;
  const int64_t size = std::max<int64_t>(1, ::lseek(file, 0, SEEK_END));
  double seconds = 0;
  for (int pass = 0; pass < 2; ++pass) {
    seconds = seconds_of_pieces(threads, bytes, [&](int64_t at, int64_t count, char* room) {
      while (count > 0) {
        const ssize_t got = ::pread(file, room, static_cast<size_t>(std::min(count, size - at % size)), at % size);
        if (got <= 0) return;
        at += got, count -= got;
      }
    });
  }
  ::close(file);
  return seconds;
}

double seconds_of_copy(int threads, int64_t bytes) {
  const HugeVector<char> from(static_cast<size_t>(std::min(bytes, int64_t{1} << 30) / kPiece * kPiece + kPiece), 1);
  const int64_t pieces = static_cast<int64_t>(from.size()) / kPiece;
  return seconds_of_pieces(threads, bytes, [&](int64_t at, int64_t count, char* room) {
    std::memcpy(room, from.data() + at / kPiece % pieces * kPiece, static_cast<size_t>(count));
  });
}

}  // namespace

Status bench_load(Host& host, FigureReport& report) {
  const auto* model = dynamic_cast<const V41Model*>(&host.whole_model());
  if (!model || model->packed_bytes() == 0 || !model->weights().checkpoint) return {};
  const Checkpoint& checkpoint = *model->weights().checkpoint;
  Weights weights = model->weights();
  int64_t packed_from = 0;
  for (const Matrix* w : product_weights(weights)) packed_from += stored_bytes_of(*w);
  const int threads = host.device().parallelism();
  const double all = static_cast<double>(checkpoint.tensor_bytes());
  const double used = static_cast<double>(model->packed_bytes()) + std::max(0.0, all - static_cast<double>(packed_from));
  report.add({.name = "load/packed", .value = used / 1e6, .unit = "MB", .baseline = "checkpoint", .ratio = used / all});
  const double read = checkpoint.shards().empty() ? seconds_of_copy(threads, packed_from)
                                                  : seconds_of_file(checkpoint.shards()[0].path(), threads, packed_from);
  report.add({.name = "load/pack",
              .value = model->pack_seconds() * 1e3,
              .unit = "ms",
              .baseline = "reading its bytes",
              .ratio = read > 0 ? std::optional(model->pack_seconds() / read) : std::nullopt});
  return {};
}

}  // namespace deepinfer
