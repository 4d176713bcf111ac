#include "lab/mortal_disk.h"

#include <utility>

namespace deepinfer {

class MortalDisk::File final : public DiskFile {
 public:
  File(MortalDisk& disk, std::unique_ptr<DiskFile> file) : disk_(disk), file_(std::move(file)) {}
  Status read(int64_t offset, std::span<uint8_t> out) const override { return file_->read(offset, out); }
  Status write(int64_t offset, std::span<const uint8_t> bytes) override {
    if (disk_.writes_.fetch_sub(1) <= 0) return disk_.alive();
    return file_->write(offset, bytes);
  }
  Status truncate(int64_t bytes) override {
    DI_CHECK_OK(disk_.alive());
    return file_->truncate(bytes);
  }
  Status sync() override { return file_->sync(); }
  Result<int64_t> size() const override { return file_->size(); }

 private:
  MortalDisk& disk_;
  std::unique_ptr<DiskFile> file_;
};

Status MortalDisk::alive() const { return died() ? Status(io_error("the process has died")) : Status(); }

Status MortalDisk::make_folders(const std::string& path) {
  DI_CHECK_OK(alive());
  return disk_.make_folders(path);
}

Result<std::unique_ptr<DiskFile>> MortalDisk::create(const std::string& path) {
  DI_CHECK_OK(alive());
  DI_TRY(auto file, disk_.create(path));
  return std::unique_ptr<DiskFile>(std::make_unique<File>(*this, std::move(file)));
}

Result<std::unique_ptr<DiskFile>> MortalDisk::open(const std::string& path, bool writable) {
  if (writable) DI_CHECK_OK(alive());
  DI_TRY(auto file, disk_.open(path, writable));
  return std::unique_ptr<DiskFile>(std::make_unique<File>(*this, std::move(file)));
}

Status MortalDisk::remove(const std::string& path) {
  DI_CHECK_OK(alive());
  return disk_.remove(path);
}

}  // namespace deepinfer
