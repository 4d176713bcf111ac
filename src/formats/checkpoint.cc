#include "formats/checkpoint.h"

#include <sys/mman.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include <fmt/format.h>

#include "base/file.h"
#include "base/json.h"
#include "formats/message.h"

namespace deepinfer {
namespace {

constexpr const char* kConfigName = "config.json";
constexpr const char* kIndexName = "model.safetensors.index.json";
constexpr const char* kSingleName = "model.safetensors";

using MapEntry = std::pair<std::string, std::string>;  // tensor, shard

// A shard is a file of the directory itself: no separators, nothing that climbs out or breaks a line.
bool is_plain_name(std::string_view name) {
  return !name.empty() && name != "." && name != ".." && std::none_of(name.begin(), name.end(), [](char c) {
    return c == '/' || c == '\\' || static_cast<unsigned char>(c) < 0x20;
  });
}

// The weight_map of an index, sorted by tensor.
Result<std::vector<MapEntry>> read_index(const std::string& path) {
  DI_TRY(const std::string text, read_file(path));
  const auto json = Json::parse(text, {.max_depth = 16});
  if (!json) return corrupt(fmt::format("{}: {}", path, json.error().message));
  const Json& map = json->at("weight_map");
  if (!map.is_object()) return corrupt(fmt::format("{}: weight_map must be an object of tensor names to shard files", path));
  std::vector<MapEntry> out;
  out.reserve(map.size());
  for (const auto& [tensor, shard] : map.members()) {
    if (!shard.is_string() || !is_plain_name(shard.as_string())) {
      return corrupt(
          fmt::format("{}: weight_map: tensor {}: its shard must be the name of a file in the directory", path, quoted(tensor)));
    }
    out.emplace_back(tensor, shard.as_string());
  }
  if (out.empty()) return corrupt(fmt::format("{}: weight_map is empty", path));
  std::sort(out.begin(), out.end());
  for (size_t i = 1; i < out.size(); ++i) {
    if (out[i].first == out[i - 1].first)
      return corrupt(fmt::format("{}: weight_map: tensor {} appears twice", path, quoted(out[i].first)));
  }
  return out;
}

// The tensors of one shard and the index entries that point to it, both sorted, must be the same names.
Status check_shard(const SafetensorsFile& shard, const std::vector<const std::string*>& listed, const std::string& index_path) {
  const auto& tensors = shard.tensors();
  for (const std::string* name : listed) {
    if (!find_tensor(tensors, *name)) {
      return corrupt(fmt::format("{}: tensor {} is missing, though {} lists it there", shard.path(), quoted(*name), index_path));
    }
  }
  for (const TensorView& tensor : tensors) {
    const auto less = [](const std::string* a, const std::string& b) { return *a < b; };
    const auto at = std::lower_bound(listed.begin(), listed.end(), tensor.name, less);
    if (at == listed.end() || **at != tensor.name) {
      return corrupt(fmt::format("{}: tensor {} is extra: {} does not list it in this shard", shard.path(), quoted(tensor.name),
                                 index_path));
    }
  }
  return {};
}

Status make_directory(const std::string& path) {
  if (::mkdir(path.c_str(), 0755) == 0 || (errno == EEXIST && is_directory(path))) return {};
  return io_error(fmt::format("cannot create {}: {}", path, std::strerror(errno)));
}

// First tensor of each shard, plus the end.
std::vector<size_t> cut_shards(const std::vector<TensorView>& tensors, int64_t shard_bytes) {
  std::vector<size_t> cuts = {0};
  int64_t bytes = 0;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const auto size = static_cast<int64_t>(tensors[i].data.size());
    if (bytes > 0 && bytes + size > shard_bytes) {
      cuts.push_back(i);
      bytes = 0;
    }
    bytes += size;
  }
  cuts.push_back(tensors.size());
  return cuts;
}

}  // namespace

std::string Checkpoint::config_path() const { return join_path(path_, kConfigName); }

const TensorView* Checkpoint::find(std::string_view name) const { return find_tensor(tensors_, name); }

Result<std::shared_ptr<const Checkpoint>> Checkpoint::open(const std::string& directory) {
  if (!is_directory(directory)) {
    return not_found(
        fmt::format("{} is not a directory; a checkpoint is a directory with {} and safetensors files", directory, kConfigName));
  }
  std::shared_ptr<Checkpoint> out(new Checkpoint());
  out->path_ = directory;
  DI_TRY(out->config_text_, read_file(out->config_path()));
  DI_CHECK_OK(out->open_shards());
  DI_CHECK_OK(out->merge());
  return std::shared_ptr<const Checkpoint>(std::move(out));
}

std::shared_ptr<const Checkpoint> Checkpoint::in_memory(std::string name, std::string config_text,
                                                        std::vector<TensorView> tensors, std::shared_ptr<const void> memory) {
  std::shared_ptr<Checkpoint> out(new Checkpoint());
  out->path_ = std::move(name);
  out->config_text_ = std::move(config_text);
  out->tensors_ = std::move(tensors);
  out->memory_ = std::move(memory);
  std::sort(out->tensors_.begin(), out->tensors_.end(), [](const TensorView& a, const TensorView& b) { return a.name < b.name; });
  for (TensorView& tensor : out->tensors_) {
    tensor.file = &out->path_;
    out->tensor_bytes_ += static_cast<int64_t>(tensor.data.size());
  }
  return out;
}

