#include "net/http_server.h"

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/ssl.hpp>
#include <boost/asio/steady_timer.hpp>

#include <ctime>
#include <exception>
#include <thread>

#include <fmt/format.h>

#include "net/connection.h"

namespace deepinfer {

namespace {

namespace asio = boost::asio;
namespace ssl = boost::asio::ssl;
using asio::ip::tcp;
using ErrorCodeBoost = boost::system::error_code;

constexpr auto kTick = std::chrono::milliseconds(200);
// Bounds what the system holds for a reader that does not read; tokens are few bytes.
constexpr int kSendBuffer = 128 << 10;

class PlainTransport final : public Transport {
 public:
  explicit PlainTransport(tcp::socket socket) : socket_(std::move(socket)) {}
  void handshake(Done done) override { done(true, 0); }
  void read(char* buffer, size_t size, Done done) override {
    socket_.async_read_some(asio::buffer(buffer, size),
                            [done = std::move(done)](ErrorCodeBoost ec, size_t bytes) { done(!ec, bytes); });
  }
  void write(const char* bytes, size_t size, Done done) override {
    socket_.async_write_some(asio::buffer(bytes, size),
                             [done = std::move(done)](ErrorCodeBoost ec, size_t sent) { done(!ec, sent); });
  }
  void shutdown_send() override {
    ErrorCodeBoost ignored;
    socket_.shutdown(tcp::socket::shutdown_send, ignored);
  }
  void close() override {
    ErrorCodeBoost ignored;
    socket_.close(ignored);
  }
  std::string peer() const override {
    ErrorCodeBoost ec;
    const auto endpoint = socket_.remote_endpoint(ec);
    return ec ? "" : endpoint.address().to_string();
  }

 private:
  tcp::socket socket_;
};

class TlsTransport final : public Transport {
 public:
  TlsTransport(tcp::socket socket, ssl::context& context)
      : stream_(std::make_shared<ssl::stream<tcp::socket>>(std::move(socket), context)) {}
  void handshake(Done done) override {
    stream_->async_handshake(ssl::stream_base::server,
                             [keep = stream_, done = std::move(done)](ErrorCodeBoost ec) { done(!ec, 0); });
  }
  void read(char* buffer, size_t size, Done done) override {
    stream_->async_read_some(asio::buffer(buffer, size),
                             [keep = stream_, done = std::move(done)](ErrorCodeBoost ec, size_t bytes) { done(!ec, bytes); });
  }
  void write(const char* bytes, size_t size, Done done) override {
    stream_->async_write_some(asio::buffer(bytes, size),
                              [keep = stream_, done = std::move(done)](ErrorCodeBoost ec, size_t sent) { done(!ec, sent); });
  }
  // The alert that closes TLS goes with the socket's end; who waits for more sees it cut, after a complete answer.
  void shutdown_send() override {
    ErrorCodeBoost ignored;
    stream_->next_layer().shutdown(tcp::socket::shutdown_send, ignored);
  }
  void close() override {
    ErrorCodeBoost ignored;
    SSL_shutdown(stream_->native_handle());
    stream_->next_layer().close(ignored);
  }
  std::string peer() const override {
    ErrorCodeBoost ec;
    const auto endpoint = stream_->next_layer().remote_endpoint(ec);
    return ec ? "" : endpoint.address().to_string();
  }

