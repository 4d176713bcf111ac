#include "net/link_fetcher.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <memory>

#include "net/http_server.h"

namespace deepinfer {
namespace {

TEST(PublicAddress, OnlyTheGlobalInternet) {
  for (const char* address : {"8.8.8.8", "1.1.1.1", "172.15.255.255", "172.32.0.1", "100.128.0.1", "192.0.1.1", "223.255.255.255",
                              "2606:4700::1111", "2a00:1450::1", "::ffff:8.8.8.8"})
    EXPECT_TRUE(is_public_address(address)) << address;
  for (const char* address : {"0.0.0.0",
                              "10.1.2.3",
                              "100.64.0.1",
                              "127.0.0.1",
                              "127.255.255.255",
                              "169.254.169.254",
                              "172.16.0.1",
                              "172.31.255.255",
                              "192.168.1.1",
                              "198.18.0.1",
                              "192.0.2.1",
                              "224.0.0.1",
                              "239.1.1.1",
                              "240.0.0.1",
                              "255.255.255.255",
                              "::",
                              "::1",
                              "::ffff:127.0.0.1",
                              "::ffff:10.0.0.1",
                              "::7f00:1",
                              "fe80::1",
                              "fe80::1%1",
                              "fc00::1",
                              "fd12::1",
                              "ff02::1",
                              "64:ff9b::a00:1",
                              "2002:a00:1::",
                              "2001:db8::1",
                              "2001::1",
                              "",
                              "localhost",
                              "1.2.3",
                              "0x7f.1"})
    EXPECT_FALSE(is_public_address(address)) << address;
}

// A host of pictures: redirects, long and endless bodies.
class PictureHost : public ::testing::Test, public HttpHandler {
 protected:
  void SetUp() override {
    const std::string folder = ::testing::TempDir();
    certificate_ = folder + "link_fetcher_cert.pem";
    const std::string key = folder + "link_fetcher_key.pem";
    const std::string make =
        "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=pictures.test -addext "
        "subjectAltName=DNS:pictures.test,DNS:inside.test -keyout " +
        key + " -out " + certificate_ + " 2>/dev/null";
    if (std::system(make.c_str()) != 0) GTEST_SKIP() << "no openssl program to make a certificate with";
    auto server = HttpServer::open({.tls_certificate = certificate_, .tls_key = key}, *this);
    ASSERT_TRUE(server) << server.error().message;
    server_ = std::move(*server);
    server_->start();
  }
  void TearDown() override {
    if (server_) server_->stop();
  }

  void handle(std::shared_ptr<HttpExchange> exchange) override {
    const std::string path = exchange->request().path;
    const auto redirect = [&](const std::string& location) { exchange->respond({302, {{"location", location}}, ""}); };
    if (path == "/cat.png") return exchange->respond({200, {{"content-type", "image/png"}}, "a picture"});
    if (path == "/moved") return redirect("/cat.png");
    if (path == "/loop") return redirect("/loop");
    if (path == "/to-http") return redirect("http://pictures.test/cat.png");
    if (path == "/to-inside") return redirect(url("/cat.png", "inside.test"));
    if (path == "/long") return exchange->respond({200, {}, std::string(100'000, 'x')});
    if (path == "/endless") return exchange->begin_stream(200, {}), exchange->write("x");
    exchange->respond({404, {}, "nothing"});
  }

  std::string url(const std::string& path, const std::string& host = "pictures.test") const {
    return "https://" + host + ":" + std::to_string(server_->port()) + path;
  }
  LinkFetcher fetcher(int64_t timeout_us = 5'000'000) {
    LinkFetcherOptions options;
    options.ca_file = certificate_;
    options.timeout_us = timeout_us;
    options.resolve = [this](const std::string& host) -> Result<std::vector<std::string>> {
      ++resolutions_;
      if (host == "inside.test") return std::vector<std::string>{"127.0.0.1", "10.0.0.1"};
      return std::vector<std::string>{"127.0.0.1"};
    };
    options.is_allowed = [](const std::string& address) { return address == "127.0.0.1"; };
    return LinkFetcher(std::move(options));
  }
  ErrorCode refusal(const std::string& url, size_t max_bytes = 1000) {
    const auto body = fetcher(500'000).fetch(url, max_bytes);
    EXPECT_FALSE(body) << url;
    return body ? ErrorCode::kInternal : body.error().code;
  }

  std::string certificate_;
  std::unique_ptr<HttpServer> server_;
  std::atomic<int> resolutions_{0};
};

TEST_F(PictureHost, FetchesAndFollowsARedirectAndAsksForTheNameOncePerConnection) {
  const auto direct = fetcher().fetch(url("/cat.png"), 1000);
  ASSERT_TRUE(direct) << direct.error().message;
  EXPECT_EQ(*direct, "a picture");
  EXPECT_EQ(resolutions_, 1);
  const auto moved = fetcher().fetch(url("/moved"), 1000);
  ASSERT_TRUE(moved) << moved.error().message;
  EXPECT_EQ(*moved, "a picture");
  EXPECT_EQ(resolutions_, 3);
}

TEST_F(PictureHost, RefusesWhatLeadsInside) {
  EXPECT_EQ(refusal("http://pictures.test/cat.png"), ErrorCode::kUnsupported);
  EXPECT_EQ(refusal(url("/to-http")), ErrorCode::kUnsupported);
  EXPECT_EQ(refusal(url("/cat.png", "inside.test")), ErrorCode::kPermission);
  EXPECT_EQ(refusal(url("/to-inside")), ErrorCode::kPermission);
  // The real rule: this server is on the loopback address.
  LinkFetcherOptions strict;
  strict.ca_file = certificate_;
  for (const char* host : {"127.0.0.1", "[::1]", "localhost", "2130706433", "0x7f000001", "[::ffff:127.0.0.1]"}) {
    const auto body = LinkFetcher(strict).fetch(url("/cat.png", host), 1000);
    ASSERT_FALSE(body) << host;
    EXPECT_TRUE(body.error().code == ErrorCode::kPermission || body.error().code == ErrorCode::kUnavailable) << host;
  }
  EXPECT_EQ(LinkFetcher(strict).fetch(url("/cat.png", "127.0.0.1"), 1000).error().code, ErrorCode::kPermission);
}

TEST_F(PictureHost, BoundsBytesTimeAndRedirects) {
  EXPECT_EQ(refusal(url("/long"), 99'999), ErrorCode::kTooLarge);
  EXPECT_EQ(fetcher().fetch(url("/long"), 100'000)->size(), 100'000u);
  EXPECT_EQ(refusal(url("/endless")), ErrorCode::kDeadline);
  EXPECT_EQ(refusal(url("/loop")), ErrorCode::kUnavailable);
  EXPECT_EQ(refusal(url("/nothing")), ErrorCode::kUnavailable);
}

TEST_F(PictureHost, EndsAtOnceWhenCancelled) {
  const std::atomic<bool> cancelled{true};
  const auto body = fetcher(60'000'000).fetch(url("/endless"), 1000, &cancelled);
  ASSERT_FALSE(body);
  EXPECT_EQ(body.error().code, ErrorCode::kCancelled);
}

TEST_F(PictureHost, VerifiesTheCertificate) {
  LinkFetcherOptions options;
  options.ca_file = certificate_;
  options.resolve = [](const std::string&) { return Result<std::vector<std::string>>({"127.0.0.1"}); };
  options.is_allowed = [](const std::string&) { return true; };
  EXPECT_FALSE(LinkFetcher(options).fetch(url("/cat.png", "other.test"), 1000));
}

}  // namespace
}  // namespace deepinfer
