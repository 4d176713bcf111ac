#include "formats/safetensors.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include <fmt/format.h>

#include "base/json.h"
#include "formats/message.h"

namespace deepinfer {
namespace {

struct TypeRow {
  TensorType type;
  const char* name;
  size_t bytes;
};
constexpr TypeRow kTypes[] = {
    {TensorType::kF8E4m3, "F8_E4M3", 1}, {TensorType::kF8E8m0, "F8_E8M0", 1}, {TensorType::kI8, "I8", 1},
    {TensorType::kU8, "U8", 1},          {TensorType::kBool, "BOOL", 1},      {TensorType::kF16, "F16", 2},
    {TensorType::kBf16, "BF16", 2},      {TensorType::kI32, "I32", 4},        {TensorType::kF32, "F32", 4},
    {TensorType::kI64, "I64", 8},
};

constexpr size_t kMaxHeaderBytes = 100'000'000;  // the limit of the format's own reader
constexpr size_t kMaxDimensions = 8;
constexpr size_t kDataAlignment = 64;

// Where a tensor lies in the data area, while the header is being checked.
struct Extent {
  int64_t begin = 0, end = 0;
};

// Written out because fmt::join over integers trips a false warning of GCC 12.
void append_integers(std::string& out, std::span<const int64_t> values, const char* separator) {
  for (size_t i = 0; i < values.size(); ++i) {
    if (i > 0) out.append(separator);
    out.append(std::to_string(values[i]));
  }
}

Error tensor_error(std::string_view path, std::string_view name, std::string_view fault) {
  return corrupt(fmt::format("{}: tensor {}: {}", path, quoted(name), fault));
}

Result<TensorType> read_type(const Json& entry, std::string_view path, std::string_view name) {
  const Json& type = entry.at("dtype");
  if (!type.is_string()) return tensor_error(path, name, "dtype must be a string");
  for (const TypeRow& row : kTypes) {
    if (type.as_string() == row.name) return row.type;
  }
  return tensor_error(path, name, fmt::format("unknown dtype {}", quoted(type.as_string())));
}

Result<std::vector<int64_t>> read_integers(const Json& value, const char* what, std::string_view path, std::string_view name) {
  if (!value.is_array()) return tensor_error(path, name, fmt::format("{} must be an array", what));
  if (value.size() > kMaxDimensions)
    return tensor_error(path, name,
                        fmt::format("{} has {} entries, at most {} are supported", what, value.size(), kMaxDimensions));
  std::vector<int64_t> out;
  out.reserve(value.size());
  for (const Json& item : value.items()) {
    const auto number = item.to_int64(what);
    if (!number || *number < 0) return tensor_error(path, name, fmt::format("{} must hold non-negative integers", what));
    out.push_back(*number);
  }
  return out;
}

// The bytes a shape takes, or nothing when that is no 63-bit number.
bool shape_bytes(std::span<const int64_t> shape, TensorType type, int64_t& bytes) {
  if (std::find(shape.begin(), shape.end(), 0) != shape.end()) return bytes = 0, true;
  bytes = static_cast<int64_t>(tensor_type_bytes(type));
  for (const int64_t dim : shape) {
    if (__builtin_mul_overflow(bytes, dim, &bytes)) return false;
  }
  return true;
}

Result<Extent> read_entry(const Json& entry, std::string_view path, TensorView& tensor) {
  if (!entry.is_object()) return tensor_error(path, tensor.name, "its header entry must be an object");
  DI_TRY(tensor.type, read_type(entry, path, tensor.name));
  DI_TRY(tensor.shape, read_integers(entry.at("shape"), "shape", path, tensor.name));
  DI_TRY(const std::vector<int64_t> offsets, read_integers(entry.at("data_offsets"), "data_offsets", path, tensor.name));
  if (offsets.size() != 2 || offsets[0] > offsets[1]) return tensor_error(path, tensor.name, "data_offsets must be [begin, end]");
  int64_t bytes = 0;
  const bool fits = shape_bytes(tensor.shape, tensor.type, bytes);
  if (!fits || bytes != offsets[1] - offsets[0]) {
    return tensor_error(path, tensor.name,
                        fmt::format("{} {} does not take the {} bytes its offsets give it", tensor_type_name(tensor.type),
                                    shape_text(tensor.shape), offsets[1] - offsets[0]));
  }
  return Extent{offsets[0], offsets[1]};
}

// Tensors must fill the data area without overlap and gap, in whatever order.
Status check_extents(const std::vector<TensorView>& tensors, const std::vector<Extent>& extents, int64_t data_bytes,
                     std::string_view path) {
  std::vector<size_t> order(tensors.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return std::pair(extents[a].begin, extents[a].end) < std::pair(extents[b].begin, extents[b].end);
  });
  int64_t at = 0;
  std::string_view previous;
  for (const size_t i : order) {
    const auto [begin, end] = extents[i];
    const std::string& name = tensors[i].name;
    if (end > data_bytes)
      return tensor_error(path, name,
                          fmt::format("ends at data byte {}, but the file has only {}: it is truncated", end, data_bytes));
    if (begin < at) return tensor_error(path, name, fmt::format("bytes {}..{} overlap tensor {}", begin, end, quoted(previous)));
    if (begin > at) return tensor_error(path, name, fmt::format("bytes {}..{} before it belong to no tensor", at, begin));
    at = end;
    previous = name;
  }
  if (at != data_bytes)
    return corrupt(fmt::format("{}: {} bytes after the last tensor belong to no tensor", path, data_bytes - at));
  return {};
}

std::vector<size_t> writing_order(std::span<const TensorView> tensors) {
  std::vector<size_t> order(tensors.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return tensor_type_bytes(tensors[a].type) > tensor_type_bytes(tensors[b].type); });
  return order;
}

