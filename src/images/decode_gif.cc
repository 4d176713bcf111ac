// The first frame of a GIF, by hand: the format is small and the usual library keeps every frame in memory.
#include <array>
#include <cstring>
#include <optional>

#include "images/decode.h"

namespace deepinfer {

namespace {

class Reader {
 public:
  explicit Reader(std::string_view bytes) : bytes_(bytes) {}
  bool has(size_t count) const { return bytes_.size() - at_ >= count; }
  // REQUIRES: has(1).
  unsigned byte() { return static_cast<unsigned char>(bytes_[at_++]); }
  unsigned word() {
    const unsigned low = byte();
    return low | byte() << 8;
  }
  std::string_view take(size_t count) {
    at_ += count;
    return bytes_.substr(at_ - count, count);
  }
  // Data in blocks of at most 255 bytes, ended by an empty one. False when the end is missing.
  template <class Use>
  bool blocks(Use use) {
    while (has(1)) {
      const size_t size = byte();
      if (size == 0) return true;
      if (!has(size)) return false;
      use(take(size));
    }
    return false;
  }

 private:
  std::string_view bytes_;
  size_t at_ = 0;
};

using Palette = std::string_view;

// The LZW of GIF: codes of growing width, least significant bit first.
class Unpacker {
 public:
  Unpacker(unsigned min_bits, size_t wanted) : min_bits_(min_bits), clear_(1u << min_bits), wanted_(wanted) {
    out_.reserve(wanted);
    reset();
  }

  void feed(std::string_view bytes) {
    for (const char c : bytes) {
      if (done_) return;
      window_ |= static_cast<uint32_t>(static_cast<unsigned char>(c)) << num_bits_;
      num_bits_ += 8;
      while (num_bits_ >= width_ && !done_) {
        const unsigned code = window_ & ((1u << width_) - 1);
        window_ >>= width_;
        num_bits_ -= width_;
        take(code);
      }
    }
  }
  bool complete() const { return !broken_ && out_.size() == wanted_; }
  const std::vector<uint8_t>& pixels() const { return out_; }

 private:
  void reset() {
    width_ = min_bits_ + 1;
    next_ = clear_ + 2;
    previous_.reset();
  }

  void take(unsigned code) {
    if (code == clear_) return reset();
    if (code == clear_ + 1) {
      done_ = true;
      return;
    }
    if (code > next_ || (code == next_ && !previous_)) {
      done_ = broken_ = true;
      return;
    }
    // The code about to be defined is the previous text and its own first byte.
    size_t length = 0;
    unsigned walk = code == next_ ? *previous_ : code;
    if (code == next_) stack_[length++] = first_of(*previous_);
    for (; walk >= clear_ + 2; walk = prefix_[walk]) stack_[length++] = suffix_[walk];
    stack_[length++] = static_cast<uint8_t>(walk);
    const uint8_t first = stack_[length - 1];
    if (previous_ && next_ < 4096) {
      prefix_[next_] = static_cast<uint16_t>(*previous_);
      suffix_[next_] = first;
      ++next_;
      if (next_ == (1u << width_) && width_ < 12) ++width_;
    }
    previous_ = code;
    while (length > 0 && out_.size() < wanted_) out_.push_back(stack_[--length]);
    if (out_.size() == wanted_) done_ = true;
  }

  uint8_t first_of(unsigned code) const {
    while (code >= clear_ + 2) code = prefix_[code];
    return static_cast<uint8_t>(code);
  }

