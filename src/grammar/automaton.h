// grammar/automaton.h - lexer and parser together: texts in, masks out.
//
// A state is a set of threads, each a row of the parser and a state of the lexer inside it. A mask is the union of the
// masks of its threads. What a lexer state allows without leaving its terminals does not depend on the row, so it is
// computed once per lexer state, with the places where a terminal may end (the exits); only from these the parser is asked.
// A mask that takes long may be left off between two steps of its walk; inside a terminal it goes on where it was, elsewhere it
// is begun anew and finds what it worked out before. Threads: one thread at a time; copies are independent and share what is
// const.
#pragma once

#include <atomic>
#include <compare>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "grammar/earley.h"
#include "grammar/lexer.h"
#include "grammar/token_mask.h"
#include "grammar/vocabulary.h"

namespace deepinfer {

struct LexThread {
  RowId row;
  LexState lex;
  auto operator<=>(const LexThread&) const = default;
};

struct GrammarState {
  std::vector<LexThread> threads;
  bool complete = false;
};

class Automaton {
 public:
  Automaton(std::shared_ptr<const Vocabulary> vocabulary, const Lexer& lexer, std::unique_ptr<RuleSource> rules);

  const Vocabulary& vocabulary() const { return *vocabulary_; }
  GrammarState begin();
  // False when no text of the grammar goes on with `bytes`; the state is then unchanged.
  bool advance(GrammarState& state, std::string_view bytes);
  // The bytes that surely come next, up to `most`: none where there is a choice, or where the text may end.
  std::string forced(GrammarState state, size_t most);
  // words: [vocabulary().num_words()]. False when it left off, because of the deadline, because some thread is `waiting`, or
  // because it is exhausted.
  bool mask(const GrammarState& state, std::span<uint32_t> words, const MaskDeadline& deadline = {},
            const std::atomic<int32_t>* waiting = nullptr);
  // Takes over what `from` knows of `states`, and nothing else of it; both began as copies of one automaton whose arena had
  // `num_shared` expressions.
  void adopt(const Automaton& from, size_t num_shared, std::span<GrammarState* const> states);
  // Rows from here on may be forgotten: no state that is kept uses them.
  void truncate(size_t num_rows) { earley_.truncate(num_rows); }
  size_t num_rows() const { return earley_.num_rows(); }
  // Of the lexer, which measure how much is built.
  size_t num_states() const { return lexer_.num_states(); }
  size_t bytes() const { return lexer_.bytes() + earley_.bytes() + interior_bytes_; }
  // It is exhausted when it takes more than so much.
  void set_room(size_t bytes) { max_bytes_ = bytes; }

  Lexer& lexer() { return lexer_; }
  const Lexer& lexer() const { return lexer_; }
  // A limit was reached: what follows may be narrower than the grammar.
  bool exhausted() const { return lexer_.arena().exhausted(); }

 private:
  struct Exit {
    uint32_t slice, node;
  };
  struct Interior {
    std::vector<uint32_t> words;
    std::map<LexState, std::vector<Exit>> exits;  // at nodes with others below, by the state there
  };

  // Appends the threads behind `byte` to pool_; true if the text may end there.
  bool step(size_t begin, size_t end, uint8_t byte);
  // A walk through all slices inside the terminals of a state, as far as it has come.
  struct Walk {
    Interior out;
    uint32_t slice = 0, node = 0;
    bool begun = false, strike = false;  // of the slice
    std::vector<LexState> states;        // by depth
    std::vector<uint8_t> bytes;          // likewise, and below: of costly states
    std::vector<size_t> free;
  };
  // Null when it left off.
  std::shared_ptr<const Interior> interior(LexState state);
  bool go_on(LexState state, Walk& walk);
  bool leaves_off();
  bool must_leave_off();
  size_t built() const { return lexer_.num_tables() + lexer_.num_states() + earley_.num_rows(); }
  // How many characters that a string may hold as they are surely fit.
  struct Room {
    int32_t chars = -1;        // -1 = not known yet
    bool exact = false;        // one more does not
    bool inside_char = false;  // behind the one that has begun
    ByteSet loops;             // bytes that change nothing
  };
  const Room& room(LexState state);
  const Room& find_room(LexState state);
  bool is_inside_free_char(Rx rest);
  std::optional<bool> mostly_fits(LexState state, const Vocabulary::Slice& slice);  // nothing when it left off
  bool walk_terminal(LexState state, Walk& walk);
  bool walk_costly(Walk& walk);
  bool walk(const TokenTrie& trie, uint32_t node, LexThread thread, std::span<uint32_t> words);

  std::shared_ptr<const Vocabulary> vocabulary_;
  Lexer lexer_;
  Earley earley_;
  RegexArena::PlainChars plain_;
  Rx json_char_;
  std::unordered_set<Rx> known_tails_, free_text_;
  std::vector<Room> rooms_;  // by lexer state
  std::unordered_map<LexState, std::shared_ptr<const Interior>> interiors_;
  std::unordered_map<LexState, Walk> left_;  // walks that were left off
  size_t interior_bytes_ = 0;
  size_t max_bytes_ = SIZE_MAX;
  // Of the mask at hand.
  struct Work {
    const MaskDeadline* deadline = nullptr;
    const std::atomic<int32_t>* waiting = nullptr;
    int64_t begin_us = 0, fresh_us = 0;  // when it was taken up, and when it first built something; 0 = not yet
    size_t built = 0;
    uint32_t ticks = 0;
  };
  Work work_;
  // Of a walk: threads by depth, one behind the other.
  std::vector<LexThread> pool_;
  std::vector<size_t> ends_;
  std::vector<const uint32_t*> path_;  // tables of the lexer
  std::vector<Earley::Source> sources_;
};

}  // namespace deepinfer
