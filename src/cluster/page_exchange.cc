#include "cluster/page_exchange.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <unordered_map>

#include "cluster/handed_pages.h"
#include "cluster/wire.h"

namespace deepinfer {
namespace {

// At release sizes 0.9 MB: large enough for the network, small enough that it works beside computing.
constexpr size_t kChunkPages = 16;
// Chunks that the receiver has not confirmed.
constexpr int32_t kWindow = 8;
constexpr int64_t kTickUs = 200'000, kAgainUs = 50'000;
constexpr int32_t kTries = 2;

// First in both directions.
struct FormatMessage {
  static constexpr uint8_t kType = 1;
  uint32_t protocol = kClusterProtocol;
  PageFormat format;
};
// Pages [begin, end), the state at `border` or the whole one; the next frame holds their bytes.
struct ChunkMessage {
  static constexpr uint8_t kType = 2;
  uint64_t number = 0;
  uint64_t begin = 0, end = 0;
  PageKey last;
  Position border = 0;
  WholeState whole;
  uint64_t checksum = 0;
};
constexpr uint8_t kBytesType = 3;
struct EndMessage {
  static constexpr uint8_t kType = 4;
  uint64_t number = 0;
  uint64_t end = 0;  // pages of the prompt
  bool good = false;
};
// Receiver to sender.
struct TakenMessage {
  static constexpr uint8_t kType = 5;
  uint64_t number = 0;
  uint64_t end = 0;  // of the pages that are there
  bool is_over = false;
};

template <class IO, class T>
requires(SameWire<T, FormatMessage>) void wire_message(IO& io, T& m) {
  wire_fields(io, m.protocol, m.format.fingerprint, m.format.page_bytes, m.format.state_bytes, m.format.whole_bytes);
}
template <class IO, class T>
requires(SameWire<T, ChunkMessage>) void wire_message(IO& io, T& m) {
  wire_fields(io, m.number, m.begin, m.end, m.last, m.border, m.checksum);
  wire_fields(io, m.whole.tokens, m.whole.noted_from, m.whole.hash);
}
template <class IO, class T>
requires(SameWire<T, EndMessage>) void wire_message(IO& io, T& m) { wire_fields(io, m.number, m.end, m.good); }
template <class IO, class T>
requires(SameWire<T, TakenMessage>) void wire_message(IO& io, T& m) { wire_fields(io, m.number, m.end, m.is_over); }

std::string_view view_of(std::span<const uint8_t> bytes) { return {reinterpret_cast<const char*>(bytes.data()), bytes.size()}; }

using Memory = std::unique_ptr<uint8_t[]>;
using Outgoing = std::shared_ptr<OutgoingPages>;
using Incoming = std::shared_ptr<IncomingPages>;

class HubPageExchange final : public PageExchange {
 public:
  explicit HubPageExchange(const PageExchangeOptions& options) : options_(options) {}

  Status start() {
    // Its thread may have a peer before the hub is known here: that one waits in format().
    const std::lock_guard lock(mutex_);
    DI_TRY(hub_, FrameHub::open(options_.hub,
                                {.opened = [this](LinkId link) { greet(link); },
                                 .frame = [this](LinkId link, uint8_t type, std::string_view bytes) { take(link, type, bytes); },
                                 .closed = [this](LinkId link, const Error&) { forget(link); },
                                 .kept =
                                     [this](LinkId link, uint8_t type, LaneBytes bytes) {
                                       const std::span<const uint8_t> view(bytes.data.get(), bytes.size);
                                       take(link, type, view_of(view), std::move(bytes.data));
                                     }}));
    tick_later();
    return {};
  }

  uint16_t port() const override { return hub_->port(); }
  std::string lane() const override { return hub_->lane(); }

  void serve(PageFormat format) override {
    const std::lock_guard lock(mutex_);
    format_ = std::move(format);
  }

  std::shared_ptr<PageSink> send(const PageAddress& to) override {
    auto out = std::make_shared<OutgoingPages>(to, format(), [this, number = to.number] {
      hub_->post([this, number] {
        if (const auto found = outgoing_.find(number); found != outgoing_.end()) pump(*found->second);
      });
    });
    hub_->post([this, out] {
      outgoing_[out->to.number] = out;
      find_link(*out);
    });
    return out;
  }

