// net/transport.h - one connected socket, plain or TLS. Inside the room only: keeps Asio out of the connection's logic.
//
// One read and one write may be under way. close() lets both call back with ok = false; so does a destroyed peer.
// Threads: the server's.
#pragma once

#include <cstddef>
#include <functional>
#include <string>

namespace deepinfer {

class Transport {
 public:
  using Done = std::function<void(bool ok, size_t bytes)>;
  virtual ~Transport() = default;
  // Calls back at once for a plain socket.
  virtual void handshake(Done done) = 0;
  // Some bytes; ok with 0 bytes does not happen.
  virtual void read(char* buffer, size_t size, Done done) = 0;
  virtual void write(const char* bytes, size_t size, Done done) = 0;
  // Tells the peer that nothing more comes.
  virtual void shutdown_send() = 0;
  virtual void close() = 0;
  virtual std::string peer() const = 0;
};

}  // namespace deepinfer
