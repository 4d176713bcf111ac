#include "grammar/regex.h"

#include <time.h>

#include <algorithm>
#include <utility>

namespace deepinfer {
namespace {

// Common beginnings of choices are shared down to this depth; a literal may be a megabyte long.
constexpr int kFactorDepth = 64;

size_t hash_of(uint8_t kind, std::span<const uint32_t> args) {
  uint64_t hash = 0x9E3779B97F4A7C15ull * (kind + 1u);
  for (const uint32_t arg : args) {
    hash ^= arg;
    hash *= 0xD6E8FEB86659FD93ull;
    hash ^= hash >> 32;
  }
  return static_cast<size_t>(hash);
}

int64_t thread_cpu_us() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return now.tv_sec * int64_t{1'000'000} + now.tv_nsec / 1000;
}

}  // namespace

RegexArena::RegexArena(const RegexLimits& limits) : limits_(limits), buckets_(1024, 0) {
  // Node 0 is kNothing, so 0 also ends the chains of buckets.
  nodes_.push_back({Kind::kNothing, false, true, Known::kNo, 0, 0});
  intern(Kind::kEmpty, {}, true, true);
  const uint32_t nothing = kNothing;
  intern(Kind::kNot, {&nothing, 1}, true, true);
}

void RegexArena::start_clock(int64_t left_us) { deadline_us_ = thread_cpu_us() + left_us; }
int64_t RegexArena::stop_clock() { return std::exchange(deadline_us_, 0) - thread_cpu_us(); }

size_t RegexArena::bytes() const {
  return nodes_.size() * sizeof(Node) + edges_.size() * sizeof(Edge) + (args_.size() + buckets_.size()) * sizeof(uint32_t);
}

void RegexArena::forget_edges() {
  constexpr size_t kFew = 50'000;
  if (edges_.size() < kFew) return;
  Edges().swap(edges_);
  for (Node& node : nodes_) node.has_edges = false, node.num_edges = 0;
}

size_t RegexArena::num_parts(Rx rx) const {
  switch (kind(rx)) {
    case Kind::kBytes:
    case Kind::kMultiple:
    case Kind::kHostName: return 0;
    case Kind::kRepeat: return 1;
    default: return nodes_[rx].num_args;
  }
}

Rx RegexTranslation::operator()(Rx rx) {
  std::vector<Rx> open{rx}, needed;
  while (!open.empty()) {
    const Rx at = open.back();
    open.pop_back();
    if (at < num_shared_ || !known_.try_emplace(at, kNothing).second) continue;
    needed.push_back(at);
    for (const Rx part : from_.args(at).first(from_.num_parts(at))) open.push_back(part);
  }
  std::sort(needed.begin(), needed.end());  // what an expression is made of has a smaller number
  for (const Rx at : needed) make(at);
  return known(rx);
}

void RegexTranslation::make(Rx rx) {
  using Kind = RegexArena::Kind;
  const RegexArena::Node& node = from_.nodes_[rx];
  std::vector<uint32_t> args(from_.args(rx).begin(), from_.args(rx).end());
  for (size_t i = 0; i < from_.num_parts(rx); ++i) args[i] = known(args[i]);
  if (node.kind == Kind::kOr || node.kind == Kind::kAnd) std::sort(args.begin(), args.end());
  const Rx out = to_.intern(node.kind, args, node.nullable, node.positive);
  RegexArena::Node& made = to_.nodes_[out];
  if (made.alive == RegexArena::Known::kUnknown) made.alive = node.alive;
  known_[rx] = out;
}

bool RegexArena::out_of_time() {
  constexpr uint32_t kTicks = 64;  // nodes of hundreds of parts take microseconds each, the clock half of one
  if (deadline_us_ == 0) return false;
  if (!exhausted_ && ++ticks_ % kTicks == 0) exhausted_ = thread_cpu_us() >= deadline_us_;
  return exhausted_;  // what is refused anyhow need not be finished
}

bool RegexArena::too_much(size_t parts) {
  if (deriving_ == 0 || deadline_us_ == 0) return false;
  work_ += parts;
  exhausted_ |= work_ > limits_.max_derivative;
  return exhausted_;
}

