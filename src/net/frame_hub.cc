#include "net/frame_hub.h"

#include <fmt/format.h>
#include <openssl/crypto.h>

#include <atomic>
#include <boost/asio/connect.hpp>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/write.hpp>
#include <cstring>
#include <mutex>
#include <optional>
#include <thread>
#include <unordered_map>
#include <vector>

#include "net/digest.h"
#include "net/frame_lane.h"
#include "net/frame_link.h"

namespace deepinfer {
namespace {

namespace asio = boost::asio;
namespace ssl = boost::asio::ssl;
using asio::ip::tcp;
using Ec = boost::system::error_code;

constexpr std::string_view kMagic = "deepinfer frames 2\n";
constexpr size_t kNonceBytes = 32, kProofBytes = 64;  // the proof in hexadecimal digits
constexpr size_t kHeadBytes = 5;                      // u32 length, u8 type
constexpr size_t kReadBytes = 256 << 10;
constexpr size_t kMostBehind = 4 * kReadBytes;  // read of what comes after bytes that are waited for
constexpr size_t kMostStrangers = 64;
constexpr int64_t kStrangerUs = 2'000'000;

using LinkPtr = std::shared_ptr<FrameLink>;

std::string frame_head(uint8_t type, size_t bytes) {
  std::string out(kHeadBytes, '\0');
  const uint32_t size = static_cast<uint32_t>(bytes);
  std::memcpy(out.data(), &size, sizeof(size));
  out[4] = static_cast<char>(type);
  return out;
}

class AsioHub final : public FrameHub {
 public:
  AsioHub(const FrameHubOptions& options, FrameHandlers handlers)
      : options_(options), handlers_(std::move(handlers)), work_(asio::make_work_guard(io_)), acceptor_(io_), resolver_(io_) {}

  ~AsioHub() override {
    asio::post(io_, [this] {
      quiet_ = true;
      io_.stop();
    });
    if (thread_.joinable()) thread_.join();
  }

  Status start() {
    if (options_.security.is_tls()) DI_CHECK_OK(load_certificates(context_, options_.security));
    DI_CHECK_OK(open_lane());
    if (!options_.address.empty()) DI_CHECK_OK(listen());
    thread_ = std::thread([this] { io_.run(); });
    return {};
  }

  uint16_t port() const override { return port_; }

  LinkId connect(const std::string& host, uint16_t port) override {
    const LinkId id = next_id_.fetch_add(1);
    asio::post(io_, [this, id, host, port] { call(id, host, port); });
    return id;
  }

  void send(LinkId link, uint8_t type, std::string_view bytes) override {
    std::string frame = frame_head(type, bytes.size());
    frame.append(bytes);
    bool wake = false;
    {
      const std::lock_guard lock(outbox_mutex_);
      wake = outbox_.empty();
      outbox_.emplace_back(link, std::move(frame));
    }
    if (wake) asio::post(io_, [this] { empty_outbox(); });
  }

  void close(LinkId link, Error why) override {
    asio::post(io_, [this, link, why = std::move(why)] {
      if (const auto found = links_.find(link); found != links_.end()) drop(found->second, why);
    });
  }

  std::string lane() const override { return lane_note_; }
  bool is_beside(LinkId link, size_t bytes) const override {
    return bytes >= FrameLane::kLaneBytes && lane_ && lane_->is_joined(link);
  }

  void post(std::function<void()> work) override { asio::post(io_, std::move(work)); }

  void after(int64_t us, std::function<void()> work) override {
    auto timer = std::make_shared<asio::steady_timer>(io_);
    asio::post(io_, [timer, us, work = std::move(work)] {
      timer->expires_after(std::chrono::microseconds(us));
      timer->async_wait([timer, work](Ec ec) {
        if (!ec) work();
      });
    });
  }

 private:
  Status open_lane() {
    if (options_.lane == FrameLanes::kNone || (options_.lane == FrameLanes::kAuto && options_.security.is_tls())) return {};
    auto lane = SideLane::open(options_.max_frame_bytes);
    lane_note_ = lane ? "UCX" : lane.error().message;
    if (!lane) return options_.lane == FrameLanes::kAlways ? Status(lane.error()) : Status();
    lane_.emplace(io_, *std::move(lane), options_.lane_us,
                  FrameLane::Calls{.say = [this](LinkId link, std::string_view bytes) { say_of_lane(link, bytes); },
                                   .go_on = [this](LinkId link) { go_on(link); },
                                   .fail = [this](LinkId link, const Error& why) { close(link, why); }});
    return {};
  }

