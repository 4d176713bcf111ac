#include "grammar/constraint.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <optional>
#include <utility>

#include "grammar/regex_syntax.h"

namespace deepinfer {
namespace {

// What the masks of a constraint may take beyond what it takes, and how much more while one set is worked out.
constexpr size_t kRoom = 24 << 20, kRoomOfFill = 64 << 20;

// Processor time for one set. The slowest seen takes 0.9 s: a choice of 200 open objects, each again with a choice of all.
constexpr int64_t kMaxFillUs = 5'000'000;

// How far ahead a text is followed that leaves no choice, and how many tokens before it are tokenized with it: where tokens
// begin depends on little of what is before.
constexpr size_t kMaxForced = 96, kContext = 16;

// With more lexer states (about a kilobyte each) nothing is kept for later answers.
constexpr size_t kMaxLearned = 1000;

}  // namespace

class ConstraintMask;

// What all masks of a constraint build on. What it answers does not depend on how much of it is built or by whom, so what one
// answer has worked out is there for the others at once. Threads: any; whoever holds a Turn may touch the automaton and the
// masks' histories.
class SharedAutomaton {
 public:
  explicit SharedAutomaton(Automaton automaton) : first_(std::move(automaton)), begun_bytes_(first_.bytes()) {}

  // Where another one waits, a set that takes long is left off for it.
  class Turn {
   public:
    explicit Turn(SharedAutomaton& shared) : lock_(shared.mutex_, std::defer_lock) {
      ++shared.waiting_;
      lock_.lock();
      --shared.waiting_;
    }

   private:
    std::unique_lock<std::mutex> lock_;
  };

  const Automaton& first() const { return first_; }
  // The rest is for holders of a Turn.
  Automaton& automaton() { return *automaton_; }
  const std::atomic<int32_t>& waiting() const { return waiting_; }
  void enter(ConstraintMask& mask) {
    if (!automaton_) automaton_.emplace(first_);
    masks_.push_back(&mask);
    give_room();
  }
  void leave(ConstraintMask& mask) {
    std::erase(masks_, &mask);
    if (!masks_.empty()) return;
    if (automaton_->num_states() > kMaxLearned || automaton_->exhausted() || !automaton_->lexer().arena().roomy())
      automaton_.reset();
    if (automaton_) automaton_->truncate(first_.num_rows());
  }
  void tidy() {
    const size_t used = automaton_->bytes() - std::min(begun_bytes_, automaton_->bytes());
    // Where what is in use alone takes more than the room, as much again is given before the next beginning.
    if (std::exchange(is_new_, false)) room_ = std::clamp(2 * used, kRoom, kRoom + kRoomOfFill);
    if (used > room_ || automaton_->lexer().arena().spent()) begin_anew();
    give_room();
  }

 private:
  // However much earlier sets have built, each has the same room: one that comes near the limits must not depend on them.
  void give_room() {
    automaton_->lexer().arena().extend();
    automaton_->set_room(std::max(automaton_->bytes(), begun_bytes_ + kRoom) + kRoomOfFill);
  }
  void begin_anew();

  std::mutex mutex_;
  std::atomic<int32_t> waiting_{0};
  const Automaton first_;
  const size_t begun_bytes_;
  std::optional<Automaton> automaton_;  // while there are masks, and between them what they learned
  std::vector<ConstraintMask*> masks_;
  size_t room_ = kRoom;
  bool is_new_ = false;
};

class ConstraintMask final : public TokenMask {
 public:
  struct Entry {
    GrammarState state;
    TokenId token = -1;  // that led here
  };

  ConstraintMask(std::shared_ptr<SharedAutomaton> shared, const GrammarState& first, std::vector<TokenId> end_ids)
      : shared_(std::move(shared)), end_ids_(std::move(end_ids)) {
    history_.push_back({first, -1});
    const SharedAutomaton::Turn turn(*shared_);
    shared_->enter(*this);
  }
  ~ConstraintMask() override {
    const SharedAutomaton::Turn turn(*shared_);
    shared_->leave(*this);
  }

