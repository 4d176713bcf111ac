// grammar/earley.h - which terminals may follow: an Earley parser whose rows are shared and never change.
//
// A row is what is known at a place of the text: items (a place in a production, and the frame to return to) and the
// terminals they wait for. A frame is "this nonterminal, begun in that row" with the items that wait for its end.
// Rows are a function of the rows and terminals they came from and are memoised by them, so a text of ten thousand digits
// makes two rows, and taking tokens back is only forgetting a number. A nonterminal at the end of a production returns to
// the caller's frame at once: lists written with right recursion cost no stack.
// Source: Earley 1970; the frames are those of GLL (Scott, Johnstone 2010).
// Threads: one thread at a time; copy() for another.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

#include "grammar/lexer.h"
#include "grammar/rules.h"

namespace deepinfer {

using RowId = uint32_t;

class Earley {
 public:
  explicit Earley(std::unique_ptr<RuleSource> rules) : rules_(std::move(rules)) {}
  Earley(const Earley& other);
  Earley(Earley&&) = default;
  Earley& operator=(const Earley&) = delete;
  Earley& operator=(Earley&&) = default;

  // Where a lexer state accepted terminals that row `row` waited for.
  struct Source {
    RowId row;
    LexState state;
    bool operator==(const Source&) const = default;
  };
  // Row 0, of the empty text. Called once, before all else.
  RowId begin(Lexer& lexer);
  // The row behind terminals that ended at the same place.
  RowId advance(Lexer& lexer, std::span<const Source> sources);

  bool complete(RowId row) const { return rows_[row].complete; }
  LexState start(RowId row) const { return rows_[row].start; }
  size_t num_rows() const { return rows_.size(); }
  size_t num_items() const { return num_items_; }
  size_t bytes() const;
  // Forgets rows from `num_rows` on.
  void truncate(size_t num_rows);

  // Rows of another parser of the same grammar, with all that may return to them, here.
  class Adoption {
   public:
    Adoption(const Earley& from, const Lexer& from_lexer, Earley& to, Lexer& to_lexer, RegexTranslation& translation);
    RowId operator()(RowId row);

   private:
    uint32_t dot(uint32_t from);
    uint32_t frame(uint32_t from);

    const Earley& from_;
    const Lexer& from_lexer_;
    Earley& to_;
    Lexer& to_lexer_;
    RegexTranslation& translation_;
    std::unordered_map<uint32_t, uint32_t> dots_, frames_{{0, 0}};
    std::unordered_map<RowId, RowId> rows_;
    std::vector<uint32_t> open_;  // frames whose items are to come
  };

 private:
  struct Item {
    uint32_t dot, frame;
    bool operator==(const Item&) const = default;
  };
  struct Scan {
    Rx terminal;
    Item item;  // behind it
  };
  struct Frame {
    Nonterminal rule = 0;
    bool ended_here = false;  // in the row that began it: it may be empty
    std::vector<Item> waiting;
  };
  struct Row {
    std::vector<Scan> scans;
    LexState start = Lexer::kDead;
    bool complete = false;
    uint32_t first_frame = 0;
  };
  struct Rule {
    bool expanded = false;
    std::vector<uint32_t> productions;  // their first dots
  };

  RowId build(Lexer& lexer, std::vector<Item> seeds);
  void add(Item item);
  void process(Lexer& lexer, Item item);
  void end_frame(uint32_t frame);
  uint32_t frame_of(Lexer& lexer, Nonterminal rule);
  const std::vector<uint32_t>& productions(Lexer& lexer, Nonterminal rule);

  std::unique_ptr<RuleSource> rules_;
  std::vector<Symbol> symbols_;  // productions one behind the other, each with an end
  std::unordered_map<Nonterminal, Rule> table_;
  std::vector<Frame> frames_;
  std::vector<Row> rows_;
  struct Memo {
    std::vector<Source> sources;
    RowId row;
  };
  std::unordered_multimap<uint64_t, Memo> memo_;
  size_t num_items_ = 0;
  size_t num_productions_ = 0;
  // Of the row being built.
  std::vector<Item> items_;
  std::unordered_multimap<uint64_t, uint32_t> seen_;
};

}  // namespace deepinfer
