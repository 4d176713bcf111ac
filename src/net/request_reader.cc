#include "net/request_reader.h"

#include <boost/asio/buffer.hpp>
#include <boost/beast/core/error.hpp>
#include <boost/beast/http/error.hpp>
#include <boost/beast/http/parser.hpp>

#include <limits>

#include <fmt/format.h>

#include "net/piecewise_body.h"

namespace deepinfer {

namespace {

namespace beast = boost::beast;
namespace http = boost::beast::http;

// A body that grows as bytes come. Beast's own string body reserves what the client announces, which lets a header of
// sixty bytes take 48 MB.
struct GrowingText {
  std::string text;
  uint64_t size = 0;
  bool discard = false;

  void take(std::string_view piece) {
    if (!discard) text += piece;
    size += piece.size();
  }
};
using GrowingBody = PiecewiseBody<GrowingText>;

HttpFault fault_of(const beast::error_code& ec, const HttpLimits& limits) {
  if (ec == http::error::header_limit || ec == http::error::buffer_overflow)
    return {431, fmt::format("request line and headers are longer than {} bytes", limits.header_bytes)};
  if (ec == http::error::body_limit) return {413, fmt::format("the body is longer than {} bytes", limits.body_bytes)};
  if (ec == http::error::bad_version) return {505, "only HTTP/1.0 and HTTP/1.1 are spoken here"};
  if (ec == http::error::bad_method) return {400, "the request line has no valid method"};
  if (ec == http::error::bad_target) return {400, "the request line has no valid target"};
  if (ec == http::error::bad_content_length) return {400, "Content-Length is not a number, or stands beside Transfer-Encoding"};
  if (ec == http::error::multiple_content_length) return {400, "Content-Length is given more than once"};
  if (ec == http::error::bad_transfer_encoding) return {400, "Transfer-Encoding is wrong or stands beside Content-Length"};
  if (ec == http::error::bad_chunk || ec == http::error::bad_chunk_extension)
    return {400, "a chunk of the body has a bad length"};
  return {400, fmt::format("malformed HTTP request: {}", ec.message())};
}

std::string view(beast::string_view text) { return {text.data(), text.size()}; }

}  // namespace

struct RequestReader::Parser {
  explicit Parser(const HttpLimits& wanted) : limits(wanted) {
    parser.eager(true);
    parser.header_limit(static_cast<uint32_t>(limits.header_bytes));
    parser.body_limit(limits.body_bytes);
  }

  void fail(HttpFault why) {
    state = State::kFailed;
    fault = std::move(why);
  }

  void read_target() {
    const auto& message = parser.get();
    request.method = view(message.method_string());
    request.target = view(message.target());
    // Absolute form, as proxies get it: the path is what counts.
    std::string_view target = request.target;
    if (const size_t scheme = target.find("://"); !target.starts_with('/') && scheme != std::string_view::npos) {
      const size_t slash = target.find('/', scheme + 3);
      target = slash == std::string_view::npos ? "/" : target.substr(slash);
    }
    const size_t question = target.find('?');
    request.path = target.substr(0, question);
    if (question != std::string_view::npos) request.query = target.substr(question + 1);
  }

  void read_head() {
    read_target();
    const auto& message = parser.get();
    request.version_minor = message.version() % 10;
    request.keep_alive = message.keep_alive();
    for (const auto& field : message) request.headers.add(view(field.name_string()), view(field.value()));
    check_head();
  }

