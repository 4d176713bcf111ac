#include "text/bpe.h"

#include <algorithm>
#include <bit>
#include <functional>

#include <fmt/format.h>

namespace deepinfer {
namespace {

constexpr int32_t kBytes = 256;

}  // namespace

Bpe::PairTable::PairTable(size_t pairs)
    : slots_(std::bit_ceil(std::max<size_t>(2 * pairs, 2)), kEmpty), known_(std::bit_ceil(std::max<size_t>(8 * pairs, 64)) / 64) {
  mask_ = slots_.size() - 1;
  shift_ = 64 - std::countr_zero(slots_.size());
  bit_shift_ = 64 - std::countr_zero(known_.size() * 64);
}

bool Bpe::PairTable::insert(int32_t left, int32_t right, int32_t rank) {
  const uint64_t key = key_of(left, right);
  const uint64_t hash = hash_of(key);
  const uint64_t bit = hash >> bit_shift_;
  known_[bit / 64] |= uint64_t{1} << (bit % 64);
  for (uint64_t at = hash >> shift_;; at = (at + 1) & mask_) {
    if (slots_[at] >> kRankBits == key) return false;
    if (slots_[at] != kEmpty) continue;
    slots_[at] = key << kRankBits | static_cast<uint32_t>(rank);
    return true;
  }
}

Bpe::BorderFilter::BorderFilter(size_t merges) : short_(65536 / 64), long_(std::bit_ceil(std::max<size_t>(8 * merges, 64)) / 64) {
  shift_ = 64 - std::countr_zero(long_.size() * 64);
}

void Bpe::BorderFilter::add(std::string_view left, std::string_view right) {
  if (left.size() < kSide || right.size() < kSide) {
    const uint32_t pair = static_cast<uint8_t>(left.back()) * 256u + static_cast<uint8_t>(right.front());
    short_[pair / 64] |= uint64_t{1} << (pair % 64);
  } else {
    uint8_t around[2 * kSide];
    std::memcpy(around, left.data() + left.size() - kSide, kSide);
    std::memcpy(around + kSide, right.data(), kSide);
    const uint64_t bit = bit_of(around);
    long_[bit / 64] |= uint64_t{1} << (bit % 64);
  }
}

Result<Bpe> Bpe::build(std::span<const std::string_view> token_bytes, std::span<const BpeMerge> merges, bool ignore_merges) {
  Bpe bpe;
  bpe.ignore_merges_ = ignore_merges;
  if (token_bytes.size() >= size_t{1} << PairTable::kNumberBits || merges.size() >= size_t{1} << PairTable::kRankBits) {
    return too_large(
        fmt::format("{} tokens and {} merges are more than the merge table holds", token_bytes.size(), merges.size()));
  }
  DI_CHECK_OK(bpe.number_tokens(token_bytes, merges));
  bpe.filter_ = BorderFilter(merges.size());
  for (const BpeMerge& merge : merges) {
    bpe.filter_.add(token_bytes[static_cast<size_t>(merge.left)], token_bytes[static_cast<size_t>(merge.right)]);
  }
  DI_CHECK_OK(bpe.index_tokens(token_bytes));
  return bpe;
}

// Gives every token its number and every merge its place in the pair table; sees whether the linear way is allowed.
Status Bpe::number_tokens(std::span<const std::string_view> token_bytes, std::span<const BpeMerge> merges) {
  std::vector<int32_t> number_of(token_bytes.size(), -1);
  id_of_.assign(kBytes, -1);
  for (size_t id = 0; id < token_bytes.size(); ++id) {
    if (token_bytes[id].size() != 1) continue;
    const auto byte = static_cast<uint8_t>(token_bytes[id][0]);
    number_of[id] = byte;
    id_of_[byte] = static_cast<TokenId>(id);
  }
  for (int32_t byte = 0; byte < kBytes; ++byte) {
    split_of_.push_back({byte, byte});
    if (id_of_[static_cast<size_t>(byte)] < 0) {
      return corrupt(fmt::format("the vocabulary has no token for byte 0x{:02X}; a byte-level one needs all 256", byte));
    }
  }
  DI_CHECK_OK(number_products(merges, number_of));
  for (size_t id = 0; id < token_bytes.size(); ++id) {
    if (number_of[id] >= 0 || token_bytes[id].empty()) continue;
    id_of_.push_back(static_cast<TokenId>(id));
    split_of_.push_back({-1, -1});
  }
  return {};
}

Status Bpe::number_products(std::span<const BpeMerge> merges, std::vector<int32_t>& number_of) {
  for (const BpeMerge& merge : merges) {
    int32_t& number = number_of[static_cast<size_t>(merge.product)];
    if (number >= 0) {
      linear_ = false;  // a second way to the same token
    } else {
      number = static_cast<int32_t>(id_of_.size());
      id_of_.push_back(merge.product);
      split_of_.push_back({-1, -1});
    }
    product_of_.push_back(number);
  }
  pairs_ = PairTable(merges.size());
  for (size_t rank = 0; rank < merges.size(); ++rank) {
    const int32_t left = number_of[static_cast<size_t>(merges[rank].left)];
    const int32_t right = number_of[static_cast<size_t>(merges[rank].right)];
    const int32_t product = product_of_[rank];
    if (left < 0 || right < 0) continue;  // made by no merge itself, so this one never happens
    if (!pairs_.insert(left, right, static_cast<int32_t>(rank))) {
      return corrupt(fmt::format("merge {} joins the same two tokens as an earlier one", rank));
    }
    if (left >= product || right >= product) linear_ = false;  // needs a token that is made later
    split_of_[static_cast<size_t>(product)] = {left, right};
  }
  return {};
}

// Which numbers merging can produce: the bytes, and a product whose parts it can produce and whose inner border no
// earlier merge crosses.
std::vector<bool> Bpe::find_reachable(std::span<const std::string_view> token_bytes) const {
  std::vector<bool> reachable(id_of_.size(), false);
  Scratch scratch;
  std::vector<TokenId> ids;
  for (size_t number = 0; number < id_of_.size(); ++number) {
    const Split split = split_of_[number];
    if (number < kBytes) {
      reachable[number] = true;
    } else if (linear_) {
      reachable[number] = split.left >= 0 && reachable[static_cast<size_t>(split.left)] &&
                          reachable[static_cast<size_t>(split.right)] && border_stands(split.left, split.right);
    } else {
      const std::string_view bytes = token_bytes[static_cast<size_t>(id_of_[number])];
      ids.clear();
      merge_by_rank(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size(), ids, scratch);
      reachable[number] = ids.size() == 1;
    }
  }
  return reachable;
}

Status Bpe::index_tokens(std::span<const std::string_view> token_bytes) {
  const std::vector<bool> reachable = find_reachable(token_bytes);
  HugeVector<ByteTrie::Entry> entries;
  entries.reserve(id_of_.size());
  for (size_t number = 0; number < id_of_.size(); ++number) {
    const std::string_view bytes = token_bytes[static_cast<size_t>(id_of_[number])];
    const auto value = static_cast<int32_t>(number + 1);
    entries.push_back({bytes, reachable[number] ? value : -value});
    length_of_.push_back(static_cast<int32_t>(bytes.size()));
  }
  DI_TRY(trie_, ByteTrie::build(entries));
  shorter_.assign(id_of_.size(), -1);
  std::vector<const ByteTrie::Entry*> prefixes;  // of the entry at hand, each one of the next; entries are sorted
  for (const ByteTrie::Entry& entry : entries) {
    while (!prefixes.empty() && !entry.bytes.starts_with(prefixes.back()->bytes)) prefixes.pop_back();
    if (entry.value < 0) continue;
    if (!prefixes.empty()) shorter_[static_cast<size_t>(entry.value - 1)] = prefixes.back()->value - 1;
    prefixes.push_back(&entry);
  }
  return {};
}

// Whether no merge crossed the border of two neighbours while they grew: walks back in time along their parts at the
// border and looks for a merge across it that came before the one which ended the two parts' time side by side. Of two
// merges of the same rank the left one comes first, hence the + 1.
bool Bpe::border_stands(int32_t left, int32_t right) const {
  while (left >= kBytes || right >= kBytes) {
    int32_t limit = 0;
    if (left > right) {
      limit = left;
      left = split_of_[static_cast<size_t>(left)].right;
    } else {
      limit = right + 1;
      right = split_of_[static_cast<size_t>(right)].left;
    }
    const int32_t rank = pairs_.find(left, right);
    if (rank >= 0 && rank + kBytes < limit) return false;
  }
  return true;
}

// In a long run of one character nearly every position is tried with the same few tokens: the last answers save the walk.
bool Bpe::may_adjoin(int32_t left, int32_t right, Scratch& scratch) const {
  constexpr int kRememberedBits = 10;
  if (scratch.borders.empty()) scratch.borders.assign(size_t{1} << kRememberedBits, ~uint64_t{0});
  const uint64_t pair = uint64_t{static_cast<uint32_t>(left)} << 32 | static_cast<uint32_t>(right) << 1;
  uint64_t& remembered = scratch.borders[(pair * 0x9E3779B97F4A7C15ull) >> (64 - kRememberedBits)];
  if ((remembered & ~uint64_t{1}) == pair) return (remembered & 1) != 0;
  const bool stands = may_adjoin(left, right);
  remembered = pair | (stands ? 1 : 0);
  return stands;
}

// A walk over many bytes is not repeated where the same bytes stand again: comparing them is ten times faster.
void Bpe::find_next(const uint8_t* piece, size_t size, size_t at, ByteTrie::Match& match, size_t& match_at) const {
  constexpr size_t kLongWalk = 20;
  const size_t bytes = match.looked_at;
  if (bytes >= kLongWalk && size - at >= bytes && size - match_at >= bytes &&
      std::memcmp(piece + at, piece + match_at, bytes) == 0)
    return;
  match = trie_.longest(piece + at, size - at);
  match_at = at;
}

void Bpe::merge_linear(const uint8_t* piece, size_t size, const ByteTrie::Match& first, std::vector<TokenId>& out,
                       Scratch& scratch) const {
  const size_t base = out.size();
  auto& alive = scratch.alive;
  alive.assign(size / 64 + 1, ~uint64_t{0});
  const auto fits = [&](size_t at, size_t end, int32_t token) {
    if ((alive[end / 64] >> (end % 64) & 1) == 0) return false;
    return at == 0 || !filter_.crossable(piece, at, size) || may_adjoin(out.back(), token, scratch);
  };
  ByteTrie::Match match = first;
  size_t at = 0, match_at = 0;
  size_t length = first.length;
  int32_t token = first.value - 1;
  while (true) {
    if (fits(at, at + length, token)) {
      out.push_back(token);
      at += length;
      if (at == size) break;
      find_next(piece, size, at, match, match_at);
      token = match.value - 1;
      length = match.length;
    } else if (shorter_[static_cast<size_t>(token)] >= 0) {
      token = shorter_[static_cast<size_t>(token)];
      length = static_cast<size_t>(length_of_[static_cast<size_t>(token)]);
    } else {
      DI_CHECK(out.size() > base);  // the bytes alone always have a merged form
      alive[at / 64] &= ~(uint64_t{1} << (at % 64));
      token = out.back();
      out.pop_back();
      length = static_cast<size_t>(length_of_[static_cast<size_t>(token)]);
      at -= length;
    }
  }
  for (size_t i = base; i < out.size(); ++i) out[i] = id_of_[static_cast<size_t>(out[i])];
}

void Bpe::merge_by_rank(const uint8_t* piece, size_t size, std::vector<TokenId>& out, Scratch& scratch) const {
  auto &symbols = scratch.symbols, &next = scratch.next, &previous = scratch.previous;
  auto& queue = scratch.queue;
  symbols.assign(piece, piece + size);
  next.resize(size);
  previous.resize(size);
  queue.clear();
  const auto offer = [&](int32_t left) {
    const int32_t rank =
        next[static_cast<size_t>(left)] < 0
            ? -1
            : pairs_.find(symbols[static_cast<size_t>(left)], symbols[static_cast<size_t>(next[static_cast<size_t>(left)])]);
    if (rank >= 0) queue.push_back(uint64_t{static_cast<uint32_t>(rank)} << 32 | static_cast<uint32_t>(left));
    return rank >= 0;
  };
  for (size_t i = 0; i < size; ++i) {
    next[i] = i + 1 < size ? static_cast<int32_t>(i + 1) : -1;
    previous[i] = static_cast<int32_t>(i) - 1;
  }
  for (size_t i = 0; i < size; ++i) offer(static_cast<int32_t>(i));
  std::make_heap(queue.begin(), queue.end(), std::greater<>());
  while (!queue.empty()) {
    std::pop_heap(queue.begin(), queue.end(), std::greater<>());
    const auto rank = static_cast<int32_t>(queue.back() >> 32);
    const auto left = static_cast<size_t>(queue.back() & 0xFFFFFFFFu);
    queue.pop_back();
    if (symbols[left] < 0 || next[left] < 0) continue;
    const auto right = static_cast<size_t>(next[left]);
    if (pairs_.find(symbols[left], symbols[right]) != rank) continue;  // one of the two has merged since
    symbols[left] = product_of_[static_cast<size_t>(rank)];
    symbols[right] = -1;
    next[left] = next[right];
    if (next[left] >= 0) previous[static_cast<size_t>(next[left])] = static_cast<int32_t>(left);
    if (previous[left] >= 0 && offer(previous[left])) std::push_heap(queue.begin(), queue.end(), std::greater<>());
    if (offer(static_cast<int32_t>(left))) std::push_heap(queue.begin(), queue.end(), std::greater<>());
  }
  for (int32_t i = 0; i >= 0; i = next[static_cast<size_t>(i)])
    out.push_back(id_of_[static_cast<size_t>(symbols[static_cast<size_t>(i)])]);
}

}  // namespace deepinfer
