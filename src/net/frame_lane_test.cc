// Large frames beside their connection: in order, proven, and gone with their peer. Without UCX there is nothing to see.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>

#include "net/frame_hub.h"
#include "net/frame_lane.h"
#include "net/side_lane.h"

namespace deepinfer {
namespace {

using Frame = std::pair<uint8_t, std::string>;

// A hub and what it saw.
struct Side {
  explicit Side(FrameHubOptions options = {.security = {.secret = "s"}, .address = "127.0.0.1", .lane = FrameLanes::kAlways}) {
    auto opened_hub =
        FrameHub::open(options, {.opened = [this](LinkId link) { note([&] { opened.push_back(link); }); },
                                 .frame =
                                     [this](LinkId link, uint8_t type, std::string_view bytes) {
                                       note([&] {
                                         frames.emplace_back(type, bytes);
                                         beside += hub->is_beside(link, bytes.size());
                                       });
                                     },
                                 .closed = [this](LinkId, const Error& why) { note([&] { closed.push_back(why.message); }); }});
    EXPECT_TRUE(opened_hub) << opened_hub.error().message;
    hub = *std::move(opened_hub);
  }
  template <class F>
  void note(F f) {
    const std::lock_guard lock(mutex);
    f();
    changed.notify_all();
  }
  template <class P>
  bool wait(P done, int seconds = 20) {
    std::unique_lock lock(mutex);
    return changed.wait_for(lock, std::chrono::seconds(seconds), done);
  }
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<LinkId> opened;
  std::vector<Frame> frames;
  std::vector<std::string> closed;
  int beside = 0;
  std::unique_ptr<FrameHub> hub;
};

std::vector<Frame> frames_of_all_sizes() {
  std::vector<Frame> out;
  for (size_t i = 0; i < 60; ++i) {
    const size_t size = i % 3 == 0 ? i : i % 3 == 1 ? (64 << 10) + i : 900'000 + i;
    out.emplace_back(static_cast<uint8_t>(i), std::string(size, static_cast<char>('a' + i % 26)));
  }
  return out;
}

class FrameLaneTest : public testing::Test {
 protected:
  void SetUp() override {
    if (!side_lane_version()) GTEST_SKIP() << side_lane_version().error().message;
  }
};

TEST_F(FrameLaneTest, FramesOfEverySizeComeInOrderBothWays) {
  Side a, b;
  const std::vector<Frame> sent = frames_of_all_sizes();
  for (int turn = 0; turn < 3; ++turn) {
    const LinkId link = b.hub->connect("127.0.0.1", a.hub->port());
    ASSERT_TRUE(a.wait([&] { return a.opened.size() == static_cast<size_t>(turn) + 1; }));
    for (const auto& [type, bytes] : sent) b.hub->send(link, type, bytes);
    for (const auto& [type, bytes] : sent) a.hub->send(a.opened[static_cast<size_t>(turn)], type, bytes);
    ASSERT_TRUE(a.wait([&] { return a.frames.size() == sent.size(); }));
    ASSERT_TRUE(b.wait([&] { return b.frames.size() == sent.size(); }));
    EXPECT_EQ(a.frames, sent);
    EXPECT_EQ(b.frames, sent);
    EXPECT_GT(a.beside, 0);
    EXPECT_GT(b.beside, 0);
    for (Side* side : {&a, &b}) side->note([&] { side->frames.clear(), side->beside = 0; });
    b.hub->close(link, {ErrorCode::kCancelled, "enough"});
    ASSERT_TRUE(a.wait([&] { return a.closed.size() == static_cast<size_t>(turn) + 1; }));
  }
}

// Who has no lane, or not this one, is spoken to over the connection.
TEST_F(FrameLaneTest, OneSideWithoutALaneIsNoTrouble) {
  const std::vector<Frame> sent = frames_of_all_sizes();
  for (const bool calls : {false, true}) {
    Side a({.security = {.secret = "s"}, .address = "127.0.0.1", .lane = calls ? FrameLanes::kAuto : FrameLanes::kNone});
    Side b({.security = {.secret = "s"}, .lane = calls ? FrameLanes::kNone : FrameLanes::kAuto});
    const LinkId link = b.hub->connect("127.0.0.1", a.hub->port());
    for (const auto& [type, bytes] : sent) b.hub->send(link, type, bytes);
    ASSERT_TRUE(a.wait([&] { return a.frames.size() == sent.size(); }));
    EXPECT_EQ(a.frames, sent);
    EXPECT_EQ(a.beside, 0);
  }
}

// Until all that is under way has arrived.
std::vector<LaneEvent> events_of(SideLane& a, SideLane& b) {
  std::vector<LaneEvent> out;
  for (int i = 0; i < 300; ++i) {
    a.turn(out), b.turn(out);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return out;
}

TEST_F(FrameLaneTest, BytesWithoutTheKeyThatWasGivenOutAreDropped) {
  for (const char last : {'k', 'l'}) {
    auto a = SideLane::open(1 << 20), b = SideLane::open(1 << 20);
    ASSERT_TRUE(a && b);
    const std::string key(SideLane::kKeyBytes, 'k');
    (*a)->expect(1, key);
    ASSERT_TRUE((*b)->join(2, (*a)->address(), key.substr(1) + last));
    (*b)->send(2, 7, std::string(100'000, 'x'), 0);
    (*b)->send(2, 8, std::string((1 << 20) + 1, 'x'), 0);  // beyond what is taken
    int come = 0;
    for (const LaneEvent& event : events_of(**a, **b)) come += event.kind == LaneEvent::Kind::kCame;
    EXPECT_EQ(come, last == 'k' ? 1 : 0);
  }
}

// Another process, which sends without an end and takes what comes. Made before there are threads.
class Child {
 public:
  Child() {
    int ends[2];
    EXPECT_EQ(::pipe(ends), 0);
    id = ::fork();
    ::close(ends[id == 0 ? 1 : 0]);
    port_ = ends[id == 0 ? 0 : 1];
    if (id == 0) send_without_end();
  }
  ~Child() {
    kill();
    ::close(port_);
  }
  void call(uint16_t port) const { EXPECT_EQ(::write(port_, &port, sizeof(port)), static_cast<ssize_t>(sizeof(port))); }
  void kill() {
    ::kill(id, SIGKILL);
    ::waitpid(id, nullptr, 0);
  }
  pid_t id = 0;

 private:
  [[noreturn]] void send_without_end() const {
    uint16_t port = 0;
    if (::read(port_, &port, sizeof(port)) == static_cast<ssize_t>(sizeof(port))) {
      Side side;
      const LinkId link = side.hub->connect("127.0.0.1", port);
      for (int i = 0; i < 20'000; ++i) {
        side.hub->send(link, 1, std::string(900'000, 'c'));
        std::this_thread::sleep_for(std::chrono::milliseconds(2));
      }
    }
    ::_exit(0);
  }
  int port_ = -1;
};

TEST_F(FrameLaneTest, APeerThatIsKilledClosesItsLinkOnly) {
  Child children[3];
  Side near, far;
  for (Child& child : children) {
    const size_t before = near.closed.size();
    child.call(near.hub->port());
    ASSERT_TRUE(near.wait([&] { return near.beside > 20; }));
    for (int i = 0; i < 100; ++i) near.hub->send(near.opened.back(), 2, std::string(900'000, 'n'));
    child.kill();
    ASSERT_TRUE(near.wait([&] { return near.closed.size() == before + 1; }));
    near.note([&] { near.frames.clear(), near.beside = 0; });
  }
  const LinkId link = far.hub->connect("127.0.0.1", near.hub->port());
  far.hub->send(link, 9, std::string(900'000, 'f'));
  ASSERT_TRUE(near.wait([&] { return !near.frames.empty() && near.frames.back().first == 9; }));
  EXPECT_TRUE(far.closed.empty());
}

TEST_F(FrameLaneTest, APeerThatSleepsIsLeftAfterAWhile) {
  Child child;
  Side near({.security = {.secret = "s"}, .address = "127.0.0.1", .max_unsent_bytes = 20 << 20, .lane = FrameLanes::kAlways});
  child.call(near.hub->port());
  ASSERT_TRUE(near.wait([&] { return near.beside > 20; }));
  ::kill(child.id, SIGSTOP);
  for (int i = 0; i < 40; ++i) near.hub->send(near.opened.back(), 2, std::string(900'000, 'n'));
  ASSERT_TRUE(near.wait([&] { return near.closed.size() == 1; }));
}

// A lane that brings what it is told to.
class ToldLane final : public SideLane {
 public:
  ToldLane() : handle_(::eventfd(0, EFD_NONBLOCK)) {}
  ~ToldLane() override { ::close(handle_); }
  std::string_view address() const override { return "here"; }
  void expect(uint64_t, const std::string&) override {}
  Status join(uint64_t, std::string_view, const std::string&) override { return {}; }
  void send(uint64_t, uint64_t, std::string, size_t) override {}
  void leave(uint64_t) override {}
  int handle() const override { return handle_; }
  bool turn(std::vector<LaneEvent>& events) override {
    for (LaneEvent& event : brings) events.push_back(std::move(event));
    brings.clear();
    return false;
  }
  std::vector<LaneEvent> brings;

 private:
  const int handle_;
};

TEST(FrameLane, LateOrWrongBytesLeaveEverythingOnTheConnection) {
  boost::asio::io_context io;
  auto owned = std::make_unique<ToldLane>();
  ToldLane& lane = *owned;
  std::vector<std::string> said;
  std::vector<LinkId> failed;
  FrameLane frames(io, std::move(owned), 20'000,
                   {.say = [&](LinkId, std::string_view bytes) { said.emplace_back(bytes); },
                    .go_on = [](LinkId) {},
                    .fail = [&](LinkId link, const Error&) { failed.push_back(link); }});
  const auto joined = [&](LinkId link, const std::string& peer) {
    const size_t before = said.size();
    frames.offer(link, peer);
    if (said.size() == before) return false;
    EXPECT_TRUE(frames.take(link, std::string(said.back())));
    return frames.is_joined(link);
  };
  const std::string bytes(FrameLane::kLaneBytes, 'b');
  ASSERT_TRUE(joined(1, "late"));
  frames.send(1, 7, bytes, 0);
  ASSERT_TRUE(frames.take(1, said.back())->waits);
  io.run_for(std::chrono::milliseconds(60));
  EXPECT_EQ(failed, std::vector<LinkId>{1});
  frames.leave(1);
  EXPECT_FALSE(joined(2, "late"));

  ASSERT_TRUE(joined(3, "wrong"));
  frames.send(3, 7, bytes, 0);
  LaneEvent& other = lane.brings.emplace_back();
  other.link = 3;
  other.bytes.data = std::make_unique<uint8_t[]>(bytes.size());
  other.bytes.size = bytes.size();
  io.restart();
  io.run_for(std::chrono::milliseconds(5));
  const auto taken = frames.take(3, said.back());
  ASSERT_FALSE(taken);
  EXPECT_EQ(taken.error().code, ErrorCode::kCorrupt);
  frames.leave(3);
  EXPECT_FALSE(joined(4, "another"));
}

}  // namespace
}  // namespace deepinfer
