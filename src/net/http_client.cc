#include "net/http_client.h"

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ssl.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <boost/beast/http/empty_body.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/read.hpp>
#include <boost/beast/ssl/ssl_stream.hpp>

#include <charconv>
#include <chrono>
#include <optional>

#include <fmt/format.h>

#include "net/piecewise_body.h"

namespace deepinfer {

namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = boost::beast::http;
namespace ssl = boost::asio::ssl;
using asio::ip::tcp;

constexpr auto kCancelLook = std::chrono::milliseconds(100);

// Hands pieces on as they come.
struct Sink {
  std::function<bool(std::string_view)> sink;
  bool stopped = false;

  void take(std::string_view piece) {
    if (!stopped) stopped = !sink(piece);
  }
};
using SinkBody = PiecewiseBody<Sink>;

Error network_error(const std::string& what, const beast::error_code& ec) {
  if (ec == beast::error::timeout) return {ErrorCode::kDeadline, fmt::format("{}: no answer in time", what)};
  if (ec == http::error::end_of_stream || ec == http::error::partial_message || ec == asio::error::eof)
    return io_error(fmt::format("{}: the connection was closed before the answer was complete", what));
  return io_error(fmt::format("{}: {}", what, ec.message()));
}

std::string host_header(const Url& url) {
  const std::string host = url.host.find(':') != std::string::npos ? "[" + url.host + "]" : url.host;
  return url.port == (url.is_tls ? 443 : 80) ? host : fmt::format("{}:{}", host, url.port);
}

}  // namespace

std::string Url::origin() const { return fmt::format("{}://{}", is_tls ? "https" : "http", host_header(*this)); }

Result<Url> parse_url(std::string_view text) {
  Url url;
  const std::string shown(text.substr(0, 200));
  if (text.starts_with("https://")) {
    url.is_tls = true;
    url.port = 443;
    text.remove_prefix(8);
  } else if (text.starts_with("http://")) {
    text.remove_prefix(7);
  } else {
    return invalid_argument(fmt::format("'{}' is no address: it must begin with http:// or https://", shown));
  }
  const size_t slash = text.find_first_of("/?");
  std::string_view place = text.substr(0, slash);
  if (slash != std::string_view::npos)
    url.target = text[slash] == '?' ? "/" + std::string(text.substr(slash)) : text.substr(slash);
  if (const size_t hash = url.target.find('#'); hash != std::string::npos) url.target.resize(hash);
  size_t colon = place.rfind(':');
  if (place.starts_with('[')) {
    const size_t end = place.find(']');
    if (end == std::string_view::npos) return invalid_argument(fmt::format("'{}' is no address", shown));
    url.host = place.substr(1, end - 1);
    if (colon < end) colon = std::string_view::npos;
  } else {
    url.host = place.substr(0, colon);
  }
  if (colon != std::string_view::npos) {
    const std::string_view digits = place.substr(colon + 1);
    const auto [end, status] = std::from_chars(digits.data(), digits.data() + digits.size(), url.port);
    if (status != std::errc() || end != digits.data() + digits.size())
      return invalid_argument(fmt::format("'{}' has no valid port", shown));
  }
  if (url.host.empty()) return invalid_argument(fmt::format("'{}' names no host", shown));
  for (const char c : url.host + url.target) {
    if (static_cast<unsigned char>(c) <= ' ') return invalid_argument(fmt::format("'{}' holds blank space", shown));
  }
  return url;
}

std::string resolve_url(const Url& base, std::string_view location) {
  if (location.starts_with("http://") || location.starts_with("https://")) return std::string(location);
  if (location.starts_with("//")) return (base.is_tls ? "https:" : "http:") + std::string(location);
  if (location.starts_with("/")) return base.origin() + std::string(location);
  const std::string folder = base.target.substr(0, base.target.find('?'));
  return base.origin() + folder.substr(0, folder.rfind('/') + 1) + std::string(location);
}

struct HttpClient::State {
  explicit State(HttpClientOptions wanted) : options(std::move(wanted)), context(ssl::context::tls_client) {}

  // Runs one asynchronous operation to its end; the stream's timer ends it at the latest.
  template <class Start>
  beast::error_code wait(Start start) {
    beast::error_code result = asio::error::would_block;
    start([&](beast::error_code ec, auto&&...) { result = ec; });
    io.restart();
    while (io.run_for(kCancelLook), result == asio::error::would_block) {
      if (is_cancelled() || is_late()) lowest().cancel();
    }
    return result;
  }
  bool is_late() const { return options.total_timeout_us > 0 && std::chrono::steady_clock::now() >= end; }
  bool is_cancelled() const { return cancelled && cancelled->load(); }
  beast::tcp_stream& lowest() { return secure ? beast::get_lowest_layer(*secure) : *plain; }
  void expire(int64_t us) { lowest().expires_after(std::chrono::microseconds(us)); }