std::string header_text(std::span<const TensorView> tensors, std::span<const size_t> order) {
  std::string out = "{";
  size_t at = 0;
  for (const size_t i : order) {
    const TensorView& tensor = tensors[i];
    if (out.size() > 1) out += ',';
    append_json_string(out, tensor.name);
    fmt::format_to(std::back_inserter(out), R"(:{{"dtype":"{}","shape":[)", tensor_type_name(tensor.type));
    append_integers(out, tensor.shape, ",");
    fmt::format_to(std::back_inserter(out), R"(],"data_offsets":[{},{}]}})", at, at + tensor.data.size());
    at += tensor.data.size();
  }
  out += '}';
  while ((out.size() + 8) % kDataAlignment != 0) out += ' ';
  return out;
}

}  // namespace

const char* tensor_type_name(TensorType type) { return kTypes[static_cast<size_t>(type)].name; }
size_t tensor_type_bytes(TensorType type) { return kTypes[static_cast<size_t>(type)].bytes; }

int64_t TensorView::elements() const { return static_cast<int64_t>(data.size() / tensor_type_bytes(type)); }

std::string shape_text(std::span<const int64_t> shape) {
  std::string out(1, '[');
  append_integers(out, shape, ", ");
  out.push_back(']');
  return out;
}

Result<SafetensorsFile> SafetensorsFile::open(const std::string& path) {
  DI_TRY(MappedFile mapped, MappedFile::open(path));
  SafetensorsFile file(std::move(mapped));
  file.path_ = std::make_unique<const std::string>(path);
  DI_CHECK_OK(file.parse());
  return file;
}