  void say_of_lane(LinkId id, std::string_view bytes) {
    const auto found = links_.find(id);
    if (found == links_.end()) return;
    (found->second->unsent += frame_head(FrameLane::kType, bytes.size())) += bytes;
    flush(found->second);
  }

  Status listen() {
    Ec ec;
    const auto address = asio::ip::make_address(options_.address, ec);
    if (ec) return invalid_argument(fmt::format("{}: not an IP address", options_.address));
    const tcp::endpoint endpoint(address, options_.port);
    acceptor_.open(endpoint.protocol(), ec);
    if (!ec) acceptor_.set_option(asio::socket_base::reuse_address(true), ec);
    if (!ec) acceptor_.bind(endpoint, ec);
    if (!ec) acceptor_.listen(256, ec);
    if (ec) return io_error(fmt::format("cannot listen on {}:{}: {}", options_.address, options_.port, ec.message()));
    port_ = acceptor_.local_endpoint(ec).port();
    accept_next();
    return {};
  }

  void accept_next() {
    auto link = std::make_shared<FrameLink>(io_, next_id_.fetch_add(1), false);
    acceptor_.async_accept(link->socket, [this, link](Ec ec) {
      if (ec == asio::error::operation_aborted) return;
      if (!ec) begin(link);
      if (!ec) return accept_next();
      // Mostly: no file handles left.
      after(50'000, [this] { accept_next(); });
    });
  }

  void call(LinkId id, const std::string& host, uint16_t port) {
    auto link = std::make_shared<FrameLink>(io_, id, true);
    link->peer = fmt::format("{}:{}", host, port);
    links_[id] = link;
    limit_handshake(link);
    resolver_.async_resolve(host, std::to_string(port), [this, link, host, port](Ec ec, tcp::resolver::results_type found) {
      if (link->closed) return;
      if (ec) return drop(link, {ErrorCode::kUnavailable, fmt::format("{}: {}", host, ec.message())});
      asio::async_connect(link->socket, found, [this, link, host, port](Ec failed, const tcp::endpoint&) {
        if (link->closed) return;
        if (failed) return drop(link, {ErrorCode::kUnavailable, fmt::format("{}:{}: {}", host, port, failed.message())});
        begin(link);
      });
    });
  }

  void limit_handshake(const LinkPtr& link) {
    const int64_t limit_us = link->calls ? options_.handshake_us : std::min(options_.handshake_us, kStrangerUs);
    link->timer.expires_after(std::chrono::microseconds(limit_us));
    link->timer.async_wait([this, link](Ec ec) {
      if (!ec && !link->proven) drop(link, {ErrorCode::kUnavailable, "the peer did not prove its secret in time"});
    });
  }

  void secure(const LinkPtr& link) {
    link->secure.emplace(link->socket, context_);
    link->secure->async_handshake(link->calls ? ssl::stream_base::client : ssl::stream_base::server, [this, link](Ec ec) {
      if (link->closed) return;
      if (ec) return drop(link, {ErrorCode::kPermission, "no TLS with the peer: " + ec.message()});
      prove(link);
    });
  }

  // Both send magic and nonce, then the proof over both nonces; the caller's differs from the other's, so none can be sent back.
  void prove(const LinkPtr& link) {
    link->nonce = random_bytes(kNonceBytes);
    write(link, std::string(kMagic) + link->nonce);
    read(link, kMagic.size() + kNonceBytes, [this, link] {
      if (std::string_view(link->received).substr(0, kMagic.size()) != kMagic)
        return drop(link, {ErrorCode::kCorrupt, "the peer speaks another protocol"});
      const std::string theirs = link->received.substr(kMagic.size());
      const std::string& caller = link->calls ? link->nonce : theirs;
      const std::string& other = link->calls ? theirs : link->nonce;
      const auto proof = [&](bool of_caller) {
        return hmac_sha256_hex(options_.security.secret, (of_caller ? "caller" : "called") + caller + other);
      };
      write(link, proof(link->calls));
      read(link, kProofBytes, [this, link, expected = proof(!link->calls)] {
        if (CRYPTO_memcmp(link->received.data(), expected.data(), kProofBytes) != 0)
          return drop(link,
                      {ErrorCode::kPermission, options_.security.secret.empty() ? "the peer wants a secret: --cluster-secret FILE"
                                                                                : "the peer has another secret"});
        link->proven = true;
        link->buffer.resize(kReadBytes);
        std::erase(strangers_, link);
        link->timer.cancel();
        if (lane_) lane_->offer(link->id, link->peer);
        handlers_.opened(link->id);
        flush(link);
        read_frames(link);
      });
    });
  }

  // Too many: the one that has waited longest makes room. Whoever knows the secret proves it within some round trips, so those
  // that stay silent cannot crowd it out.
  void meet_stranger(const LinkPtr& link) {
    limit_handshake(link);
    strangers_.push_back(link);
    if (strangers_.size() > kMostStrangers)
      drop(strangers_.front(), {ErrorCode::kExhausted, "too many peers that have not proven their secret"});
  }

  void begin(const LinkPtr& link) {
    links_[link->id] = link;
    if (!link->calls) meet_stranger(link);
    Ec ignored;
    set_user_timeout(link->socket.native_handle());
    link->socket.set_option(tcp::no_delay(true), ignored);
    link->socket.set_option(asio::socket_base::keep_alive(true), ignored);
    options_.security.is_tls() ? secure(link) : prove(link);
  }

  template <class Then>
  void read(const LinkPtr& link, size_t bytes, Then then) {
    link->received.resize(bytes);
    on_stream(*link, [&](auto& stream) {
      asio::async_read(stream, asio::buffer(link->received), [this, link, then](Ec ec, size_t) {
        if (link->closed) return;
        if (!ec) return then();
        const char* guess = link->secure ? "" : " (has it TLS?)";
        drop(link, {ErrorCode::kUnavailable, fmt::format("the peer left before it was proven{}: {}", guess, ec.message())});
      });
    });
  }

  void read_frames(const LinkPtr& link) {
    if (link->begin > 0) {
      std::memmove(link->buffer.data(), link->buffer.data() + link->begin, link->end - link->begin);
      link->end -= link->begin;
      link->begin = 0;
    }
    // It grows with what has come, not with what a head promises, and shrinks again.
    if (link->end == link->buffer.size()) link->buffer.resize(2 * link->end);
    if (link->end < kReadBytes / 2 && link->buffer.size() > 4 * kReadBytes) {
      link->buffer.resize(kReadBytes);
      link->buffer.shrink_to_fit();
    }
    const auto space = asio::buffer(link->buffer.data() + link->end, link->buffer.size() - link->end);
    on_stream(*link, [&](auto& stream) {
      stream.async_read_some(space, [this, link](Ec ec, size_t bytes) {
        if (link->closed) return;
        if (ec) return drop(link, {ErrorCode::kUnavailable, "the peer left: " + ec.message()});
        link->end += bytes;
        deliver(link);
        link->paused = link->waits && link->end - link->begin > kMostBehind;
        if (!link->closed && !link->paused) read_frames(link);
      });
    });
  }

  void deliver(const LinkPtr& link) {
    bool any = false;
    link->waits = false;
    while (!link->closed && link->end - link->begin >= kHeadBytes) {
      const char* head = link->buffer.data() + link->begin;
      uint32_t size = 0;
      std::memcpy(&size, head, sizeof(size));
      if (size > options_.max_frame_bytes)
        return drop(link,
                    {ErrorCode::kCorrupt, fmt::format("a frame of {} bytes, {} are allowed", size, options_.max_frame_bytes)});
      if (link->end - link->begin < kHeadBytes + size) break;
      const uint8_t type = static_cast<uint8_t>(head[4]);
      const std::string_view bytes(head + kHeadBytes, size);
      if (type == FrameLane::kType) {
        take_of_lane(link, bytes);
      } else {
        handlers_.frame(link->id, type, bytes);
      }
      if (link->waits) break;
      link->begin += kHeadBytes + size;
      any = true;
    }
    if (any && handlers_.settled) handlers_.settled();
  }

  // Without a lane nothing was offered, so nothing comes but offers.
  void take_of_lane(const LinkPtr& link, std::string_view bytes) {
    if (!lane_) return;
    auto taken = lane_->take(link->id, bytes);
    if (!taken) return drop(link, taken.error());
    link->waits = taken->waits;
    if (!taken->type) return;
    if (handlers_.kept) return handlers_.kept(link->id, *taken->type, std::move(taken->bytes));
    handlers_.frame(link->id, *taken->type, {reinterpret_cast<const char*>(taken->bytes.data.get()), taken->bytes.size});
  }

  // Reads on where too much was behind what has come now.
  void go_on(LinkId id) {
    const auto found = links_.find(id);
    if (found == links_.end()) return;
    const LinkPtr link = found->second;
    deliver(link);
    const bool is_free = !link->waits || link->end - link->begin <= kMostBehind;
    if (!link->closed && is_free && std::exchange(link->paused, false)) read_frames(link);
  }

  void empty_outbox() {
    {
      const std::lock_guard lock(outbox_mutex_);
      outbox_.swap(sending_);
    }
    touched_.clear();
    for (auto& [id, frame] : sending_) {
      const auto found = links_.find(id);
      if (found == links_.end()) continue;
      if (is_beside(id, frame.size() - kHeadBytes)) {
        const uint8_t type = static_cast<uint8_t>(frame[4]);
        lane_->send(id, type, std::move(frame), kHeadBytes);
      } else {
        found->second->unsent += frame;
      }
      touched_.push_back(found->second);
    }
    sending_.clear();
    for (const LinkPtr& link : touched_) {
      const size_t unsent = link->unsent.size() + (lane_ ? lane_->unsent(link->id) : 0);
      if (unsent > options_.max_unsent_bytes) {
        drop(link, {ErrorCode::kExhausted, fmt::format("the peer does not read: {} bytes wait for it", unsent)});
      } else {
        flush(link);
      }
    }
    touched_.clear();
  }

  // Of the handshake, which comes before frames that were sent early.
  void write(const LinkPtr& link, const std::string& bytes) {
    link->handshake += bytes;
    flush(link);
  }

  void flush(const LinkPtr& link) {
    std::string& next = !link->handshake.empty() ? link->handshake : link->unsent;
    if (link->closed || link->writing || next.empty() || (&next == &link->unsent && !link->proven)) return;
    link->writing = true;
    link->in_write.clear();
    link->in_write.swap(next);
    on_stream(*link, [&](auto& stream) {
      asio::async_write(stream, asio::buffer(link->in_write), [this, link](Ec ec, size_t) {
        link->writing = false;
        if (link->closed) return;
        if (ec) return drop(link, {ErrorCode::kUnavailable, "the peer left: " + ec.message()});
        flush(link);
      });
    });
  }

  // By value: the table's own pointer goes with the entry.
  void drop(LinkPtr link, const Error& why) {
    if (std::exchange(link->closed, true)) return;
    std::erase(strangers_, link);
    Ec ignored;
    link->socket.close(ignored);
    link->timer.cancel();
    links_.erase(link->id);
    if (lane_) lane_->leave(link->id);
    if (quiet_) return;
    // Strangers that never got in are nobody's business.
    if (link->calls || link->proven) handlers_.closed(link->id, why);
    if (handlers_.settled) handlers_.settled();
  }

  const FrameHubOptions options_;
  const FrameHandlers handlers_;
  ssl::context context_{ssl::context::tls};
  asio::io_context io_{1};
  asio::executor_work_guard<asio::io_context::executor_type> work_;
  tcp::acceptor acceptor_;
  tcp::resolver resolver_;
  uint16_t port_ = 0;
  std::atomic<LinkId> next_id_{1};
  std::unordered_map<LinkId, LinkPtr> links_;
  std::mutex outbox_mutex_;
  std::vector<std::pair<LinkId, std::string>> outbox_, sending_;
  std::vector<LinkPtr> touched_;
  std::string lane_note_;
  std::optional<FrameLane> lane_;
  bool quiet_ = false;
  std::vector<LinkPtr> strangers_;  // accepted and not proven yet, the oldest first
  std::thread thread_;
};

}  // namespace

Result<std::unique_ptr<FrameHub>> FrameHub::open(const FrameHubOptions& options, FrameHandlers handlers) {
  auto hub = std::make_unique<AsioHub>(options, std::move(handlers));
  DI_CHECK_OK(hub->start());
  return std::unique_ptr<FrameHub>(std::move(hub));
}

}  // namespace deepinfer
