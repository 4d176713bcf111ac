#include "grammar/host_name.h"

#include <algorithm>

#include "grammar/a_label.h"

namespace deepinfer {

bool HostName::ends() const { return label_ > 0 && !dash_ && (!in_a_label_ || a_label_ends(a_label_)); }

HostName HostName::plainly() const {
  HostName out = *this;
  out.plain_ = true;
  return out;
}

std::optional<HostName> HostName::next_label() const {
  if (!ends() || size_ + 2 > kMaxName) return std::nullopt;
  HostName out(plain_);
  out.size_ = size_ + 1;
  return out;
}

// Behind `xn--`, of what begins with the next byte or did so before.
size_t HostName::most_in_label() const {
  return std::min<size_t>(kMaxLabel - kPrefix, kMaxName - (size_ - static_cast<uint32_t>(a_label_.size())));
}

size_t HostName::free_bytes() const {
  const size_t most = std::min<size_t>(a_label_free(most_in_label()), a_label_.size() + (kMaxName - size_));
  return in_a_label_ && most > a_label_.size() ? most - a_label_.size() : 0;
}

std::optional<HostName> HostName::after(uint8_t byte) const {
  const bool small = byte >= 'a' && byte <= 'z', digit = byte >= '0' && byte <= '9', dash = byte == '-';
  if (byte == '.') return next_label();
  if (size_ >= kMaxName || label_ >= kMaxLabel || !(small || digit || dash || (byte >= 'A' && byte <= 'Z'))) return std::nullopt;
  HostName out = *this;
  ++out.size_, ++out.label_;
  if (in_a_label_) {
    if (!is_in_a_label(byte)) return std::nullopt;
    out.a_label_ += static_cast<char>(byte);
    if (!a_label_goes_on(out.a_label_, most_in_label())) return std::nullopt;
    return out;
  }
  out.dash_ = dash;
  if (dash && (label_ == 0 || out.label_ == kMaxLabel || out.size_ == kMaxName)) return std::nullopt;
  if (dash && label_ == 3 && third_dash_) {
    out.in_a_label_ = xn_ && !plain_, out.dash_ = out.xn_ = out.third_dash_ = false;
    if (!out.in_a_label_ || !a_label_goes_on("", out.most_in_label())) return std::nullopt;
    return out;
  }
  constexpr char kBegin[] = "xn-";
  out.xn_ = !plain_ && label_ < 3 && (label_ == 0 || xn_) && byte == static_cast<uint8_t>(kBegin[label_]);
  out.third_dash_ = label_ == 2 && dash;
  return out;
}

std::vector<uint32_t> HostName::packed() const {
  std::vector<uint32_t> out{size_ | label_ << 8 | uint32_t{plain_} << 16 | uint32_t{dash_} << 17 | uint32_t{xn_} << 18 |
                            uint32_t{third_dash_} << 19 | uint32_t{in_a_label_} << 20};
  for (size_t i = 0; i < a_label_.size(); ++i) {
    if (i % 4 == 0) out.push_back(0);
    out.back() |= uint32_t{static_cast<uint8_t>(a_label_[i])} << (i % 4 * 8);
  }
  return out;
}

HostName HostName::unpacked(std::span<const uint32_t> words) {
  HostName out((words[0] >> 16 & 1) != 0);
  out.size_ = words[0] & 0xFF, out.label_ = words[0] >> 8 & 0xFF;
  out.dash_ = (words[0] >> 17 & 1) != 0, out.xn_ = (words[0] >> 18 & 1) != 0;
  out.third_dash_ = (words[0] >> 19 & 1) != 0, out.in_a_label_ = (words[0] >> 20 & 1) != 0;
  for (uint32_t i = 0; out.in_a_label_ && i < out.label_ - kPrefix; ++i)
    out.a_label_ += static_cast<char>(words[1 + i / 4] >> (i % 4 * 8));
  return out;
}

}  // namespace deepinfer