 private:
  std::shared_ptr<ssl::stream<tcp::socket>> stream_;  // operations under way need it a little longer
};

int choose_alpn(SSL*, const unsigned char** out, unsigned char* out_size, const unsigned char* in, unsigned int in_size, void*) {
  static constexpr unsigned char kOffer[] = "\x08http/1.1";
  unsigned char* chosen = nullptr;
  if (SSL_select_next_proto(&chosen, out_size, kOffer, sizeof(kOffer) - 1, in, in_size) != OPENSSL_NPN_NEGOTIATED)
    return SSL_TLSEXT_ERR_NOACK;
  *out = chosen;
  return SSL_TLSEXT_ERR_OK;
}

Result<std::unique_ptr<ssl::context>> open_tls(const HttpServerOptions& options) {
  if (options.tls_certificate.empty() != options.tls_key.empty())
    return invalid_argument("TLS needs both a certificate and its key: set --tls-certificate and --tls-key");
  if (options.tls_certificate.empty()) return std::unique_ptr<ssl::context>();
  auto context = std::make_unique<ssl::context>(ssl::context::tls_server);
  ErrorCodeBoost ec;
  context->set_options(
      ssl::context::default_workarounds | ssl::context::no_tlsv1 | ssl::context::no_tlsv1_1 | ssl::context::no_compression, ec);
  SSL_CTX_set_mode(context->native_handle(), SSL_MODE_RELEASE_BUFFERS);
  SSL_CTX_set_alpn_select_cb(context->native_handle(), choose_alpn, nullptr);
  context->use_certificate_chain_file(options.tls_certificate, ec);
  if (ec)
    return invalid_argument(
        fmt::format("{}: no usable certificate chain in PEM form ({})", options.tls_certificate, ec.message()));
  context->use_private_key_file(options.tls_key, ssl::context::pem, ec);
  if (ec || SSL_CTX_check_private_key(context->native_handle()) != 1) {
    return invalid_argument(fmt::format("{}: no private key in PEM form that belongs to {} ({})", options.tls_key,
                                        options.tls_certificate, ec ? ec.message() : "they do not match"));
  }
  return context;
}

Result<tcp::endpoint> find_address(asio::io_context& io, const HttpServerOptions& options) {
  ErrorCodeBoost ec;
  const auto address = asio::ip::make_address(options.host, ec);
  if (!ec) return tcp::endpoint(address, options.port);
  tcp::resolver resolver(io);
  const auto found = resolver.resolve(options.host, std::to_string(options.port), ec);
  if (ec || found.empty()) return invalid_argument(fmt::format("--host {}: no such address ({})", options.host, ec.message()));
  return tcp::endpoint(*found.begin());
}

class AsioServer final : public HttpServer {
 public:
  AsioServer(const HttpServerOptions& options, HttpHandler& handler)
      : options_(options), share_{options_, handler, [this] { schedule_flush(); }}, io_(1), acceptor_(io_), timer_(io_) {}
  ~AsioServer() override { stop(); }

  Status bind() {
    DI_TRY(tls_, open_tls(options_));
    DI_TRY(const tcp::endpoint endpoint, find_address(io_, options_));
    ErrorCodeBoost ec;
    acceptor_.open(endpoint.protocol(), ec);
    if (!ec) acceptor_.set_option(asio::socket_base::reuse_address(true), ec);
    if (!ec) acceptor_.bind(endpoint, ec);
    if (!ec) acceptor_.listen(4096, ec);
    if (ec == boost::system::errc::address_in_use) {
      return invalid_argument(
          fmt::format("{}:{} is in use by another program: stop it or choose another --port (0 = any free one)", options_.host,
                      options_.port));
    }
    if (ec) return io_error(fmt::format("cannot listen on {}:{}: {}", options_.host, options_.port, ec.message()));
    port_ = acceptor_.local_endpoint(ec).port();
    return {};
  }

  uint16_t port() const override { return port_; }

  void start() override {
    refresh_date();
    accept_next();
    tick_later();
    thread_ = std::thread([this] { run(); });
  }

  void post(std::function<void()> work) override { asio::post(io_, std::move(work)); }

  void drain(int64_t limit_us) override {
    post([this, limit_us] {
      share_.draining = true;
      drain_deadline_us_ = steady_now_us() + limit_us;
      ErrorCodeBoost ignored;
      acceptor_.close(ignored);
      for_all([](Connection& connection) { connection.drain(); });
      draining_.store(true);
    });
  }

  bool is_drained() const override { return draining_.load() && share_.connections.load() == 0; }

  void stop() override {
    if (!thread_.joinable()) return;
    stopping_ = true;
    post([this] {
      ErrorCodeBoost ignored;
      acceptor_.close(ignored);
      timer_.cancel();
      cut_all();
      stopped_ = true;
    });
    thread_.join();
  }

  HttpServerStats stats() const override {
    return {share_.connections, share_.accepted, share_.turned_away, share_.exchanges, share_.bytes_in, share_.bytes_out};
  }

 private:
  void run() {
    // An exception here is memory that ran out in the middle of one connection's work; the others go on.
    while (!stopped_) {
      try {
        io_.run();
        break;
      } catch (const std::exception&) {
        io_.restart();
      }
    }
  }

