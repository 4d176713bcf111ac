#include "lab/bench_load.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "base/huge_pages.h"
#include "base/thread_pool.h"
#include "cpu/cpu_device.h"
#include "lab/bench_ops_shapes.h"
#include "lab/measure_machine.h"
#include "model/v41_model.h"

namespace deepinfer {
namespace {

constexpr int64_t kPiece = int64_t{4} << 20;

int64_t stored_bytes_of(const Matrix& w) { return stored_bytes(w.format, w.n, w.k); }

// The best of three: memory that a virtual machine gives out for the first time comes at 1 to 2 seconds a GB, files must be in
// the page cache.
template <class Once>
double best_seconds(Once once) {
  double best = 1e30;
  for (int pass = 0; pass < 3; ++pass) best = std::min(best, once());
  return best;
}

// Seconds of `bytes` bytes with all threads, `read(at, piece, to)` each piece, into new pages, as packing writes: a part after
// another, so that no second model must fit.
template <class Read>
double seconds_of_pieces(int threads, int64_t bytes, Read read) {
  constexpr int64_t kPart = 64 * kPiece;
  ThreadPool pool(threads);
  double seconds = 0;
  for (int64_t part = 0; part < bytes; part += kPart) {
    const int64_t size = std::min(kPart, bytes - part);
    const double begin = now_seconds();
    void* room = ::mmap(nullptr, static_cast<size_t>(size), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (room == MAP_FAILED) return 0;
    ::madvise(room, static_cast<size_t>(size), MADV_HUGEPAGE);
    pool.run((size + kPiece - 1) / kPiece, [&](int64_t first, int64_t last, int) {
      for (int64_t at = first * kPiece; at < std::min(size, last * kPiece); at += kPiece)
        read(part + at, std::min(kPiece, size - at), static_cast<char*>(room) + at);
    });
    seconds += now_seconds() - begin;
    ::munmap(room, static_cast<size_t>(size));
  }
  return seconds;
}

// Of a file that is read again and again until there were as many bytes.
double seconds_of_file(const std::string& path, int threads, int64_t bytes) {
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) return 0;
  const int64_t size = std::max<int64_t>(1, ::lseek(file, 0, SEEK_END));
  const auto read = [&](int64_t at, int64_t count, char* room) {
    while (count > 0) {
      const ssize_t got = ::pread(file, room, static_cast<size_t>(std::min(count, size - at % size)), at % size);
      if (got <= 0) return;
      at += got, count -= got;
    }
  };
  const double seconds = best_seconds([&] { return seconds_of_pieces(threads, bytes, read); });
  ::close(file);
  return seconds;
}

double seconds_of_copy(int threads, int64_t bytes) {
  const HugeVector<char> from(static_cast<size_t>(std::min(bytes, int64_t{1} << 30) / kPiece * kPiece + kPiece), 1);
  const int64_t pieces = static_cast<int64_t>(from.size()) / kPiece;
  const auto copy = [&](int64_t at, int64_t count, char* room) {
    std::memcpy(room, from.data() + at / kPiece % pieces * kPiece, static_cast<size_t>(count));
  };
  return best_seconds([&] { return seconds_of_pieces(threads, bytes, copy); });
}

// Every nth packed weight, so that there are about `most` bytes of all kinds. What was let go cannot be packed again.
std::vector<Matrix> sample_of(Weights& weights, int64_t most, bool has_holes) {
  std::vector<Matrix> all, out;
  int64_t bytes = 0;
  for (const Matrix* w : product_weights(weights)) {
    if (!w->panels || (has_holes && w->format == WeightFormat::kFp4)) continue;
    all.push_back(*w);
    bytes += stored_bytes_of(*w);
  }
  for (size_t i = 0, nth = static_cast<size_t>(bytes / most) + 1; i < all.size(); i += nth) out.push_back(all[i]);
  return out;
}

// By a device of its own, as the model's keeps places for experts. 0 = memory is too short.
double seconds_of_packing(const std::string& isa, int threads, std::vector<Matrix>& sample) {
  const auto device = make_cpu_device({.threads = threads, .isa = isa});
  if (!device || sample.empty()) return 0;
  std::vector<Matrix*> list;
  for (Matrix& w : sample) w.panels = nullptr, list.push_back(&w);
  return best_seconds([&] {
    const double begin = now_seconds();
    const Result<Buffer> room = (*device)->pack(list);
    return room && room->bytes() > 0 && list.back()->panels ? now_seconds() - begin : 0;
  });
}

}  // namespace

Status bench_load(Host& host, FigureReport& report) {
  constexpr int64_t kMost = int64_t{512} << 20;
  const auto* model = dynamic_cast<const V41Model*>(&host.whole_model());
  if (!model || model->packed_bytes() == 0 || !model->weights().checkpoint) return {};
  const Checkpoint& checkpoint = *model->weights().checkpoint;
  Weights weights = model->weights();
  int64_t packed_from = 0, sampled = 0;
  for (const Matrix* w : product_weights(weights)) packed_from += w->panels ? stored_bytes_of(*w) : 0;
  const double all = static_cast<double>(checkpoint.tensor_bytes());
  const double used = static_cast<double>(model->packed_bytes()) + std::max(0.0, all - static_cast<double>(packed_from));
  report.add({.name = "load/packed", .value = used / 1e6, .unit = "MB", .baseline = "checkpoint", .ratio = used / all});
  report.add({.name = "load/pack", .value = model->pack_seconds() * 1e3, .unit = "ms"});
  std::vector<Matrix> sample = sample_of(weights, kMost, checkpoint.has_holes());
  for (const Matrix& w : sample) sampled += stored_bytes_of(w);
  const int threads = host.device().parallelism();
  const double took = seconds_of_packing(host.device().isa(), threads, sample);
  if (took == 0) return {};
  const double read = checkpoint.shards().empty() ? seconds_of_copy(threads, sampled)
                                                  : seconds_of_file(checkpoint.shards()[0].path(), threads, sampled);
  report.add({.name = "load/repack",
              .value = static_cast<double>(sampled) / took / 1e9,
              .unit = "GB/s",
              .baseline = "time of reading its bytes",
              .ratio = read > 0 ? std::optional(took / read) : std::nullopt});
  return {};
}

}  // namespace deepinfer