  unsigned min_bits_, clear_;
  size_t wanted_;
  unsigned width_ = 0, next_ = 0;
  std::optional<unsigned> previous_;
  uint32_t window_ = 0;
  unsigned num_bits_ = 0;
  bool done_ = false, broken_ = false;
  std::array<uint16_t, 4097> prefix_{};
  std::array<uint8_t, 4097> suffix_{};
  std::array<uint8_t, 4098> stack_{};
  std::vector<uint8_t> out_;
};

struct Frame {
  unsigned x = 0, y = 0, width = 0, height = 0;
  bool interlaced = false;
  Palette palette;
  int transparent = -1;
};

// The row of the picture that the n-th row of an interlaced frame is.
unsigned interlaced_row(unsigned n, unsigned height) {
  constexpr unsigned kStarts[] = {0, 4, 2, 1}, kSteps[] = {8, 8, 4, 2};
  for (int pass = 0; pass < 4; ++pass) {
    const unsigned rows = height > kStarts[pass] ? (height - kStarts[pass] + kSteps[pass] - 1) / kSteps[pass] : 0;
    if (n < rows) return kStarts[pass] + n * kSteps[pass];
    n -= rows;
  }
  return height - 1;
}

RgbImage paint(const Frame& frame, const std::vector<uint8_t>& indexes, unsigned width, unsigned height) {
  RgbImage out{static_cast<int32_t>(width), static_cast<int32_t>(height), {}};
  out.pixels.assign(size_t{width} * height * 3, 255);  // what no frame covers is transparent, so white
  for (unsigned n = 0; n < frame.height; ++n) {
    const unsigned y = frame.y + (frame.interlaced ? interlaced_row(n, frame.height) : n);
    for (unsigned x = 0; x < frame.width && y < height && frame.x + x < width; ++x) {
      const unsigned index = indexes[size_t{n} * frame.width + x];
      if (static_cast<int>(index) == frame.transparent || index * 3 + 3 > frame.palette.size()) continue;
      std::memcpy(out.row(static_cast<int32_t>(y)) + size_t{frame.x + x} * 3, frame.palette.data() + index * 3, 3);
    }
  }
  return out;
}

// Everything up to the first frame's image descriptor. False: there is none.
bool find_frame(Reader& reader, Frame& frame) {
  while (reader.has(1)) {
    const unsigned kind = reader.byte();
    if (kind == 0x2C) return reader.has(9);
    if (kind != 0x21 || !reader.has(1)) return false;
    const bool control = reader.byte() == 0xF9;
    const bool ended = reader.blocks([&](std::string_view block) {
      if (!control || block.size() < 4) return;
      const bool has_transparent = (static_cast<unsigned char>(block[0]) & 1) != 0;
      frame.transparent = has_transparent ? static_cast<unsigned char>(block[3]) : -1;
    });
    if (!ended) return false;
  }
  return false;
}

bool read_palette(Reader& reader, unsigned flags, Palette& palette) {
  if (!(flags & 0x80)) return true;
  const size_t size = size_t{3} << ((flags & 7) + 1);
  if (!reader.has(size)) return false;
  palette = reader.take(size);
  return true;
}

}  // namespace

DecodedImage decode_gif(std::string_view bytes, const DecodeLimits& limits) {
  Reader reader(bytes);
  reader.take(6);
  if (!reader.has(7)) return ImageFault::kDecode;
  const unsigned width = reader.word(), height = reader.word(), flags = reader.byte();
  reader.take(2);
  ImageFault fault{};
  if (!check_sides(width, height, limits, fault)) return fault;
  Frame frame;
  if (!read_palette(reader, flags, frame.palette) || !find_frame(reader, frame)) return ImageFault::kEmpty;
  frame.x = reader.word(), frame.y = reader.word(), frame.width = reader.word(), frame.height = reader.word();
  const unsigned frame_flags = reader.byte();
  frame.interlaced = (frame_flags & 0x40) != 0;
  if (!read_palette(reader, frame_flags, frame.palette) || !reader.has(1)) return ImageFault::kEmpty;
  const unsigned min_bits = reader.byte();
  if (min_bits < 1 || min_bits > 8 || !check_sides(frame.width, frame.height, limits, fault)) return ImageFault::kEmpty;
  Unpacker unpacker(min_bits, size_t{frame.width} * frame.height);
  reader.blocks([&](std::string_view block) { unpacker.feed(block); });
  if (!unpacker.complete()) return ImageFault::kEmpty;
  return paint(frame, unpacker.pixels(), width, height);
}

}  // namespace deepinfer
