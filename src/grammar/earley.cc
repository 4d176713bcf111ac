#include "grammar/earley.h"

#include <algorithm>
#include <unordered_set>

namespace deepinfer {
namespace {

uint64_t hash_of(std::span<const Earley::Source> sources) {
  uint64_t hash = sources.size();
  for (const Earley::Source& source : sources) {
    hash = (hash ^ (uint64_t{source.row} << 32 | source.state)) * 0x9E3779B97F4A7C15ull;
    hash ^= hash >> 31;
  }
  return hash;
}

}  // namespace

Earley::Earley(const Earley& other)
    : rules_(other.rules_->clone()),
      symbols_(other.symbols_),
      table_(other.table_),
      frames_(other.frames_),
      rows_(other.rows_),
      memo_(other.memo_),
      num_items_(other.num_items_),
      num_productions_(other.num_productions_) {}

size_t Earley::bytes() const {
  constexpr size_t kEntry = 64;  // of a table, about
  return symbols_.size() * sizeof(Symbol) + (table_.size() + num_productions_) * kEntry + memo_.size() * 2 * kEntry +
         rows_.size() * sizeof(Row) + frames_.size() * sizeof(Frame) + num_items_ * sizeof(Scan);
}

RowId Earley::begin(Lexer& lexer) {
  frames_.emplace_back();  // the root: nothing waits for its end but the text
  frames_[0].rule = rules_->start();
  std::vector<Item> seeds;
  for (const uint32_t dot : productions(lexer, rules_->start())) seeds.push_back({dot, 0});
  return build(lexer, std::move(seeds));
}

RowId Earley::advance(Lexer& lexer, std::span<const Source> sources) {
  const uint64_t hash = hash_of(sources);
  for (auto [at, end] = memo_.equal_range(hash); at != end; ++at) {
    if (std::ranges::equal(at->second.sources, sources)) return at->second.row;
  }
  std::vector<Item> seeds;
  for (const Source& source : sources) {
    const std::vector<Rx>& accepted = lexer.accepts(source.state);
    for (const Scan& scan : rows_[source.row].scans) {
      if (std::find(accepted.begin(), accepted.end(), scan.terminal) != accepted.end()) seeds.push_back(scan.item);
    }
  }
  const RowId row = build(lexer, std::move(seeds));
  memo_.emplace(hash, Memo{{sources.begin(), sources.end()}, row});
  return row;
}

RowId Earley::build(Lexer& lexer, std::vector<Item> seeds) {
  Row row;
  row.first_frame = static_cast<uint32_t>(frames_.size());
  rows_.push_back(std::move(row));
  items_.clear();
  seen_.clear();
  for (const Item item : seeds) add(item);
  for (size_t i = 0; i < items_.size(); ++i) process(lexer, items_[i]);
  num_items_ += items_.size();
  Row& built = rows_.back();
  std::vector<Rx> terminals;
  for (const Scan& scan : built.scans) terminals.push_back(scan.terminal);
  std::sort(terminals.begin(), terminals.end());
  terminals.erase(std::unique(terminals.begin(), terminals.end()), terminals.end());
  built.start = lexer.start(terminals);
  return static_cast<RowId>(rows_.size() - 1);
}

void Earley::add(Item item) {
  // Rows are small as a rule; a scan beats a table up to here.
  if (items_.size() < 32) {
    if (std::find(items_.begin(), items_.end(), item) != items_.end()) return;
  } else {
    if (seen_.empty()) {
      for (const Item& old : items_) seen_.emplace(uint64_t{old.dot} << 32 | old.frame, 0);
    }
    const uint64_t key = uint64_t{item.dot} << 32 | item.frame;
    if (seen_.contains(key)) return;
    seen_.emplace(key, 0);
  }
  items_.push_back(item);
}

void Earley::process(Lexer& lexer, Item item) {
  const Symbol symbol = symbols_[item.dot];
  const Item behind{item.dot + 1, item.frame};
  switch (symbol.kind) {
    case Symbol::Kind::kEnd: return end_frame(item.frame);
    case Symbol::Kind::kTerminal:
      rows_.back().scans.push_back({symbol.id, behind});
      if (lexer.arena().nullable(symbol.id)) add(behind);
      return;
    case Symbol::Kind::kNonterminal: break;
  }
  if (symbols_[item.dot + 1].kind == Symbol::Kind::kEnd) {
    for (const uint32_t dot : productions(lexer, symbol.id)) add({dot, item.frame});
    return;
  }
  const uint32_t frame = frame_of(lexer, symbol.id);
  frames_[frame].waiting.push_back(behind);
  if (frames_[frame].ended_here) add(behind);
}

void Earley::end_frame(uint32_t frame) {
  if (frame == 0) {
    rows_.back().complete = true;
    return;
  }
  if (frame >= rows_.back().first_frame) {
    if (frames_[frame].ended_here) return;
    frames_[frame].ended_here = true;
  }
  for (size_t i = 0; i < frames_[frame].waiting.size(); ++i) add(frames_[frame].waiting[i]);
}

uint32_t Earley::frame_of(Lexer& lexer, Nonterminal rule) {
  for (size_t i = rows_.back().first_frame; i < frames_.size(); ++i) {
    if (frames_[i].rule == rule && i != 0) return static_cast<uint32_t>(i);
  }
  const auto frame = static_cast<uint32_t>(frames_.size());
  frames_.emplace_back();
  frames_[frame].rule = rule;
  for (const uint32_t dot : productions(lexer, rule)) add({dot, frame});
  return frame;
}

const std::vector<uint32_t>& Earley::productions(Lexer& lexer, Nonterminal rule) {
  Rule& entry = table_[rule];
  if (entry.expanded) return entry.productions;
  entry.expanded = true;
  for (const Production& production : rules_->expand(rule, lexer.arena())) {
    ++num_productions_;
    entry.productions.push_back(static_cast<uint32_t>(symbols_.size()));
    symbols_.insert(symbols_.end(), production.begin(), production.end());
    symbols_.push_back({});
  }
  return entry.productions;
}

void Earley::truncate(size_t num_rows) {
  if (num_rows >= rows_.size()) return;
  num_items_ -= num_items_ * (rows_.size() - num_rows) / rows_.size();  // about
  frames_.resize(rows_[num_rows].first_frame);
  rows_.resize(num_rows);
  std::erase_if(memo_, [&](const auto& entry) { return entry.second.row >= num_rows; });
}

}  // namespace deepinfer
