// base/disk_reads.h - reads of files, many under way at once, straight into the caller's memory.
//
// An interface, so that rooms below the one that knows the system's queue can use it, and tests can make a disk slow or bad.
// Promise: each read that was started comes back from take() once, in any order. Destroying it waits for what is under way.
// Threads: one at a time.
//
//   DI_TRY(const int32_t file, reads.add(mapped));
//   reads.start({{&read, 1}});
//   while (const auto done = reads.take(true)) ...;
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "base/file.h"
#include "base/result.h"

namespace deepinfer {

class DiskReads {
 public:
  static constexpr int64_t kBlock = 4096;  // what offsets, lengths and addresses are multiples of
  static constexpr size_t kMost = 256;     // reads under way
  struct Read {
    int32_t file = 0;
    int64_t offset = 0, bytes = 0;  // may pass the file's end
    uint8_t* to = nullptr;
    uint64_t tag = 0;
  };
  struct Done {
    uint64_t tag = 0;
    int64_t bytes = 0;  // read, less than asked for at the file's end or at the system's will; or an errno, negative
  };

  virtual ~DiskReads() = default;
  // The very file that is mapped, whatever its name means by now; read past the page cache where its file system allows.
  virtual Result<int32_t> add(const MappedFile& file) = 0;
  // Its number may be another's next. REQUIRES: none of its reads is under way.
  virtual void remove(int32_t file) = 0;
  // REQUIRES: at most kMost under way.
  virtual void start(std::span<const Read> reads) = 0;
  // One that is over; waits for it if told to. Nothing: none is over, or none under way.
  virtual std::optional<Done> take(bool wait) = 0;
  // Whether the page cache holds these mapped bytes of a file, all of them: the mapping is then quicker than the disk. False
  // where the system does not say.
  virtual bool in_page_cache(int32_t file, const void* mapped, int64_t bytes) const = 0;
};

}  // namespace deepinfer
