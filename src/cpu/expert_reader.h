// cpu/expert_reader.h - routed experts on their way from the checkpoint's files into memory.
//
// A weight that is wanted is read past the page cache into a stage, in the order of wanting and as many at once as there are
// stages. It lies there as the checkpoint stores it, until it is let go of. What the page cache holds is not read but multiplied
// from its mapping. Nothing here changes a bit of a product.
// Promise: no call allocates, save for the text of an error. Threads: one.
//
//   reader.want(w);                        // as soon as it is known; before the products that take others
//   for (Matrix stored = w; ...;) {
//     switch (reader.look(stored)) { case Arrival::kHere: multiply(stored); reader.let_go(w.place); ... }
//     reader.wait();                       // for one more
//   }
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/disk_reads.h"
#include "ops/ops.h"

namespace deepinfer::cpu {

enum class Arrival { kMapped, kComing, kHere, kFailed };

class ExpertReader {
 public:
  static constexpr int64_t kFewestStages = 4;
  // Null: no weight lies in a file. Weights with a place, all of them; `disk` and `files` outlive it.
  static Result<std::unique_ptr<ExpertReader>> open(DiskReads& disk, std::span<Matrix* const> weights,
                                                    std::span<const MappedFile* const> files, int64_t bytes);
  static int64_t stage_bytes(const Matrix& w);
  ~ExpertReader();

  // No more than once until it is let go.
  void want(const Matrix& w);
  // What became of a weight that is wanted. Where it is here, `w` gets the bytes that were read.
  Arrival look(Matrix& w) const;
  void let_go(int32_t place);
  // Notes what has arrived and starts what has room.
  void advance();
  // The same, and waits for an arrival. REQUIRES: the caller waits for something, and has used all that is here for it; what is
  // here for others gives way if that is what it takes.
  void wait();
  // Why a read failed, the last one. REQUIRES: one did.
  Error failure() const;

 private:
  static constexpr int16_t kNone = -1, kQueued = -2, kFromMapping = -3;  // or the number of a stage
  struct Part {                                                          // data or scales
    const uint8_t* mapped = nullptr;                                     // where the checkpoint is
    const uint8_t* here = nullptr;                                       // in the stage
    int64_t bytes = 0;                                                   // of the weight
    DiskReads::Read read;
    int64_t skip = 0, done = 0;  // before the weight's bytes; read so far
  };
  struct Stage {
    int32_t place = -1;  // -1 = free
    int32_t under_way = 0;
    bool failed = false;
    uint64_t age = 0;
    std::array<Part, 2> parts;
  };
  struct File {
    std::span<const uint8_t> mapped;
    int32_t number = 0;
    const MappedFile* file = nullptr;
  };
  struct Failure {
    const MappedFile* file = nullptr;
    int64_t from = 0, code = 0;  // 0: the file ends
  };

  explicit ExpertReader(DiskReads& disk) : disk_(disk) {}
  const File* file_of(const void* mapped) const;
  bool take_arrival(bool wait);
  void start_queued();
  void begin(const Matrix& w, size_t stage);
  int16_t& state(int32_t place) { return states_[static_cast<size_t>(place)]; }
  static uint64_t tag_of(size_t stage, size_t part) { return stage * 2 + part; }

  DiskReads& disk_;
  std::vector<File> files_;  // by address
  uint8_t* room_ = nullptr;
  int64_t room_bytes_ = 0, stage_bytes_ = 0;
  std::vector<Stage> stages_;
  std::vector<int16_t> states_;  // by place
  std::vector<Matrix> queue_;    // a ring: each place once
  size_t queued_ = 0, started_ = 0;
  int32_t under_way_ = 0;
  uint64_t ages_ = 0;
  std::vector<DiskReads::Read> batch_;
  Failure failure_;
};

}  // namespace deepinfer::cpu
