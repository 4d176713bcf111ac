// cluster/bytes.h - values to bytes and back, little-endian.
//
// A reader of damaged bytes gives zeros and empty values and is then no longer ok(); counts are checked against what is left
// before anything is allocated. Threads: a value for one thread.
//
//   ByteWriter out;
//   out.number(id), out.text(name), out.numbers(tokens);
//   ByteReader in(bytes);
//   in.number(id), in.text(name), in.numbers(tokens);
//   if (!in.done()) return corrupt(...);
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace deepinfer {

static_assert(std::endian::native == std::endian::little);

template <class T>
concept PlainNumber = std::is_arithmetic_v<T> || std::is_enum_v<T>;

class ByteWriter {
 public:
  template <PlainNumber T>
  void number(const T& value) {
    out_.append(reinterpret_cast<const char*>(&value), sizeof(T));
  }
  void text(std::string_view value) {
    number(static_cast<uint64_t>(value.size()));
    out_.append(value);
  }
  template <PlainNumber T>
  void numbers(const std::vector<T>& values) {
    text({reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)});
  }
  template <class T, class F>
  void list(const std::vector<T>& values, F each) {
    number(static_cast<uint64_t>(values.size()));
    for (const T& value : values) each(*this, value);
  }
  const std::string& bytes() const { return out_; }
  void fail() {}

 private:
  std::string out_;
};

class ByteReader {
 public:
  explicit ByteReader(std::string_view bytes) : rest_(bytes) {}

  template <PlainNumber T>
  void number(T& value) {
    const std::string_view bytes = take(sizeof(T));
    if (bytes.empty()) {
      value = T{};
    } else if constexpr (std::is_same_v<T, bool>) {
      value = bytes[0] != 0;
    } else {
      std::memcpy(&value, bytes.data(), sizeof(T));
    }
  }
  void text(std::string& value) { value = take(size()); }
  template <PlainNumber T>
  void numbers(std::vector<T>& values) {
    const std::string_view bytes = take(size());
    if (bytes.size() % sizeof(T) != 0) ok_ = false;
    values.resize(bytes.size() / sizeof(T));
    if (!values.empty()) std::memcpy(values.data(), bytes.data(), values.size() * sizeof(T));
  }
  template <class T, class F>
  void list(std::vector<T>& values, F each) {
    values.clear();
    for (uint64_t left = size(); left > 0 && ok_; --left) each(*this, values.emplace_back());
  }
  bool ok() const { return ok_; }
  void fail() { ok_ = false; }
  // Everything was read and was there.
  bool done() const { return ok_ && rest_.empty(); }

 private:
  uint64_t size() {
    uint64_t count = 0;
    number(count);
    if (count > rest_.size()) ok_ = false;
    return ok_ ? count : 0;
  }
  std::string_view take(size_t count) {
    if (!ok_ || count > rest_.size()) {
      ok_ = false;
      return {};
    }
    const std::string_view out = rest_.substr(0, count);
    rest_.remove_prefix(count);
    return out;
  }

  std::string_view rest_;
  bool ok_ = true;
};

}  // namespace deepinfer
