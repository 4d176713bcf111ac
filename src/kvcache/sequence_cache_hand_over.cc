// Pages that another engine has computed, and those that another one waits for.
#include <algorithm>
#include <utility>

#include "kvcache/sequence_cache.h"
#include "kvcache/tiers/store_tools.h"

namespace deepinfer {
namespace {

uint64_t token_hash(std::span<const TokenId> tokens) {
  return transfer_checksum({reinterpret_cast<const uint8_t*>(tokens.data()), tokens.size_bytes()});
}

}  // namespace

void SequenceCache::await_handed(const SequenceContent& content, CachedSequence& out) {
  out.retention = content.retention;
  out.tenant_tag = tenant_tag(content.tenant);
  out.load = content.handed;
  out.load_is_handed = true;
  ++handed_loads_;
  out.load_from = found_.pages.size();
  out.load_announced = out.load_from < out.keys.size();
  if (out.load_announced) index_->announce(out.keys[out.load_from]);
}

// Copies are enqueued behind what wrote the pages and before whatever writes to them next, so that none is held.
void SequenceCache::send_pages(CachedSequence& sequence) {
  if (!sequence.sink) return;
  auto sending = std::find_if(sending_.begin(), sending_.end(), [&](const Sending& s) { return s.sink == sequence.sink; });
  if (sending == sending_.end()) sending = sending_.insert(sending, Sending{.sink = sequence.sink});
  if (sending->staged >= sequence.published) return;
  for (size_t& i = sending->staged; i < sequence.published; ++i) {
    uint8_t* const to = sequence.sink->page(i, sequence.keys[i]);
    if (to) store_->download_page(sequence.lease.pages()[i], to);
  }
  sending->ticket = store_->record();
  sending->told = false;
}

// What the handed state is of is this prompt and its first token: then nothing of it is computed here.
bool SequenceCache::restore_whole(const SequenceContent& content, CachedSequence& out) {
  if (!out.load || !out.load->whole_bytes) return false;
  const WholeState& whole = out.load->whole;
  const auto tokens = content.tokens.first(content.tokens.size() - 1);
  if (whole.tokens != static_cast<Position>(tokens.size()) || whole.hash != token_hash(tokens)) return false;
  if (out.published != tokens.size() / static_cast<size_t>(page_tokens_)) return false;
  store_->restore_whole_state(out.lease, whole.tokens, out.load->whole_bytes.get());
  out.begin = whole.tokens;
  out.noted_from = std::clamp<Position>(whole.noted_from, 0, whole.tokens);
  out.write_floor = out.verdict.cached_tokens = static_cast<Position>(out.published) * page_tokens_;
  return true;
}

// The newest state from which a prompt resumes whose pages are all there; 0: none.
Position SequenceCache::copy_border_state(const CachedSequence& sequence, Position original_prompt_tokens) const {
  for (Position at = snapshot_border(options_.replay, original_prompt_tokens); at > 0; at -= page_tokens_) {
    if (static_cast<size_t>(at / page_tokens_) > sequence.published) continue;
    const int32_t id = shelf_->of_page(page_before(sequence, at));
    if (id == SnapshotShelf::kNone) continue;
    std::copy_n(shelf_->data(id), shelf_->bytes_each(), sequence.sink->state());
    return at;
  }
  return 0;
}

void SequenceCache::finish_sending(CachedSequence& sequence, const Sent& sent) {
  const auto sending =
      std::find_if(sending_.begin(), sending_.end(), [&](const Sending& s) { return s.sink.get() == sent.sink; });
  if (sending == sending_.end()) return;
  if (!sent.good) {
    sending->sink->close(0, {}, false);
    taken_.emplace_back(std::move(sending->sink), store_->record());
    sending_.erase(sending);
    return;
  }
  sending->closed = true;
  sending->told = false;
  sending->border = copy_border_state(sequence, sent.original_prompt_tokens);
  const auto computed = static_cast<size_t>(sequence.computed);
  sending->whole = {sequence.computed, std::min(sent.noted_from, sequence.computed), token_hash(sent.tokens.first(computed))};
  store_->take_whole_state(sequence.lease, sequence.computed, sequence.sink->whole_state());
  sending->ticket = store_->record();
}

void SequenceCache::settle_sent(Ticket waited, bool good) {
  std::erase_if(taken_, [&](const auto& taken) { return taken.second <= waited; });
  std::erase_if(sending_, [&](Sending& sending) {
    if (!good) {
      sending.sink->close(0, {}, false);
      return true;
    }
    if (!sending.told && sending.ticket <= waited) sending.told = true, sending.sink->written(sending.staged);
    if (sending.told && sending.closed) sending.sink->close(sending.border, sending.whole, true);
    return sending.told && sending.closed;
  });
}

}  // namespace deepinfer
