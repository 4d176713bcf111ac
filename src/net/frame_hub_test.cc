#include "net/frame_hub.h"

#include <gtest/gtest.h>

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>

#include <arpa/inet.h>
#include <sys/socket.h>
#include <unistd.h>

namespace deepinfer {
namespace {

// What a hub's handlers saw; waits for it.
struct Seen {
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<LinkId> opened;
  std::vector<std::pair<uint8_t, std::string>> frames;
  std::vector<Error> closed;

  FrameHandlers handlers() {
    return {.opened = [this](LinkId link) { note([&] { opened.push_back(link); }); },
            .frame = [this](LinkId, uint8_t type, std::string_view bytes) { note([&] { frames.emplace_back(type, bytes); }); },
            .closed = [this](LinkId, const Error& why) { note([&] { closed.push_back(why); }); }};
  }
  template <class F>
  void note(F f) {
    const std::lock_guard lock(mutex);
    f();
    changed.notify_all();
  }
  template <class P>
  bool wait(P done) {
    std::unique_lock lock(mutex);
    return changed.wait_for(lock, std::chrono::seconds(20), done);
  }
};

std::unique_ptr<FrameHub> open_hub(const FrameHubOptions& options, Seen& seen) {
  auto hub = FrameHub::open(options, seen.handlers());
  EXPECT_TRUE(hub) << hub.error().message;
  return *std::move(hub);
}

TEST(FrameHub, FramesOfEverySizeArriveInOrderBothWays) {
  Seen at_a, at_b;
  const auto a = open_hub({.secret = "s", .address = "127.0.0.1"}, at_a);
  const auto b = open_hub({.secret = "s"}, at_b);
  const LinkId link = b->connect("127.0.0.1", a->port());
  std::vector<std::pair<uint8_t, std::string>> sent;
  for (size_t size = 0; size < 3'000'000; size = size * 3 + 1)
    sent.emplace_back(static_cast<uint8_t>(size % 251), std::string(size, 'x'));
  for (const auto& [type, bytes] : sent) b->send(link, type, bytes);  // before the handshake is over
  ASSERT_TRUE(at_a.wait([&] { return at_a.frames.size() == sent.size(); }));
  EXPECT_EQ(at_a.frames, sent);
  for (const auto& [type, bytes] : sent) a->send(at_a.opened[0], type, bytes);
  ASSERT_TRUE(at_b.wait([&] { return at_b.frames.size() == sent.size(); }));
  EXPECT_EQ(at_b.frames, sent);
  b->close(link, {ErrorCode::kCancelled, "enough"});
  ASSERT_TRUE(at_a.wait([&] { return at_a.closed.size() == 1; }));
  ASSERT_TRUE(at_b.wait([&] { return at_b.closed.size() == 1; }));
}

TEST(FrameHub, AnotherSecretIsRefusedOnBothSides) {
  Seen at_a, at_b;
  const auto a = open_hub({.secret = "right", .address = "127.0.0.1"}, at_a);
  const auto b = open_hub({.secret = "wrong"}, at_b);
  b->send(b->connect("127.0.0.1", a->port()), 1, "never read");
  ASSERT_TRUE(at_b.wait([&] { return at_b.closed.size() == 1; }));
  EXPECT_TRUE(at_b.opened.empty());
  EXPECT_TRUE(at_a.opened.empty() && at_a.frames.empty());
}

TEST(FrameHub, NobodyThereIsAClosedLink) {
  Seen seen;
  const auto hub = open_hub({.secret = "s"}, seen);
  hub->connect("127.0.0.1", 1);
  ASSERT_TRUE(seen.wait([&] { return seen.closed.size() == 1; }));
  EXPECT_EQ(seen.closed[0].code, ErrorCode::kUnavailable);
}

// A stranger that sends anything, or nothing, is gone after a while and was never heard.
TEST(FrameHub, StrangersAreNotHeard) {
  Seen seen;
  const auto hub = open_hub({.secret = "s", .address = "127.0.0.1", .handshake_us = 100'000}, seen);
  for (const std::string& bytes : {std::string("GET / HTTP/1.1\r\n\r\n"), std::string(4000, '\xff'), std::string()}) {
    const int socket_handle = ::socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(hub->port());
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    ASSERT_EQ(::connect(socket_handle, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
    static_cast<void>(::send(socket_handle, bytes.data(), bytes.size(), MSG_NOSIGNAL));
    char byte = 0;
    while (::recv(socket_handle, &byte, 1, 0) > 0) {
    }
    ::close(socket_handle);
  }
  EXPECT_TRUE(seen.opened.empty() && seen.frames.empty() && seen.closed.empty());
}

TEST(FrameHub, WorkComesOnItsThreadAndInTime) {
  Seen seen;
  const auto hub = open_hub({}, seen);
  std::atomic<int> done{0};
  hub->after(20'000, [&] { seen.note([&] { ++done; }); });
  hub->post([&] { seen.note([&] { ++done; }); });
  EXPECT_TRUE(seen.wait([&] { return done == 2; }));
}

}  // namespace
}  // namespace deepinfer
