// kvcache/tiers/store_disk.h - all that the segment store asks of the outside world.
//
// Every effect of the store goes through here, so that tests can lose unsynced writes, fill the disk, break it, make it
// read-only or take directories away. Paths are whole paths. Offsets, lengths and buffers of reads and writes are multiples of
// kStoreBlock (BlockBuffer), which lets the system's page cache be passed by.
// Promise: a write that returned without error survives the death of the process; after sync() also a power failure.
// Errors: kNotFound - the file or folder is gone; kExhausted - no space; kUnavailable - somebody else holds the lock.
// Threads: everything from any thread; calls on one file that write it from one at a time.
//
//   PosixDisk disk;
//   DI_TRY(auto file, disk.create(path));
//   DI_CHECK_OK(file->write(0, buffer.bytes()));
#pragma once

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "kvcache/tiers/segment_format.h"

namespace deepinfer {

// Memory for blocks, at an address that is a multiple of kStoreBlock.
class BlockBuffer {
 public:
  explicit BlockBuffer(int64_t bytes)
      : size_(static_cast<size_t>(bytes)), data_(static_cast<uint8_t*>(std::aligned_alloc(kStoreBlock, size_))) {
    DI_CHECK(data_ != nullptr && bytes % kStoreBlock == 0);
  }
  std::span<uint8_t> bytes() { return {data_.get(), size_}; }
  std::span<const uint8_t> bytes() const { return {data_.get(), size_}; }
  std::span<uint8_t> first(int64_t bytes) { return {data_.get(), static_cast<size_t>(bytes)}; }

 private:
  struct Free {
    void operator()(uint8_t* data) const { std::free(data); }
  };
  size_t size_;
  std::unique_ptr<uint8_t, Free> data_;
};

class DiskFile {
 public:
  virtual ~DiskFile() = default;
  // All of `out` or an error; reading past the end is kCorrupt.
  virtual Status read(int64_t offset, std::span<uint8_t> out) const = 0;
  virtual Status write(int64_t offset, std::span<const uint8_t> bytes) = 0;
  // The parts behind each other; where the system can, in one call.
  virtual Status write_parts(int64_t offset, std::span<const std::span<const uint8_t>> parts) {
    for (const auto part : parts) {
      DI_CHECK_OK(write(offset, part));
      offset += static_cast<int64_t>(part.size());
    }
    return {};
  }
  // The same without waiting, where the system can; the parts stay as they are until finish(). Else they are written at once.
  virtual Status start(int64_t offset, std::span<const std::span<const uint8_t>> parts) { return write_parts(offset, parts); }
  // Waits for all that was begun: every byte, or an error.
  virtual Status finish() { return {}; }
  virtual Status truncate(int64_t bytes) = 0;
  virtual Status sync() = 0;
  virtual Result<int64_t> size() const = 0;
};

// Held until destroyed or the process ends, however it ends. Destroying it removes the lock file.
class DiskLock {
 public:
  virtual ~DiskLock() = default;
};

struct DiskEntry {
  std::string path;  // below the folder that was listed
  int64_t bytes = 0;
};

class StoreDisk {
 public:
  virtual ~StoreDisk() = default;
  // Every file below `folder`, at any depth, by path. What vanishes while it is listed is left out.
  virtual Result<std::vector<DiskEntry>> list(const std::string& folder) = 0;
  virtual Status make_folders(const std::string& path) = 0;
  virtual Result<std::unique_ptr<DiskFile>> create(const std::string& path) = 0;  // must not exist
  virtual Result<std::unique_ptr<DiskFile>> open(const std::string& path, bool writable) = 0;
  virtual Status remove(const std::string& path) = 0;
  virtual Status sync_folder(const std::string& path) = 0;
  virtual Result<std::unique_ptr<DiskLock>> lock(const std::string& path) = 0;
  // Of all reads, what came from memory in front of it.
  virtual int64_t served_bytes() const { return 0; }
};

// Files of a POSIX file system; past the page cache where it allows that (O_DIRECT).
class PosixDisk final : public StoreDisk {
 public:
  explicit PosixDisk(bool direct = true) : direct_(direct) {}
  Result<std::vector<DiskEntry>> list(const std::string& folder) override;
  Status make_folders(const std::string& path) override;
  Result<std::unique_ptr<DiskFile>> create(const std::string& path) override;
  Result<std::unique_ptr<DiskFile>> open(const std::string& path, bool writable) override;
  Status remove(const std::string& path) override;
  Status sync_folder(const std::string& path) override;
  Result<std::unique_ptr<DiskLock>> lock(const std::string& path) override;

 private:
  Result<std::unique_ptr<DiskFile>> open_with(const std::string& path, int flags, const char* what);
  const bool direct_;
};

}  // namespace deepinfer
