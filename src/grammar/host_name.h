// grammar/host_name.h - a host name byte by byte: labels of letters, digits and dashes, and A-labels (RFC 1123, 5890).
//
// A name has 253 bytes at most, a label 63. "--" at a label's third place begins an A-label, `xn--`, or is not allowed.
// Promise: a beginning that after() gives has an end.
// Threads: values.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace deepinfer {

class HostName {
 public:
  // Before the first byte; `plain` names have no A-labels.
  explicit HostName(bool plain = false) : plain_(plain) {}

  bool ends() const;
  std::optional<HostName> after(uint8_t byte) const;
  // Inside an A-label, where each byte takes a search.
  bool in_a_label() const { return in_a_label_; }
  static bool is_in_a_label(uint8_t byte) { return (byte >= 'a' && byte <= 'z') || (byte >= '0' && byte <= '9') || byte == '-'; }
  // So many bytes of an A-label fit whatever they are.
  size_t free_bytes() const;
  bool plain() const { return plain_; }
  // The same place of a name without A-labels from here on. REQUIRES: !in_a_label().
  HostName plainly() const;

  // As numbers, of which two are the same where what may follow is.
  std::vector<uint32_t> packed() const;
  static HostName unpacked(std::span<const uint32_t> words);

 private:
  static constexpr uint32_t kMaxName = 253, kMaxLabel = 63, kPrefix = 4;
  std::optional<HostName> next_label() const;
  size_t most_in_label() const;

  uint32_t size_ = 0, label_ = 0;  // bytes
  bool plain_, dash_ = false;      // the last one is a dash
  bool xn_ = false;                // all of the label is the beginning of `xn--`
  bool third_dash_ = false, in_a_label_ = false;
  std::string a_label_;  // behind its `xn--`
};

}  // namespace deepinfer
