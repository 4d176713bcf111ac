// A prompt computed by one engine and its answer given by another: the bytes of one engine, whatever comes of the pages.
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "cluster/page_exchange.h"
#include "net/side_lane.h"
#include "tests/store_lives.h"

namespace deepinfer {
namespace {

EngineOptions roomy(ReplayMode mode = ReplayMode::kDecoder) {
  return {.context = 1024, .pages = 64, .replay = mode, .snapshot_bytes = 64 << 20};
}

PageExchangeOptions on_loopback(int64_t stall_us = 20'000'000, FrameLanes lane = FrameLanes::kNone) {
  return {.hub = {.security = {.secret = "s"}, .address = "127.0.0.1", .lane = lane, .lane_us = stall_us}, .stall_us = stall_us};
}

// A worker: an engine, and its exchange, which outlives it.
struct Side {
  explicit Side(const EngineOptions& options, const char* device = "cpu", PageExchangeOptions pages = on_loopback(),
                int32_t ranks = 1)
      : exchange(value(PageExchange::open(pages))), life(device, options, ranks) {
    const auto sizes = life.engine().transfer_sizes();
    exchange->serve({"model", sizes.page, sizes.state, sizes.whole});
  }

  // The answer from `answered` on.
  Served ask(const Request& request, PageTransfer transfer = {}) {
    Served out;
    const EventHandler record = [&](const Event& event) {
      if (event.token) out.answer.tokens.push_back(*event.token);
      if (event.logprob) out.answer.logprobs.push_back(event.logprob->logprob);
      if (event.finish == FinishReason::kNone) return;
      out.answer.finish = event.finish;
      out.verdict = event.report->prefix.value_or(PrefixVerdict());
    };
    EXPECT_TRUE(life.engine().submit(request, record, std::move(transfer)).ok());
    run_until_idle(life.engine());
    expect_all_free(life.engine());
    return out;
  }

