#include "lab/load_client.h"

#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <string_view>

#include <fmt/format.h>

#include "base/clock.h"

namespace deepinfer {

struct LoadClient::Peer {
  int fd = -1;
  int64_t sent_us = 0;
  bool has_first = false, is_chunked = false, in_flight = false;
  size_t body_left = 0;
  std::string head;  // until its end
  std::string tail;  // of a stream: enough to see its end and its lines
};

namespace {

int64_t now_us() { return SteadyClock().now_us(); }

size_t count(std::string_view text, std::string_view word) {
  size_t found = 0;
  for (size_t at = text.find(word); at != std::string_view::npos; at = text.find(word, at + word.size())) ++found;
  return found;
}

}  // namespace

double LoadResult::first_byte(double share) const {
  if (first_byte_seconds.empty()) return 0;
  return first_byte_seconds[static_cast<size_t>(share * static_cast<double>(first_byte_seconds.size() - 1))];
}

LoadClient::LoadClient(uint16_t port, int connections) : port_(port), peers_(static_cast<size_t>(connections)) {}

LoadClient::~LoadClient() {
  for (Peer& peer : peers_) {
    if (peer.fd >= 0) close(peer.fd);
  }
  if (epoll_ >= 0) close(epoll_);
}

Status LoadClient::connect() {
  epoll_ = epoll_create1(EPOLL_CLOEXEC);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port_);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  for (size_t i = 0; i < peers_.size(); ++i) {
    Peer& peer = peers_[i];
    peer.fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (peer.fd < 0 || ::connect(peer.fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0)
      return io_error(fmt::format("connection {} of {} to port {}: {}", i + 1, peers_.size(), port_, std::strerror(errno)));
    const int on = 1;
    setsockopt(peer.fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    epoll_event event{EPOLLIN, {.u64 = i}};
    epoll_ctl(epoll_, EPOLL_CTL_ADD, peer.fd, &event);
  }
  return {};
}

void LoadClient::send(Peer& peer, const std::string& request) {
  peer.has_first = false;
  peer.head.clear();
  peer.tail.clear();
  peer.in_flight = true;
  peer.sent_us = now_us();
  if (::send(peer.fd, request.data(), request.size(), MSG_NOSIGNAL) != static_cast<ssize_t>(request.size()))
    peer.in_flight = false;
}

// Takes what is there; peer.in_flight turns false at the end of the answer.
Status LoadClient::read(Peer& peer, LoadResult& result) {
  std::array<char, 65536> buffer;
  const ssize_t got = recv(peer.fd, buffer.data(), buffer.size(), MSG_DONTWAIT);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return {};
  if (got <= 0) return io_error("the server closed a connection in the middle of an answer");
  if (!peer.has_first) {
    peer.has_first = true;
    result.first_byte_seconds.push_back(static_cast<double>(now_us() - peer.sent_us) / 1e6);
  }
  std::string_view bytes(buffer.data(), static_cast<size_t>(got));
  if (!peer.head.ends_with("\r\n\r\n")) {
    const size_t before = peer.head.size();
    peer.head += bytes;
    const size_t end = peer.head.find("\r\n\r\n");
    if (end == std::string::npos) return {};
    peer.head.resize(end + 4);
    bytes.remove_prefix(peer.head.size() - before);
    if (!peer.head.starts_with("HTTP/1.1 200")) ++result.failed;
    peer.is_chunked = peer.head.find("transfer-encoding: chunked") != std::string::npos;
    // Beast writes "Content-Length".
    size_t length = peer.head.find("content-length: ");
    if (length == std::string::npos) length = peer.head.find("Content-Length: ");
    peer.body_left = length == std::string::npos ? 0 : std::strtoull(peer.head.c_str() + length + 16, nullptr, 10);
  }
  if (peer.is_chunked) {
    peer.tail += bytes;
    const size_t line = peer.tail.rfind('\n') == std::string::npos ? 0 : peer.tail.rfind('\n') + 1;
    result.events += static_cast<int64_t>(count(std::string_view(peer.tail).substr(0, line), "data: {"));
    peer.in_flight = !peer.tail.ends_with("\r\n0\r\n\r\n");
    if (line > 7) peer.tail.erase(0, line - 7);  // the end mark may be cut
  } else {
    peer.body_left -= std::min(peer.body_left, bytes.size());
    peer.in_flight = peer.body_left > 0;
  }
  if (!peer.in_flight) {
    ++result.requests;
    result.whole_seconds.push_back(static_cast<double>(now_us() - peer.sent_us) / 1e6);
  }
  return {};
}

Result<LoadResult> LoadClient::run(const std::string& request, int64_t requests) {
  LoadResult result;
  const int64_t begin = now_us();
  int64_t sent = 0;
  for (Peer& peer : peers_) {
    if (sent++ < requests) send(peer, request);
  }
  sent = std::min<int64_t>(requests, static_cast<int64_t>(peers_.size()));
  std::array<epoll_event, 256> ready;
  while (result.requests < requests) {
    const int found = epoll_wait(epoll_, ready.data(), ready.size(), 20'000);
    if (found == 0) return Error{ErrorCode::kDeadline, "the server gave no byte for 20 s"};
    for (int i = 0; i < found; ++i) {
      Peer& peer = peers_[ready[static_cast<size_t>(i)].data.u64];
      const bool was = peer.in_flight;
      DI_CHECK_OK(read(peer, result));
      if (was && !peer.in_flight && sent < requests) {
        ++sent;
        send(peer, request);
      }
    }
  }
  result.seconds = static_cast<double>(now_us() - begin) / 1e6;
  std::sort(result.first_byte_seconds.begin(), result.first_byte_seconds.end());
  std::sort(result.whole_seconds.begin(), result.whole_seconds.end());
  return result;
}

}  // namespace deepinfer
