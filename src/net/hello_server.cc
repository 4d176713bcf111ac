#include "net/hello_server.h"

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <boost/beast/http/message.hpp>
#include <boost/beast/http/read.hpp>
#include <boost/beast/http/string_body.hpp>
#include <boost/beast/http/write.hpp>

#include <thread>

#include <fmt/format.h>

namespace deepinfer {

namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = boost::beast::http;
using asio::ip::tcp;

class Session : public std::enable_shared_from_this<Session> {
 public:
  Session(tcp::socket socket, const std::string& text) : stream_(std::move(socket)), text_(text) {}
  void read() {
    request_ = {};
    http::async_read(stream_, buffer_, request_, [self = shared_from_this()](beast::error_code ec, size_t) {
      if (!ec) self->answer();
    });
  }

 private:
  void answer() {
    response_ = {http::status::ok, request_.version()};
    response_.set(http::field::content_type, "text/plain");
    response_.keep_alive(request_.keep_alive());
    response_.body() = text_;
    response_.prepare_payload();
    http::async_write(stream_, response_, [self = shared_from_this()](beast::error_code ec, size_t) {
      if (!ec) self->read();
    });
  }
  beast::tcp_stream stream_;
  const std::string& text_;
  beast::flat_buffer buffer_;
  http::request<http::string_body> request_;
  http::response<http::string_body> response_;
};

class BeastHello final : public HelloServer {
 public:
  explicit BeastHello(size_t answer_bytes) : text_(answer_bytes, 'h'), acceptor_(io_) {}
  ~BeastHello() override {
    io_.stop();
    if (thread_.joinable()) thread_.join();
  }
  Status open() {
    beast::error_code ec;
    const tcp::endpoint any(asio::ip::address_v4::loopback(), 0);
    acceptor_.open(any.protocol(), ec);
    if (!ec) acceptor_.bind(any, ec);
    if (!ec) acceptor_.listen(1024, ec);
    if (ec) return io_error(fmt::format("the neighbour server cannot listen: {}", ec.message()));
    accept();
    thread_ = std::thread([this] { io_.run(); });
    return {};
  }
  uint16_t port() const override { return acceptor_.local_endpoint().port(); }

 private:
  void accept() {
    acceptor_.async_accept([this](beast::error_code ec, tcp::socket socket) {
      if (ec) return;
      socket.set_option(tcp::no_delay(true), ec);
      std::make_shared<Session>(std::move(socket), text_)->read();
      accept();
    });
  }
  const std::string text_;
  asio::io_context io_{1};
  tcp::acceptor acceptor_;
  std::thread thread_;
};

}  // namespace

Result<std::unique_ptr<HelloServer>> HelloServer::start(size_t answer_bytes) {
  auto server = std::make_unique<BeastHello>(answer_bytes);
  DI_CHECK_OK(server->open());
  return std::unique_ptr<HelloServer>(std::move(server));
}

}  // namespace deepinfer
