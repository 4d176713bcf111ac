#include "grammar/a_label.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "grammar/a_label_tables.h"

namespace deepinfer {
namespace {

using Points = std::vector<uint32_t>;

// RFC 3492.
constexpr uint32_t kBase = 36, kLeast = 1, kMost = 26, kSkew = 38, kDamp = 700, kFirstBias = 72, kFirstPoint = 0x80;
constexpr uint32_t kLastPoint = 0x10FFFF;

// So many labels one question may look at, and those behind a beginning that needs no look: what is added then (see
// goes_on_plainly) takes at most as many bytes.
constexpr int kMaxTried = 400;
constexpr size_t kPlainEnd = 14;

uint32_t threshold(uint32_t at, uint32_t bias) { return std::clamp(at - std::min(at, bias), kLeast, kMost); }

uint32_t adapt(uint32_t delta, uint32_t num_points, bool first) {
  delta = first ? delta / kDamp : delta / 2;
  delta += delta / num_points;
  uint32_t at = 0;
  for (; delta > (kBase - kLeast) * kMost / 2; at += kBase) delta /= kBase - kLeast;
  return at + (kBase - kLeast + 1) * delta / (delta + kSkew);
}

int digit_of(char c) { return c >= 'a' && c <= 'z' ? c - 'a' : c >= '0' && c <= '9' ? c - '0' + 26 : -1; }

// A label as far as it is read: letters, and a number that may have begun.
struct Reading {
  Points points;
  uint32_t next = kFirstPoint, place = 0, bias = kFirstBias;
  uint64_t number = 0, weight = 1;
  uint32_t at = kBase;
  bool first = true;

  bool begun() const { return at > kBase; }
  uint32_t digit_threshold() const { return threshold(at, bias); }

  // False where no label goes on so.
  bool take(uint32_t digit) {
    number += digit * weight;
    const uint64_t size = points.size() + 1;
    if (number > (kLastPoint + uint64_t{1} - next) * size) return false;
    const uint32_t border = digit_threshold();
    if (digit >= border) {
      weight *= kBase - border;
      at += kBase;
      return true;
    }
    const uint64_t whole = place + number;
    const uint64_t point = next + whole / size;
    if (!label_may_hold(static_cast<uint32_t>(std::min<uint64_t>(point, kLastPoint + 1)))) return false;
    bias = adapt(static_cast<uint32_t>(number), static_cast<uint32_t>(size), first);
    next = static_cast<uint32_t>(point);
    place = static_cast<uint32_t>(whole % size);
    points.insert(points.begin() + place, next);
    ++place;
    first = false;
    number = 0, weight = 1, at = kBase;
    return true;
  }
};

std::optional<Reading> read(std::string_view text) {
  Reading out;
  const size_t dash = text.rfind('-');
  if (dash == 0) return std::nullopt;  // it has no letters before it
  if (dash != text.npos) out.points.assign(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(dash));
  for (const char c : text.substr(dash == text.npos ? 0 : dash + 1)) {
    const int digit = digit_of(c);
    if (digit < 0 || !out.take(static_cast<uint32_t>(digit))) return std::nullopt;
  }
  return out;
}

bool joins(const Points& label, size_t at) {
  size_t before = at, behind = at + 1;
  while (before > 0 && joining_of(label[before - 1]) == Joining::kTransparent) --before;
  while (behind < label.size() && joining_of(label[behind]) == Joining::kTransparent) ++behind;
  if (before == 0 || behind == label.size() || joining_of(label[before - 1]) != Joining::kNext) return false;
  // A letter that joins what follows and not what is before it is in none of the tables' scripts with this sign but Phags-pa's.
  return joining_of(label[behind]) != Joining::kNone;
}

// RFC 5892, appendix A.
bool fits_context(const Points& label, size_t at) {
  const auto has = [&](uint32_t first, uint32_t last) {
    return std::any_of(label.begin(), label.end(), [&](uint32_t code) { return first <= code && code <= last; });
  };
  const uint32_t before = at > 0 ? label[at - 1] : 0, behind = at + 1 < label.size() ? label[at + 1] : 0;
  switch (label[at]) {
    case 0x200C: return (at > 0 && is_virama(before)) || joins(label, at);
    case 0x200D: return at > 0 && is_virama(before);
    case 0xB7: return before == 'l' && behind == 'l';
    case 0x375: return is_greek(behind);
    case 0x5F3:
    case 0x5F4: return is_hebrew(before);
    case 0x30FB: return std::any_of(label.begin(), label.end(), is_han_or_kana);
    default: return label[at] < 0x6F0 ? !has(0x6F0, 0x6F9) : !has(0x660, 0x669);
  }
}

// RFC 5893, 2: of a label that is written from right to left.
bool fits_direction(const Points& label) {
  std::vector<Direction> directions;
  for (const uint32_t code : label) directions.push_back(direction_of(code));
  const auto has = [&](Direction wanted) { return std::find(directions.begin(), directions.end(), wanted) != directions.end(); };
  if (!has(Direction::kRight) && !has(Direction::kArabicNumber)) return true;
  if (directions[0] != Direction::kRight || has(Direction::kLeft) || has(Direction::kOther)) return false;
  if (has(Direction::kArabicNumber) && has(Direction::kNumber)) return false;
  while (directions.back() == Direction::kMark) directions.pop_back();
  return directions.back() != Direction::kNeutral;
}

// Each code point is one that label_may_hold().
bool is_label(const Points& label) {
  if (label.empty() || is_mark(label[0]) || label[0] == '-' || label.back() == '-') return false;
  if (label.size() > 3 && label[2] == '-' && label[3] == '-') return false;
  for (size_t i = 0; i < label.size(); ++i) {
    if (needs_context(label[i]) && !fits_context(label, i)) return false;
  }
  return fits_direction(label) && is_composed(label);
}

// Looks for an end of a label that has begun.
class Search {
 public:
  explicit Search(size_t left) : left_(left) {}

