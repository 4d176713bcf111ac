// kvcache/tiers/cached_disk.h - host memory between the device's pages and the disk: what was written or read last stays here.
//
// A disk in front of another one. A file of the store never changes a byte that was written, so nothing here grows stale; and a
// record is checked where it is used, wherever it came from. Writes go to both, reads ask the disk for what is not here. On a
// device with memory of its own evicted pages so come back without the disk; where pages lie in host memory anyway it is of no
// use. Promise: never more than `bytes` but for what readers are copying. Threads: as of any StoreDisk.
//
//   CachedDisk near(posix_disk, 4 << 30);
//   options.disk = &near;
#pragma once

#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "kvcache/tiers/store_disk.h"

namespace deepinfer {

class CachedDisk final : public StoreDisk {
 public:
  // `disk` must outlive it.
  CachedDisk(StoreDisk& disk, int64_t bytes) : disk_(disk), most_(static_cast<size_t>(bytes / kChunk)) {}

  Result<std::vector<DiskEntry>> list(const std::string& folder) override { return disk_.list(folder); }
  Status make_folders(const std::string& path) override { return disk_.make_folders(path); }
  Result<std::unique_ptr<DiskFile>> create(const std::string& path) override;
  Result<std::unique_ptr<DiskFile>> open(const std::string& path, bool writable) override;
  Status remove(const std::string& path) override;
  Status sync_folder(const std::string& path) override { return disk_.sync_folder(path); }
  Result<std::unique_ptr<DiskLock>> lock(const std::string& path) override { return disk_.lock(path); }

  int64_t served_bytes() const override;

 private:
  static constexpr int64_t kChunk = 256 << 10;
  class File;
  struct Chunk {
    uint64_t name = 0;
    BlockBuffer bytes{kChunk};
    int64_t begin = 0, end = 0;  // what of it is known
  };
  using Chunks = std::list<std::shared_ptr<Chunk>>;

  uint32_t number_of(const std::string& path);
  void forget(uint32_t file, int64_t from);
  void keep(uint32_t file, int64_t offset, std::span<const uint8_t> bytes);
  bool serve(uint32_t file, int64_t offset, std::span<uint8_t> out);
  Chunk& chunk_at(uint64_t name, int64_t begin, int64_t end);  // holds mutex_

  StoreDisk& disk_;
  const size_t most_;
  mutable std::mutex mutex_;
  Chunks newest_first_;
  std::unordered_map<uint64_t, Chunks::iterator> chunks_;  // by file and place
  std::unordered_map<std::string, uint32_t> numbers_;
  uint32_t files_ = 0;
  int64_t served_ = 0;
};

}  // namespace deepinfer
