#include "net/request_reader.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <vector>

namespace deepinfer {
namespace {

using State = RequestReader::State;

// Feeds `text` in pieces of `piece` bytes; the state at the end.
State feed_all(RequestReader& reader, std::string_view text, size_t piece) {
  std::string in;
  size_t at = 0;
  for (;;) {
    if (reader.state() == State::kDone || reader.state() == State::kFailed) return reader.state();
    const size_t used = reader.feed(in);
    in.erase(0, used);
    if (reader.state() == State::kHead) continue;
    if (reader.state() == State::kDone || reader.state() == State::kFailed) return reader.state();
    if (at == text.size()) return reader.state();
    const size_t take = std::min(piece, text.size() - at);
    in += text.substr(at, take);
    at += take;
  }
}

struct Expected {
  const char* text;
  int status;  // 0 = a request
  const char* body = "";
};

TEST(RequestReader, JudgesRequests) {
  const std::string flood = [] {
    std::string text = "GET / HTTP/1.1\r\nhost: a\r\n";
    for (int i = 0; i < 200; ++i) text += "x-" + std::to_string(i) + ": y\r\n";
    return text + "\r\n";
  }();
  const std::string long_header = "GET / HTTP/1.1\r\nhost: a\r\nx: " + std::string(100'000, 'y') + "\r\n\r\n";
  const std::string long_target = "GET /" + std::string(9'000, 'y') + " HTTP/1.1\r\nhost: a\r\n\r\n";
  const std::vector<Expected> table = {
      {"GET / HTTP/1.1\r\nhost: a\r\n\r\n", 0},
      {"\r\n\r\nGET / HTTP/1.1\r\nhost: a\r\n\r\n", 0},
      {"GET / HTTP/1.0\r\n\r\n", 0},
      {"POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 3\r\n\r\nabc", 0, "abc"},
      {"POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n2\r\nab\r\n1;x=y\r\nc\r\n0\r\n\r\n", 0, "abc"},
      {"POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\nx: y\r\n\r\n", 0, "abc"},
      {"POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n", 0, ""},
      {"POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n4\r\n0\r\n\r\r\n0\r\n\r\n", 0, "0\r\n\r"},
      {"POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 3\r\ncontent-length: 3\r\n\r\nabc", 400},
      {"POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 3\r\ncontent-length: 4\r\n\r\nabcd", 400},
      {"POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 3, 3\r\n\r\nabc", 400},
      {"POST / HTTP/1.1\r\nhost: a\r\ncontent-length: -3\r\n\r\nabc", 400},
      {"POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 3x\r\n\r\nabc", 400},
      {"POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 99999999999999999999999\r\n\r\nabc", 400},
      {"POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 3\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n", 400},
      {"POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\ncontent-length: 3\r\n\r\n0\r\n\r\n", 400},
      {"POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: gzip, chunked\r\n\r\n0\r\n\r\n", 501},
      {"POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: identity\r\n\r\nabc", 501},
      {"POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n", 400},
      {"POST / HTTP/1.0\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n", 400},
      {"POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\nzz\r\nabc\r\n0\r\n\r\n", 400},
      {"POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n-1\r\nabc\r\n0\r\n\r\n", 400},
      {"POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\nfffffffffffffffff\r\nabc\r\n0\r\n\r\n", 400},
      {"POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n7fffffffffffffff\r\nabc\r\n0\r\n\r\n", 413},
      {"POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabcd\r\n0\r\n\r\n", 400},
      {"POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 100000000\r\n\r\n", 413},
      {"GET / HTTP/1.1\r\n\r\n", 400},
      {"GET / HTTP/1.1\r\nhost: a\r\nhost: b\r\n\r\n", 400},
      {"GET / HTTP/2.0\r\nhost: a\r\n\r\n", 505},
      {"GET /\r\nhost: a\r\n\r\n", 400},
      {"GET / HTTP/1.1\r\nhost : a\r\n\r\n", 400},
      {"GET / HTTP/1.1\r\nho\x01st: a\r\n\r\n", 400},
      {"GET / HTTP/1.1\r\nhost: a\r\nexpect: tea\r\n\r\n", 417},
      {"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 400},
      {flood.c_str(), 431},
      {long_header.c_str(), 431},
      {long_target.c_str(), 414},
  };
  for (const Expected& expected : table) {
    for (const size_t piece : {size_t{1}, size_t{2}, size_t{3}, size_t{7}, size_t{1} << 20}) {
      RequestReader reader({});
      const State state = feed_all(reader, expected.text, piece);
      const std::string shown = std::string(expected.text).substr(0, 200);
      if (expected.status == 0) {
        ASSERT_EQ(state, State::kDone) << shown << (state == State::kFailed ? reader.fault().message : "");
        EXPECT_EQ(reader.take().body, expected.body) << shown;
      } else {
        ASSERT_EQ(state, State::kFailed) << shown;
        EXPECT_EQ(reader.fault().status, expected.status) << shown << reader.fault().message;
      }
    }
  }
}

TEST(RequestReader, BareLineFeedsEndNothing) {
  RequestReader reader({});
  EXPECT_NE(feed_all(reader, "GET / HTTP/1.1\nhost: a\n\n", 1000), State::kDone);
}

TEST(RequestReader, SplitsTargets) {
  const auto read = [](std::string target) {
    RequestReader reader({});
    feed_all(reader, "GET " + target + " HTTP/1.1\r\nhost: a\r\n\r\n", 1000);
    return reader.state() == State::kDone ? reader.take() : HttpRequest();
  };
  EXPECT_EQ(read("/a/b?x=1&y=2").path, "/a/b");
  EXPECT_EQ(read("/a/b?x=1&y=2").query, "x=1&y=2");
  EXPECT_EQ(read("http://host:80/a?b").path, "/a");
  EXPECT_EQ(read("*").path, "*");
}

TEST(RequestReader, AnyBytesEndSomewhere) {
  rc::check("no crash, bounded", [](const std::string& bytes, uint8_t piece) {
    RequestReader reader({});
    feed_all(reader, "POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n" + bytes, size_t{piece} + 1);
    RequestReader other({});
    feed_all(other, bytes, size_t{piece} + 1);
  });
}

}  // namespace
}  // namespace deepinfer