  bool finds(const Reading& reading) {
    if (!reading.begun() && !reading.first && is_label(reading.points)) return true;
    if (finish(reading, left_)) return true;
    if (!reading.begun() && !reading.first && mend(reading, left_)) return true;
    for (const auto& [other, left] : near_) {
      if (mend(other, left)) return true;
    }
    return false;
  }

 private:
  // Every number that what is read may be the beginning of, the shortest first.
  bool finish(const Reading& reading, size_t left) {
    if (left == 0 || tried_ > kMaxTried) return false;
    const uint32_t border = reading.digit_threshold();
    for (uint32_t digit = 0; digit < border && tried_ <= kMaxTried; ++digit) {
      Reading next = reading;
      ++tried_;
      if (!next.take(digit)) continue;
      if (is_label(next.points)) return true;
      if (near_.size() < 8) near_.emplace_back(std::move(next), left - 1);
    }
    for (uint32_t digit = border; digit < kBase; ++digit) {
      Reading next = reading;
      if (next.take(digit) && finish(next, left - 1)) return true;
    }
    return false;
  }

  // One more letter makes a label of it: where it begins with a mark or a dash, ends with one, or wants a neighbour.
  static bool mend(const Reading& reading, size_t left) {
    for (const uint32_t code : {0xE0u, 0x3B1u, 0x5D0u, 0x628u, 0x915u, 0x3042u, 0x4E00u, 0xAC00u, reading.next}) {
      if (code < reading.next || !label_may_hold(code)) continue;
      for (size_t place = code == reading.next ? reading.place : 0; place <= reading.points.size(); ++place) {
        Points label = reading.points;
        label.insert(label.begin() + static_cast<std::ptrdiff_t>(place), code);
        if (is_label(label) && length(reading, code, place) <= left) return true;
      }
    }
    return false;
  }

  static size_t length(const Reading& reading, uint32_t code, size_t place) {
    uint64_t number = (code - reading.next) * (reading.points.size() + 1) + place - reading.place;
    size_t out = 1;
    for (uint32_t at = kBase;; at += kBase, ++out) {
      const uint32_t border = threshold(at, reading.bias);
      if (number < border) return out;
      number = (number - border) / (kBase - border);
    }
  }

  const size_t left_;
  int tried_ = 0;
  std::vector<std::pair<Reading, size_t>> near_;
};

// All of `text` are letters of the label, its other ones are still to come: with an `à` each before, at the third place and
// behind, as needed, it is one. Their numbers have four digits at most, as labels have 59 letters at most.
bool goes_on_plainly(std::string_view text, size_t most) { return text.size() + kPlainEnd <= most; }

}  // namespace

size_t a_label_free(size_t most) { return most - std::min(most, kPlainEnd); }

bool a_label_ends(std::string_view text) {
  const std::optional<Reading> reading = read(text);
  return reading && !reading->begun() && !reading->first && is_label(reading->points);
}

bool a_label_goes_on(std::string_view text, size_t most) {
  if (text.size() > most) return false;
  if (goes_on_plainly(text, most)) return true;
  const size_t left = most - text.size();
  if (const std::optional<Reading> reading = read(text); reading && Search(left).finds(*reading)) return true;
  if (text.empty() || left == 0) return false;
  Reading letters;
  letters.points.assign(text.begin(), text.end());
  return Search(left - 1).finds(letters);
}

}  // namespace deepinfer
