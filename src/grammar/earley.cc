#include "grammar/earley.h"

#include <algorithm>

namespace deepinfer {
namespace {

// Steps of one row. A row takes a handful; one that asks for more, some milliseconds of work, is none that an answer can wait
// for.
constexpr size_t kMaxWork = 200'000;

// Rows are small as a rule; a scan beats a table up to here.
constexpr size_t kSmall = 32;

// So many frames of a rule and its places are compared with a new one.
constexpr size_t kCompared = 4;

uint64_t mixed(uint64_t hash, uint64_t value) {
  hash = (hash ^ value) * 0x9E3779B97F4A7C15ull;
  return hash ^ hash >> 31;
}

uint64_t hash_of(std::span<const Earley::Source> sources) {
  uint64_t hash = sources.size();
  for (const Earley::Source& source : sources) hash = mixed(hash, uint64_t{source.row} << 32 | source.state);
  return hash;
}

}  // namespace

Earley::Earley(const Earley& other)
    : rules_(other.rules_->clone()),
      places_(other.places_),
      place_index_(other.place_index_),
      table_(other.table_),
      frames_(other.frames_),
      rows_(other.rows_),
      memo_(other.memo_),
      frame_index_(other.frame_index_),
      row_index_(other.row_index_),
      num_items_(other.num_items_),
      num_productions_(other.num_productions_) {}

size_t Earley::bytes() const {
  constexpr size_t kEntry = 64;  // of a table, about
  return places_.size() * (sizeof(Place) + kEntry) + (table_.size() + num_productions_) * kEntry +
         (memo_.size() * 2 + row_index_.size()) * kEntry + rows_.size() * sizeof(Row) + frames_.size() * sizeof(Frame) +
         num_items_ * sizeof(Scan);
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
    const std::vector<Scan>& scans = rows_[source.row].scans;
    for (const Rx terminal : accepted) {
      auto scan = std::lower_bound(scans.begin(), scans.end(), Scan{terminal, {0, 0}});
      for (; scan != scans.end() && scan->terminal == terminal; ++scan) seeds.push_back(scan->item);
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
  open_frames_.clear();
  work_ = 0;
  for (const Item item : seeds) add(item);
  for (size_t i = 0; i < items_.size() && work_ < kMaxWork; ++i) process(lexer, items_[i]);
  if (work_ >= kMaxWork) lexer.arena().exhaust();
  merge_frames();
  Row& built = rows_.back();
  std::sort(built.scans.begin(), built.scans.end());
  built.scans.erase(std::unique(built.scans.begin(), built.scans.end()), built.scans.end());
  const RowId number = same_row();
  if (number + 1 < rows_.size()) {
    frames_.resize(built.first_frame);
    rows_.pop_back();
    return number;
  }
  num_items_ += built.scans.size();
  std::vector<Rx> terminals;
  for (const Scan& scan : built.scans) terminals.push_back(scan.terminal);
  terminals.erase(std::unique(terminals.begin(), terminals.end()), terminals.end());
  built.start = lexer.start(terminals);
  return number;
}

// Each frame that the row began is taken for an older one with items at the same places; then those are struck out whose items
// return to different frames, until none is left: the greatest bisimulation, but for frames that are not compared.
void Earley::merge_frames() {
  const uint32_t first = rows_.back().first_frame, end = static_cast<uint32_t>(frames_.size());
  if (first == end) return;
  merged_.resize(end - first);
  std::vector<const std::vector<uint32_t>*> others(end - first);
  std::vector<size_t> next(end - first, 0);
  std::vector<uint64_t> hashes(end - first);
  // The next one that frame i may be, or itself. The lists may hold frames that are gone.
  const auto candidate = [&](uint32_t i) {
    while (next[i] < others[i]->size()) {
      if (const uint32_t other = (*others[i])[next[i]++]; other < first) return other;
    }
    return first + i;
  };
  for (uint32_t i = 0; i < end - first; ++i) {
    Frame& frame = frames_[first + i];
    std::sort(frame.waiting.begin(), frame.waiting.end());
    uint64_t hash = 0;
    for (uint32_t last = UINT32_MAX; const Item& item : frame.waiting) {
      if (item.dot != last) hash = mixed(hash, last = item.dot);
    }
    hashes[i] = hash;
    others[i] = &frame_index_[hash];
    merged_[i] = candidate(i);
  }
  for (bool changed = true; changed;) {
    changed = false;
    for (uint32_t i = 0; i < end - first; ++i) {
      if (merged_[i] == first + i || same_waiting(first + i, merged_[i])) continue;
      merged_[i] = candidate(i);
      changed = true;
    }
  }
  uint32_t kept = first;
  std::vector<uint32_t> moved(end - first);
  for (uint32_t i = 0; i < end - first; ++i) moved[i] = merged_[i] == first + i ? kept++ : merged_[i];
  const auto move = [&](Item& item) {
    if (item.frame >= first) item.frame = moved[item.frame - first];
  };
  for (uint32_t i = 0; i < end - first; ++i) {
    if (merged_[i] != first + i) continue;
    Frame frame = std::move(frames_[first + i]);
    for (Item& item : frame.waiting) move(item);
    std::sort(frame.waiting.begin(), frame.waiting.end());
    frame.waiting.erase(std::unique(frame.waiting.begin(), frame.waiting.end()), frame.waiting.end());
    num_items_ += frame.waiting.size();
    frames_[moved[i]] = std::move(frame);
    std::vector<uint32_t>& list = frame_index_[hashes[i]];
    list.insert(list.begin(), moved[i]);
    if (list.size() > kCompared) list.pop_back();
  }
  frames_.resize(kept);
  for (Scan& scan : rows_.back().scans) move(scan.item);
}

// Under the assumption that merged_ holds.
bool Earley::same_waiting(uint32_t fresh, uint32_t old) const {
  const uint32_t first = rows_.back().first_frame;
  std::vector<Item> items = frames_[fresh].waiting;
  for (Item& item : items) {
    if (item.frame >= first) item.frame = merged_[item.frame - first];
  }
  std::sort(items.begin(), items.end());
  items.erase(std::unique(items.begin(), items.end()), items.end());
  return items == frames_[old].waiting;
}

// As the last one, and before it where there is one.
RowId Earley::same_row() {
  const auto last = static_cast<RowId>(rows_.size() - 1);
  const Row& row = rows_[last];
  uint64_t hash = row.complete ? 1 : 2;
  for (const Scan& scan : row.scans) hash = mixed(mixed(hash, scan.terminal), uint64_t{scan.item.dot} << 32 | scan.item.frame);
  for (auto [at, end] = row_index_.equal_range(hash); at != end; ++at) {
    if (rows_[at->second].complete == row.complete && rows_[at->second].scans == row.scans) return at->second;
  }
  row_index_.emplace(hash, last);
  return last;
}

void Earley::add(Item item) {
  ++work_;
  if (items_.size() < kSmall) {
    if (std::find(items_.begin(), items_.end(), item) != items_.end()) return;
  } else {
    if (seen_.empty()) {
      for (const Item& old : items_) seen_.insert(uint64_t{old.dot} << 32 | old.frame);
    }
    if (!seen_.insert(uint64_t{item.dot} << 32 | item.frame).second) return;
  }
  items_.push_back(item);
}

void Earley::process(Lexer& lexer, Item item) {
  const Symbol symbol = places_[item.dot].symbol;
  const Item behind{places_[item.dot].next, item.frame};
  switch (symbol.kind) {
    case Symbol::Kind::kEnd: return end_frame(item.frame);
    case Symbol::Kind::kTerminal:
      rows_.back().scans.push_back({symbol.id, behind});
      if (lexer.arena().nullable(symbol.id)) add(behind);
      return;
    case Symbol::Kind::kNonterminal: break;
  }
  if (behind.dot == 0) {
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
  const auto frame = static_cast<uint32_t>(frames_.size());
  const uint32_t first = rows_.back().first_frame;
  if (frame - first < kSmall) {
    for (uint32_t i = first; i < frame; ++i) {
      if (frames_[i].rule == rule) return i;
    }
  } else {
    for (uint32_t i = first; open_frames_.empty() && i < frame; ++i) open_frames_.emplace(frames_[i].rule, i);
    if (const auto found = open_frames_.find(rule); found != open_frames_.end()) return found->second;
    open_frames_.emplace(rule, frame);
  }
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
    uint32_t rest = 0;
    for (size_t i = production.size(); i-- > 0;) rest = place(production[i], rest);
    entry.productions.push_back(rest);
  }
  return entry.productions;
}

uint32_t Earley::place(Symbol symbol, uint32_t next) {
  const uint64_t hash = mixed(mixed(next, symbol.id), static_cast<uint64_t>(symbol.kind));
  for (auto [at, end] = place_index_.equal_range(hash); at != end; ++at) {
    const Place& other = places_[at->second];
    if (other.next == next && other.symbol.id == symbol.id && other.symbol.kind == symbol.kind) return at->second;
  }
  places_.push_back({symbol, next});
  place_index_.emplace(hash, static_cast<uint32_t>(places_.size() - 1));
  return static_cast<uint32_t>(places_.size() - 1);
}

void Earley::truncate(size_t num_rows) {
  if (num_rows >= rows_.size()) return;
  num_items_ -= num_items_ * (rows_.size() - num_rows) / rows_.size();  // about
  frames_.resize(rows_[num_rows].first_frame);
  rows_.resize(num_rows);
  const auto gone = [&](const Source& source) { return source.row >= num_rows; };
  std::erase_if(memo_, [&](const auto& entry) {
    return entry.second.row >= num_rows || std::any_of(entry.second.sources.begin(), entry.second.sources.end(), gone);
  });
  std::erase_if(row_index_, [&](const auto& entry) { return entry.second >= num_rows; });
  for (auto& [hash, list] : frame_index_) std::erase_if(list, [&](uint32_t frame) { return frame >= frames_.size(); });
}

}  // namespace deepinfer
