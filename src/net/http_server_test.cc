#include "net/http_server.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <fstream>
#include <map>
#include <mutex>
#include <thread>

#include "net/http_client.h"

namespace deepinfer {
namespace {

using namespace std::chrono_literals;

// A client that may do everything wrong.
class RawClient {
 public:
  explicit RawClient(uint16_t port, int receive_buffer = 0) : fd_(socket(AF_INET, SOCK_STREAM, 0)) {
    if (receive_buffer) setsockopt(fd_, SOL_SOCKET, SO_RCVBUF, &receive_buffer, sizeof(receive_buffer));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    connected_ = connect(fd_, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0;
  }
  ~RawClient() { close(); }
  bool connected() const { return connected_; }
  void close() {
    if (fd_ >= 0) ::close(fd_);
    fd_ = -1;
  }
  void send(std::string_view text) {
    while (!text.empty()) {
      const ssize_t sent = ::send(fd_, text.data(), text.size(), MSG_NOSIGNAL);
      if (sent <= 0) return;
      text.remove_prefix(static_cast<size_t>(sent));
    }
  }
  // Everything until the peer closes, `until` is met, or the patience ends.
  std::string receive(std::string_view until = {}, std::chrono::milliseconds patience = 5000ms) {
    std::string out;
    const auto end = std::chrono::steady_clock::now() + patience;
    char buffer[65536];
    closed_ = false;
    while (std::chrono::steady_clock::now() < end) {
      pollfd wanted{fd_, POLLIN, 0};
      if (poll(&wanted, 1, 20) <= 0) continue;
      const ssize_t got = recv(fd_, buffer, sizeof(buffer), 0);
      if (got <= 0) {
        closed_ = true;
        break;
      }
      out.append(buffer, static_cast<size_t>(got));
      if (!until.empty() && out.find(until) != std::string::npos) break;
    }
    return out;
  }
  bool closed() const { return closed_; }

 private:
  int fd_;
  bool connected_ = false, closed_ = false;
};

// Paths: /echo, /stream (three pieces), /flood (streams for ever), /wait (answers when told), /big.
class TestHandler final : public HttpHandler {
 public:
  HttpAdmission admit(const HttpRequest& head) override {
    if (head.path == "/denied") return {HttpResponse::text(401, "no"), 0};
    if (head.path == "/small") return {std::nullopt, 10};
    return {};
  }
  void handle(std::shared_ptr<HttpExchange> exchange) override {
    exchange->on_end([this](const HttpEnd& end) {
      const std::lock_guard lock(mutex_);
      ++outcomes_[end.outcome];
    });
    const std::string path = exchange->request().path;
    if (path == "/echo" || path == "/small") return exchange->respond(HttpResponse::text(200, exchange->request().body));
    if (path == "/big") return exchange->respond(HttpResponse::text(200, std::string(8 << 20, 'b')));
    if (path == "/none") return exchange->respond({204, {}, ""});
    if (path == "/stream") {
      exchange->begin_stream(200, {{"content-type", "text/event-stream"}});
      for (const char* piece : {"one ", "two ", "three"}) exchange->write(piece);
      return exchange->finish_stream();
    }
    if (path == "/flood") {
      exchange->begin_stream(200, {});
      flood_.push_back(exchange);
      return;
    }
    if (path == "/wait") {
      waiting_.push_back(exchange);
      return;
    }
    exchange->respond(HttpResponse::text(404, "no such place"));
  }
  void tick() override {
    for (const auto& exchange : flood_) exchange->write(std::string(100'000, 'f'));
    if (!release_) return;
    for (const auto& exchange : waiting_) exchange->respond(HttpResponse::text(200, "at last"));
    waiting_.clear();
  }
  int count(HttpOutcome outcome) {
    const std::lock_guard lock(mutex_);
    return outcomes_[outcome];
  }
  std::atomic<bool> release_{false};

 private:
  std::mutex mutex_;
  std::map<HttpOutcome, int> outcomes_;
  std::vector<std::shared_ptr<HttpExchange>> flood_, waiting_;
};

bool eventually(const std::function<bool()>& condition, std::chrono::milliseconds patience = 5000ms) {
  const auto end = std::chrono::steady_clock::now() + patience;
  while (!condition()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(5ms);
  }
  return true;
}

class HttpServerTest : public ::testing::Test {
 protected:
  void open(HttpServerOptions options = {}) {
    auto opened = HttpServer::open(options, handler_);
    ASSERT_TRUE(opened) << opened.error().message;
    server_ = std::move(*opened);
    server_->start();
  }
  void TearDown() override {
    if (server_) server_->stop();
  }
  std::string ask(const std::string& text, std::string_view until = {}) {
    RawClient client(server_->port());
    client.send(text);
    return client.receive(until);
  }
  TestHandler handler_;
  std::unique_ptr<HttpServer> server_;
};

std::string post(const std::string& path, const std::string& body, const std::string& more = "") {
  return "POST " + path + " HTTP/1.1\r\nhost: a\r\n" + more + "content-length: " + std::to_string(body.size()) + "\r\n\r\n" +
         body;
}

TEST_F(HttpServerTest, AnswersAndKeepsTheConnection) {
  open();
  RawClient client(server_->port());
  for (int i = 0; i < 3; ++i) {
    client.send(post("/echo", "hello " + std::to_string(i)));
    const std::string answer = client.receive("hello");
    EXPECT_TRUE(answer.starts_with("HTTP/1.1 200 OK\r\ndate: ")) << answer;
    EXPECT_NE(answer.find("content-length: 7\r\n"), std::string::npos) << answer;
    EXPECT_TRUE(answer.ends_with("hello " + std::to_string(i))) << answer;
  }
  EXPECT_EQ(server_->stats().accepted, 1);
}

TEST_F(HttpServerTest, PipelinedRequestsAreAnsweredInOrder) {
  open();
  std::string all;
  for (int i = 0; i < 200; ++i) all += post("/echo", "<" + std::to_string(i) + ">");
  all += post("/echo", "last", "connection: close\r\n");
  const std::string answers = ask(all);
  size_t at = 0;
  for (int i = 0; i < 200; ++i) {
    at = answers.find("<" + std::to_string(i) + ">", at);
    ASSERT_NE(at, std::string::npos) << i;
  }
  EXPECT_TRUE(answers.ends_with("last"));
}

TEST_F(HttpServerTest, StreamsInChunksAndForOldClientsUntilTheEnd) {
  open();
  const std::string answer = ask("GET /stream HTTP/1.1\r\nhost: a\r\n\r\n", "0\r\n\r\n");
  EXPECT_NE(answer.find("transfer-encoding: chunked"), std::string::npos);
  EXPECT_NE(answer.find("d\r\none two three\r\n0\r\n\r\n"), std::string::npos) << answer;
  const std::string old = ask("GET /stream HTTP/1.0\r\n\r\n");
  EXPECT_TRUE(old.ends_with("\r\n\r\none two three")) << old;
  EXPECT_EQ(old.find("chunked"), std::string::npos);
}

TEST_F(HttpServerTest, HeadHasNoBody) {
  open();
  RawClient client(server_->port());
  client.send("HEAD /big HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n");
  const std::string answer = client.receive();
  EXPECT_NE(answer.find("content-length: 8388608"), std::string::npos);
  EXPECT_TRUE(answer.ends_with("\r\n\r\n"));
}

TEST_F(HttpServerTest, AnswersWithoutABodyEndAtTheirHeaders) {
  open();
  HttpClient client;
  const std::string url = "http://127.0.0.1:" + std::to_string(server_->port()) + "/none";
  for (int i = 0; i < 2; ++i) EXPECT_EQ(client.send({.url = url})->status, 204);
  EXPECT_EQ(server_->stats().accepted, 1);
}

TEST_F(HttpServerTest, RefusesBeforeTheBodyIsSent) {
  open();
  // Short bodies are read so that the connection lives on, long ones are not.
  RawClient client(server_->port());
  client.send(post("/denied", "secret"));
  EXPECT_TRUE(client.receive("no").starts_with("HTTP/1.1 401"));
  client.send(post("/echo", "still here"));
  EXPECT_TRUE(client.receive("still here").ends_with("still here"));
  client.send("POST /denied HTTP/1.1\r\nhost: a\r\ncontent-length: 40000000\r\nexpect: 100-continue\r\n\r\n");
  const std::string answer = client.receive();
  EXPECT_TRUE(answer.starts_with("HTTP/1.1 401")) << answer;
  EXPECT_TRUE(client.closed());
  EXPECT_TRUE(ask(post("/small", "longer than ten bytes"), "allowed here").starts_with("HTTP/1.1 413"));
  EXPECT_NE(ask(post("/echo", "abc", "expect: 100-continue\r\n"), "abc").find("HTTP/1.1 100 Continue"), std::string::npos);
}

TEST_F(HttpServerTest, ABodyOfAHundredMegabytesGetsItsStatus) {
  open();
  RawClient client(server_->port());
  client.send("POST /echo HTTP/1.1\r\nhost: a\r\ncontent-length: 104857600\r\n\r\n");
  const std::string piece(1 << 20, 'x');
  for (int i = 0; i < 100; ++i) client.send(piece);
  EXPECT_TRUE(client.receive().starts_with("HTTP/1.1 413"));
}

TEST_F(HttpServerTest, SlowPeersAreEnded) {
  open({.header_timeout_us = 300'000, .idle_timeout_us = 400'000, .grace_us = 300'000});
  RawClient headers(server_->port()), body(server_->port()), idle(server_->port()), silent(server_->port());
  headers.send("GET / HTTP/1.1\r\nhost:");
  body.send("POST /echo HTTP/1.1\r\nhost: a\r\ncontent-length: 100\r\n\r\n");
  idle.send(post("/echo", "x"));
  for (int i = 0; i < 20; ++i) {
    body.send("x");
    std::this_thread::sleep_for(100ms);
  }
  EXPECT_TRUE(headers.receive().starts_with("HTTP/1.1 408"));
  EXPECT_TRUE(body.receive().starts_with("HTTP/1.1 408"));
  EXPECT_TRUE(idle.receive().starts_with("HTTP/1.1 200"));
  EXPECT_TRUE(idle.closed());
  EXPECT_EQ(silent.receive(), "");
  EXPECT_TRUE(silent.closed());
  EXPECT_TRUE(eventually([&] { return server_->stats().connections == 0; }));
}

TEST_F(HttpServerTest, AVanishedClientIsNoticedWhileItsAnswerIsComputed) {
  open();
  {
    RawClient client(server_->port());
    client.send("GET /wait HTTP/1.1\r\nhost: a\r\n\r\n");
    ASSERT_TRUE(eventually([&] { return server_->stats().exchanges == 1; }));
  }
  EXPECT_TRUE(eventually([&] { return handler_.count(HttpOutcome::kClientGone) == 1; }));
  EXPECT_EQ(server_->stats().exchanges, 0);
}

TEST_F(HttpServerTest, AReaderThatDoesNotReadIsBoundedAndClosed) {
  open({.max_unsent_bytes = 300'000});
  RawClient client(server_->port(), 4096);
  client.send("GET /flood HTTP/1.1\r\nhost: a\r\n\r\n");
  EXPECT_TRUE(eventually([&] { return handler_.count(HttpOutcome::kSlowReader) == 1; }, 10'000ms));
  EXPECT_TRUE(eventually([&] { return server_->stats().connections == 0; }));
}

TEST_F(HttpServerTest, AReaderOfAWholeAnswerMustMove) {
  open({.write_timeout_us = 500'000});
  RawClient client(server_->port(), 4096);
  client.send("GET /big HTTP/1.1\r\nhost: a\r\n\r\n");
  EXPECT_TRUE(eventually([&] { return handler_.count(HttpOutcome::kSlowReader) == 1; }));
}

TEST_F(HttpServerTest, DrainFinishesWhatRuns) {
  open();
  RawClient idle(server_->port()), busy(server_->port());
  idle.send(post("/echo", "x"));
  idle.receive("x");
  // The client may have the answer before the server has closed its books on it.
  ASSERT_TRUE(eventually([&] { return server_->stats().exchanges == 0; }));
  busy.send("GET /wait HTTP/1.1\r\nhost: a\r\n\r\n");
  ASSERT_TRUE(eventually([&] { return server_->stats().exchanges == 1; }));
  server_->drain(10'000'000);
  EXPECT_EQ(idle.receive(), "");
  EXPECT_TRUE(idle.closed());
  EXPECT_FALSE(RawClient(server_->port()).connected());
  EXPECT_FALSE(server_->is_drained());
  handler_.release_ = true;
  const std::string answer = busy.receive();
  EXPECT_TRUE(answer.ends_with("at last"));
  EXPECT_NE(answer.find("connection: close"), std::string::npos);
  EXPECT_TRUE(eventually([&] { return server_->is_drained(); }));
}

TEST_F(HttpServerTest, DrainCutsWhatTakesTooLong) {
  open();
  RawClient busy(server_->port());
  busy.send("GET /wait HTTP/1.1\r\nhost: a\r\n\r\n");
  ASSERT_TRUE(eventually([&] { return server_->stats().exchanges == 1; }));
  server_->drain(300'000);
  EXPECT_TRUE(eventually([&] { return server_->is_drained(); }));
  EXPECT_EQ(handler_.count(HttpOutcome::kStopped), 1);
}

TEST_F(HttpServerTest, APortInUseIsOneLine) {
  open();
  TestHandler other;
  const auto second = HttpServer::open({.port = server_->port()}, other);
  ASSERT_FALSE(second);
  EXPECT_NE(second.error().message.find("is in use"), std::string::npos) << second.error().message;
  EXPECT_FALSE(HttpServer::open({.host = "no.such.host.invalid"}, other));
}

TEST_F(HttpServerTest, ConnectionsBeyondTheLimitAreTurnedAway) {
  open({.max_connections = 3});
  std::vector<std::unique_ptr<RawClient>> clients;
  for (int i = 0; i < 3; ++i) clients.push_back(std::make_unique<RawClient>(server_->port()));
  ASSERT_TRUE(eventually([&] { return server_->stats().connections == 3; }));
  RawClient fourth(server_->port());
  const std::string refused = fourth.receive();
  EXPECT_TRUE(refused.starts_with("HTTP/1.1 503"));
  EXPECT_NE(refused.find("\r\nretry-after: 1\r\n"), std::string::npos) << refused;
  clients.clear();
  ASSERT_TRUE(eventually([&] { return server_->stats().connections == 0; }));
  EXPECT_TRUE(ask(post("/echo", "x", "connection: close\r\n")).starts_with("HTTP/1.1 200"));
}

TEST_F(HttpServerTest, TheClientReadsWholeAndStreamedAnswers) {
  open();
  HttpClient client;
  const std::string base = "http://127.0.0.1:" + std::to_string(server_->port());
  const std::string long_body(3 << 20, 'z');
  auto reply = client.send({.method = "POST", .url = base + "/echo", .body = long_body});
  ASSERT_TRUE(reply) << reply.error().message;
  EXPECT_TRUE(reply->body == long_body) << reply->body.substr(0, 100);
  reply = client.send({.url = base + "/stream"});
  ASSERT_TRUE(reply) << reply.error().message;
  EXPECT_EQ(reply->body, "one two three");
  EXPECT_EQ(client.send({.url = base + "/nowhere"})->status, 404);
  EXPECT_EQ(server_->stats().accepted, 1);
  EXPECT_EQ(client.send({.url = "http://127.0.0.1:1/"}).error().code, ErrorCode::kUnavailable);
  EXPECT_EQ(client.send({.url = "ftp://x/"}).error().code, ErrorCode::kInvalidArgument);
}

std::string temporary(const std::string& name) {
  return ::testing::TempDir() + "/deepinfer-net-" + std::to_string(getpid()) + "-" + name;
}

TEST_F(HttpServerTest, SpeaksTls) {
  const std::string key = temporary("key.pem"), certificate = temporary("cert.pem");
  const std::string make =
      "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=localhost "
      "-addext subjectAltName=DNS:localhost -keyout " +
      key + " -out " + certificate + " 2>/dev/null";
  if (std::system(make.c_str()) != 0) GTEST_SKIP() << "no openssl program to make a certificate with";
  open({.tls_certificate = certificate, .tls_key = key});
  const std::string url = "https://localhost:" + std::to_string(server_->port()) + "/echo";
  HttpClient client({.ca_file = certificate});
  const std::string body(200'000, 't');
  for (int i = 0; i < 2; ++i) {
    const auto reply = client.send({.method = "POST", .url = url, .body = body});
    ASSERT_TRUE(reply) << reply.error().message;
    EXPECT_TRUE(reply->body == body) << reply->body.substr(0, 100);
  }
  HttpClient strict;
  EXPECT_FALSE(strict.send({.url = url}));  // the system does not know this certificate
  EXPECT_EQ(ask("GET / HTTP/1.1\r\nhost: a\r\n\r\n").find("HTTP/1.1 200"), std::string::npos);
  TestHandler other;
  EXPECT_FALSE(HttpServer::open({.tls_certificate = certificate}, other));
  EXPECT_FALSE(HttpServer::open({.tls_certificate = key, .tls_key = key}, other));
  std::ofstream(temporary("wrong.pem")) << "not a certificate";
  const auto wrong = HttpServer::open({.tls_certificate = temporary("wrong.pem"), .tls_key = key}, other);
  ASSERT_FALSE(wrong);
  EXPECT_NE(wrong.error().message.find("wrong.pem"), std::string::npos);
}

TEST_F(HttpServerTest, ManyConnectionsAreServedTogether) {
  open();
  std::vector<std::unique_ptr<RawClient>> clients;
  for (int i = 0; i < 450; ++i) clients.push_back(std::make_unique<RawClient>(server_->port()));
  for (auto& client : clients) client->send(post("/echo", "x"));
  for (auto& client : clients) EXPECT_TRUE(client->receive("\r\n\r\nx").starts_with("HTTP/1.1 200"));
  clients.clear();
  EXPECT_TRUE(eventually([&] { return server_->stats().connections == 0; }));
}

}  // namespace
}  // namespace deepinfer