Rx RegexArena::intern(Kind kind, std::span<const uint32_t> args, bool nullable, bool positive) {
  const size_t hash = hash_of(static_cast<uint8_t>(kind), args);
  for (uint32_t at = buckets_[hash & (buckets_.size() - 1)]; at != 0; at = nodes_[at].chain) {
    if (nodes_[at].kind == kind && std::ranges::equal(this->args(at), args)) return at;
  }
  if (nodes_.size() >= most_nodes_ || out_of_time()) {
    exhausted_ = true;
    return kNothing;
  }
  if (nodes_.size() > buckets_.size()) grow_buckets();
  uint32_t& bucket = buckets_[hash & (buckets_.size() - 1)];
  Node node{kind, nullable, positive, Known::kUnknown, static_cast<uint32_t>(args_.size()), static_cast<uint32_t>(args.size())};
  node.chain = bucket;
  bucket = static_cast<uint32_t>(nodes_.size());
  args_.insert(args_.end(), args.begin(), args.end());
  nodes_.push_back(node);
  return bucket;
}

void RegexArena::grow_buckets() {
  buckets_.assign(buckets_.size() * 4, 0);
  for (uint32_t i = 1; i < nodes_.size(); ++i) {
    const size_t hash = hash_of(static_cast<uint8_t>(nodes_[i].kind), args(i));
    uint32_t& bucket = buckets_[hash & (buckets_.size() - 1)];
    nodes_[i].chain = bucket;
    bucket = i;
  }
}

ByteSet RegexArena::set_of(Rx rx) const {
  std::array<uint64_t, 4> words;
  for (size_t i = 0; i < 4; ++i) words[i] = arg(rx, i * 2) | uint64_t{arg(rx, i * 2 + 1)} << 32;
  return ByteSet::of_words(words);
}

Rx RegexArena::bytes(const ByteSet& set) {
  if (set.empty()) return kNothing;
  std::array<uint32_t, 8> args;
  for (size_t i = 0; i < 8; ++i) args[i] = static_cast<uint32_t>(set.words()[i / 2] >> (i % 2 * 32));
  return intern(Kind::kBytes, args, false, true);
}

Rx RegexArena::literal(std::string_view text) {
  Rx out = kEmptyText;
  for (size_t i = text.size(); i-- > 0;) {
    ByteSet set;
    set.add(static_cast<uint8_t>(text[i]));
    out = concat(bytes(set), out);
  }
  return out;
}

Rx RegexArena::concat(Rx first, Rx second) {
  if (first == kNothing || second == kNothing) return kNothing;
  if (first == kEmptyText) return second;
  if (second == kEmptyText) return first;
  if (kind(first) == Kind::kConcat) {
    // Kept leaning to the right; a loop, since literals may be long.
    std::vector<Rx> heads;
    for (; kind(first) == Kind::kConcat; first = arg(first, 1)) heads.push_back(arg(first, 0));
    Rx out = concat(first, second);
    for (size_t i = heads.size(); i-- > 0;) out = concat(heads[i], out);
    return out;
  }
  const std::array<uint32_t, 2> args{first, second};
  return intern(Kind::kConcat, args, nullable(first) && nullable(second), nodes_[first].positive && nodes_[second].positive);
}

Rx RegexArena::concat(std::initializer_list<Rx> parts) {
  Rx out = kEmptyText;
  for (auto part = parts.end(); part != parts.begin();) out = concat(*--part, out);
  return out;
}

// Of repetitions of one expression that go on alike, those whose counts meet are one: x{0,3}y | x{2,7}y is x{0,7}y. Without this
// a count of counts, as (a{1,99}){1,99}, has after n letters a choice for each way to share them out.
void RegexArena::join_counts(std::vector<Rx>& choices) {
  struct Counted {
    Rx unit, tail;
    uint32_t min, max;  // kNoLimit is the greatest
    auto operator<=>(const Counted&) const = default;
  };
  std::vector<Counted> counted;
  const auto is_counted = [&](Rx rx) { return kind(kind(rx) == Kind::kConcat ? arg(rx, 0) : rx) == Kind::kRepeat; };
  if (std::count_if(choices.begin(), choices.end(), is_counted) < 2) return;
  for (const Rx rx : choices) {
    if (!is_counted(rx)) continue;
    const bool more = kind(rx) == Kind::kConcat;
    const Rx head = more ? arg(rx, 0) : rx;
    counted.push_back({arg(head, 0), more ? arg(rx, 1) : kEmptyText, arg(head, 1), arg(head, 2)});
  }
  std::erase_if(choices, is_counted);
  std::sort(counted.begin(), counted.end());
  for (size_t i = 0; i < counted.size();) {
    Counted joined = counted[i];
    for (++i; i < counted.size(); ++i) {
      const Counted& next = counted[i];
      if (next.unit != joined.unit || next.tail != joined.tail || next.min > uint64_t{joined.max} + 1) break;
      joined.max = std::max(joined.max, next.max);
    }
    const Rx head = repeat(joined.unit, static_cast<int32_t>(joined.min), static_cast<int32_t>(joined.max));
    choices.push_back(concat(head, joined.tail));
  }
}

