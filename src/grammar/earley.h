// grammar/earley.h - which terminals may follow: an Earley parser whose rows are shared and never change.
//
// A row is what is known at a place of the text: items (a place in a production, and the frame to return to) and the
// terminals they wait for. A frame is "this nonterminal, begun in that row" with the items that wait for its end.
// Rows are a function of the rows and terminals they came from and are memoised by them, so a text of ten thousand digits
// makes two rows, and taking tokens back is only forgetting a number. A nonterminal at the end of a production returns to
// the caller's frame at once: lists written with right recursion cost no stack. Frames with equal items waiting are one, and so
// are rows with equal scans: a grammar that reads a list in ever so many ways has a few rows, too.
// Source: Earley 1970; the frames are those of GLL (Scott, Johnstone 2010).
// Threads: one thread at a time; copy() for another.
#pragma once

#include <compare>
#include <cstdint>
#include <memory>
#include <span>
#include <unordered_map>
#include <unordered_set>
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
    auto operator<=>(const Source&) const = default;
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
    auto operator<=>(const Item&) const = default;
  };
  struct Scan {
    Rx terminal;
    Item item;  // behind it
    auto operator<=>(const Scan&) const = default;
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
  void merge_frames();
  bool same_waiting(uint32_t fresh, uint32_t old) const;
  RowId same_row();
  uint32_t frame_of(Lexer& lexer, Nonterminal rule);
  const std::vector<uint32_t>& productions(Lexer& lexer, Nonterminal rule);

  std::unique_ptr<RuleSource> rules_;
  // A place in a production is what is left of it, so places with the same rest are one. Place 0 is the end.
  struct Place {
    Symbol symbol;
    uint32_t next = 0;
  };
  uint32_t place(Symbol symbol, uint32_t next);

  std::vector<Place> places_{1};
  std::unordered_multimap<uint64_t, uint32_t> place_index_;
  std::unordered_map<Nonterminal, Rule> table_;
  std::vector<Frame> frames_;
  std::vector<Row> rows_;
  struct Memo {
    std::vector<Source> sources;
    RowId row;
  };
  std::unordered_multimap<uint64_t, Memo> memo_;
  std::unordered_map<uint64_t, std::vector<uint32_t>> frame_index_;  // by the places of what waits; the last few
  std::unordered_multimap<uint64_t, RowId> row_index_;
  size_t num_items_ = 0;
  size_t num_productions_ = 0;
  // Of the row being built.
  std::vector<Item> items_;
  std::unordered_set<uint64_t> seen_;
  std::unordered_map<Nonterminal, uint32_t> open_frames_;
  std::vector<uint32_t> merged_;  // by frame of the row: the frame it is
  size_t work_ = 0;
};

}  // namespace deepinfer
