// net/request_reader.h - bytes of a connection to requests; the only place where a request's form is judged.
//
// Promise: any bytes end in a request or in a fault with a status; memory is bounded by the limits; two lengths, repeated
// lengths, foreign transfer codings, bare line feeds in chunks, missing hosts and floods are refused, so that no proxy in
// front can see another border between requests than this server.
// Threads: one connection, one thread at a time.
//
//   RequestReader reader(limits);
//   for (;;) {
//     in += bytes;
//     in.erase(0, reader.feed(in));
//     if (reader.state() == RequestReader::State::kDone) handle(reader.take());
//   }
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "net/http.h"

namespace deepinfer {

class RequestReader {
 public:
  // kHead: headers are complete, the body is not; told once, go on feeding.
  enum class State { kBegin, kHeaders, kHead, kBody, kDone, kFailed };

  // `remote` goes into the requests.
  explicit RequestReader(const HttpLimits& limits, std::string remote = {});
  ~RequestReader();
  RequestReader(RequestReader&&) noexcept;
  RequestReader& operator=(RequestReader&&) noexcept;

  // Takes a prefix of `bytes` and returns its length; what is left must come again in front of more. Stops after kHead once,
  // and after kDone. REQUIRES: not kDone or kFailed.
  size_t feed(std::string_view bytes);
  State state() const;
  // From kHead on; the body is still empty.
  const HttpRequest& head() const;
  bool expects_continue() const;
  // Of the whole body when its length was announced, else 0.
  uint64_t announced_bytes() const;
  uint64_t body_bytes() const;  // so far
  // Between kHead and the body: another limit, or throw the body away while it is read.
  void set_body_limit(size_t bytes);
  void discard_body();
  const HttpFault& fault() const;  // kFailed
  HttpRequest take();              // kDone; then the reader is used up

 private:
  struct Parser;
  std::unique_ptr<Parser> parser_;
};

}  // namespace deepinfer
