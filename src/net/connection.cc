#include "net/connection.h"

#include <algorithm>

#include <fmt/format.h>

#include "base/clock.h"

namespace deepinfer {

namespace {

constexpr size_t kIdleBuffer = 2 << 10, kBodyBuffer = 64 << 10;
constexpr size_t kPipelinedBytes = 16 << 10;   // read ahead of an answer
constexpr size_t kKeptCapacity = 4 << 10;      // of buffers between requests
constexpr uint64_t kDiscardBytes = 256 << 10;  // a refused body up to here is read, so that the connection lives on
constexpr int64_t kLingerUs = 3'000'000;

void shrink(std::string& text) {
  text.clear();
  if (text.capacity() > kKeptCapacity) text.shrink_to_fit();
}

}  // namespace

int64_t steady_now_us() { return SteadyClock().now_us(); }

void ConnectionShare::flush_all() {
  // A flush may add to the list only by way of a callback, which comes later.
  const std::vector<std::shared_ptr<Connection>> now = std::move(dirty);
  dirty.clear();
  for (const auto& connection : now) connection->flush();
}

// The handler's view of the request in hand; outlives its connection, but does nothing then.
class Connection::Exchange final : public HttpExchange {
 public:
  Exchange(std::shared_ptr<Connection> connection, HttpRequest request)
      : connection_(std::move(connection)), request_(std::move(request)) {
    end_.begin_us = steady_now_us();
  }

  HttpRequest& request() override { return request_; }
  int64_t begin_us() const override { return end_.begin_us; }
  void on_end(std::function<void(const HttpEnd&)> callback) override { callback_ = std::move(callback); }
  bool is_open() const override { return connection_ && !complete_; }
  bool has_begun() const override { return end_.status != 0; }

  void respond(HttpResponse response) override {
    if (!is_open() || has_begun()) return;
    begin(response.status);
    connection_->append_answer(response);
    complete();
  }

  void begin_stream(int status, const HttpHeaders& headers) override {
    if (!is_open() || has_begun()) return;
    begin(status);
    is_chunked_ = request_.version_minor >= 1;
    if (!is_chunked_) connection_->keep_alive_ = false;
    connection_->append_head(status, headers, Framing::kChunks, 0);
    connection_->mark_dirty();
  }

  void write(std::string_view bytes) override {
    if (!is_open() || bytes.empty() || request_.method == "HEAD") return;
    Connection& to = *connection_;
    if (to.out_.size() + to.chunk_.size() + to.sending_.size() - to.sent_ + bytes.size() > to.share_.options.max_unsent_bytes) {
      to.close(HttpOutcome::kSlowReader);
      return;
    }
    (is_chunked_ ? to.chunk_ : to.out_) += bytes;
    to.mark_dirty();
  }

  void finish_stream() override {
    if (!is_open() || !has_begun()) return;
    if (is_chunked_) {
      connection_->frame_chunk();
      if (request_.method != "HEAD") connection_->out_ += "0\r\n\r\n";
    }
    complete();
  }

  void abandon() override {
    if (connection_) connection_->close(HttpOutcome::kStopped);
  }

  // Detaches; the callback runs once.
  void end(HttpOutcome outcome) {
    const std::shared_ptr<Connection> keep = std::move(connection_);
    connection_.reset();
    end_.outcome = outcome;
    end_.end_us = steady_now_us();
    const auto callback = std::move(callback_);
    callback_ = nullptr;
    if (callback) callback(end_);
  }
  void count(size_t bytes) { end_.bytes_sent += bytes; }

 private:
  void begin(int status) {
    end_.status = status;
    end_.first_byte_us = steady_now_us();
  }
  void complete() {
    complete_ = true;
    connection_->answer_complete_ = true;
    connection_->mark_dirty();
  }

