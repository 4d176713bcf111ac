// A disk in memory for tests of the segment store: unsynced writes can be lost as a power failure loses them, and any
// operation can be made to fail. Threads: any.
#pragma once

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "kvcache/tiers/store_disk.h"

namespace deepinfer {

class MemoryDisk final : public StoreDisk {
 public:
  // What an operation ("write", "sync", "create", ...) on a path shall end in. A refused write has written its first half.
  using Fault = std::function<Status(const char* operation, const std::string& path)>;
  void set_fault(Fault fault) {
    const std::lock_guard lock(mutex_);
    fault_ = std::move(fault);
  }

  // Of what was not synced, `keeps()` says piece by piece what survives: blocks, lengths, new and removed names.
  void lose_power(const std::function<bool()>& keeps) {
    const std::lock_guard lock(mutex_);
    std::map<std::string, std::shared_ptr<Inode>> after;
    std::set<std::string> paths;
    for (const auto& [path, inode] : names_) paths.insert(path);
    for (const auto& [path, inode] : durable_names_) paths.insert(path);
    for (const std::string& path : paths) {
      const auto now = names_.find(path), before = durable_names_.find(path);
      const bool named_now = now != names_.end(), named_before = before != durable_names_.end();
      if (named_now != named_before && !keeps()) continue;
      after[path] = survivor(*(named_now ? now : before)->second, keeps);
    }
    names_ = durable_names_ = std::move(after);
    locks_ = std::make_shared<std::set<std::string>>();
  }

  std::vector<std::string> paths() const {
    const std::lock_guard lock(mutex_);
    std::vector<std::string> out;
    for (const auto& [path, inode] : names_) out.push_back(path);
    return out;
  }
  std::vector<uint8_t>& bytes_of(const std::string& path) { return names_.at(path)->now; }
  void add(const std::string& path, std::vector<uint8_t> bytes) {
    names_[path] = durable_names_[path] = std::make_shared<Inode>(Inode{bytes, bytes});
  }
  void swap_files(const std::string& a, const std::string& b) { std::swap(names_.at(a), names_.at(b)); }
  int64_t total_bytes() const {
    const std::lock_guard lock(mutex_);
    int64_t total = 0;
    for (const auto& [path, inode] : names_) total += static_cast<int64_t>(inode->now.size());
    return total;
  }
  // Moves everything below a folder away, or back.
  void rename_folder(const std::string& from, const std::string& to) {
    const std::lock_guard lock(mutex_);
    std::map<std::string, std::shared_ptr<Inode>> after;
    for (const auto& [path, inode] : names_) after[path.starts_with(from + "/") ? to + path.substr(from.size()) : path] = inode;
    names_ = std::move(after);
    std::erase_if(folders_, [&](const std::string& path) { return path == from || path.starts_with(from + "/"); });
  }

  Result<std::vector<DiskEntry>> list(const std::string& folder) override {
    const std::lock_guard lock(mutex_);
    DI_CHECK_OK(fault("list", folder));
    std::vector<DiskEntry> out;
    const bool there = folders_.contains(folder);
    for (const auto& [path, inode] : names_) {
      if (path.starts_with(folder + "/"))
        out.push_back({path.substr(folder.size() + 1), static_cast<int64_t>(inode->now.size())});
    }
    if (out.empty() && !there) return not_found("no folder " + folder);
    return out;
  }
  Status make_folders(const std::string& path) override {
    const std::lock_guard lock(mutex_);
    DI_CHECK_OK(fault("make_folders", path));
    folders_.insert(path);
    return {};
  }
  Result<std::unique_ptr<DiskFile>> create(const std::string& path) override {
    const std::lock_guard lock(mutex_);
    DI_CHECK_OK(fault("create", path));
    if (names_.contains(path)) return io_error(path + " exists");
    names_[path] = std::make_shared<Inode>();
    return file(path);
  }
  Result<std::unique_ptr<DiskFile>> open(const std::string& path, bool) override {
    const std::lock_guard lock(mutex_);
    DI_CHECK_OK(fault("open", path));
    if (!names_.contains(path)) return not_found("no file " + path);
    return file(path);
  }
  Status remove(const std::string& path) override {
    const std::lock_guard lock(mutex_);
    DI_CHECK_OK(fault("remove", path));
    return names_.erase(path) == 1 ? Status() : Status(not_found("no file " + path));
  }
  Status sync_folder(const std::string& folder) override {
    const std::lock_guard lock(mutex_);
    DI_CHECK_OK(fault("sync_folder", folder));
    std::erase_if(durable_names_, [&](const auto& name) { return name.first.starts_with(folder + "/"); });
    for (const auto& [path, inode] : names_) {
      if (path.starts_with(folder + "/")) durable_names_[path] = inode;
    }
    return {};
  }
  Result<std::unique_ptr<DiskLock>> lock(const std::string& path) override {
    const std::lock_guard lock(mutex_);
    DI_CHECK_OK(fault("lock", path));
    if (!locks_->insert(path).second) return Error{ErrorCode::kUnavailable, path + " is locked"};
    return std::unique_ptr<DiskLock>(std::make_unique<Lock>(locks_, path));
  }

