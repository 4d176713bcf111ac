// The derivatives of grammar/regex.h: one function a kind of expression.
#include <algorithm>
#include <deque>
#include <unordered_map>
#include <utility>

#include "grammar/regex.h"

namespace deepinfer {
namespace {

// How many expressions one search for a shortest text may look at. A minimum length needs as many.
constexpr size_t kAliveBudget = 20'000;

// To look which bytes a part treats alike takes so much less than to make an expression of it.
constexpr size_t kLooksAPart = 8;

constexpr ByteSet kRawInString = [] {
  ByteSet set;
  for (int byte = 0x20; byte < 256; ++byte) {
    if (byte != '"' && byte != '\\') set.add(static_cast<uint8_t>(byte));
  }
  return set;
}();

struct Escape {
  char letter;
  uint8_t byte;
};
constexpr Escape kEscapes[] = {{'"', '"'}, {'\\', '\\'}, {'/', '/'}, {'b', 8}, {'f', 12}, {'n', 10}, {'r', 13}, {'t', 9}};

}  // namespace

std::span<const RegexArena::Edge> RegexArena::edges(Rx rx) {
  if (!nodes_[rx].has_edges && !out_of_time()) {
    if (deriving_++ == 0) work_ = 0;
    const Edges computed = too_much(1) ? Edges{} : compute_edges(rx);
    --deriving_;
    Node& node = nodes_[rx];
    node.has_edges = true;
    if (edges_.size() + computed.size() > most_edges_) {
      exhausted_ = true;
    } else {
      node.edges = static_cast<uint32_t>(edges_.size());
      node.num_edges = static_cast<uint32_t>(computed.size());
      edges_.insert(edges_.end(), computed.begin(), computed.end());
    }
  }
  return {edges_.data() + nodes_[rx].edges, nodes_[rx].num_edges};
}

RegexArena::Edges RegexArena::edges_copy(Rx rx) {
  const std::span<const Edge> found = edges(rx);
  return {found.begin(), found.end()};
}

RegexArena::Edges RegexArena::compute_edges(Rx rx) {
  switch (kind(rx)) {
    case Kind::kNothing:
    case Kind::kEmpty: return {};
    case Kind::kBytes: return {{set_of(rx), kEmptyText}};
    case Kind::kConcat: return concat_edges(rx);
    case Kind::kOr: return combined_edges(rx, false);
    case Kind::kAnd: return combined_edges(rx, true);
    case Kind::kNot: return not_edges(rx);
    case Kind::kRepeat: return repeat_edges(rx);
    case Kind::kJsonBody: return body_edges(rx);
    case Kind::kJsonEscape: return escape_edges(rx);
    case Kind::kMultiple: return multiple_edges(rx);
    case Kind::kHostName: return host_edges(rx);
  }
  return {};
}

RegexArena::Edges RegexArena::concat_edges(Rx rx) {
  const Rx first = arg(rx, 0), second = arg(rx, 1);
  Edges out = edges_copy(first);
  for (Edge& edge : out) edge.next = concat(edge.next, second);
  if (!nullable(first)) return out;
  return combine({std::move(out), edges_copy(second)}, false);
}

RegexArena::Edges RegexArena::combined_edges(Rx rx, bool is_and) {
  const std::vector<Rx> children(args(rx).begin(), args(rx).end());
  std::vector<Edges> parts;
  for (const Rx child : children) parts.push_back(edges_copy(child));
  return combine(parts, is_and);
}

// Splits the bytes into classes that every part treats alike and joins what the parts say of each.
RegexArena::Edges RegexArena::combine(const std::vector<Edges>& parts, bool is_and) {
  BytePartition partition;
  for (const Edges& part : parts) {
    for (const Edge& edge : part) partition.split(edge.bytes);
  }
  Edges out;
  std::vector<Rx> members;
  for (const ByteSet& bytes : partition.sets()) {
    members.clear();
    for (const Edges& part : parts) {
      const auto found = std::find_if(part.begin(), part.end(), [&](const Edge& edge) { return edge.bytes.has(bytes.first()); });
      if (found != part.end()) members.push_back(found->next);
    }
    if (too_much(1 + parts.size() / kLooksAPart)) return {};
    if (members.empty() || (is_and && members.size() < parts.size())) continue;
    const Rx next = is_and ? intersect(members) : alternate(members);
    if (next == kNothing) continue;
    const auto place = std::find_if(out.begin(), out.end(), [&](const Edge& edge) { return edge.next == next; });
    if (place == out.end()) {
      out.push_back({bytes, next});
    } else {
      place->bytes = place->bytes | bytes;
    }
  }
  return out;
}

RegexArena::Edges RegexArena::not_edges(Rx rx) {
  Edges out = edges_copy(arg(rx, 0));
  ByteSet rest = ByteSet::all();
  for (Edge& edge : out) {
    rest = rest & ~edge.bytes;
    edge.next = complement(edge.next);
  }
  if (!rest.empty()) out.push_back({rest, kAnyBytes});
  std::erase_if(out, [](const Edge& edge) { return edge.next == kNothing; });
  return out;
}

RegexArena::Edges RegexArena::repeat_edges(Rx rx) {
  const Rx unit = arg(rx, 0);
  const auto min = static_cast<int32_t>(arg(rx, 1)), max = static_cast<int32_t>(arg(rx, 2));
  const Rx rest = repeat(unit, std::max(0, min - 1), max == kNoLimit ? kNoLimit : max - 1);
  Edges out = edges_copy(unit);
  for (Edge& edge : out) edge.next = concat(edge.next, rest);
  return out;
}

RegexArena::Edges RegexArena::body_edges(Rx rx) {
  const Rx text = arg(rx, 0);
  Edges out;
  bool escapes = false;
  for (const Edge& edge : edges_copy(text)) {
    const ByteSet raw = edge.bytes & kRawInString;
    if (!raw.empty()) out.push_back({raw, json_body(edge.next)});
    escapes |= !(edge.bytes & ~kRawInString).empty() || edge.bytes.has('/');
  }
  ByteSet backslash;
  backslash.add('\\');
  if (escapes) out.push_back({backslash, json_escape(text)});
  return out;
}

RegexArena::Edges RegexArena::escape_edges(Rx rx) {
  const Rx text = arg(rx, 0);
  std::vector<Edges> parts;
  std::vector<Rx> wide;
  for (const Edge& edge : edges_copy(text)) {
    for (const int high : {0, 16}) {
      constexpr std::string_view kDigits = "0123456789abcdef";
      ByteSet last;
      for (int low = 0; low < 16; ++low) {
        if (!edge.bytes.has(static_cast<uint8_t>(high + low))) continue;
        last.add(static_cast<uint8_t>(kDigits[static_cast<size_t>(low)]));
        if (low > 9) last.add(static_cast<uint8_t>('A' + low - 10));
      }
      if (!last.empty()) wide.push_back(concat({literal(high == 0 ? "000" : "001"), bytes(last), json_body(edge.next)}));
    }
  }
  for (const Escape& escape : kEscapes) {
    const Rx next = json_body(derive(text, escape.byte));
    ByteSet letter;
    letter.add(static_cast<uint8_t>(escape.letter));
    if (next != kNothing) parts.push_back({{letter, next}});
  }
  ByteSet u;
  u.add('u');
  if (!wide.empty()) parts.push_back({{u, alternate(std::move(wide))}});
  return combine(parts, false);
}

RegexArena::Edges RegexArena::multiple_edges(Rx rx) {
  const uint32_t modulus = arg(rx, 0), rest = arg(rx, 1), left = arg(rx, 2), phase = arg(rx, 3);
  Edges out;
  const auto add = [&](char byte, Rx next) {
    ByteSet set;
    set.add(static_cast<uint8_t>(byte));
    if (next != kNothing) out.push_back({set, next});
  };
  if (phase == 0) add('.', multiple_node(modulus, rest, left, 1));
  for (uint32_t digit = 0; digit < 10; ++digit) {
    const bool counts = phase == 0 || left > 0;
    if (!counts && digit > 0) break;
    const uint32_t next = counts ? static_cast<uint32_t>((uint64_t{rest} * 10 + digit) % modulus) : rest;
    add(static_cast<char>('0' + digit),
        multiple_node(modulus, next, phase == 0 || left == 0 ? left : left - 1, phase == 0 ? 0 : 2));
  }
  return out;
}

bool RegexArena::alive(Rx rx) {
  if (rx == kNothing) return false;
  if (nodes_[rx].positive || nodes_[rx].nullable) return true;
  if (nodes_[rx].alive == Known::kUnknown) nodes_[rx].alive = find_alive(rx) ? Known::kYes : Known::kNo;
  return nodes_[rx].alive == Known::kYes;
}

// By its parts as far as they tell, which needs no derivatives: behind each byte of a key that may have any name but some stands
// such an expression. Choices are searched: of many that overlap one may be alive and the next step still beyond all limits,
// which must show before an answer begins.
bool RegexArena::find_alive(Rx rx) {
  switch (kind(rx)) {
    case Kind::kConcat: {
      // A loop, since chains may be long.
      for (; kind(rx) == Kind::kConcat; rx = arg(rx, 1)) {
        if (!alive(arg(rx, 0))) return false;
      }
      return alive(rx);
    }
    case Kind::kRepeat:
    case Kind::kJsonBody: return alive(arg(rx, 0));  // every text may be written in a string
    case Kind::kAnd:
      // In this order: names of hosts with A-labels are too many to be searched.
      if (const Rx plain = with_plain_hosts(rx); plain != rx) return alive(plain);
      return search_alive(rx);
    default: return search_alive(rx);
  }
}

bool RegexArena::goes_on(Rx rx, const PlainChars& plain) {
  if (nodes_[rx].goes_on == Known::kUnknown) {
    const bool found = find_goes_on(rx, plain);
    nodes_[rx].goes_on = found ? Known::kYes : Known::kNo;
  }
  return nodes_[rx].goes_on == Known::kYes;
}

bool RegexArena::find_goes_on(Rx rx, const PlainChars& plain) {
  const std::vector<Rx> parts(args(rx).begin(), args(rx).begin() + static_cast<std::ptrdiff_t>(num_parts(rx)));
  const Rx all = repeat(plain.any, 0, kNoLimit);
  switch (kind(rx)) {
    case Kind::kRepeat: return plain.has(parts[0]) && static_cast<int32_t>(arg(rx, 2)) == kNoLimit;
    case Kind::kConcat: return (goes_on(parts[0], plain) && alive(parts[1])) || (nullable(parts[0]) && goes_on(parts[1], plain));
    case Kind::kOr: return std::any_of(parts.begin(), parts.end(), [&](Rx part) { return goes_on(part, plain); });
    case Kind::kAnd: {
      // One that goes on, less some texts.
      Rx one = kNothing;
      for (const Rx part : parts) {
        if (part == all || leaves_enough(part, plain.any)) continue;
        if (std::exchange(one, part) != kNothing) return ends_go_on(rx, plain);
      }
      return one != kNothing ? goes_on(one, plain) : std::find(parts.begin(), parts.end(), all) != parts.end();
    }
    default: return false;
  }
}

// Whether a long text is in it is told by its end alone, as of patterns like `\.js$` and not `\.css$` together: then what goes on
// behind a character that is in no end goes on behind any text.
bool RegexArena::ends_go_on(Rx rx, const PlainChars& plain) {
  std::vector<Rx> parts(args(rx).begin(), args(rx).end());
  for (Rx& part : parts) {
    part = of_ends(part, plain);
    if (part == kNothing) return false;
  }
  const Rx ends = intersect(std::move(parts));
  constexpr uint8_t kInNoEnd = 1;
  return derive(ends, kInNoEnd) == ends && alive(ends);
}

// Its long texts as what they end in; kNothing where they cannot be told so.
Rx RegexArena::of_ends(Rx rx, const PlainChars& plain) {
  const auto is_any = [&](Rx part) {
    return kind(part) == Kind::kRepeat && plain.has(arg(part, 0)) && arg(part, 1) == 0 &&
           static_cast<int32_t>(arg(part, 2)) == kNoLimit;
  };
  if (kind(rx) == Kind::kNot) {
    if (finite(arg(rx, 0))) return kAnyBytes;
    const Rx inside = of_ends(arg(rx, 0), plain);
    return inside == kNothing ? kNothing : complement(inside);
  }
  if (kind(rx) == Kind::kOr) {
    std::vector<Rx> parts;
    for (const Rx part : std::vector<Rx>(args(rx).begin(), args(rx).end())) {
      if (finite(part)) continue;
      parts.push_back(of_ends(part, plain));
      if (parts.back() == kNothing) return kNothing;
    }
    return alternate(std::move(parts));
  }
  Rx end = rx;
  while (kind(end) == Kind::kConcat && is_any(arg(end, 0))) end = arg(end, 1);
  return is_any(end) || (end != rx && finite(end)) ? rx : kNothing;
}

// The complement of finitely many texts, or of those of one class of characters, which is not all: any other one leads out.
bool RegexArena::leaves_enough(Rx rx, Rx any_char) {
  if (kind(rx) != Kind::kNot) return false;
  const Rx texts = arg(rx, 0);
  if (finite(texts)) return true;
  if (kind(texts) != Kind::kRepeat) return false;
  const Rx unit = arg(texts, 0);
  return !alive(intersect({unit, complement(any_char)})) && alive(intersect({any_char, complement(unit)}));
}

bool RegexArena::finite(Rx rx) {
  if (nodes_[rx].finite != Known::kUnknown) return nodes_[rx].finite == Known::kYes;
  const Rx whole = rx;
  bool out = true;
  for (; out && kind(rx) == Kind::kConcat; rx = arg(rx, 1)) out = finite(arg(rx, 0));
  if (out && kind(rx) == Kind::kOr) {
    const std::vector<Rx> parts(args(rx).begin(), args(rx).end());
    out = std::all_of(parts.begin(), parts.end(), [&](Rx part) { return finite(part); });
  } else if (out) {
    const bool bounded = kind(rx) == Kind::kRepeat && static_cast<int32_t>(arg(rx, 2)) != kNoLimit;
    out = kind(rx) <= Kind::kBytes || (bounded && finite(arg(rx, 0)));
  }
  nodes_[whole].finite = out ? Known::kYes : Known::kNo;
  return out;
}

bool RegexArena::search_alive(Rx start) {
  std::unordered_map<Rx, Rx> parent{{start, kNothing}};
  std::deque<Rx> open{start};
  while (!open.empty() && parent.size() < kAliveBudget && !out_of_time()) {
    const Rx rx = open.front();
    open.pop_front();
    if (nodes_[rx].positive || nodes_[rx].nullable || nodes_[rx].alive == Known::kYes) {
      for (Rx up = rx; up != kNothing; up = parent[up]) nodes_[up].alive = Known::kYes;
      return true;
    }
    for (const Edge& edge : edges_copy(rx)) {
      if (nodes_[edge.next].alive == Known::kNo) continue;
      if (parent.try_emplace(edge.next, rx).second) open.push_back(edge.next);
    }
  }
  if (!open.empty()) {
    gave_up_ = true;
    nodes_[start].alive = Known::kNo;  // not asked again, which would take as long
    return false;
  }
  for (const auto& [rx, up] : parent) nodes_[rx].alive = Known::kNo;
  return false;
}

}  // namespace deepinfer