// Choices that begin with the same expression share it, which makes a trie of a list of literals.
Rx RegexArena::factor(std::vector<Rx>& choices, int depth) {
  join_counts(choices);
  const auto head = [&](Rx rx) { return kind(rx) == Kind::kConcat ? arg(rx, 0) : rx; };
  std::stable_sort(choices.begin(), choices.end(), [&](Rx a, Rx b) { return head(a) < head(b); });
  std::vector<Rx> out;
  for (size_t i = 0; i < choices.size();) {
    size_t end = i + 1;
    while (end < choices.size() && head(choices[end]) == head(choices[i])) ++end;
    if (end - i == 1) {
      out.push_back(choices[i]);
    } else {
      std::vector<Rx> tails;
      for (size_t k = i; k < end; ++k) tails.push_back(kind(choices[k]) == Kind::kConcat ? arg(choices[k], 1) : kEmptyText);
      const Rx first = head(choices[i]);
      out.push_back(concat(first, alternate_at(std::move(tails), depth + 1)));
    }
    i = end;
  }
  join_counts(out);
  std::sort(out.begin(), out.end());
  out.erase(std::unique(out.begin(), out.end()), out.end());
  std::erase(out, kNothing);
  if (out.empty()) return kNothing;
  if (out.size() == 1) return out[0];
  bool any_nullable = false, positive = true;
  for (const Rx rx : out) {
    any_nullable |= nullable(rx);
    positive &= nodes_[rx].positive;
  }
  return intern(Kind::kOr, out, any_nullable, positive);
}

Rx RegexArena::alternate(std::vector<Rx> choices) { return alternate_at(std::move(choices), 0); }

Rx RegexArena::alternate_at(std::vector<Rx> choices, int depth) {
  std::vector<Rx> flat;
  ByteSet single;
  for (const Rx choice : choices) {
    const auto add = [&](Rx rx) {
      if (kind(rx) == Kind::kBytes) {
        single = single | set_of(rx);
      } else if (rx != kNothing) {
        flat.push_back(rx);
      }
    };
    if (kind(choice) == Kind::kOr) {
      for (const Rx rx : args(choice)) add(rx);
    } else {
      add(choice);
    }
  }
  if (!single.empty()) flat.push_back(bytes(single));
  if (too_much(flat.size())) return kNothing;
  std::sort(flat.begin(), flat.end());
  flat.erase(std::unique(flat.begin(), flat.end()), flat.end());
  if (flat.empty()) return kNothing;
  if (std::binary_search(flat.begin(), flat.end(), kAnyBytes)) return kAnyBytes;
  if (flat.size() == 1) return flat[0];
  if (flat[0] == kEmptyText && std::any_of(flat.begin() + 1, flat.end(), [&](Rx rx) { return nullable(rx); })) {
    flat.erase(flat.begin());
    if (flat.size() == 1) return flat[0];
  }
  if (depth < kFactorDepth) return factor(flat, depth);
  bool any_nullable = false, positive = true;
  for (const Rx rx : flat) {
    any_nullable |= nullable(rx);
    positive &= nodes_[rx].positive;
  }
  return intern(Kind::kOr, flat, any_nullable, positive);
}

