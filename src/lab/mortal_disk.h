// lab/mortal_disk.h - a disk whose process dies.
//
// What a killed process leaves is what its disk had been asked for until then: a MortalDisk refuses whatever would change
// anything after a number of writes, so what comes behind it finds the folder as after a kill. Threads: as
// kvcache/tiers/store_disk.h says.
#pragma once

#include <atomic>
#include <limits>
#include <memory>
#include <string>

#include "kvcache/tiers/store_disk.h"

namespace deepinfer {

class MortalDisk final : public StoreDisk {
 public:
  static constexpr int64_t kNever = std::numeric_limits<int64_t>::max();
  // `writes`: until it dies.
  explicit MortalDisk(int64_t writes = kNever) : granted_(writes), writes_(writes) {}
  Result<std::vector<DiskEntry>> list(const std::string& folder) override { return disk_.list(folder); }
  Status make_folders(const std::string& path) override;
  Result<std::unique_ptr<DiskFile>> create(const std::string& path) override;
  Result<std::unique_ptr<DiskFile>> open(const std::string& path, bool writable) override;
  Status remove(const std::string& path) override;
  Status sync_folder(const std::string& path) override { return disk_.sync_folder(path); }
  Result<std::unique_ptr<DiskLock>> lock(const std::string& path) override { return disk_.lock(path); }
  bool died() const { return writes_.load() <= 0; }
  int64_t num_writes() const { return granted_ - writes_.load(); }

 private:
  class File;
  Status alive() const;
  PosixDisk disk_;
  const int64_t granted_;
  std::atomic<int64_t> writes_;  // left
};

}  // namespace deepinfer
