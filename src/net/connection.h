// net/connection.h - one connection of the server: reads requests, holds the answer, keeps the deadlines. Inside the room only.
//
//   handshake -> idle -> headers -> body -> handling -> idle ...            (linger: answered, but the peer still sends)
//
// While a request is handled the socket is still read: that is how a client that vanished is noticed. Answers are collected
// in `out_` and leave in one write per turn of the server's loop; a second write waits until the first is done, so a slow
// reader costs at most max_unsent_bytes.
// Threads: the server's.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "net/http_server.h"
#include "net/request_reader.h"
#include "net/transport.h"

namespace deepinfer {

class Connection;
using ConnectionList = std::list<std::shared_ptr<Connection>>;

// What the connections of a server share.
struct ConnectionShare {
  const HttpServerOptions& options;
  HttpHandler& handler;
  std::function<void()> schedule_flush;  // flush_all() soon, once
  ConnectionList all;
  std::vector<std::shared_ptr<Connection>> dirty;
  bool draining = false;
  size_t buffered_bytes = 0;  // of unfinished bodies
  std::string date_line;      // "date: ...\r\n"
  std::atomic<int64_t> connections{0}, accepted{0}, turned_away{0}, exchanges{0}, bytes_in{0}, bytes_out{0};

  void flush_all();
};

class Connection final : public std::enable_shared_from_this<Connection> {
 public:
  Connection(ConnectionShare& share, std::unique_ptr<Transport> transport);
  ~Connection();

  void start();
  // Looks at the deadlines.
  void tick(int64_t now_us);
  // Ends an idle connection; others end with their answer.
  void drain();
  void close(HttpOutcome outcome);
  void flush();
  ConnectionList::iterator place;

 private:
  class Exchange;
  enum class Phase { kHandshake, kIdle, kHeaders, kBody, kHandling, kLinger, kClosed };

  void read_more();
  void on_read(size_t bytes);
  void process();
  bool advance();  // false: more bytes are needed
  void on_head();
  void count_body();
  void dispatch();
  void refuse(const HttpFault& fault);
  void refuse(HttpResponse response, bool keep);
  void enter_idle();
  void mark_dirty();
  enum class Framing { kLength, kChunks, kNoBody };
  void append_head(int status, const HttpHeaders& headers, Framing framing, size_t length);
  void append_answer(const HttpResponse& response);
  void frame_chunk();
  void on_written(size_t bytes);
  void answer_sent();
  void end_exchange(HttpOutcome outcome);
  void release_body();

  ConnectionShare& share_;
  std::unique_ptr<Transport> transport_;
  std::string remote_;
  Phase phase_ = Phase::kHandshake;
  int64_t deadline_us_ = 0;

  bool reading_ = false;
  std::vector<char> read_buffer_;
  std::string in_;  // read, not yet taken
  std::optional<RequestReader> reader_;
  std::optional<HttpResponse> refusal_;  // answered when the body is through
  int64_t body_begin_us_ = 0;
  size_t body_counted_ = 0;  // our part of share_.buffered_bytes

  std::shared_ptr<Exchange> exchange_;
  bool dirty_ = false, writing_ = false;
  bool keep_alive_ = true;  // of the request in hand
  bool answer_complete_ = false;
  bool body_unread_ = false;  // answered before the body was through
  int64_t write_progress_us_ = 0;
  int64_t complete_us_ = 0;
  size_t unsent_at_complete_ = 0;
  std::string chunk_;  // of a streamed answer, not yet framed
  std::string out_, sending_;
  size_t sent_ = 0;
};

int64_t steady_now_us();

}  // namespace deepinfer