  void schedule_flush() {
    asio::post(io_, [this] { share_.flush_all(); });
  }

  void for_all(const std::function<void(Connection&)>& visit) {
    for (auto place = share_.all.begin(); place != share_.all.end();) {
      const std::shared_ptr<Connection> connection = *place++;  // it may leave the list
      visit(*connection);
    }
  }

  void cut_all() {
    for_all([](Connection& connection) { connection.close(HttpOutcome::kStopped); });
  }

  void accept_next() {
    acceptor_.async_accept([this](ErrorCodeBoost ec, tcp::socket socket) {
      if (ec == asio::error::operation_aborted || !acceptor_.is_open()) return;
      if (ec) return accept_later();  // mostly: no file handles left
      accept(std::move(socket));
      accept_next();
    });
  }

  void accept_later() {
    auto pause = std::make_shared<asio::steady_timer>(io_, std::chrono::milliseconds(50));
    pause->async_wait([this, pause](ErrorCodeBoost) {
      if (acceptor_.is_open()) accept_next();
    });
  }

  void accept(tcp::socket socket) {
    ++share_.accepted;
    ErrorCodeBoost ignored;
    socket.set_option(tcp::no_delay(true), ignored);
    socket.set_option(asio::socket_base::send_buffer_size(kSendBuffer), ignored);
    if (share_.connections.load() >= options_.max_connections) {
      ++share_.turned_away;
      // No state is kept for it: a few bytes fit into any fresh socket.
      static constexpr std::string_view kBusy =
          "HTTP/1.1 503 Service Unavailable\r\nretry-after: 1\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";
      if (!tls_) socket.write_some(asio::buffer(kBusy), ignored);
      return;
    }
    std::unique_ptr<Transport> transport;
    if (tls_) {
      transport = std::make_unique<TlsTransport>(std::move(socket), *tls_);
    } else {
      transport = std::make_unique<PlainTransport>(std::move(socket));
    }
    auto connection = std::make_shared<Connection>(share_, std::move(transport));
    share_.all.push_back(connection);
    connection->place = std::prev(share_.all.end());
    connection->start();
  }

  void tick_later() {
    timer_.expires_after(kTick);
    timer_.async_wait([this](ErrorCodeBoost ec) {
      // A tick that was already due when the timer was cancelled comes without an error.
      if (ec || stopping_) return;
      tick();
      tick_later();
    });
  }

  void tick() {
    refresh_date();
    const int64_t now = steady_now_us();
    for_all([now](Connection& connection) { connection.tick(now); });
    if (share_.draining && now > drain_deadline_us_) cut_all();
    share_.handler.tick();
  }

  void refresh_date() {
    const std::time_t now = std::time(nullptr);
    std::tm parts{};
    gmtime_r(&now, &parts);
    char text[64];
    const size_t size = std::strftime(text, sizeof(text), "date: %a, %d %b %Y %H:%M:%S GMT\r\n", &parts);
    share_.date_line.assign(text, size);
  }

  HttpServerOptions options_;
  ConnectionShare share_;  // outlives the connections that wait in io_
  std::unique_ptr<ssl::context> tls_;
  asio::io_context io_;
  tcp::acceptor acceptor_;
  asio::steady_timer timer_;
  uint16_t port_ = 0;
  int64_t drain_deadline_us_ = 0;
  std::atomic<bool> draining_{false};
  std::atomic<bool> stopping_{false}, stopped_{false};
  std::thread thread_;
};

}  // namespace

const char* http_outcome_name(HttpOutcome outcome) {
  switch (outcome) {
    case HttpOutcome::kComplete: return "complete";
    case HttpOutcome::kClientGone: return "client_gone";
    case HttpOutcome::kSlowReader: return "slow_reader";
    case HttpOutcome::kTimeout: return "timeout";
    case HttpOutcome::kStopped: return "stopped";
  }
  return "";
}

Result<std::unique_ptr<HttpServer>> HttpServer::open(const HttpServerOptions& options, HttpHandler& handler) {
  auto server = std::make_unique<AsioServer>(options, handler);
  DI_CHECK_OK(server->bind());
  return std::unique_ptr<HttpServer>(std::move(server));
}

}  // namespace deepinfer
