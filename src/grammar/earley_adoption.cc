// Rows of one parser taken over by another (grammar/earley.h): what a long answer leaves behind is forgotten by beginning with a
// fresh parser that takes over only the rows still in use.
#include <algorithm>

#include "grammar/earley.h"

namespace deepinfer {

Earley::Adoption::Adoption(const Earley& from, const Lexer& from_lexer, Earley& to, Lexer& to_lexer,
                           RegexTranslation& translation)
    : from_(from), from_lexer_(from_lexer), to_(to), to_lexer_(to_lexer), translation_(translation) {}

RowId Earley::Adoption::operator()(RowId row) {
  if (const auto found = rows_.find(row); found != rows_.end()) return found->second;
  Row made;
  for (const Scan& scan : from_.rows_[row].scans) {
    made.scans.push_back({translation_(scan.terminal), {dot(scan.item.dot), frame(scan.item.frame)}});
  }
  while (!open_.empty()) {
    const uint32_t at = open_.back();
    open_.pop_back();
    std::vector<Item> waiting;
    for (const Item& item : from_.frames_[at].waiting) waiting.push_back({dot(item.dot), frame(item.frame)});
    std::sort(waiting.begin(), waiting.end());
    to_.num_items_ += waiting.size();
    to_.frames_[frames_.at(at)].waiting = std::move(waiting);
  }
  std::sort(made.scans.begin(), made.scans.end());
  made.start = to_lexer_.adopt(from_lexer_, from_.rows_[row].start, translation_);
  made.complete = from_.rows_[row].complete;
  made.first_frame = static_cast<uint32_t>(to_.frames_.size());
  to_.num_items_ += made.scans.size();
  to_.rows_.push_back(std::move(made));
  return rows_[row] = static_cast<RowId>(to_.rows_.size() - 1);
}

// From there to the end of its production: a loop, for a rule may be long.
uint32_t Earley::Adoption::dot(uint32_t from) {
  std::vector<uint32_t> rest;
  for (; from != 0 && !dots_.contains(from); from = from_.places_[from].next) rest.push_back(from);
  uint32_t out = from == 0 ? 0 : dots_.at(from);
  for (size_t i = rest.size(); i-- > 0;) {
    Symbol symbol = from_.places_[rest[i]].symbol;
    if (symbol.kind == Symbol::Kind::kTerminal) symbol.id = translation_(symbol.id);
    if (symbol.kind == Symbol::Kind::kNonterminal) symbol.id = to_.rules_->adopt(*from_.rules_, symbol.id);
    dots_[rest[i]] = out = to_.place(symbol, out);
  }
  return out;
}

uint32_t Earley::Adoption::frame(uint32_t from) {
  const auto [entry, added] = frames_.try_emplace(from, static_cast<uint32_t>(to_.frames_.size()));
  if (!added) return entry->second;
  to_.frames_.emplace_back().ended_here = from_.frames_[from].ended_here;
  open_.push_back(from);
  return entry->second;
}

}  // namespace deepinfer
