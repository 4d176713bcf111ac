#include "grammar/constraint.h"

#include <fmt/format.h>

#include <algorithm>
#include <mutex>
#include <optional>
#include <utility>

#include "grammar/regex_syntax.h"

namespace deepinfer {
namespace {

// Rows that masks tried and no accepted token used are forgotten beyond this many.
constexpr size_t kSpareRows = 4096;

// What a mask may take beyond what its constraint takes, and how much more while one set is worked out.
constexpr size_t kRoom = 24 << 20, kRoomOfFill = 64 << 20;

// Processor time for one set. The slowest seen takes 0.9 s: a choice of 200 open objects, each again with a choice of all.
constexpr int64_t kMaxFillUs = 5'000'000;

// How far ahead a text is followed that leaves no choice, and how many tokens before it are tokenized with it: where tokens
// begin depends on little of what is before.
constexpr size_t kMaxForced = 96, kContext = 16;

// Beyond so many lexer states (about a kilobyte each) a seed learns no more.
constexpr size_t kMaxLearned = 1000;

}  // namespace

// The automaton that masks begin with. What it answers does not depend on how much of it is built, so it may grow from answer to
// answer. Threads: any; the lock is held for the exchange of a pointer only.
class AutomatonSeed {
 public:
  explicit AutomatonSeed(Automaton automaton)
      : automaton_(std::make_shared<const Automaton>(std::move(automaton))),
        num_rows_(automaton_->num_rows()),
        num_shared_(automaton_->lexer().arena().num_nodes()) {}

  std::shared_ptr<const Automaton> get() const {
    const std::lock_guard lock(mutex_);
    return automaton_;
  }

  // Expressions that are the same in all that begins with it.
  size_t num_shared() const { return num_shared_; }

  // Takes what an answer has worked out.
  void offer(Automaton automaton) {
    const size_t states = automaton.num_states();
    if (states <= get()->num_states() || states > kMaxLearned || automaton.exhausted()) return;
    if (!automaton.lexer().arena().roomy()) return;
    automaton.truncate(num_rows_);
    auto next = std::make_shared<const Automaton>(std::move(automaton));
    const std::lock_guard lock(mutex_);
    if (states > automaton_->num_states()) automaton_.swap(next);
  }

 private:
  mutable std::mutex mutex_;
  std::shared_ptr<const Automaton> automaton_;
  const size_t num_rows_, num_shared_;
};

namespace {

// However much earlier answers have built, each set has the same room: one that comes near the limits must not depend on them.
void give_room(Automaton& automaton, size_t begun_bytes) {
  automaton.lexer().arena().extend();
  automaton.set_room(std::max(automaton.bytes(), begun_bytes + kRoom) + kRoomOfFill);
}

class ConstraintMask final : public TokenMask {
 public:
  ConstraintMask(std::shared_ptr<AutomatonSeed> seed, const GrammarState& first, std::vector<TokenId> end_ids)
      : seed_(std::move(seed)), automaton_(*seed_->get()), begun_bytes_(automaton_.bytes()), end_ids_(std::move(end_ids)) {
    give_room(automaton_, begun_bytes_);
    history_.push_back({first, automaton_.num_rows(), -1});
  }
  ~ConstraintMask() override { seed_->offer(std::move(automaton_)); }

  MaskFill fill(std::span<uint32_t> words, const MaskDeadline& deadline) const override {
    const Entry& now = history_.back();
    if (!filling_ && automaton_.num_rows() > now.num_rows + kSpareRows) automaton_.truncate(now.num_rows);
    RegexArena& arena = automaton_.lexer().arena();
    if (!std::exchange(filling_, true)) left_us_ = kMaxFillUs;
    arena.start_clock(left_us_);
    if (const TokenId only = forced(); only >= 0) {
      std::fill(words.begin(), words.end(), 0);
      words[static_cast<size_t>(only) / 32] |= 1u << (only % 32);
      arena.stop_clock();
      filling_ = false;
      return arena.spent() ? MaskFill::kFailed : MaskFill::kReady;
    }
    const size_t num_words = automaton_.vocabulary().num_words();
    const bool ready = automaton_.mask(now.state, words.first(num_words), deadline);
    left_us_ = arena.stop_clock();
    if (arena.spent()) return MaskFill::kFailed;
    if (!ready) return MaskFill::kUnfinished;
    filling_ = false;
    for (uint32_t& word : words.subspan(num_words)) word = 0;
    if (now.state.complete) {
      for (const TokenId id : end_ids_) words[static_cast<size_t>(id) / 32] |= 1u << (id % 32);
    }
    tidy();
    return MaskFill::kReady;
  }

