#include "kvcache/tiers/cached_disk.h"

#include <algorithm>
#include <utility>

namespace deepinfer {

class CachedDisk::File final : public DiskFile {
 public:
  File(CachedDisk& cache, uint32_t number, std::unique_ptr<DiskFile> file)
      : cache_(cache), number_(number), file_(std::move(file)) {}

  Status read(int64_t offset, std::span<uint8_t> out) const override {
    if (cache_.serve(number_, offset, out)) return {};
    DI_CHECK_OK(file_->read(offset, out));
    cache_.keep(number_, offset, out);
    return {};
  }
  Status write(int64_t offset, std::span<const uint8_t> bytes) override {
    return kept(offset, {&bytes, 1}, file_->write(offset, bytes));
  }
  Status write_parts(int64_t offset, std::span<const std::span<const uint8_t>> parts) override {
    return kept(offset, parts, file_->write_parts(offset, parts));
  }
  Status start(int64_t offset, std::span<const std::span<const uint8_t>> parts) override {
    return kept(offset, parts, file_->start(offset, parts));
  }
  Status finish() override { return sound(file_->finish()); }
  Status truncate(int64_t bytes) override {
    cache_.forget(number_, bytes);
    return file_->truncate(bytes);
  }
  Status sync() override { return file_->sync(); }
  Result<int64_t> size() const override { return file_->size(); }

 private:
  Status kept(int64_t offset, std::span<const std::span<const uint8_t>> parts, Status written) {
    for (size_t i = 0; written && i < parts.size(); ++i) {
      cache_.keep(number_, offset, parts[i]);
      offset += static_cast<int64_t>(parts[i].size());
    }
    return sound(std::move(written));
  }
  // What the disk refused must not be found here either.
  Status sound(Status done) {
    if (!done) cache_.forget(number_, 0);
    return done;
  }

  CachedDisk& cache_;
  const uint32_t number_;
  std::unique_ptr<DiskFile> file_;
};

Result<std::unique_ptr<DiskFile>> CachedDisk::create(const std::string& path) {
  DI_TRY(auto file, disk_.create(path));
  return std::unique_ptr<DiskFile>(std::make_unique<File>(*this, number_of(path), std::move(file)));
}

Result<std::unique_ptr<DiskFile>> CachedDisk::open(const std::string& path, bool writable) {
  DI_TRY(auto file, disk_.open(path, writable));
  return std::unique_ptr<DiskFile>(std::make_unique<File>(*this, number_of(path), std::move(file)));
}

Status CachedDisk::remove(const std::string& path) {
  forget(number_of(path), 0);
  {
    const std::lock_guard lock(mutex_);
    numbers_.erase(path);  // another file of this name is another one
  }
  return disk_.remove(path);
}

int64_t CachedDisk::served_bytes() const {
  const std::lock_guard lock(mutex_);
  return served_;
}

uint32_t CachedDisk::number_of(const std::string& path) {
  const std::lock_guard lock(mutex_);
  const auto [at, added] = numbers_.try_emplace(path, files_);
  files_ += added;
  return at->second;
}

void CachedDisk::forget(uint32_t file, int64_t from) {
  const std::lock_guard lock(mutex_);
  for (auto at = newest_first_.begin(); at != newest_first_.end();) {
    Chunk& chunk = **at;
    const int64_t keeps = from - static_cast<int64_t>(chunk.name & 0xffffffff) * kChunk;
    const bool ours = chunk.name >> 32 == file, goes = ours && keeps <= chunk.begin;
    if (goes) chunks_.erase(chunk.name);
    if (ours && !goes) chunk.end = std::min(chunk.end, keeps);
    at = goes ? newest_first_.erase(at) : std::next(at);
  }
}

// One whose stretch touches [begin, end), or is empty and lies there.
CachedDisk::Chunk& CachedDisk::chunk_at(uint64_t name, int64_t begin, int64_t end) {
  if (const auto found = chunks_.find(name); found != chunks_.end()) {
    newest_first_.splice(newest_first_.begin(), newest_first_, found->second);
    Chunk& chunk = *newest_first_.front();
    if (begin <= chunk.end && end >= chunk.begin) return chunk;
  } else {
    while (newest_first_.size() >= most_) {
      chunks_.erase(newest_first_.back()->name);
      newest_first_.pop_back();
    }
    chunks_[name] = newest_first_.emplace(newest_first_.begin());
  }
  auto& place = newest_first_.front();
  place = std::make_shared<Chunk>();
  place->name = name;
  place->begin = place->end = begin;
  return *place;
}

// Of a chunk one stretch is known: it grows by what touches it, else what came last takes its place. What is known is never
// written again, because a reader may be copying it.
void CachedDisk::keep(uint32_t file, int64_t offset, std::span<const uint8_t> bytes) {
  if (most_ == 0) return;
  const std::lock_guard lock(mutex_);
  while (!bytes.empty()) {
    const int64_t begin = offset % kChunk, size = std::min(kChunk - begin, static_cast<int64_t>(bytes.size())),
                  end = begin + size;
    Chunk& chunk = chunk_at(uint64_t{file} << 32 | static_cast<uint64_t>(offset / kChunk), begin, end);
    const auto put = [&](int64_t from, int64_t to) {
      if (from < to) std::copy_n(bytes.begin() + (from - begin), to - from, chunk.bytes.bytes().begin() + from);
    };
    put(begin, std::min(end, chunk.begin));
    put(std::max(begin, chunk.end), end);
    chunk.begin = std::min(chunk.begin, begin), chunk.end = std::max(chunk.end, end);
    bytes = bytes.subspan(static_cast<size_t>(size));
    offset += size;
  }
}

bool CachedDisk::serve(uint32_t file, int64_t offset, std::span<uint8_t> out) {
  struct Part {
    std::shared_ptr<const Chunk> chunk;
    int64_t begin, size;
  };
  std::vector<Part> parts;
  {
    const std::lock_guard lock(mutex_);
    for (int64_t at = offset, end = offset + static_cast<int64_t>(out.size()); at < end;) {
      const auto found = chunks_.find(uint64_t{file} << 32 | static_cast<uint64_t>(at / kChunk));
      if (found == chunks_.end()) return false;
      const Chunk& chunk = **found->second;
      const int64_t begin = at % kChunk, size = std::min(kChunk - begin, end - at);
      if (begin < chunk.begin || begin + size > chunk.end) return false;
      parts.push_back({*found->second, begin, size});
      at += size;
    }
    for (const Part& part : parts) newest_first_.splice(newest_first_.begin(), newest_first_, chunks_[part.chunk->name]);
    served_ += static_cast<int64_t>(out.size());
  }
  for (const Part& part : parts) {
    std::copy_n(part.chunk->bytes.bytes().begin() + part.begin, part.size, out.begin());
    out = out.subspan(static_cast<size_t>(part.size));
  }
  return true;
}

}  // namespace deepinfer