Rx RegexArena::intersect(std::vector<Rx> parts) {
  std::vector<Rx> flat;
  for (const Rx part : parts) {
    if (kind(part) == Kind::kAnd) {
      for (const Rx rx : args(part)) flat.push_back(rx);
    } else if (part != kAnyBytes) {
      flat.push_back(part);
    }
  }
  if (too_much(flat.size())) return kNothing;
  std::sort(flat.begin(), flat.end());
  flat.erase(std::unique(flat.begin(), flat.end()), flat.end());
  if (flat.empty()) return kAnyBytes;
  if (flat[0] == kNothing) return kNothing;
  bool all_nullable = true;
  for (const Rx rx : flat) all_nullable &= nullable(rx);
  if (flat[0] == kEmptyText) return all_nullable ? kEmptyText : kNothing;
  ByteSet single = ByteSet::all();
  size_t num_sets = 0;
  for (const Rx rx : flat) {
    if (kind(rx) == Kind::kNot && std::binary_search(flat.begin(), flat.end(), arg(rx, 0))) return kNothing;
    if (kind(rx) == Kind::kBytes) {
      single = single & set_of(rx);
      ++num_sets;
    }
  }
  if (num_sets > 1) {
    std::erase_if(flat, [&](Rx rx) { return kind(rx) == Kind::kBytes; });
    flat.push_back(bytes(single));
    return intersect(std::move(flat));
  }
  if (flat.size() == 1) return flat[0];
  return intern(Kind::kAnd, flat, all_nullable, false);
}

Rx RegexArena::complement(Rx rx) {
  if (kind(rx) == Kind::kNot) return arg(rx, 0);
  return intern(Kind::kNot, {&rx, 1}, !nullable(rx), rx == kNothing);
}

Rx RegexArena::repeat(Rx rx, int32_t min, int32_t max) {
  if (max == 0 || rx == kEmptyText) return kEmptyText;
  if (rx == kNothing) return min == 0 ? kEmptyText : kNothing;
  if (min == 1 && max == 1) return rx;
  if (nullable(rx)) min = 0;
  if (kind(rx) == Kind::kRepeat && arg(rx, 1) == 0 && static_cast<int32_t>(arg(rx, 2)) == kNoLimit) return rx;
  const std::array<uint32_t, 3> args{rx, static_cast<uint32_t>(min), static_cast<uint32_t>(max)};
  return intern(Kind::kRepeat, args, min == 0, nodes_[rx].positive);
}

Rx RegexArena::json_body(Rx text) {
  if (text == kNothing || text == kEmptyText) return text;
  return intern(Kind::kJsonBody, {&text, 1}, nullable(text), nodes_[text].positive);
}

Rx RegexArena::json_escape(Rx text) { return intern(Kind::kJsonEscape, {&text, 1}, false, false); }

Rx RegexArena::multiple_of(uint32_t modulus, uint32_t scale) { return multiple_node(modulus, 0, scale, 0); }

// Phases: 0 before the point, 1 right behind it (a digit must follow), 2 behind that. `rest` is what the digits so far are
// modulo, `left` how many digits behind the point still count.
Rx RegexArena::multiple_node(uint32_t modulus, uint32_t rest, uint32_t left, uint32_t phase) {
  uint64_t power = 1;
  for (uint32_t i = 0; i < left; ++i) power *= 10;
  const uint64_t shifted = static_cast<uint64_t>(rest) * (power % modulus) % modulus;
  const bool zero = shifted == 0;
  if (phase > 0 && (modulus - shifted) % modulus >= power) return kNothing;
  const std::array<uint32_t, 4> args{modulus, rest, left, phase};
  return intern(Kind::kMultiple, args, zero && phase != 1, true);
}

RegexArena::StringRest RegexArena::string_rest(Rx rx) const {
  if (kind(rx) == Kind::kConcat) rx = arg(rx, 0);
  const bool in_body = kind(rx) == Kind::kJsonBody;
  if (in_body) rx = arg(rx, 0);
  if (kind(rx) != Kind::kRepeat) return {};
  return {arg(rx, 0), static_cast<int32_t>(arg(rx, 2)), in_body};
}

Rx RegexArena::body_text(Rx rx) const {
  if (kind(rx) == Kind::kConcat) rx = arg(rx, 0);
  return kind(rx) == Kind::kJsonBody ? arg(rx, 0) : kNothing;
}

Rx RegexArena::derive(Rx rx, uint8_t byte) {
  for (const Edge& edge : edges(rx)) {
    if (edge.bytes.has(byte)) return edge.next;
  }
  return kNothing;
}

bool RegexArena::matches(Rx rx, std::string_view text) {
  for (const char c : text) {
    rx = derive(rx, static_cast<uint8_t>(c));
    if (rx == kNothing) return false;
  }
  return nullable(rx);
}

}  // namespace deepinfer