  MaskFill fill(std::span<uint32_t> words, const MaskDeadline& deadline) const override {
    const SharedAutomaton::Turn turn(*shared_);
    if (!std::exchange(filling_, true)) {
      left_us_ = kMaxFillUs;
      shared_->tidy();  // and not when the last set was ready, which knew the way that the token behind it went
    }
    RegexArena& arena = automaton().lexer().arena();
    arena.start_clock(left_us_);
    const MaskFill out = fill_in_time(words, deadline);
    left_us_ = arena.stop_clock();
    filling_ = out == MaskFill::kUnfinished;
    if (out == MaskFill::kFailed) shared_->tidy();
    return out;
  }

  // Only the tokenizer's own way to write a text that is sure to come: so the state stays a function of the accepted tokens,
  // however they came to be known.
  TokenId forced() const override {
    if (forced_) return *forced_;
    const SharedAutomaton::Turn turn(*shared_);
    return find_forced();
  }

  bool accept(TokenId token) override {
    const SharedAutomaton::Turn turn(*shared_);
    filling_ = false;
    const TokenId only = find_forced();
    if (only >= 0 && token != only) return false;
    forced_.reset();
    if (only >= 0) shared_->tidy();  // of forced tokens no set is asked for
    if (std::find(end_ids_.begin(), end_ids_.end(), token) != end_ids_.end()) {
      if (!history_.back().state.complete) return false;
      history_.push_back({{}, token});
      return true;
    }
    if (token < 0 || token >= automaton().vocabulary().size()) return false;
    const std::string_view bytes = automaton().vocabulary().bytes(token);
    GrammarState state = history_.back().state;
    if (bytes.empty() || !automaton().advance(state, bytes)) return false;
    history_.push_back({std::move(state), token});
    return true;
  }

  void rollback(int32_t num_tokens) override {
    const SharedAutomaton::Turn turn(*shared_);
    filling_ = false;
    forced_.reset();
    history_.resize(history_.size() - static_cast<size_t>(num_tokens));
  }
  bool complete() const override {
    const SharedAutomaton::Turn turn(*shared_);
    return history_.back().state.complete;
  }

  // The part of the history that may still be asked for.
  std::vector<Entry>& kept() {
    constexpr size_t kKept = kMaxRollback + 1 + kContext;
    if (history_.size() > kKept) history_.erase(history_.begin(), history_.end() - kKept);
    return history_;
  }

 private:
  Automaton& automaton() const { return shared_->automaton(); }

  MaskFill fill_in_time(std::span<uint32_t> words, const MaskDeadline& deadline) const {
    const RegexArena& arena = automaton().lexer().arena();
    if (const TokenId only = find_forced(); only >= 0) {
      std::fill(words.begin(), words.end(), 0);
      words[static_cast<size_t>(only) / 32] |= 1u << (only % 32);
      return arena.spent() ? MaskFill::kFailed : MaskFill::kReady;
    }
    const size_t num_words = automaton().vocabulary().num_words();
    const GrammarState& state = history_.back().state;
    const bool ready = automaton().mask(state, words.first(num_words), deadline, &shared_->waiting());
    if (arena.spent()) return MaskFill::kFailed;
    if (!ready) return MaskFill::kUnfinished;
    for (uint32_t& word : words.subspan(num_words)) word = 0;
    if (state.complete) {
      for (const TokenId id : end_ids_) words[static_cast<size_t>(id) / 32] |= 1u << (id % 32);
    }
    return MaskFill::kReady;
  }

  TokenId find_forced() const {
    if (forced_) return *forced_;
    const std::string text = automaton().forced(history_.back().state, kMaxForced);
    if (text.size() < 2) return *(forced_ = -1);  // its only piece is not settled
    std::string before;
    const size_t first = history_.size() - std::min(history_.size() - 1, kContext);
    for (size_t i = first; i < history_.size(); ++i) before += automaton().vocabulary().bytes(history_[i].token);
    return *(forced_ = automaton().vocabulary().settled_token(before, text));
  }

