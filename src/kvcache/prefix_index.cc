#include "kvcache/prefix_index.h"

#include <algorithm>

#include "base/hash.h"

namespace deepinfer {
namespace {

// Evicted keys remembered per page of the pool, to tell "evicted" from "never seen".
constexpr size_t kGhostsPerPage = 4;

uint64_t content_hash(std::span<const TokenId> tokens) {
  return hash_bytes({reinterpret_cast<const char*>(tokens.data()), tokens.size_bytes()});
}

}  // namespace

PrefixIndex::PrefixIndex(PagePool& pool, SnapshotShelf& shelf, int32_t page_tokens)
    : pool_(pool),
      shelf_(shelf),
      page_tokens_(static_cast<size_t>(page_tokens)),
      nodes_(static_cast<size_t>(pool.num_pages())),
      tokens_(nodes_.size() * page_tokens_),
      evicted_order_(nodes_.size() * kGhostsPerPage) {
  pages_.reserve(nodes_.size());
}

std::span<const TokenId> PrefixIndex::tokens_of(int32_t page) const {
  return std::span(tokens_).subspan(static_cast<size_t>(page) * page_tokens_, page_tokens_);
}

int32_t PrefixIndex::find(const PageKey& key, std::span<const TokenId> tokens) const {
  const auto found = pages_.find(key);
  if (found == pages_.end()) return kNone;
  return std::equal(tokens.begin(), tokens.end(), tokens_of(found->second).begin()) ? found->second : kNone;
}

void PrefixIndex::match(const PageKey& root, std::span<const PageKey> keys, std::span<const TokenId> tokens,
                        PrefixMatch& out) const {
  out.pages.clear();
  out.verdict = {.reason = keys.empty() ? MissReason::kShort : MissReason::kNone};
  for (size_t i = 0; i < keys.size(); ++i) {
    const int32_t page = find(keys[i], tokens.subspan(i * page_tokens_, page_tokens_));
    if (page == kNone) {
      explain(i == 0 ? root : keys[i - 1], keys, tokens, out);
      break;
    }
    out.pages.push_back(page);
  }
  out.verdict.cached_tokens = static_cast<Position>(out.pages.size() * page_tokens_);
}

// Of the continuations that are here, the one that differs latest.
void PrefixIndex::explain(const PageKey& parent_key, std::span<const PageKey> keys, std::span<const TokenId> tokens,
                          PrefixMatch& out) const {
  const size_t matched = out.pages.size();
  PrefixVerdict& verdict = out.verdict;
  const auto wanted = tokens.subspan(matched * page_tokens_, page_tokens_);
  verdict.reason = MissReason::kNew;
  if (evicted_.contains(keys[matched])) {
    verdict.reason = MissReason::kEvicted;
    return;
  }
  const auto root = roots_.find(parent_key);
  const int32_t first = matched > 0 ? at(out.pages.back()).first_child : root == roots_.end() ? kNone : root->second;
  size_t same = 0;
  int32_t nearest = kNone;
  for (int32_t page = first; page != kNone; page = at(page).next) {
    const auto have = tokens_of(page);
    const size_t equal = static_cast<size_t>(std::mismatch(wanted.begin(), wanted.end(), have.begin()).first - wanted.begin());
    if (nearest == kNone || equal > same) nearest = page, same = equal;
  }
  if (same == page_tokens_) {
    verdict.reason = MissReason::kOtherImage;
    return;
  }
  verdict.elsewhere = matched == 0 && first_pages_.contains(content_hash(wanted));
  if (nearest != kNone) {
    const size_t at = matched * page_tokens_ + same;
    verdict.reason = MissReason::kChanged;
    verdict.first_different = static_cast<Position>(at);
    const size_t back = std::min(at, TokenWindow::kMost);
    verdict.before.set(tokens.subspan(at - back, back));
    verdict.here.set(tokens.subspan(at));
    verdict.there.set(tokens_of(nearest).subspan(same));
    verdict.sides = sides_of(tokens, at, nearest, same);
  }
}

std::shared_ptr<const PrefixSides> PrefixIndex::sides_of(std::span<const TokenId> tokens, size_t parting, int32_t page,
                                                         size_t same) const {
  auto out = std::make_shared<PrefixSides>();
  const auto before = tokens.first(parting), here = tokens.subspan(parting);
  const auto last = before.last(std::min(before.size(), PrefixSides::kMostBefore));
  out->before.assign(last.begin(), last.end());
  const auto next = here.first(std::min(here.size(), PrefixSides::kMost));
  out->here.assign(next.begin(), next.end());
  for (size_t skip = same; page != kNone && out->there.size() < PrefixSides::kMost; page = at(page).first_child, skip = 0) {
    const auto more = tokens_of(page).subspan(skip);
    out->there.insert(out->there.end(), more.begin(), more.end());
  }
  return out;
}

uint32_t PrefixIndex::begin(std::span<const int32_t> pages, size_t prompt_pages) {
  if (!pages.empty() && prompt_pages > pages.size()) leave(pages.back(), at(pages.back()).user);
  ++prompts_;
  for (const int32_t page : pages) {
    at(page).user = prompts_;
    pool_.note(page, {.uses = ++at(page).uses});
  }
  return prompts_;
}

// The next prompt of a conversation, and not what `user` went on with behind this page: that is left behind. Of a page with more
// than two continuations nobody knows whose turn it is.
void PrefixIndex::leave(int32_t page, uint32_t user) {
  int32_t way = kNone, ways = 0;
  for (int32_t child = at(page).first_child; child != kNone; child = at(child).next, ++ways) {
    if (at(child).user == user) way = child;
  }
  if (ways > 2) return;
  while (way != kNone && at(way).user == user && pool_.waits(way)) {
    pool_.note(way, {.left = true});
    way = at(way).first_child;
  }
}

// A page that comes back goes on where it was; another one takes from the page before it which turn of which conversation it is.
void PrefixIndex::rank(int32_t page, size_t index, size_t pages, int32_t parent) {
  Node& node = at(page);
  if (const auto ghost = evicted_.find(node.key); ghost != evicted_.end()) {
    node.came_back = true;
    node.turn = evicted_order_[ghost->second].turn;
    node.uses = evicted_order_[ghost->second].uses + 1;
  } else if (parent != kNone) {
    const Node& before = at(parent);
    int64_t others = 0;
    for (int32_t child = before.first_child; child != kNone && others <= 2; child = at(child).next) ++others;
    const bool goes_on = before.prompt == node.prompt && !before.came_back;
    const Addition added = addition(static_cast<int64_t>(index), static_cast<int64_t>(pages - index), others);
    node.aside = goes_on ? before.aside : added == Addition::kAside;
    if (goes_on || added == Addition::kTurn) node.turn = before.turn + (goes_on ? 0 : 1);
    node.uses = node.turn;
  }
  pool_.note(page, {.uses = node.uses, .aside = node.aside});
}

int32_t& PrefixIndex::children_of(const PageKey& parent_key, int32_t parent) {
  return parent == kNone ? roots_.try_emplace(parent_key, kNone).first->second : at(parent).first_child;
}

int32_t PrefixIndex::publish(const PageKey& root, std::span<const PageKey> keys, size_t index, std::span<const TokenId> tokens,
                             int32_t parent, int32_t page, uint32_t prompt) {
  const PageKey& key = keys[index];
  const auto content = tokens.subspan(index * page_tokens_, page_tokens_);
  const auto [entry, added] = pages_.try_emplace(key, page);
  if (!added) return find(key, content);
  pool_.keep(page);
  std::copy(content.begin(), content.end(),
            tokens_.begin() + static_cast<std::ptrdiff_t>(static_cast<size_t>(page) * page_tokens_));
  const PageKey& parent_key = index == 0 ? root : keys[index - 1];
  int32_t& head = children_of(parent_key, parent);
  at(page) = {.key = key, .parent_key = parent_key, .next = head, .starts = index == 0, .prompt = prompt, .user = prompt};
  rank(page, index, keys.size(), parent);
  if (index == 0) count_first_page(content, 1);
  if (head != kNone) at(head).previous = page;
  head = page;
  note_change(key, true);
  return page;
}

bool PrefixIndex::make_room(int64_t pages) {
  if (pages > int64_t{pool_.num_free()} + pool_.num_cached()) return false;
  while (pool_.num_free() < pages) {
    // Without its beginning a chain is worth nothing: of a stale page that others still continue, their ends go first.
    int32_t page = pool_.stalest_cached();
    while (at(page).first_child != kNone) page = at(page).first_child;
    evict(page);
  }
  return true;
}

// The oldest cached page has no children: whoever holds a page holds its parents, and gives them back after it.
void PrefixIndex::evict(int32_t page) {
  const Node node = at(page);
  DI_CHECK(node.first_child == kNone);
  if (node.next != kNone) at(node.next).previous = node.previous;
  if (node.previous != kNone) {
    at(node.previous).next = node.next;
  } else {
    const auto parent = pages_.find(node.parent_key);
    if (parent != pages_.end()) {
      at(parent->second).first_child = node.next;
    } else if (node.next != kNone) {
      roots_[node.parent_key] = node.next;
    } else {
      roots_.erase(node.parent_key);
    }
  }
  if (node.starts) count_first_page(tokens_of(page), -1);
  pages_.erase(node.key);
  note_change(node.key, false);
  remember_evicted(node);
  shelf_.forget(page);
  at(page) = {};
  pool_.drop(page);
  ++num_evicted_;
}

void PrefixIndex::forget(int32_t page) {
  const auto known = pages_.find(at(page).key);
  if (known == pages_.end() || known->second != page) return;
  for (bool gone = false; !gone;) {
    int32_t leaf = page;
    while (at(leaf).first_child != kNone) leaf = at(leaf).first_child;
    gone = leaf == page;
    evict(leaf);
  }
}

void PrefixIndex::remember_evicted(const Node& node) {
  Ghost& place = evicted_order_[next_evicted_];
  const auto old = evicted_.find(place.key);
  if (old != evicted_.end() && old->second == next_evicted_) evicted_.erase(old);
  place = {node.key, node.turn, node.uses};
  evicted_[node.key] = next_evicted_;
  next_evicted_ = (next_evicted_ + 1) % evicted_order_.size();
}

void PrefixIndex::count_first_page(std::span<const TokenId> content, int32_t change) {
  const auto entry = first_pages_.try_emplace(content_hash(content), 0).first;
  if ((entry->second += change) == 0) first_pages_.erase(entry);
}

void PrefixIndex::withdraw(const PageKey& key) {
  const auto found = announced_.find(key);
  if (found != announced_.end() && --found->second == 0) announced_.erase(found);
}

}  // namespace deepinfer
