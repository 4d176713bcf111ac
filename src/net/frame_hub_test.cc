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
  const auto a = open_hub({.security = {.secret = "s"}, .address = "127.0.0.1"}, at_a);
  const auto b = open_hub({.security = {.secret = "s"}}, at_b);
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
  const auto a = open_hub({.security = {.secret = "right"}, .address = "127.0.0.1"}, at_a);
  const auto b = open_hub({.security = {.secret = "wrong"}}, at_b);
  b->send(b->connect("127.0.0.1", a->port()), 1, "never read");
  ASSERT_TRUE(at_b.wait([&] { return at_b.closed.size() == 1; }));
  EXPECT_TRUE(at_b.opened.empty());
  EXPECT_TRUE(at_a.opened.empty() && at_a.frames.empty());
}

TEST(FrameHub, NobodyThereIsAClosedLink) {
  Seen seen;
  const auto hub = open_hub({.security = {.secret = "s"}}, seen);
  hub->connect("127.0.0.1", 1);
  ASSERT_TRUE(seen.wait([&] { return seen.closed.size() == 1; }));
  EXPECT_EQ(seen.closed[0].code, ErrorCode::kUnavailable);
}

// However many say nothing, whoever knows the secret gets in at once, and they are gone long before the limit of a handshake.
TEST(FrameHub, StrangersDoNotCrowdOut) {
  Seen at_a, at_b;
  const auto a = open_hub({.security = {.secret = "s"}, .address = "127.0.0.1", .handshake_us = 60'000'000}, at_a);
  std::vector<int> strangers;
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(a->port());
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  for (int i = 0; i < 100; ++i) {
    strangers.push_back(::socket(AF_INET, SOCK_STREAM, 0));
    ASSERT_EQ(::connect(strangers.back(), reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  }
  const auto b = open_hub({.security = {.secret = "s"}}, at_b);
  b->connect("127.0.0.1", a->port());
  EXPECT_TRUE(at_b.wait([&] { return at_b.opened.size() + at_b.closed.size() == 1; }));
  EXPECT_EQ(at_b.opened.size(), 1u);
  char byte = 0;
  for (const int stranger : strangers) {
    while (::recv(stranger, &byte, 1, 0) > 0) {
    }
    ::close(stranger);
  }
  EXPECT_EQ(at_a.opened.size(), 1u);
}

// A stranger that sends anything, or nothing, is gone after a while and was never heard.
TEST(FrameHub, StrangersAreNotHeard) {
  Seen seen;
  const auto hub = open_hub({.security = {.secret = "s"}, .address = "127.0.0.1", .handshake_us = 100'000}, seen);
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

// Two authorities, and for each name a certificate of each.
class FrameHubTls : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = ::testing::TempDir() + "deepinfer-frames-" + std::to_string(getpid());
    const std::string key = " -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 2>/dev/null";
    std::string make = "mkdir -p " + folder_ + " && cd " + folder_;
    for (const std::string ca : {"ours", "theirs"}) {
      make += " && openssl req -x509 -subj /CN=" + ca + " -keyout " + ca + ".key -out " + ca + ".pem" + key;
      make += " && openssl req -subj /CN=node -keyout " + ca + "-node.key -out r.csr" + key;
      make += " && openssl x509 -req -in r.csr -CA " + ca + ".pem -CAkey " + ca + ".key -CAcreateserial -days 2 -out " + ca +
              "-node.pem 2>/dev/null";
    }
    if (std::system(make.c_str()) != 0) GTEST_SKIP() << "no openssl program to make certificates with";
  }
  LinkSecurity of(const std::string& certificate, const std::string& ca) const {
    const std::string path = folder_ + "/";
    return {.secret = "s",
            .certificate = path + certificate + "-node.pem",
            .key = path + certificate + "-node.key",
            .ca = path + ca + ".pem"};
  }
  std::string folder_;
};

TEST_F(FrameHubTls, FramesTravelBetweenCertificatesOfOneAuthority) {
  Seen at_a, at_b;
  const auto a = open_hub({.security = of("ours", "ours"), .address = "127.0.0.1", .lane = FrameLanes::kAuto}, at_a);
  const auto b = open_hub({.security = of("ours", "ours"), .lane = FrameLanes::kAuto}, at_b);
  EXPECT_EQ(a->lane(), "") << "nothing goes beside TLS without being asked for";
  const std::string big(1'000'000, 'x');
  b->send(b->connect("127.0.0.1", a->port()), 7, big);
  ASSERT_TRUE(at_a.wait([&] { return at_a.frames.size() == 1; }));
  EXPECT_EQ(at_a.frames[0].second, big);
  a->send(at_a.opened[0], 8, "back");
  ASSERT_TRUE(at_b.wait([&] { return at_b.frames.size() == 1; }));
}

TEST_F(FrameHubTls, OthersAreRefusedAndToldWhy) {
  Seen at_a;
  const auto a = open_hub({.security = of("ours", "ours"), .address = "127.0.0.1"}, at_a);
  LinkSecurity other_secret = of("ours", "ours");
  other_secret.secret = "another";
  const std::pair<LinkSecurity, const char*> strangers[] = {{of("theirs", "ours"), "left before it was proven"},
                                                            {of("ours", "theirs"), "certificate verify failed"},
                                                            {{.secret = "s"}, "has it TLS?"},
                                                            {other_secret, "another secret"}};
  for (const auto& [security, why] : strangers) {
    Seen at_b;
    const auto b = open_hub({.security = security}, at_b);
    b->send(b->connect("127.0.0.1", a->port()), 1, "never read");
    ASSERT_TRUE(at_b.wait([&] { return at_b.closed.size() == 1; })) << why;
    EXPECT_NE(at_b.closed[0].message.find(why), std::string::npos) << at_b.closed[0].message;
    EXPECT_TRUE(at_b.opened.empty());
  }
  EXPECT_TRUE(at_a.opened.empty() && at_a.frames.empty());
  LinkSecurity missing = of("ours", "ours");
  missing.ca = folder_ + "/none.pem";
  const auto none = FrameHub::open({.security = missing}, {});
  ASSERT_FALSE(none);
  EXPECT_NE(none.error().message.find("none.pem: "), std::string::npos) << none.error().message;
}

}  // namespace
}  // namespace deepinfer