  // Only the tokenizer's own way to write a text that is sure to come: so the state stays a function of the accepted tokens,
  // however they came to be known.
  TokenId forced() const override {
    if (forced_) return *forced_;
    const std::string text = automaton_.forced(history_.back().state, kMaxForced);
    if (text.size() < 2) return *(forced_ = -1);  // its only piece is not settled
    std::string before;
    const size_t first = history_.size() - std::min(history_.size() - 1, kContext);
    for (size_t i = first; i < history_.size(); ++i) before += automaton_.vocabulary().bytes(history_[i].token);
    return *(forced_ = automaton_.vocabulary().settled_token(before, text));
  }

  bool accept(TokenId token) override {
    filling_ = false;
    const TokenId only = forced();
    if (only >= 0 && token != only) return false;
    forced_.reset();
    if (only >= 0) tidy();  // of forced tokens no set is asked for
    if (std::find(end_ids_.begin(), end_ids_.end(), token) != end_ids_.end()) {
      if (!complete()) return false;
      history_.push_back({{}, history_.back().num_rows, token});
      return true;
    }
    if (token < 0 || token >= automaton_.vocabulary().size()) return false;
    const std::string_view bytes = automaton_.vocabulary().bytes(token);
    GrammarState state = history_.back().state;
    if (bytes.empty() || !automaton_.advance(state, bytes)) return false;
    size_t num_rows = history_.back().num_rows;
    for (const LexThread& thread : state.threads) num_rows = std::max<size_t>(num_rows, thread.row + 1u);
    history_.push_back({std::move(state), num_rows, token});
    return true;
  }

  void rollback(int32_t num_tokens) override {
    filling_ = false;
    forced_.reset();
    history_.resize(history_.size() - static_cast<size_t>(num_tokens));
  }
  bool complete() const override { return history_.back().state.complete; }

 private:
  struct Entry {
    GrammarState state;
    size_t num_rows = 0;  // rows below this are in use
    TokenId token = -1;   // that led here
  };
  static constexpr size_t kEntryBytes = sizeof(Entry) + 2 * sizeof(LexThread);

  void tidy() const {
    const size_t used = automaton_.bytes() + history_.size() * kEntryBytes - std::min(begun_bytes_, automaton_.bytes());
    // Where one set alone takes more than the room, as much again is given before the next beginning.
    if (std::exchange(is_new_, false)) room_ = std::clamp(2 * used, kRoom, kRoom + kRoomOfFill);
    if (used > room_) begin_anew();
    give_room(automaton_, begun_bytes_);
  }

  // With the automaton of the seed, which takes over the places that may still be asked for. So an answer of any length has
  // room; what it says stays the same.
  void begin_anew() const {
    Automaton fresh(*seed_->get());
    fresh.lexer().arena().extend();
    constexpr size_t kKept = kMaxRollback + 1 + kContext;
    if (history_.size() > kKept) history_.erase(history_.begin(), history_.end() - kKept);
    std::vector<GrammarState*> states;
    for (Entry& entry : history_) states.push_back(&entry.state);
    fresh.adopt(automaton_, seed_->num_shared(), states);
    for (Entry& entry : history_) entry.num_rows = fresh.num_rows();
    automaton_ = std::move(fresh);
    is_new_ = true;
  }

  std::shared_ptr<AutomatonSeed> seed_;
  mutable Automaton automaton_;  // fill() builds more of it; what it answers does not depend on that
  const size_t begun_bytes_;
  std::vector<TokenId> end_ids_;
  mutable std::vector<Entry> history_;
  mutable bool filling_ = false;           // a set is begun and not ready
  mutable std::optional<TokenId> forced_;  // of the last entry, when known
  mutable int64_t left_us_ = 0;            // of its time
  mutable size_t room_ = kRoom;
  mutable bool is_new_ = false;
};

}  // namespace

Constraint::Constraint(std::shared_ptr<const Vocabulary> vocabulary, const Lexer& lexer, std::unique_ptr<RuleSource> rules)
    : num_tokens_(vocabulary->size()) {
  Automaton automaton(std::move(vocabulary), lexer, std::move(rules));
  automaton.lexer().arena().forget_edges();  // most are of emptiness, asked for nevermore
  first_ = automaton.begin();
  std::vector<uint32_t> words(automaton.vocabulary().num_words());
  automaton.mask(first_, words);
  exhausted_ = automaton.exhausted();
  automaton.lexer().arena().stop_clock();  // from here on masks are made, which have all the time there is
  seed_ = std::make_shared<AutomatonSeed>(std::move(automaton));
}

std::unique_ptr<TokenMask> Constraint::start(std::vector<TokenId> end_ids) const {
  return std::make_unique<ConstraintMask>(seed_, first_, std::move(end_ids));
}

std::shared_ptr<const Constraint> Constraint::after(std::string_view written) const {
  Automaton automaton(*seed_->get());
  automaton.lexer().arena().extend();
  auto out = std::make_shared<Constraint>(*this);
  if (!automaton.advance(out->first_, written)) return nullptr;
  out->seed_ = std::make_shared<AutomatonSeed>(std::move(automaton));
  return out;
}

bool Constraint::matches(std::string_view text) const {
  Automaton automaton(*seed_->get());
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