 private:
  struct Inode {
    std::vector<uint8_t> now, durable;
  };

  // Locks of before a power failure are in a set of their own.
  struct Lock final : DiskLock {
    Lock(std::shared_ptr<std::set<std::string>> held_in, std::string name) : locks(std::move(held_in)), path(std::move(name)) {}
    ~Lock() override { locks->erase(path); }
    std::shared_ptr<std::set<std::string>> locks;
    std::string path;
  };

  class File final : public DiskFile {
   public:
    File(MemoryDisk& disk, std::string path, std::shared_ptr<Inode> inode)
        : disk_(disk), path_(std::move(path)), inode_(std::move(inode)) {}
    Status read(int64_t offset, std::span<uint8_t> out) const override {
      const std::lock_guard lock(disk_.mutex_);
      DI_CHECK_OK(disk_.fault("read", path_));
      const auto begin = static_cast<size_t>(offset);
      if (begin + out.size() > inode_->now.size()) return corrupt(path_ + " ends before");
      std::copy_n(inode_->now.begin() + offset, out.size(), out.begin());
      return {};
    }
    Status write(int64_t offset, std::span<const uint8_t> bytes) override {
      const std::lock_guard lock(disk_.mutex_);
      const Status refused = disk_.fault("write", path_);
      if (!refused) bytes = bytes.first(bytes.size() / 2);
      const auto begin = static_cast<size_t>(offset);
      if (inode_->now.size() < begin + bytes.size()) inode_->now.resize(begin + bytes.size());
      std::copy(bytes.begin(), bytes.end(), inode_->now.begin() + offset);
      return refused;
    }
    Status truncate(int64_t bytes) override {
      const std::lock_guard lock(disk_.mutex_);
      DI_CHECK_OK(disk_.fault("truncate", path_));
      inode_->now.resize(static_cast<size_t>(bytes));
      return {};
    }
    Status sync() override {
      const std::lock_guard lock(disk_.mutex_);
      DI_CHECK_OK(disk_.fault("sync", path_));
      inode_->durable = inode_->now;
      return {};
    }
    Result<int64_t> size() const override {
      const std::lock_guard lock(disk_.mutex_);
      return static_cast<int64_t>(inode_->now.size());
    }

   private:
    MemoryDisk& disk_;
    std::string path_;
    std::shared_ptr<Inode> inode_;
  };

  Status fault(const char* operation, const std::string& path) const { return fault_ ? fault_(operation, path) : Status(); }
  Result<std::unique_ptr<DiskFile>> file(const std::string& path) {
    return std::unique_ptr<DiskFile>(std::make_unique<File>(*this, path, names_.at(path)));
  }

  static std::shared_ptr<Inode> survivor(const Inode& inode, const std::function<bool()>& keeps) {
    std::vector<uint8_t> bytes(inode.now.size() != inode.durable.size() && keeps() ? inode.now.size() : inode.durable.size());
    for (size_t at = 0; at < bytes.size(); at += kStoreBlock) {
      const size_t end = std::min(at + kStoreBlock, bytes.size());
      const bool has_old = end <= inode.durable.size(), has_new = end <= inode.now.size();
      const bool differs = has_old && has_new && !std::equal(&inode.now[at], &inode.now[end - 1] + 1, &inode.durable[at]);
      const bool take_new = has_new && (!has_old || differs) && keeps();
      if (take_new)
        std::copy_n(&inode.now[at], end - at, &bytes[at]);
      else if (has_old)
        std::copy_n(&inode.durable[at], end - at, &bytes[at]);
    }
    return std::make_shared<Inode>(Inode{bytes, bytes});
  }

  mutable std::mutex mutex_;
  Fault fault_;
  std::map<std::string, std::shared_ptr<Inode>> names_, durable_names_;
  std::set<std::string> folders_;
  std::shared_ptr<std::set<std::string>> locks_ = std::make_shared<std::set<std::string>>();
};

}  // namespace deepinfer
