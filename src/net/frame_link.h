// net/frame_link.h - one connection of a hub, and what sets it up. Inside the room only.
//
// Threads: the hub's.
#pragma once

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <openssl/rand.h>
#include <sys/socket.h>

#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ssl.hpp>
#include <boost/asio/steady_timer.hpp>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "net/frame_hub.h"

namespace deepinfer {

struct FrameLink {
  FrameLink(boost::asio::io_context& io, LinkId id, bool calls) : id(id), calls(calls), socket(io), timer(io) {}
  const LinkId id;
  const bool calls;  // it was connected from here
  std::string peer;  // whom it called
  boost::asio::ip::tcp::socket socket;
  std::optional<boost::asio::ssl::stream<boost::asio::ip::tcp::socket&>> secure;
  boost::asio::steady_timer timer;  // of the handshake
  std::string nonce, received;
  bool proven = false, closed = false, writing = false;
  bool waits = false, paused = false;  // for bytes beside it; reading, because too much is behind them
  std::vector<char> buffer;            // once proven
  size_t begin = 0, end = 0;           // of what has not been understood yet
  std::string handshake, unsent, in_write;
};

template <class F>
void on_stream(FrameLink& link, F use) {
  if (link.secure) return use(*link.secure);
  use(link.socket);
}

inline std::string random_bytes(size_t count) {
  std::string out(count, '\0');
  RAND_bytes(reinterpret_cast<unsigned char*>(out.data()), static_cast<int>(count));
  return out;
}

// A peer whose machine is gone acknowledges nothing: the kernel then ends the connection.
inline void set_user_timeout(int handle) {
  constexpr unsigned kUserTimeoutMs = 15'000;
  static_cast<void>(::setsockopt(handle, IPPROTO_TCP, TCP_USER_TIMEOUT, &kUserTimeoutMs, sizeof(kUserTimeoutMs)));
}

// Both sides show a certificate of `ca`.
inline Status load_certificates(boost::asio::ssl::context& context, const LinkSecurity& files) {
  namespace ssl = boost::asio::ssl;
  boost::system::error_code ec;
  const auto step = [&](const std::string& path, auto load) {
    if (!ec) load();
    return ec ? Status(invalid_argument(fmt::format("{}: {}", path, ec.message()))) : Status();
  };
  context.set_options(ssl::context::default_workarounds | ssl::context::no_tlsv1 | ssl::context::no_tlsv1_1);
  DI_CHECK_OK(step(files.certificate, [&] { context.use_certificate_chain_file(files.certificate, ec); }));
  DI_CHECK_OK(step(files.key, [&] { context.use_private_key_file(files.key, ssl::context::pem, ec); }));
  DI_CHECK_OK(step(files.ca, [&] { context.load_verify_file(files.ca, ec); }));
  context.set_verify_mode(ssl::verify_peer | ssl::verify_fail_if_no_peer_cert, ec);
  return {};
}

}  // namespace deepinfer