Status SafetensorsFile::parse() {
  const std::span<const uint8_t> bytes = file_.bytes();
  if (bytes.size() < 8) return corrupt(fmt::format("{}: {} bytes are too few for a safetensors file", *path_, bytes.size()));
  uint64_t header_bytes = 0;
  std::memcpy(&header_bytes, bytes.data(), 8);
  if (header_bytes > bytes.size() - 8 || header_bytes > kMaxHeaderBytes) {
    return corrupt(fmt::format("{}: bad header length {} in a file of {} bytes", *path_, header_bytes, bytes.size()));
  }
  const std::string_view header(reinterpret_cast<const char*>(bytes.data()) + 8, header_bytes);
  const auto json = Json::parse(header, {.max_depth = 8});
  if (!json) return corrupt(fmt::format("{}: header: {}", *path_, json.error().message));
  if (!json->is_object()) return corrupt(fmt::format("{}: header must be a JSON object", *path_));

  std::vector<Extent> extents;
  tensors_.reserve(json->size());
  for (const auto& [name, entry] : json->members()) {
    if (name == "__metadata__") continue;
    TensorView tensor;
    tensor.name = name;
    tensor.file = path_.get();
    DI_TRY(const Extent extent, read_entry(entry, *path_, tensor));
    extents.push_back(extent);
    tensors_.push_back(std::move(tensor));
  }
  const std::span<const uint8_t> data = bytes.subspan(8 + header_bytes);
  DI_CHECK_OK(check_extents(tensors_, extents, static_cast<int64_t>(data.size()), *path_));
  for (size_t i = 0; i < tensors_.size(); ++i) {
    tensors_[i].data =
        data.subspan(static_cast<size_t>(extents[i].begin), static_cast<size_t>(extents[i].end - extents[i].begin));
  }
  std::sort(tensors_.begin(), tensors_.end(), [](const TensorView& a, const TensorView& b) { return a.name < b.name; });
  for (size_t i = 1; i < tensors_.size(); ++i) {
    if (tensors_[i].name == tensors_[i - 1].name) return tensor_error(*path_, tensors_[i].name, "appears twice in the header");
  }
  return {};
}

const TensorView* find_tensor(std::span<const TensorView> sorted, std::string_view name) {
  const auto at = std::lower_bound(sorted.begin(), sorted.end(), name,
                                   [](const TensorView& tensor, std::string_view key) { return tensor.name < key; });
  return at != sorted.end() && at->name == name ? &*at : nullptr;
}

const TensorView* SafetensorsFile::find(std::string_view name) const { return find_tensor(tensors_, name); }

Result<const TensorView*> SafetensorsFile::get(std::string_view name, TensorType type, std::span<const int64_t> shape) const {
  const TensorView* tensor = find(name);
  if (!tensor) return not_found(fmt::format("{}: tensor {} is missing", *path_, quoted(name)));
  DI_CHECK_OK(check_tensor(*tensor, type, shape));
  return tensor;
}

Status check_tensor(const TensorView& tensor, TensorType type, std::span<const int64_t> shape) {
  const std::string_view path = tensor.file ? std::string_view(*tensor.file) : "memory";
  if (tensor.type != type) {
    return tensor_error(path, tensor.name,
                        fmt::format("dtype is {}, expected {}", tensor_type_name(tensor.type), tensor_type_name(type)));
  }
  if (!shape.empty() && !std::equal(shape.begin(), shape.end(), tensor.shape.begin(), tensor.shape.end())) {
    return tensor_error(path, tensor.name, fmt::format("shape is {}, expected {}", shape_text(tensor.shape), shape_text(shape)));
  }
  if (!tensor.aligned()) {
    return tensor_error(path, tensor.name,
                        fmt::format("its data does not start at a multiple of {} bytes; write the file anew with aligned tensors",
                                    tensor_type_bytes(type)));
  }
  return {};
}

Status write_safetensors(const std::string& path, std::span<const TensorView> tensors) {
  const std::vector<size_t> order = writing_order(tensors);
  const std::string header = header_text(tensors, order);
  DI_TRY(FileWriter out, FileWriter::create(path));
  const uint64_t header_bytes = header.size();
  DI_CHECK_OK(out.append({reinterpret_cast<const char*>(&header_bytes), 8}));
  DI_CHECK_OK(out.append(header));
  for (const size_t i : order) {
    DI_CHECK_OK(out.append({reinterpret_cast<const char*>(tensors[i].data.data()), tensors[i].data.size()}));
  }
  return out.commit();
}

}  // namespace deepinfer