  std::shared_ptr<SharedAutomaton> shared_;
  std::vector<TokenId> end_ids_;
  std::vector<Entry> history_;
  mutable bool filling_ = false;           // a set is begun and not ready
  mutable std::optional<TokenId> forced_;  // of the last entry, when known
  mutable int64_t left_us_ = 0;            // of its time
};

// With the automaton as it was compiled, which takes over the places that may still be asked for. So an answer of any length
// has room; what it says stays the same.
void SharedAutomaton::begin_anew() {
  Automaton fresh(first_);
  fresh.lexer().arena().extend();
  std::vector<GrammarState*> states;
  for (ConstraintMask* mask : masks_) {
    for (ConstraintMask::Entry& entry : mask->kept()) states.push_back(&entry.state);
  }
  fresh.adopt(*automaton_, first_.lexer().arena().num_nodes(), states);
  automaton_ = std::move(fresh);
  is_new_ = true;
}

Constraint::Constraint(std::shared_ptr<const Vocabulary> vocabulary, const Lexer& lexer, std::unique_ptr<RuleSource> rules)
    : num_tokens_(vocabulary->size()) {
  Automaton automaton(std::move(vocabulary), lexer, std::move(rules));
  automaton.lexer().arena().forget_edges();  // most are of emptiness, asked for nevermore
  first_ = automaton.begin();
  std::vector<uint32_t> words(automaton.vocabulary().num_words());
  automaton.mask(first_, words);
  exhausted_ = automaton.exhausted();
  automaton.lexer().arena().stop_clock();  // from here on masks are made, which have all the time there is
  shared_ = std::make_shared<SharedAutomaton>(std::move(automaton));
}

std::unique_ptr<TokenMask> Constraint::start(std::vector<TokenId> end_ids) const {
  return std::make_unique<ConstraintMask>(shared_, first_, std::move(end_ids));
}

std::shared_ptr<const Constraint> Constraint::after(std::string_view written) const {
  Automaton automaton(shared_->first());
  automaton.lexer().arena().extend();
  auto out = std::make_shared<Constraint>(*this);
  if (!automaton.advance(out->first_, written)) return nullptr;
  out->shared_ = std::make_shared<SharedAutomaton>(std::move(automaton));
  return out;
}

bool Constraint::matches(std::string_view text) const {
  Automaton automaton(shared_->first());
  GrammarState state = first_;
  return automaton.advance(state, text) && state.complete;
}

ConstraintResult compile_regex(std::shared_ptr<const Vocabulary> vocabulary, std::string_view pattern,
                               const CompileLimits& limits) {
  if (pattern.size() > limits.max_source_bytes) {
    return too_large(
        fmt::format("the regular expression has {} bytes, at most {} are allowed", pattern.size(), limits.max_source_bytes));
  }
  Lexer lexer(limits.regex);
  lexer.arena().start_clock();
  DI_TRY(const Rx rx, parse_regex(lexer.arena(), pattern, RegexUse::kWhole));
  const bool alive = lexer.arena().alive(rx);  // gives up where that takes too long
  if (lexer.arena().exhausted()) return too_large("the regular expression is too complex: simplify it");
  if (!alive) return invalid_argument("no text matches the regular expression");
  auto rules = std::make_unique<FixedRules>();
  const Nonterminal start = rules->add();
  rules->add(start, {Symbol::terminal(rx)});
  rules->set_start(start);
  auto out = std::make_shared<const Constraint>(std::move(vocabulary), lexer, std::move(rules));
  if (out->exhausted()) return too_large("the regular expression is too complex: simplify it");
  return std::shared_ptr<const Constraint>(std::move(out));
}

}  // namespace deepinfer