  std::unique_ptr<PageExchange> exchange;
  Life life;
};

// The prompt of `request` at one side, its answer at the other; `first`: pages that the other is thought to have.
Served handed(Side& prefill, Side& decode, const Request& request, uint64_t number, size_t first = 0, uint16_t port = 0) {
  Request prompt = request;
  prompt.max_tokens = 1;
  const uint16_t to = port > 0 ? port : decode.exchange->port();
  const Served begun = prefill.ask(
      prompt, {.in = nullptr, .out = prefill.exchange->send({"127.0.0.1", to, number, first, request.prompt.size() / 64})});
  if (begun.answer.finish != FinishReason::kLength) return begun;
  Request rest = request;
  rest.answered = begun.answer.tokens;
  Served out = decode.ask(rest, {.in = decode.exchange->expect(number), .out = nullptr});
  out.answer.tokens.insert(out.answer.tokens.begin(), begun.answer.tokens.begin(), begun.answer.tokens.end());
  out.answer.logprobs.insert(out.answer.logprobs.begin(), begun.answer.logprobs.begin(), begun.answer.logprobs.end());
  return out;
}

Served alone(const Request& request, ReplayMode mode = ReplayMode::kDecoder) {
  Side one(roomy(mode));
  return one.ask(request);
}

void expect_same(const Served& got, const Served& wanted) {
  EXPECT_EQ(got.answer.tokens, wanted.answer.tokens);
  EXPECT_EQ(got.answer.logprobs, wanted.answer.logprobs);
  EXPECT_EQ(got.answer.finish, wanted.answer.finish);
}

// The same over each transport.
class HandOver : public testing::TestWithParam<FrameLanes> {
 protected:
  void SetUp() override {
    if (over_ucx() && !side_lane_version()) GTEST_SKIP() << side_lane_version().error().message;
  }
  static bool over_ucx() { return GetParam() == FrameLanes::kAlways; }
  // Over a cable beside which the bytes go: greetings, both sides' addresses, and what stands for fourteen pages.
  static int64_t pages_pass_beside() { return 490 + 2 * static_cast<int64_t>(value(SideLane::open(1))->address().size()); }
  static PageExchangeOptions patient(int64_t stall_us = 20'000'000) { return on_loopback(stall_us, GetParam()); }
  static Side side(const EngineOptions& options = roomy(), const char* device = "cpu", int64_t stall_us = 20'000'000) {
    return Side(options, device, patient(stall_us));
  }
};
INSTANTIATE_TEST_SUITE_P(Over, HandOver, testing::Values(FrameLanes::kNone, FrameLanes::kAlways),
                         [](const auto& of) { return of.param == FrameLanes::kNone ? "Tcp" : "Ucx"; });

TEST_P(HandOver, GivesTheBytesOfOneEngine) {
  for (const ReplayMode mode : {ReplayMode::kOff, ReplayMode::kDecoder}) {
    if (mode == ReplayMode::kOff && over_ucx()) continue;  // a transport knows of no mode
    for (const char* device : {mode == ReplayMode::kOff ? "cpu" : "delayed"}) {
      Side prefill = side(roomy(mode), device), decode = side(roomy(mode), device);
      std::mt19937 random(3);
      uint64_t number = 0;
      for (const int32_t length : {1, 64, 65, 320, 641, 900}) {
        const Request request = request_of(random_tokens(random, length), 40, static_cast<uint64_t>(length));
        const Served got = handed(prefill, decode, request, ++number);
        expect_same(got, alone(request, mode));
        EXPECT_EQ(got.verdict.loaded_tokens, length / 64 * 64) << device;
        EXPECT_EQ(got.verdict.replayed_tokens, 0) << "the whole state comes with the pages";
      }
      EXPECT_EQ(decode.exchange->stats().received, static_cast<int64_t>(number));
      EXPECT_EQ(decode.exchange->stats().late, 0);
      EXPECT_EQ(decode.exchange->stats().pages_received, 0 + 1 + 1 + 5 + 10 + 14);
      EXPECT_EQ(prefill.exchange->stats().pages_sent_beside, over_ucx() ? 0 + 1 + 1 + 5 + 10 + 14 : 0);
    }
  }
}

// Pages and states are the same whatever the number of ranks, which either side chooses for itself.
TEST(HandOver, BetweenEnginesOfOtherRanks) {
  Side prefill(roomy(), "cpu", on_loopback(), 2), decode(roomy(), "cpu", on_loopback(), 4);
  std::mt19937 random(5);
  const Request request = request_of(random_tokens(random, 321), 20, 7);
  const Served got = handed(prefill, decode, request, 1);
  expect_same(got, alone(request));
  EXPECT_EQ(got.verdict.loaded_tokens, 320);
}

// What either side has already is used there, and is not sent where the sender knows of it.
TEST_P(HandOver, BuildsOnWhatIsCached) {
  Side prefill = side(), decode = side();
  std::mt19937 random(4);
  std::vector<TokenId> history = random_tokens(random, 400);
  for (uint64_t turn = 1; turn < 4; ++turn) {
    const Request request = request_of(history, 30, turn);
    const size_t known = turn == 1 ? 0 : (history.size() - 100) / 64;
    const Served got = handed(prefill, decode, request, turn, known);
    expect_same(got, alone(request));
    EXPECT_LE(got.verdict.loaded_tokens, turn == 1 ? 400 : 128 + 64);
    append(history, got.answer.tokens);
    append(history, random_tokens(random, 70));
  }
}

TEST_P(HandOver, WhatDoesNotComeIsComputed) {
  Side prefill = side(), decode = side(roomy(), "cpu", 50'000);
  std::mt19937 random(5);
  const Request request = request_of(random_tokens(random, 500), 20);
  const Served wanted = alone(request);
  Request rest = request;
  rest.answered = {wanted.answer.tokens[0]};
  const Served got = decode.ask(rest, {.in = decode.exchange->expect(1), .out = nullptr});
  EXPECT_EQ(std::vector<TokenId>(wanted.answer.tokens.begin() + 1, wanted.answer.tokens.end()), got.answer.tokens);
  EXPECT_EQ(decode.exchange->stats().late, 1);
  // Pages before those that come are not there either: nothing of them can be used.
  const Request other = request_of(random_tokens(random, 500), 20);
  expect_same(handed(prefill, decode, other, 2, 3), alone(other));
}

TEST_P(HandOver, AFullReceiverComputes) {
  PageExchangeOptions small = patient();
  Side prefill = side();
  small.max_bytes = static_cast<int64_t>(prefill.life.engine().transfer_sizes().page) * 2;
  Side decode(roomy(), "cpu", small);
  std::mt19937 random(6);
  const Request request = request_of(random_tokens(random, 700), 20);
  expect_same(handed(prefill, decode, request, 1), alone(request));
  EXPECT_EQ(decode.exchange->stats().refused, 1);
}

TEST_P(HandOver, OtherModelsRefuseEachOther) {
  Side prefill = side(), decode = side(roomy(), "cpu", 100'000);
  const auto sizes = decode.life.engine().transfer_sizes();
  decode.exchange->serve({"another model", sizes.page, sizes.state, sizes.whole});
  std::mt19937 random(7);
  const Request request = request_of(random_tokens(random, 300), 20);
  expect_same(handed(prefill, decode, request, 1), alone(request));
  EXPECT_EQ(decode.exchange->stats().pages_received, 0);
}

// A network cable: of each connection it passes so many bytes, then it is cut; or it swallows everything behind them.
class Cable {
 public:
  Cable(uint16_t to, std::vector<int64_t> lives, bool swallows = false)
      : to_(to), lives_(std::move(lives)), swallows_(swallows), listener_(::socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in at = loopback(0);
    socklen_t size = sizeof(at);
    EXPECT_EQ(::bind(listener_, reinterpret_cast<sockaddr*>(&at), size), 0);
    ::listen(listener_, 4);
    ::getsockname(listener_, reinterpret_cast<sockaddr*>(&at), &size);
    port = ntohs(at.sin_port);
    thread_ = std::thread([this] { carry(); });
  }
  ~Cable() {
    ::shutdown(listener_, SHUT_RDWR);
    done_ = true;
    thread_.join();
    ::close(listener_);
  }
  uint16_t port = 0;

 private:
  static sockaddr_in loopback(uint16_t port) {
    sockaddr_in at{};
    at.sin_family = AF_INET, at.sin_addr.s_addr = htonl(INADDR_LOOPBACK), at.sin_port = htons(port);
    return at;
  }
  void carry() {
    for (size_t i = 0; !done_; ++i) {
      const int near = ::accept(listener_, nullptr, nullptr);
      if (near < 0) return;
      const int far = ::socket(AF_INET, SOCK_STREAM, 0);
      const sockaddr_in at = loopback(to_);
      if (::connect(far, reinterpret_cast<const sockaddr*>(&at), sizeof(at)) == 0)
        pass(near, far, i < lives_.size() ? lives_[i] : int64_t{1} << 40);
      ::close(near), ::close(far);
    }
  }
  void pass(int near, int far, int64_t left) {
    std::vector<char> bytes(1 << 16);
    pollfd ends[2] = {{near, POLLIN, 0}, {far, POLLIN, 0}};
    while (!done_) {
      if (::poll(ends, 2, 20) <= 0) continue;
      for (int i = 0; i < 2; ++i) {
        if (!(ends[i].revents & (POLLIN | POLLHUP))) continue;
        const ssize_t got = ::recv(ends[i].fd, bytes.data(), bytes.size(), 0);
        if (got <= 0) return;
        const ssize_t fits = std::min<ssize_t>(got, left);
        if (left > 0 && ::send(ends[1 - i].fd, bytes.data(), static_cast<size_t>(fits), MSG_NOSIGNAL) != fits) return;
        left -= fits;
        if (left <= 0 && !swallows_) return;
      }
    }
  }

  const uint16_t to_;
  const std::vector<int64_t> lives_;
  const bool swallows_;
  const int listener_;
  std::atomic<bool> done_{false};
  std::thread thread_;
};

TEST_P(HandOver, ABrokenConnectionIsTriedOnceMore) {
  std::mt19937 random(8);
  const Request request = request_of(random_tokens(random, 900), 20);
  const Served wanted = alone(request);
  for (const bool twice : {false, true}) {
    Side prefill = side(), decode = side(roomy(), "cpu", twice ? 300'000 : 20'000'000);
    // In the middle of the pages; where they go beside the cable, behind what stands there for them, or before.
    const int64_t passes = !over_ucx() ? 500'000 : twice ? 500 : pages_pass_beside();
    const Cable cable(decode.exchange->port(), twice ? std::vector<int64_t>{passes, passes} : std::vector<int64_t>{passes});
    expect_same(handed(prefill, decode, request, 1, 0, cable.port), wanted);
    EXPECT_EQ(prefill.exchange->stats().retried, 1);
    EXPECT_EQ(prefill.exchange->stats().lost, twice ? 1 : 0);
    EXPECT_EQ(decode.exchange->stats().received, twice ? 0 : 1);
    EXPECT_EQ(decode.exchange->stats().late, twice ? 1 : 0);
    EXPECT_EQ(decode.exchange->stats().pages_received < 14, twice);
  }
}

TEST_P(HandOver, ACableThatSwallowsIsWaitedForAWhile) {
  Side prefill = side(), decode = side(roomy(), "cpu", 200'000);
  // The pages pass, the states do not.
  const int64_t pages = static_cast<int64_t>(decode.life.engine().transfer_sizes().page) * 14;
  const Cable cable(decode.exchange->port(), {over_ucx() ? pages_pass_beside() : pages + 50'000}, true);
  std::mt19937 random(9);
  const Request request = request_of(random_tokens(random, 900), 20);
  const Served got = handed(prefill, decode, request, 1, 0, cable.port);
  expect_same(got, alone(request));
  EXPECT_EQ(decode.exchange->stats().late, 1);
  EXPECT_GT(got.verdict.loaded_tokens, 0) << "what has come is used";
}

// Of a prompt that is not computed to its end nothing is waited for.
TEST_P(HandOver, ACancelledPromptIsNoHandOver) {
  Side prefill = side(), decode = side();
  std::mt19937 random(10);
  const Request request = request_of(random_tokens(random, 900), 20);
  const auto id = prefill.life.engine().submit(
      request, [](const Event&) {},
      {.in = nullptr, .out = prefill.exchange->send({"127.0.0.1", decode.exchange->port(), 1, 0, 14})});
  prefill.life.engine().step();
  prefill.life.engine().cancel(*id);
  run_until_idle(prefill.life.engine());
  expect_same(decode.ask(request, {.in = decode.exchange->expect(1), .out = nullptr}), alone(request));
  EXPECT_EQ(prefill.exchange->stats().sent, 0);
}

}  // namespace
}  // namespace deepinfer
