#include "grammar/automaton.h"

#include <algorithm>

#include "grammar/char_class.h"
#include "grammar/host_name.h"
#include "grammar/json_text.h"
#include "grammar/regex_syntax.h"

namespace deepinfer {
namespace {

// A mask goes on for so long whatever its deadline, and at least as long again as it took to come to something new.
constexpr int64_t kLeastSliceUs = 1000;

// An entry takes 16 KB at the release's vocabulary.
constexpr size_t kMaxInteriors = 128;

// Of answers that take turns at one constraint.
constexpr size_t kMaxLeft = 32;

void set_bit(std::span<uint32_t> words, TokenId token) { words[static_cast<size_t>(token) / 32] |= 1u << (token % 32); }

void clear_bit(std::span<uint32_t> words, TokenId token) { words[static_cast<size_t>(token) / 32] &= ~(1u << (token % 32)); }

// All tokens of nodes [begin, end).
void mark(const std::vector<TokenTrie::Node>& nodes, uint32_t begin, uint32_t end, bool on, std::span<uint32_t> words) {
  for (uint32_t i = begin; i < end; ++i) {
    if (nodes[i].token >= 0) on ? set_bit(words, nodes[i].token) : clear_bit(words, nodes[i].token);
  }
}

// Ways that have come to the same place are one.
template <class T>
void unite(std::vector<T>& list, size_t from) {
  if (list.size() < from + 2) return;
  const auto begin = list.begin() + static_cast<std::ptrdiff_t>(from);
  std::sort(begin, list.end());
  list.erase(std::unique(begin, list.end()), list.end());
}

}  // namespace

Automaton::Automaton(std::shared_ptr<const Vocabulary> vocabulary, const Lexer& lexer, std::unique_ptr<RuleSource> rules)
    : vocabulary_(std::move(vocabulary)), lexer_(lexer), earley_(std::move(rules)) {
  plain_ = {utf8(lexer_.arena(), CodePointSet::any()), pattern_dot(lexer_.arena())};
  json_char_ = json_char(lexer_.arena());
  path_.resize(vocabulary_->max_depth() + 1);
  ends_.resize(vocabulary_->max_depth() + 2);
}

GrammarState Automaton::begin() {
  const RowId row = earley_.begin(lexer_);
  GrammarState state{.threads = {}, .complete = earley_.complete(row)};
  if (earley_.start(row) != Lexer::kDead) state.threads.push_back({row, earley_.start(row)});
  return state;
}

bool Automaton::step(size_t begin, size_t end, uint8_t byte) {
  const size_t first = pool_.size();
  sources_.clear();
  for (size_t i = begin; i < end; ++i) {
    const LexThread thread = pool_[i];
    const uint32_t next = lexer_.step(thread.lex, byte);
    if (next == 0) continue;
    const LexState lex = next / 2;
    if (next % 2 == 0) {
      pool_.push_back({thread.row, lex});
      continue;
    }
    const auto& pairs = lexer_.pairs(lex);
    if (std::any_of(pairs.begin(), pairs.end(), [](const Lexer::Pair& pair) { return pair.rest != kEmptyText; })) {
      pool_.push_back({thread.row, lex});
    }
    sources_.push_back({thread.row, lex});
  }
  bool complete = false;
  if (!sources_.empty()) {
    unite(sources_, 0);
    const RowId row = earley_.advance(lexer_, sources_);
    if (earley_.start(row) != Lexer::kDead) pool_.push_back({row, earley_.start(row)});
    complete = earley_.complete(row);
  }
  unite(pool_, first);
  return complete;
}

bool Automaton::advance(GrammarState& state, std::string_view bytes) {
  pool_ = state.threads;
  size_t begin = 0, end = pool_.size();
  bool complete = state.complete;
  for (const char c : bytes) {
    complete = step(begin, end, static_cast<uint8_t>(c));
    begin = end;
    end = pool_.size();
    if (begin == end && !complete) return false;
  }
  state.threads.assign(pool_.begin() + static_cast<std::ptrdiff_t>(begin), pool_.end());
  state.complete = complete;
  return true;
}

std::string Automaton::forced(GrammarState state, size_t most) {
  std::string out;
  while (out.size() < most && !state.complete) {
    int only = -1, choices = 0;
    for (const LexThread& thread : state.threads) {
      for (int byte = 0; byte < 256 && choices < 2; ++byte) {
        if (byte == only || lexer_.step(thread.lex, static_cast<uint8_t>(byte)) == 0) continue;
        only = byte;
        ++choices;
      }
    }
    if (choices != 1) break;
    out += static_cast<char>(only);
    if (!advance(state, std::string_view(out).substr(out.size() - 1))) break;
  }
  return out;
}

void Automaton::adopt(const Automaton& from, size_t num_shared, std::span<GrammarState* const> states) {
  RegexTranslation translation(from.lexer_.arena(), lexer_.arena(), num_shared);
  Earley::Adoption row(from.earley_, from.lexer_, earley_, lexer_, translation);
  for (GrammarState* state : states) {
    for (LexThread& thread : state->threads) thread = {row(thread.row), lexer_.adopt(from.lexer_, thread.lex, translation)};
  }
}

// Looks at the clock and the room now and then: a node takes 4 ns where all is built, and a tenth of a millisecond where not.
inline bool Automaton::leaves_off() {
  constexpr uint32_t kTicks = 32;
  return ++work_.ticks % kTicks == 0 && must_leave_off();
}

bool Automaton::must_leave_off() {
  const size_t built = this->built();
  if (bytes() > max_bytes_) lexer_.arena().exhaust();
  if (lexer_.arena().spent()) return true;
  const int64_t now = MaskDeadline::now_us();
  if (work_.fresh_us == 0 && built != work_.built) work_.fresh_us = now;
  work_.built = built;
  const bool is_awaited = work_.waiting && work_.waiting->load(std::memory_order_relaxed) > 0;
  if (work_.fresh_us == 0 || (now < work_.deadline->at_us() && !is_awaited)) return false;
  return now - work_.fresh_us >= std::max(kLeastSliceUs, work_.fresh_us - work_.begin_us);
}

bool Automaton::mask(const GrammarState& state, std::span<uint32_t> words, const MaskDeadline& deadline,
                     const std::atomic<int32_t>* waiting) {
  work_ = {.deadline = &deadline, .waiting = waiting, .begin_us = MaskDeadline::now_us(), .built = built()};
  std::fill(words.begin(), words.end(), 0);
  for (const LexThread& thread : state.threads) {
    const std::shared_ptr<const Interior> inner = interior(thread.lex);
    if (!inner) return false;
    for (size_t i = 0; i < words.size(); ++i) words[i] |= inner->words[i];
    for (const auto& [lex, exits] : inner->exits) {
      const Earley::Source source{thread.row, lex};
      LexThread next{earley_.advance(lexer_, {&source, 1}), Lexer::kDead};
      next.lex = earley_.start(next.row);
      if (next.lex == Lexer::kDead) continue;
      for (const Exit& exit : exits) {
        if (!walk(vocabulary_->slices()[exit.slice].trie, exit.node, next, words)) return false;
      }
    }
  }
  return !lexer_.arena().spent();
}

std::shared_ptr<const Automaton::Interior> Automaton::interior(LexState state) {
  if (const auto found = interiors_.find(state); found != interiors_.end()) return found->second;
  Walk walk;
  if (const auto left = left_.find(state); left != left_.end()) {
    walk = std::move(left->second);
    left_.erase(left);
  }
  if (!go_on(state, walk)) {
    if (left_.size() >= kMaxLeft) left_.clear();
    left_.emplace(state, std::move(walk));
    return nullptr;
  }
  if (interiors_.size() >= kMaxInteriors) interiors_.clear(), interior_bytes_ = 0;
  auto out = std::make_shared<const Interior>(std::move(walk.out));
  interior_bytes_ += out->words.size() * sizeof(uint32_t);
  for (const auto& [lex, exits] : out->exits) interior_bytes_ += 64 + exits.size() * sizeof(Exit);
  return interiors_.emplace(state, std::move(out)).first->second;
}

bool Automaton::go_on(LexState state, Walk& walk) {
  std::vector<uint32_t>& words = walk.out.words;
  const Room plain = room(state);
  const int32_t chars = plain.inside_char ? 0 : plain.chars;
  if (words.empty()) {
    words.assign(vocabulary_->num_words(), 0);
    walk.states.assign(vocabulary_->max_depth() + 1, state);
    walk.bytes.resize(walk.states.size());
    walk.free.assign(walk.states.size(), lexer_.free_bytes(state));
    if (plain.exact) vocabulary_->allow_plain(chars, words);
  }
  for (; walk.slice < (plain.exact ? 1 : vocabulary_->slices().size()); ++walk.slice, walk.node = 0, walk.begun = false) {
    const Vocabulary::Slice& slice = vocabulary_->slices()[walk.slice];
    if (walk.slice > 0 && chars >= slice.max_chars) {
      for (size_t word = 0; word < slice.mask.size(); ++word) words[word] |= slice.mask[word];
    } else if (lexer_.costly(state) ? !walk_costly(walk) : !walk_terminal(state, walk)) {
      return false;
    }
  }
  return true;
}

inline const Automaton::Room& Automaton::room(LexState state) {
  return state < rooms_.size() && rooms_[state].chars >= 0 ? rooms_[state] : find_room(state);
}

const Automaton::Room& Automaton::find_room(LexState state) {
  if (state >= rooms_.size()) rooms_.resize(std::max<size_t>(lexer_.num_states(), state + size_t{1}));
  Room out{.chars = 0, .exact = true, .loops = {}};
  if (lexer_.costly(state)) return rooms_[state] = {.chars = 0, .exact = false, .loops = {}};
  RegexArena& arena = lexer_.arena();
  for (const Lexer::Pair& pair : lexer_.pairs(state)) {
    const RegexArena::StringRest rest = arena.string_rest(pair.rest);
    const bool any = rest.in_body ? plain_.has(rest.unit) : rest.unit == json_char_;
    if (any) out.chars = std::max(out.chars, rest.max == kNoLimit ? INT32_MAX : rest.max);
    if (!any && arena.goes_on(arena.body_text(pair.rest), plain_)) out.chars = INT32_MAX;
    out.exact &= any;
  }
  for (const Lexer::Pair& pair : lexer_.pairs(state)) {
    if (out.chars < INT32_MAX && is_inside_free_char(pair.rest)) out = {.chars = INT32_MAX, .inside_char = true, .loops = {}};
  }
  for (int byte = 0; byte < 256 && !out.exact; ++byte) {
    if (lexer_.step(state, static_cast<uint8_t>(byte)) == state * 2) out.loops.add(static_cast<uint8_t>(byte));
  }
  return rooms_[state] = out;
}

// Behind the first bytes of a character of any text up to the end of a string.
bool Automaton::is_inside_free_char(Rx rest) {
  RegexArena& arena = lexer_.arena();
  const Rx tail = arena.body_tail(rest);
  if (tail == kNothing) return false;
  if (known_tails_.insert(tail).second) {
    std::vector<Rx> open{arena.concat(arena.json_body(arena.repeat(plain_.any, 0, kNoLimit)), tail)};
    while (!open.empty()) {
      const Rx rx = open.back();
      open.pop_back();
      if (!free_text_.insert(rx).second) continue;
      const auto edges = arena.edges(rx);
      for (const RegexArena::Edge& edge : std::vector<RegexArena::Edge>(edges.begin(), edges.end())) {
        if (!(edge.bytes & ByteSet::range(0x80, 0xFF)).empty()) open.push_back(edge.next);
      }
    }
  }
  return free_text_.contains(rest);
}

// Most beginnings of the slice's tokens fit, so it is shorter to strike out what does not. Two bytes are looked at: nearly half
// of the tokens begin with a blank, which fits wherever white space may come.
std::optional<bool> Automaton::mostly_fits(LexState state, const Vocabulary::Slice& slice) {
  const auto& nodes = slice.trie.nodes();
  size_t dead = 0;
  const uint32_t* path[2] = {lexer_.table(state), nullptr};
  for (uint32_t i = 0; i < nodes.size();) {
    const TokenTrie::Node& node = nodes[i];
    const uint32_t next = path[node.depth][node.byte];
    if (next == 0) dead += node.end - i;
    if (built() != work_.built && must_leave_off()) return std::nullopt;
    const bool deeper = next != 0 && node.depth == 0 && room(next / 2).chars < slice.max_chars;
    if (deeper) path[1] = lexer_.table(next / 2);
    i = deeper ? i + 1 : node.end;
  }
  return dead * 2 < nodes.size();
}

bool Automaton::walk_terminal(LexState state, Walk& walk) {
  const uint32_t index = walk.slice;
  const Vocabulary::Slice& slice = vocabulary_->slices()[index];
  const auto& nodes = slice.trie.nodes();
  const std::span<uint32_t> words = walk.out.words;
  if (walk.node == nodes.size()) return true;
  if (!walk.begun) {
    // Either the tokens that fit are added, or all are taken and those that do not fit struck out. Behind the quote of a key
    // that may have any name but some, nearly every first byte leads to where all the rest fits.
    const std::optional<bool> mostly = index > 0 ? mostly_fits(state, slice) : false;
    if (!mostly) return false;
    walk.strike = *mostly;
    for (size_t word = 0; walk.strike && word < slice.mask.size(); ++word) words[word] |= slice.mask[word];
    walk.begun = true;
  }
  const bool strike = walk.strike;
  const uint32_t** const path = path_.data();
  LexState* const states = walk.states.data();
  for (uint32_t depth = 0; depth <= nodes[walk.node].depth; ++depth) path[depth] = lexer_.table(states[depth]);
  for (uint32_t i = walk.node, end = static_cast<uint32_t>(nodes.size()); i < end;) {
    const TokenTrie::Node node = nodes[i];
    const uint32_t next = path[node.depth][node.byte];
    if (leaves_off()) return walk.node = i, false;
    const bool fits = next != 0;
    if (node.end == i + 1) {
      if (fits && !strike) set_bit(words, node.token);
      if (!fits && strike) clear_bit(words, node.token);
      ++i;
    } else if (!fits || (index > 0 && room(next / 2).chars >= slice.max_chars) ||
               (node.large != 0 && room(next / 2).loops.has_all(slice.trie.below(i)))) {
      if (fits != strike) mark(nodes, i, node.end, fits, words);
      i = node.end;
    } else {
      if (node.token >= 0 && !strike) set_bit(words, node.token);
      if (next % 2 == 1) walk.out.exits[next / 2].push_back({index, i});
      states[node.depth + 1u] = next / 2;
      path[node.depth + 1u] = lexer_.table(next / 2);
      ++i;
      if (built() != work_.built && must_leave_off()) return walk.node = i, false;
    }
  }
  return true;
}

// The same byte by byte, as far as tokens fit. The state behind bytes that fit whatever they are is made when another one
// follows: of 30,000 beginnings inside an A-label some hundred.
bool Automaton::walk_costly(Walk& walk) {
  const auto& nodes = vocabulary_->slices()[walk.slice].trie.nodes();
  std::vector<LexState>& states = walk.states;
  for (uint32_t i = walk.node; i < nodes.size();) {
    const TokenTrie::Node& node = nodes[i];
    const size_t depth = node.depth;
    if (leaves_off()) return walk.node = i, false;
    walk.bytes[depth] = node.byte;
    if (HostName::is_in_a_label(node.byte) && walk.free[depth] > 0) {
      if (node.token >= 0) set_bit(walk.out.words, node.token);
      states[depth + 1] = Lexer::kDead;
      walk.free[depth + 1] = walk.free[depth] - 1;
      ++i;
      continue;
    }
    size_t known = depth;
    while (states[known] == Lexer::kDead) --known;
    for (; known < depth; ++known) states[known + 1] = lexer_.step(states[known], walk.bytes[known]) / 2;
    const uint32_t next = lexer_.step(states[depth], node.byte);
    if (next != 0 && node.token >= 0) set_bit(walk.out.words, node.token);
    if (next % 2 == 1 && node.end > i + 1) walk.out.exits[next / 2].push_back({walk.slice, i});
    states[depth + 1] = next / 2;
    walk.free[depth + 1] = lexer_.free_bytes(next / 2);
    i = next != 0 ? i + 1 : node.end;
  }
  return true;
}

// The tokens below `node`, at which `thread` begins.
bool Automaton::walk(const TokenTrie& trie, uint32_t node, LexThread thread, std::span<uint32_t> words) {
  const auto& nodes = trie.nodes();
  const size_t base = nodes[node].depth + 1u;
  pool_.assign(1, thread);
  ends_[0] = 0;
  ends_[1] = 1;
  for (uint32_t i = node + 1; i < nodes[node].end;) {
    const TokenTrie::Node& at = nodes[i];
    const size_t depth = at.depth - base;
    if (leaves_off()) return false;
    // Behind most exits nothing of the subtree goes on, which one look shows.
    if (depth == 0 && lexer_.step(thread.lex, at.byte) == 0) {
      i = at.end;
      continue;
    }
    pool_.resize(ends_[depth + 1]);
    const bool complete = step(ends_[depth], ends_[depth + 1], at.byte);
    if (pool_.size() == ends_[depth + 1] && !complete) {
      i = at.end;
      continue;
    }
    if (at.token >= 0) set_bit(words, at.token);
    ends_[depth + 2] = pool_.size();
    ++i;
  }
  return true;
}

}  // namespace deepinfer
