// lab/load_client.h - many HTTP connections from one thread, as cheap as they can be: the load of `bench serve`.
//
// Plain sockets and epoll, fixed requests, answers only looked at for their end: on two processors the client must not be
// what is measured.
// Threads: one.
//
//   LoadClient client(port, 256);
//   DI_TRY(LoadResult result, client.run(request, {.requests = 4096}));
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"

namespace deepinfer {

struct LoadResult {
  int64_t requests = 0, failed = 0;  // failed: not status 200
  int64_t events = 0;                // lines "data: {" of streams
  double seconds = 0;
  std::vector<double> first_byte_seconds;  // sorted
  std::vector<double> whole_seconds;       // sorted
  double first_byte(double share) const;   // quantile
};

class LoadClient {
 public:
  LoadClient(uint16_t port, int connections);
  ~LoadClient();
  Status connect();
  // Sends `request` again and again on every connection until `requests` answers came.
  Result<LoadResult> run(const std::string& request, int64_t requests);

 private:
  struct Peer;
  Status read(Peer& peer, LoadResult& result);
  void send(Peer& peer, const std::string& request);

  uint16_t port_;
  std::vector<Peer> peers_;
  int epoll_ = -1;
};

}  // namespace deepinfer
