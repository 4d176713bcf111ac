// Rows of one parser taken over by another (grammar/earley.h): what a long answer leaves behind is forgotten by beginning with a
// fresh parser that takes over only the rows still in use.
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
    to_.num_items_ += waiting.size();
    to_.frames_[frames_.at(at)].waiting = std::move(waiting);
  }
  made.start = to_lexer_.adopt(from_lexer_, from_.rows_[row].start, translation_);
  made.complete = from_.rows_[row].complete;
  made.first_frame = static_cast<uint32_t>(to_.frames_.size());
  to_.num_items_ += made.scans.size();
  to_.rows_.push_back(std::move(made));
  return rows_[row] = static_cast<RowId>(to_.rows_.size() - 1);
}

// From there to the end of its production.
uint32_t Earley::Adoption::dot(uint32_t from) {
  if (const auto found = dots_.find(from); found != dots_.end()) return found->second;
  const auto out = static_cast<uint32_t>(to_.symbols_.size());
  for (uint32_t at = from;; ++at) {
    Symbol symbol = from_.symbols_[at];
    if (symbol.kind == Symbol::Kind::kTerminal) symbol.id = translation_(symbol.id);
    if (symbol.kind == Symbol::Kind::kNonterminal) symbol.id = to_.rules_->adopt(*from_.rules_, symbol.id);
    dots_.try_emplace(at, static_cast<uint32_t>(to_.symbols_.size()));
    to_.symbols_.push_back(symbol);
    if (symbol.kind == Symbol::Kind::kEnd) return out;
  }
}

uint32_t Earley::Adoption::frame(uint32_t from) {
  const auto [entry, added] = frames_.try_emplace(from, static_cast<uint32_t>(to_.frames_.size()));
  if (!added) return entry->second;
  to_.frames_.emplace_back().ended_here = from_.frames_[from].ended_here;
  open_.push_back(from);
  return entry->second;
}

}  // namespace deepinfer