  std::shared_ptr<PageLoad> expect(uint64_t number) override {
    const std::lock_guard lock(mutex_);
    const Incoming in = incoming(number);
    in->want();
    return in;
  }

  PageExchangeStats stats() const override {
    const std::lock_guard lock(mutex_);
    PageExchangeStats out = stats_;
    out.late = late_;
    return out;
  }

 private:
  struct Link {
    bool agrees = false;  // it has told its format
    std::string to;       // of those that were called from here
    ChunkMessage chunk;   // whose bytes come next
    bool has_chunk = false;
  };

  PageFormat format() const {
    const std::lock_guard lock(mutex_);
    return format_;
  }

  static std::string name_of(const PageAddress& to) { return fmt::format("{}:{}", to.host, to.port); }

  // What follows runs on the hub's thread.

  void greet(LinkId link) {
    links_.try_emplace(link);
    if (const PageFormat mine = format(); mine.page_bytes > 0) {
      hub_->send(link, FormatMessage::kType, write_message(FormatMessage{.format = mine}));
    } else {
      hub_->close(link, {ErrorCode::kUnavailable, "its model loads"});
    }
  }

  // One connection for all that goes to a worker.
  void find_link(OutgoingPages& out) {
    const std::string name = name_of(out.to);
    const auto found = std::find_if(links_.begin(), links_.end(), [&](const auto& entry) { return entry.second.to == name; });
    if (found != links_.end()) {
      out.link = found->first;
      return pump(out);
    }
    out.link = hub_->connect(out.to.host, out.to.port);
    links_[out.link].to = name;
  }

  // `kept`: where `bytes` are, if they may stay there.
  void take(LinkId link, uint8_t type, std::string_view bytes, Memory kept = nullptr) {
    const Status understood = dispatch(link, links_[link], type, bytes, std::move(kept));
    if (!understood) hub_->close(link, understood.error());
  }

  Status dispatch(LinkId id, Link& link, uint8_t type, std::string_view bytes, Memory kept) {
    if (type == FormatMessage::kType) {
      DI_TRY(const FormatMessage message, read_message<FormatMessage>(bytes));
      return agree(id, link, message);
    }
    if (!link.agrees) return corrupt("a message before its format");
    if (std::exchange(link.has_chunk, false))
      return type == kBytesType ? receive(id, link.chunk, bytes, std::move(kept)) : corrupt("no bytes came");
    switch (type) {
      case ChunkMessage::kType: {
        DI_TRY(link.chunk, read_message<ChunkMessage>(bytes));
        link.has_chunk = true;
        return {};
      }
      case EndMessage::kType: {
        DI_TRY(const EndMessage message, read_message<EndMessage>(bytes));
        end(id, message);
        return {};
      }
      case TakenMessage::kType: {
        DI_TRY(const TakenMessage message, read_message<TakenMessage>(bytes));
        note_taken(message);
        return {};
      }
      default: return corrupt("no such message");
    }
  }

  Status agree(LinkId id, Link& link, const FormatMessage& theirs) {
    const PageFormat mine = format();
    if (theirs.protocol != kClusterProtocol || theirs.format.fingerprint != mine.fingerprint ||
        theirs.format.page_bytes != mine.page_bytes || theirs.format.state_bytes != mine.state_bytes ||
        theirs.format.whole_bytes != mine.whole_bytes)
      return unsupported("its pages are of another program, model or layout");
    link.agrees = true;
    for (const auto& [number, out] : outgoing_) {
      if (out->link == id) pump(*out);
    }
    return {};
  }

  // Sends what there is, as far as the receiver keeps up.
  void pump(OutgoingPages& out) {
    const auto link = links_.find(out.link);
    if (link == links_.end() || !link->second.agrees) return;
    // The pages that an end counts were told before it.
    const auto end = out.end();
    const size_t ready = out.ready();
    for (; out.in_flight < kWindow && out.sent < ready; ++out.in_flight) send_pages(out, std::min(ready, out.sent + kChunkPages));
    if (end == OutgoingPages::End::kOpen || out.all_sent) return;
    if (end == OutgoingPages::End::kWhole && (out.sent < ready || out.in_flight >= kWindow)) return;
    if (end == OutgoingPages::End::kWhole) send_states(out);
    const bool good = end == OutgoingPages::End::kWhole;
    hub_->send(out.link, EndMessage::kType, write_message(EndMessage{out.to.number, out.sent, good}));
    out.all_sent = true;
  }