Status Checkpoint::open_shards() {
  const std::string index_path = join_path(path_, kIndexName);
  if (!file_exists(index_path)) {
    const std::string single = join_path(path_, kSingleName);
    if (!file_exists(single)) return not_found(fmt::format("{}: neither {} nor {} is there", path_, kIndexName, kSingleName));
    DI_TRY(SafetensorsFile file, SafetensorsFile::open(single));
    shards_.push_back(std::move(file));
    return {};
  }
  DI_TRY(std::vector<MapEntry> map, read_index(index_path));
  // By shard, tensors of one shard staying in order of name.
  std::stable_sort(map.begin(), map.end(), [](const MapEntry& a, const MapEntry& b) { return a.second < b.second; });
  for (size_t begin = 0, end = 0; begin < map.size(); begin = end) {
    std::vector<const std::string*> listed;
    while (end < map.size() && map[end].second == map[begin].second) listed.push_back(&map[end++].first);
    auto shard = SafetensorsFile::open(join_path(path_, map[begin].second));
    if (!shard && shard.error().code == ErrorCode::kNotFound) {
      return not_found(
          fmt::format("{}, though {} names it for tensor {}", shard.error().message, index_path, quoted(*listed[0])));
    }
    if (!shard) return shard.error();
    DI_CHECK_OK(check_shard(*shard, listed, index_path));
    shards_.push_back(*std::move(shard));
  }
  return {};
}

Status Checkpoint::merge() {
  for (const SafetensorsFile& shard : shards_) tensors_.insert(tensors_.end(), shard.tensors().begin(), shard.tensors().end());
  std::sort(tensors_.begin(), tensors_.end(), [](const TensorView& a, const TensorView& b) { return a.name < b.name; });
  for (size_t i = 0; i < tensors_.size(); ++i) {
    tensor_bytes_ += static_cast<int64_t>(tensors_[i].data.size());
    if (i > 0 && tensors_[i].name == tensors_[i - 1].name) {
      return corrupt(
          fmt::format("{}: tensor {} is also in {}", *tensors_[i].file, quoted(tensors_[i].name), *tensors_[i - 1].file));
    }
  }
  return {};
}

void Checkpoint::prefetch(const LoadProgress& progress) const {
  constexpr size_t kPage = 4096, kPiece = size_t{4} << 20;
  int64_t total = 0, done = 0;
  for (const SafetensorsFile& shard : shards_) total += static_cast<int64_t>(shard.mapping().bytes().size());
  for (const SafetensorsFile& shard : shards_) {
    const std::span<const uint8_t> bytes = shard.mapping().bytes();
    shard.mapping().prefetch(0, std::min(bytes.size(), 2 * kPiece));
    for (size_t at = 0; at < bytes.size(); at += kPiece) {
      const size_t end = std::min(bytes.size(), at + kPiece);
      shard.mapping().prefetch(end + kPiece, kPiece);  // stay ahead of the touching below
      for (size_t i = at; i < end; i += kPage) static_cast<void>(*static_cast<const volatile uint8_t*>(&bytes[i]));
      done += static_cast<int64_t>(end - at);
      if (progress && done < total) progress(done, total);
    }
  }
  if (progress) progress(total, total);
}

void Checkpoint::let_go(std::span<const uint8_t> tensor) const {
  constexpr uintptr_t kPage = 4096;
  const auto begin = reinterpret_cast<uintptr_t>(tensor.data()), end = begin + tensor.size();
  const uintptr_t first = (begin + kPage - 1) / kPage * kPage, last = end / kPage * kPage;
  has_holes_ = true;
  if (first < last) ::madvise(reinterpret_cast<void*>(first), last - first, MADV_DONTNEED);
}

Status write_checkpoint(const Checkpoint& checkpoint, const std::string& directory, const CheckpointWriteOptions& options) {
  DI_CHECK_OK(make_directory(directory));
  const auto& tensors = checkpoint.tensors();
  const std::vector<size_t> cuts = cut_shards(tensors, options.shard_bytes);
  const size_t count = cuts.size() - 1;
  Json map = Json::object();
  for (size_t s = 0; s < count; ++s) {
    const std::string name = fmt::format("model-{:05}-of-{:05}.safetensors", s + 1, count);
    DI_CHECK_OK(write_safetensors(join_path(directory, name), std::span(tensors).subspan(cuts[s], cuts[s + 1] - cuts[s])));
    for (size_t i = cuts[s]; i < cuts[s + 1]; ++i) map.members().emplace_back(tensors[i].name, Json(name));
  }
  const Json index = Json::object(
      {{"metadata", Json::object({{"total_size", Json(checkpoint.tensor_bytes())}})}, {"weight_map", std::move(map)}});
  DI_CHECK_OK(write_file(join_path(directory, kIndexName), index.dump(2)));
  return write_file(join_path(directory, kConfigName), checkpoint.config_text());
}

}  // namespace deepinfer