  template <class Use>
  beast::error_code on_stream(Use use) {
    return secure ? use(*secure) : use(*plain);
  }

  Result<std::vector<tcp::endpoint>> find(const Url& url);
  Status connect(const Url& url);
  Status open_tunnel(const Url& url);
  Status start_tls(const Url& url);
  Status write_call(const Url& url, const HttpCall& call);
  Result<HttpReply> read_reply(const HttpCall& call);
  void disconnect() {
    secure.reset();
    plain.reset();
    connected_to.clear();
    buffer.clear();
  }

  HttpClientOptions options;
  const std::atomic<bool>* cancelled = nullptr;  // of the call in hand
  std::chrono::steady_clock::time_point end;     // of the call in hand, with a total_timeout_us
  asio::io_context io{1};
  ssl::context context;
  bool context_ready = false;
  std::optional<beast::tcp_stream> plain;
  std::optional<beast::ssl_stream<beast::tcp_stream>> secure;
  std::string connected_to;
  beast::flat_buffer buffer;
};

Result<std::vector<tcp::endpoint>> HttpClient::State::find(const Url& url) {
  std::vector<tcp::endpoint> places;
  beast::error_code ec;
  if (options.resolve) {
    DI_TRY(const std::vector<std::string> addresses, options.resolve(url.host));
    for (const std::string& address : addresses) places.emplace_back(asio::ip::make_address(address, ec), url.port);
  } else {
    const auto found = tcp::resolver(io).resolve(url.host, std::to_string(url.port), ec);
    for (const auto& entry : found) places.push_back(entry.endpoint());
  }
  if (!ec && !places.empty()) return places;
  return Error{ErrorCode::kUnavailable, fmt::format("{}: no such host ({})", url.host, ec.message())};
}

Status HttpClient::State::connect(const Url& url) {
  disconnect();
  Url first = url;
  if (!options.proxy.empty()) {
    DI_TRY(first, parse_url(options.proxy));
  }
  DI_TRY(const std::vector<tcp::endpoint> found, find(first));
  plain.emplace(io);
  expire(options.connect_timeout_us);
  const beast::error_code ec = wait([&](auto done) { plain->async_connect(found, std::move(done)); });
  if (ec) {
    disconnect();
    return Error{ErrorCode::kUnavailable, fmt::format("{}: cannot connect: {}", first.origin(), ec.message())};
  }
  beast::error_code ignored;
  plain->socket().set_option(tcp::no_delay(true), ignored);
  if (!options.proxy.empty() && url.is_tls) DI_CHECK_OK(open_tunnel(url));
  if (url.is_tls) DI_CHECK_OK(start_tls(url));
  connected_to = url.origin();
  return {};
}

Status HttpClient::State::open_tunnel(const Url& url) {
  const std::string ask = fmt::format("CONNECT {0}:{1} HTTP/1.1\r\nhost: {0}:{1}\r\n\r\n", url.host, url.port);
  expire(options.connect_timeout_us);
  beast::error_code ec = wait([&](auto done) { asio::async_write(*plain, asio::buffer(ask), std::move(done)); });
  http::response_parser<http::empty_body> parser;
  parser.skip(true);
  if (!ec) ec = wait([&](auto done) { http::async_read_header(*plain, buffer, parser, std::move(done)); });
  if (ec) return network_error("proxy " + options.proxy, ec);
  if (parser.get().result_int() != 200)
    return Error{ErrorCode::kUnavailable,
                 fmt::format("proxy {} refused {}: status {}", options.proxy, url.origin(), parser.get().result_int())};
  return {};
}

Status HttpClient::State::start_tls(const Url& url) {
  beast::error_code ec;
  if (!context_ready) {
    if (options.ca_file.empty()) {
      context.set_default_verify_paths(ec);
    } else {
      context.load_verify_file(options.ca_file, ec);
    }
    if (ec) return invalid_argument(fmt::format("{}: no usable certificates ({})", options.ca_file, ec.message()));
    context.set_verify_mode(options.verify ? ssl::verify_peer : ssl::verify_none);
    context_ready = true;
  }
  secure.emplace(std::move(*plain), context);
  plain.reset();
  SSL_set_tlsext_host_name(secure->native_handle(), url.host.c_str());
  if (options.verify) secure->set_verify_callback(ssl::host_name_verification(url.host), ec);
  expire(options.connect_timeout_us);
  ec = wait([&](auto done) { secure->async_handshake(ssl::stream_base::client, std::move(done)); });
  if (!ec) return {};
  disconnect();
  return Error{ErrorCode::kUnavailable, fmt::format("{}: no TLS connection: {}", url.origin(), ec.message())};
}