  std::shared_ptr<Connection> connection_;
  HttpRequest request_;
  HttpEnd end_;
  std::function<void(const HttpEnd&)> callback_;
  bool is_chunked_ = false, complete_ = false;
};

Connection::Connection(ConnectionShare& share, std::unique_ptr<Transport> transport)
    : share_(share), transport_(std::move(transport)), remote_(transport_->peer()) {
  ++share_.connections;
}

Connection::~Connection() {
  release_body();
  --share_.connections;
}

void Connection::start() {
  deadline_us_ = steady_now_us() + share_.options.header_timeout_us;
  transport_->handshake([self = shared_from_this()](bool ok, size_t) {
    if (self->phase_ == Phase::kClosed) return;
    if (!ok) return self->close(HttpOutcome::kClientGone);
    self->enter_idle();
    // A fresh connection has as long for its first request as any request has for its headers.
    self->deadline_us_ = steady_now_us() + self->share_.options.header_timeout_us;
  });
}

void Connection::enter_idle() {
  reader_.reset();
  refusal_.reset();
  phase_ = Phase::kIdle;
  keep_alive_ = true;
  answer_complete_ = body_unread_ = false;
  deadline_us_ = steady_now_us() + share_.options.idle_timeout_us;
  if (share_.draining && in_.empty()) return close(HttpOutcome::kComplete);
  if (in_.empty()) {
    shrink(in_);
    if (!reading_ && read_buffer_.size() > kIdleBuffer) read_buffer_ = {};
    return read_more();
  }
  process();
}

void Connection::read_more() {
  if (reading_ || phase_ == Phase::kClosed) return;
  const size_t wanted = phase_ == Phase::kBody || phase_ == Phase::kLinger ? kBodyBuffer : kIdleBuffer;
  if (read_buffer_.size() < wanted) read_buffer_.resize(wanted);
  reading_ = true;
  transport_->read(read_buffer_.data(), read_buffer_.size(), [self = shared_from_this()](bool ok, size_t bytes) {
    self->reading_ = false;
    if (self->phase_ == Phase::kClosed) return;
    if (!ok) return self->close(HttpOutcome::kClientGone);
    self->on_read(bytes);
  });
}

void Connection::on_read(size_t bytes) {
  share_.bytes_in += static_cast<int64_t>(bytes);
  if (phase_ == Phase::kLinger) return read_more();
  in_.append(read_buffer_.data(), bytes);
  if (phase_ == Phase::kHandling) {
    if (in_.size() < kPipelinedBytes) read_more();
    return;
  }
  process();
}

void Connection::process() {
  while (advance()) {
  }
}

// One step of the request in hand.
bool Connection::advance() {
  if (phase_ != Phase::kIdle && phase_ != Phase::kHeaders && phase_ != Phase::kBody) return false;
  if (phase_ == Phase::kIdle) {
    if (in_.empty()) return read_more(), false;
    reader_.emplace(share_.options.limits, remote_);
    phase_ = Phase::kHeaders;
    deadline_us_ = steady_now_us() + share_.options.header_timeout_us;
  }
  in_.erase(0, reader_->feed(in_));
  switch (reader_->state()) {
    case RequestReader::State::kBegin: phase_ = Phase::kIdle; return read_more(), false;
    case RequestReader::State::kHeaders: return read_more(), false;
    case RequestReader::State::kHead: on_head(); return phase_ == Phase::kBody;
    case RequestReader::State::kFailed: return refuse(reader_->fault()), false;
    case RequestReader::State::kDone: dispatch(); return false;
    case RequestReader::State::kBody: break;
  }
  count_body();
  if (phase_ != Phase::kBody) return false;
  // Left over here is the line of a chunk or a trailer.
  if (in_.size() > share_.options.limits.header_bytes) return refuse({400, "a line between chunks is too long"}), false;
  read_more();
  return false;
}

void Connection::on_head() {
  const HttpRequest& head = reader_->head();
  keep_alive_ = head.keep_alive && !share_.draining;
  HttpAdmission admission = share_.handler.admit(head);
  const size_t limit = admission.body_limit > 0 ? admission.body_limit : share_.options.limits.body_bytes;
  reader_->set_body_limit(limit);
  if (!admission.refusal && reader_->announced_bytes() > limit) {
    admission.refusal = share_.handler.refusal(
        {413, fmt::format("the body of {} bytes is longer than the {} bytes allowed here", reader_->announced_bytes(), limit)},
        &head);
  }
  phase_ = Phase::kBody;
  body_begin_us_ = steady_now_us();
  if (admission.refusal) {
    share_.handler.refused(&head, *admission.refusal, remote_);
    const uint64_t announced = reader_->announced_bytes();
    const bool is_short = !head.has_body || (announced > 0 && announced <= kDiscardBytes && !reader_->expects_continue());
    if (!is_short) {
      body_unread_ = true;
      return refuse(std::move(*admission.refusal), false);
    }
    reader_->discard_body();
    refusal_ = std::move(admission.refusal);
  } else if (reader_->expects_continue()) {
    out_ += "HTTP/1.1 100 Continue\r\n\r\n";
    mark_dirty();
  }
}

void Connection::count_body() {
  const size_t now = refusal_ ? 0 : static_cast<size_t>(reader_->body_bytes());
  share_.buffered_bytes += now - body_counted_;
  body_counted_ = now;
  if (share_.buffered_bytes <= share_.options.max_buffered_bytes) return;
  refuse({503, "too many bytes of unfinished requests are waiting in this server: try again later"});
}

void Connection::release_body() {
  share_.buffered_bytes -= body_counted_;
  body_counted_ = 0;
}

void Connection::dispatch() {
  release_body();
  if (refusal_) {
    HttpResponse response = std::move(*refusal_);
    refusal_.reset();
    return refuse(std::move(response), keep_alive_);
  }
  HttpRequest request = reader_->take();
  reader_.reset();
  phase_ = Phase::kHandling;
  exchange_ = std::make_shared<Exchange>(shared_from_this(), std::move(request));
  ++share_.exchanges;
  const std::shared_ptr<Exchange> exchange = exchange_;
  share_.handler.handle(exchange);
  if (phase_ == Phase::kHandling && in_.size() < kPipelinedBytes) read_more();
}

void Connection::refuse(const HttpFault& fault) {
  const HttpRequest* head = reader_ && !reader_->head().path.empty() ? &reader_->head() : nullptr;
  HttpResponse response = share_.handler.refusal(fault, head);
  share_.handler.refused(head, response, remote_);
  body_unread_ = true;
  refuse(std::move(response), false);
}

// An answer without an exchange.
void Connection::refuse(HttpResponse response, bool keep) {
  release_body();
  keep_alive_ = keep;
  HttpRequest request;
  if (reader_ && phase_ == Phase::kBody) request = reader_->take();
  exchange_ = std::make_shared<Exchange>(shared_from_this(), std::move(request));
  ++share_.exchanges;
  reader_.reset();
  phase_ = Phase::kHandling;
  const std::shared_ptr<Exchange> exchange = exchange_;
  exchange->respond(std::move(response));
  if (keep) read_more();
}

void Connection::append_head(int status, const HttpHeaders& headers, Framing framing, size_t length) {
  fmt::format_to(std::back_inserter(out_), "HTTP/1.1 {} {}\r\n{}", status, http_reason(status), share_.date_line);
  for (const auto& [name, value] : headers.entries()) fmt::format_to(std::back_inserter(out_), "{}: {}\r\n", name, value);
  if (share_.draining) keep_alive_ = false;
  if (framing == Framing::kLength) {
    fmt::format_to(std::back_inserter(out_), "content-length: {}\r\n", length);
  } else if (framing == Framing::kChunks && exchange_->request().version_minor >= 1) {
    out_ += "transfer-encoding: chunked\r\n";
  }
  if (!keep_alive_) {
    out_ += "connection: close\r\n";
  } else if (exchange_->request().version_minor == 0) {
    out_ += "connection: keep-alive\r\n";
  }
  out_ += "\r\n";
}

void Connection::append_answer(const HttpResponse& response) {
  const bool has_none = response.status == 204 || response.status == 304;
  append_head(response.status, response.headers, has_none ? Framing::kNoBody : Framing::kLength, response.body.size());
  if (!has_none && exchange_->request().method != "HEAD") out_ += response.body;
}

void Connection::frame_chunk() {
  if (chunk_.empty()) return;
  fmt::format_to(std::back_inserter(out_), "{:x}\r\n", chunk_.size());
  out_ += chunk_;
  out_ += "\r\n";
  shrink(chunk_);
}

void Connection::mark_dirty() {
  if (dirty_ || phase_ == Phase::kClosed) return;
  dirty_ = true;
  if (share_.dirty.empty()) share_.schedule_flush();
  share_.dirty.push_back(shared_from_this());
}

void Connection::flush() {
  dirty_ = false;
  if (phase_ == Phase::kClosed || writing_) return;
  frame_chunk();
  if (out_.empty()) {
    if (answer_complete_) answer_sent();
    return;
  }
  sending_.swap(out_);
  sent_ = 0;
  writing_ = true;
  write_progress_us_ = steady_now_us();
  if (answer_complete_) {
    complete_us_ = write_progress_us_;
    unsent_at_complete_ = sending_.size();
  }
  on_written(0);
}

// `bytes` of sending_ more are with the system.
void Connection::on_written(size_t bytes) {
  sent_ += bytes;
  if (bytes > 0) {
    share_.bytes_out += static_cast<int64_t>(bytes);
    write_progress_us_ = steady_now_us();
    if (exchange_) exchange_->count(bytes);
  }
  if (sent_ < sending_.size()) {
    transport_->write(sending_.data() + sent_, sending_.size() - sent_, [self = shared_from_this()](bool ok, size_t more) {
      if (self->phase_ == Phase::kClosed) return;
      if (!ok) return self->close(HttpOutcome::kClientGone);
      self->on_written(more);
    });
    return;
  }
  writing_ = false;
  sent_ = 0;
  shrink(sending_);
  if (!out_.empty() || !chunk_.empty()) return flush();
  if (answer_complete_) answer_sent();
}

void Connection::answer_sent() {
  if (phase_ != Phase::kHandling) return;
  shrink(out_);
  const bool keep = keep_alive_ && !share_.draining, linger = body_unread_;
  answer_complete_ = false;
  end_exchange(HttpOutcome::kComplete);
  if (phase_ == Phase::kClosed) return;
  if (keep) return enter_idle();
  if (!linger) return close(HttpOutcome::kComplete);
  // Closing with unread bytes makes the system send a reset, which may overtake the answer.
  phase_ = Phase::kLinger;
  deadline_us_ = steady_now_us() + kLingerUs;
  shrink(in_);
  transport_->shutdown_send();
  read_more();
}

void Connection::end_exchange(HttpOutcome outcome) {
  if (!exchange_) return;
  const std::shared_ptr<Exchange> exchange = std::move(exchange_);
  exchange_.reset();
  --share_.exchanges;
  exchange->end(outcome);
}

void Connection::close(HttpOutcome outcome) {
  if (phase_ == Phase::kClosed) return;
  const std::shared_ptr<Connection> self = shared_from_this();
  phase_ = Phase::kClosed;
  transport_->close();
  release_body();
  share_.all.erase(place);
  end_exchange(outcome);
}

void Connection::drain() {
  if (phase_ == Phase::kIdle || phase_ == Phase::kHandshake || phase_ == Phase::kLinger) close(HttpOutcome::kComplete);
}

void Connection::tick(int64_t now_us) {
  const HttpServerOptions& options = share_.options;
  if (writing_) {
    // A finished answer must be taken at the least pace; a running one must move at all, and may not pile up (write()).
    const int64_t allowed =
        options.grace_us + static_cast<int64_t>(unsent_at_complete_) * 1'000'000 / options.min_bytes_per_second;
    const bool stuck = now_us - write_progress_us_ > options.write_timeout_us;
    if (stuck || (answer_complete_ && complete_us_ > 0 && now_us - complete_us_ > allowed))
      return close(HttpOutcome::kSlowReader);
  }
  switch (phase_) {
    case Phase::kHandshake:
    case Phase::kIdle:
    case Phase::kLinger:
      if (now_us > deadline_us_) close(HttpOutcome::kTimeout);
      return;
    case Phase::kHeaders:
      if (now_us > deadline_us_) refuse({408, "the headers of the request did not come in time"});
      return;
    case Phase::kBody: {
      const int64_t elapsed = now_us - body_begin_us_;
      const int64_t least = elapsed / 1'000'000 * options.min_bytes_per_second;
      if (elapsed > options.grace_us && static_cast<int64_t>(reader_->body_bytes()) < least)
        refuse({408, fmt::format("the body of the request comes slower than {} bytes a second", options.min_bytes_per_second)});
      return;
    }
    case Phase::kHandling:
    case Phase::kClosed: return;
  }
}

}  // namespace deepinfer