  void check_head() {
    const HttpHeaders& headers = request.headers;
    const std::string_view coding = headers.get("transfer-encoding");
    if (parser.get().version() / 10 != 1) return fail({505, "only HTTP/1.0 and HTTP/1.1 are spoken here"});
    if (request.target.size() > limits.target_bytes)
      return fail({414, fmt::format("the target is longer than {} bytes", limits.target_bytes)});
    if (headers.entries().size() > limits.num_headers)
      return fail({431, fmt::format("more than {} headers", limits.num_headers)});
    // Beast takes "3, 3" for 3, as the standard allows; others in front of us may not.
    if (headers.count("content-length") > 1 || headers.get("content-length").find(',') != std::string_view::npos)
      return fail({400, "Content-Length is given more than once"});
    if (headers.count("transfer-encoding") > 1 || (!coding.empty() && !equal_ignoring_case(coding, "chunked")))
      return fail({501, "the only Transfer-Encoding spoken here is chunked"});
    if (!coding.empty() && request.version_minor == 0) return fail({400, "HTTP/1.0 has no Transfer-Encoding"});
    if (headers.count("host") > 1 || (headers.count("host") == 0 && request.version_minor >= 1))
      return fail({400, "exactly one Host header is needed"});
    request.has_body = parser.chunked() || parser.content_length().value_or(0) > 0;
    const std::string_view expect = headers.get("expect");
    if (!expect.empty() && !equal_ignoring_case(expect, "100-continue"))
      return fail({417, "the only expectation met here is 100-continue"});
    state = State::kHead;
  }

  HttpLimits limits;
  http::request_parser<GrowingBody> parser;
  State state = State::kBegin;
  HttpRequest request;
  HttpFault fault;
};

RequestReader::RequestReader(const HttpLimits& limits, std::string remote) : parser_(std::make_unique<Parser>(limits)) {
  parser_->request.remote = std::move(remote);
}
RequestReader::~RequestReader() = default;
RequestReader::RequestReader(RequestReader&&) noexcept = default;
RequestReader& RequestReader::operator=(RequestReader&&) noexcept = default;

size_t RequestReader::feed(std::string_view bytes) {
  Parser& self = *parser_;
  size_t used = 0;
  if (self.state == State::kBegin) {
    // An empty line before a request is tolerated, as RFC 9112 asks.
    while (used < bytes.size() && (bytes[used] == '\r' || bytes[used] == '\n')) ++used;
    if (used == bytes.size()) return used;
    self.state = State::kHeaders;
    self.parser.eager(false);
  }
  if (self.state == State::kHead) {
    self.state = State::kBody;
    self.parser.eager(true);
    if (self.parser.is_done()) {
      self.state = State::kDone;
      return used;
    }
  }
  // Beast asserts that an end of a chunked body it has seen once comes back with two bytes more. No body ends within these.
  const std::string_view left = bytes.substr(used);
  if (self.state == State::kBody && self.parser.chunked() && left.size() < 5 && left.starts_with("0\r\n")) return used;
  beast::error_code ec;
  if (!left.empty()) {
    used += self.parser.put(boost::asio::const_buffer(left.data(), left.size()), ec);
    if (ec == http::error::need_more) ec = {};
    if (ec) {
      // Who refuses wants to know what was asked for.
      if (self.state == State::kHeaders) self.read_target();
      self.fail(fault_of(ec, self.limits));
      return used;
    }
  }
  if (self.state == State::kHeaders && self.parser.is_header_done()) {
    self.read_head();
    return used;
  }
  if (self.state == State::kBody && self.parser.is_done()) self.state = State::kDone;
  return used;
}

RequestReader::State RequestReader::state() const { return parser_->state; }
const HttpRequest& RequestReader::head() const { return parser_->request; }
bool RequestReader::expects_continue() const {
  return parser_->request.has_body && parser_->request.version_minor >= 1 && !parser_->request.headers.get("expect").empty();
}
uint64_t RequestReader::announced_bytes() const { return parser_->parser.content_length().value_or(0); }
uint64_t RequestReader::body_bytes() const { return parser_->parser.get().body().size; }
void RequestReader::set_body_limit(size_t bytes) {
  parser_->limits.body_bytes = bytes;
  parser_->parser.body_limit(bytes);
}
void RequestReader::discard_body() { parser_->parser.get().body().discard = true; }
const HttpFault& RequestReader::fault() const { return parser_->fault; }

HttpRequest RequestReader::take() {
  parser_->request.body = std::move(parser_->parser.get().body().text);
  return std::move(parser_->request);
}

}  // namespace deepinfer