Status HttpClient::State::write_call(const Url& url, const HttpCall& call) {
  const bool by_proxy = !options.proxy.empty() && !url.is_tls;
  std::string head =
      fmt::format("{} {}{} HTTP/1.1\r\nhost: {}\r\n", call.method, by_proxy ? url.origin() : "", url.target, host_header(url));
  for (const auto& [name, value] : call.headers.entries()) head += fmt::format("{}: {}\r\n", name, value);
  if (!call.body.empty() || call.method == "POST" || call.method == "PUT")
    head += fmt::format("content-length: {}\r\n", call.body.size());
  head += "\r\n";
  head += call.body;
  expire(options.idle_timeout_us + static_cast<int64_t>(call.body.size()));
  const beast::error_code ec = wait([&](auto done) {
    if (secure) {
      asio::async_write(*secure, asio::buffer(head), std::move(done));
    } else {
      asio::async_write(*plain, asio::buffer(head), std::move(done));
    }
  });
  if (ec) return network_error(url.origin(), ec);
  return {};
}

Result<HttpReply> HttpClient::State::read_reply(const HttpCall& call) {
  HttpReply reply;
  http::response_parser<SinkBody> parser;
  parser.body_limit(boost::none);
  parser.header_limit(64 << 10);
  if (call.method == "HEAD") parser.skip(true);
  bool too_long = false;
  bool to_sink = false;
  parser.get().body().sink = [&](std::string_view piece) {
    if (to_sink) return call.sink(piece);
    too_long |= reply.body.size() + piece.size() > options.max_body_bytes;
    if (!too_long) reply.body += piece;
    return !too_long;
  };
  const auto read = [&](auto&& operation) {
    expire(options.idle_timeout_us);
    return on_stream([&](auto& stream) { return wait([&](auto done) { operation(stream, std::move(done)); }); });
  };
  beast::error_code ec = read([&](auto& stream, auto done) { http::async_read_header(stream, buffer, parser, std::move(done)); });
  if (ec) return network_error(call.url, ec);
  reply.status = parser.get().result_int();
  for (const auto& field : parser.get()) {
    reply.headers.add({field.name_string().data(), field.name_string().size()}, {field.value().data(), field.value().size()});
  }
  to_sink = call.sink && reply.status >= 200 && reply.status < 300;
  while (!parser.is_done() && !parser.get().body().stopped) {
    ec = read([&](auto& stream, auto done) { http::async_read_some(stream, buffer, parser, std::move(done)); });
    if (ec) return network_error(call.url, ec);
  }
  if (too_long) return too_large(fmt::format("{}: the answer is longer than {} bytes", call.url, options.max_body_bytes));
  reply.stopped = parser.get().body().stopped;
  if (reply.stopped || !parser.get().keep_alive()) disconnect();
  return reply;
}

HttpClient::HttpClient(HttpClientOptions options) : state_(std::make_unique<State>(std::move(options))) {}
HttpClient::~HttpClient() = default;
HttpClient::HttpClient(HttpClient&&) noexcept = default;
void HttpClient::disconnect() { state_->disconnect(); }

Result<HttpReply> HttpClient::send(const HttpCall& call) {
  state_->cancelled = call.cancelled;
  state_->end = std::chrono::steady_clock::now() + std::chrono::microseconds(state_->options.total_timeout_us);
  Result<HttpReply> reply = exchange(call);
  if (!reply && state_->is_late()) return Error{ErrorCode::kDeadline, fmt::format("{}: no answer in time", call.url)};
  if (!reply && state_->is_cancelled()) return Error{ErrorCode::kCancelled, fmt::format("{}: cancelled", call.url)};
  return reply;
}

Result<HttpReply> HttpClient::exchange(const HttpCall& call) {
  DI_TRY(const Url url, parse_url(call.url));
  const bool kept = state_->connected_to == url.origin();
  if (!kept) DI_CHECK_OK(state_->connect(url));
  Status written = state_->write_call(url, call);
  Result<HttpReply> reply = written ? state_->read_reply(call) : Result<HttpReply>(written.error());
  // A kept connection may have been closed by the server meanwhile: once more on a fresh one.
  if (!reply && kept && !state_->is_cancelled() && reply.error().code == ErrorCode::kIo && !call.sink) {
    DI_CHECK_OK(state_->connect(url));
    written = state_->write_call(url, call);
    reply = written ? state_->read_reply(call) : Result<HttpReply>(written.error());
  }
  if (!reply) state_->disconnect();
  return reply;
}

}  // namespace deepinfer