  void send_pages(OutgoingPages& out, size_t end) {
    send_bytes(out.link, {.number = out.to.number, .begin = out.sent, .end = end, .last = out.key(end - 1)},
               out.bytes(out.sent, end));
    const std::lock_guard lock(mutex_);
    const auto count = static_cast<int64_t>(end - out.sent);
    stats_.pages_sent += count;
    if (hub_->is_beside(out.link, out.bytes(out.sent, end).size())) stats_.pages_sent_beside += count;
    out.sent = end;
  }

  void send_states(OutgoingPages& out) {
    const PageFormat sizes = format();
    if (out.border() > 0)
      send_bytes(out.link, {.number = out.to.number, .border = out.border()}, {out.state_bytes(), sizes.state_bytes});
    if (out.whole().tokens > 0)
      send_bytes(out.link, {.number = out.to.number, .whole = out.whole()}, {out.whole_bytes(), sizes.whole_bytes});
  }

  void send_bytes(LinkId link, ChunkMessage chunk, std::span<const uint8_t> bytes) {
    if (!hub_->is_beside(link, bytes.size())) chunk.checksum = transfer_checksum(bytes);
    hub_->send(link, ChunkMessage::kType, write_message(chunk));
    hub_->send(link, kBytesType, view_of(bytes));
  }

  void note_taken(const TakenMessage& message) {
    const auto found = outgoing_.find(message.number);
    if (found == outgoing_.end()) return;
    OutgoingPages& out = *found->second;
    if (message.is_over) return finish(message.number, out.all_sent);
    out.taken = std::clamp<size_t>(message.end, out.taken, out.sent);
    out.in_flight = std::max(0, out.in_flight - 1);
    pump(out);
  }

  void finish(uint64_t number, bool whole) {
    const auto found = outgoing_.find(number);
    if (found == outgoing_.end()) return;
    const bool was_wanted = found->second->end() != OutgoingPages::End::kBroken;
    outgoing_.erase(found);
    const std::lock_guard lock(mutex_);
    if (was_wanted) ++(whole ? stats_.sent : stats_.lost);
  }

  // Once more from where it broke.
  void forget(LinkId link) {
    links_.erase(link);
    std::vector<uint64_t> again;
    for (const auto& [number, out] : outgoing_) {
      if (out->link == link) again.push_back(number);
    }
    for (const uint64_t number : again) {
      OutgoingPages& out = *outgoing_[number];
      out.link = 0;
      if (++out.tries >= kTries) {
        finish(number, false);
        continue;
      }
      out.sent = out.taken;
      out.in_flight = 0;
      out.all_sent = false;
      {
        const std::lock_guard lock(mutex_);
        ++stats_.retried;
      }
      hub_->after(kAgainUs, [this, number] {
        if (const auto found = outgoing_.find(number); found != outgoing_.end()) find_link(*found->second);
      });
    }
  }

  // REQUIRES: mutex_.
  Incoming incoming(uint64_t number) {
    Incoming& in = incoming_[number];
    if (!in) in = std::make_shared<IncomingPages>(format_.page_bytes, options_.stall_us, late_);
    return in;
  }

  Status receive(LinkId link, const ChunkMessage& chunk, std::string_view bytes, Memory kept) {
    const PageFormat mine = format();
    const bool is_state = chunk.border > 0, is_whole = chunk.whole.tokens > 0;
    const bool fits = is_whole   ? bytes.size() == mine.whole_bytes
                      : is_state ? bytes.size() == mine.state_bytes
                                 : chunk.begin < chunk.end && chunk.end - chunk.begin <= kChunkPages &&
                                       bytes.size() == (chunk.end - chunk.begin) * mine.page_bytes;
    const std::span<const uint8_t> raw(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size());
    // What is kept has been verified.
    if (!fits || (!kept && transfer_checksum(raw) != chunk.checksum)) return corrupt("pages that are not what their head says");
    Incoming in;
    {
      const std::lock_guard lock(mutex_);
      if (held_bytes_ + static_cast<int64_t>(bytes.size()) > options_.max_bytes) {
        in = incoming(chunk.number);
        stats_.refused += !std::exchange(in->was_refused, true);
        in->end(false);
        hub_->send(link, TakenMessage::kType, write_message(TakenMessage{.number = chunk.number, .is_over = true}));
        return {};
      }
      in = incoming(chunk.number);
      if (!is_state && !is_whole && !in->takes(chunk.begin)) {
        hub_->send(link, TakenMessage::kType, write_message(TakenMessage{chunk.number, in->first + in->pages}));
        return {};
      }
      in->bytes_held += static_cast<int64_t>(bytes.size());
      held_bytes_ += static_cast<int64_t>(bytes.size());
      stats_.bytes_received += static_cast<int64_t>(bytes.size());
      if (!is_state && !is_whole) stats_.pages_received += static_cast<int64_t>(chunk.end - chunk.begin);
    }
    if (!kept) {
      kept = std::make_unique_for_overwrite<uint8_t[]>(bytes.size());
      std::memcpy(kept.get(), bytes.data(), bytes.size());
    }
    if (is_whole) return in->add_whole(chunk.whole, std::move(kept)), Status();
    if (is_state) return in->add_state(chunk.border, std::move(kept)), Status();
    const size_t end = in->add(chunk.begin, chunk.end, chunk.last, std::move(kept));
    hub_->send(link, TakenMessage::kType, write_message(TakenMessage{chunk.number, end}));
    return {};
  }

  void end(LinkId link, const EndMessage& message) {
    {
      const std::lock_guard lock(mutex_);
      const Incoming in = incoming(message.number);
      const int64_t us = in->end(message.good);
      if (!message.good && in->drop()) held_bytes_ -= std::exchange(in->bytes_held, 0);
      if (us >= 0) ++stats_.received, stats_.receive_us += us;
    }
    hub_->send(link, TakenMessage::kType, write_message(TakenMessage{message.number, message.end, true}));
  }

  // What nobody has or will have goes, on this thread: freeing is no work of an engine's.
  void tick_later() {
    hub_->after(kTickUs, [this] {
      std::vector<uint64_t> left;
      for (const auto& [number, out] : outgoing_) {
        const bool is_open = out->end() == OutgoingPages::End::kOpen;
        if (!is_open && out->closed_us == 0) out->closed_us = clock_.now_us();
        const bool was_dropped = is_open && out.use_count() == 1;
        if (was_dropped || (!is_open && clock_.now_us() - out->closed_us > options_.lease_us)) left.push_back(number);
      }
      for (const uint64_t number : left) finish(number, false);
      {
        const std::lock_guard lock(mutex_);
        std::erase_if(incoming_, [&](const auto& entry) {
          const Incoming& in = entry.second;
          if (in.use_count() > 1 || (!in->was_wanted() && in->silent_us() < options_.lease_us)) return false;
          held_bytes_ -= in->bytes_held;
          return true;
        });
      }
      tick_later();
    });
  }

  const PageExchangeOptions options_;
  const SteadyClock clock_;
  std::unordered_map<LinkId, Link> links_;
  std::unordered_map<uint64_t, Outgoing> outgoing_;
  mutable std::mutex mutex_;  // guards what follows
  PageFormat format_;
  std::unordered_map<uint64_t, Incoming> incoming_;
  int64_t held_bytes_ = 0;
  PageExchangeStats stats_;
  std::atomic<int64_t> late_{0};
  std::unique_ptr<FrameHub> hub_;  // last: its thread goes first
};

}  // namespace

Result<std::unique_ptr<PageExchange>> PageExchange::open(const PageExchangeOptions& options) {
  auto exchange = std::make_unique<HubPageExchange>(options);
  DI_CHECK_OK(exchange->start());
  return std::unique_ptr<PageExchange>(std::move(exchange));
}

}  // namespace deepinfer
