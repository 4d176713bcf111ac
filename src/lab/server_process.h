// lab/server_process.h - this program as a server in a child process, with a model that costs nothing: what is measured is the
// rest.
//
// Threads: one.
//
//   DI_TRY(const BenchScript script, BenchScript::create());
//   ServerProcess server;
//   DI_CHECK_OK(server.start(program, {"serve", "--port", "0", "-m", script.model()}));
//   DI_TRY(const double seconds, server.metric("process_cpu_seconds_total"));
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "base/result.h"
#include "lab/load_client.h"
#include "net/http_client.h"

namespace deepinfer {

inline constexpr int kBenchTokens = 16;  // of each answer

// Ends with this object.
class ServerProcess {
 public:
  ServerProcess() = default;
  ServerProcess(const ServerProcess&) = delete;
  ServerProcess& operator=(const ServerProcess&) = delete;
  ~ServerProcess();
  // Waits for its address.
  Status start(const std::string& program, std::vector<std::string> words);
  uint16_t port() const { return port_; }
  Result<double> metric(const std::string& name);

 private:
  pid_t pid_ = 0;
  uint16_t port_ = 0;
  HttpClient client_;
};

// A file of a scripted model at pace 0 that answers with words; gone with this object.
class BenchScript {
 public:
  static Result<BenchScript> create();
  BenchScript(BenchScript&& other) noexcept { path_.swap(other.path_); }
  BenchScript& operator=(BenchScript&&) = delete;
  ~BenchScript();
  std::string model() const { return "scripted:" + path_; }

 private:
  BenchScript() = default;
  std::string path_;
};

// A whole HTTP request for kBenchTokens tokens of the model "bench": 200 bytes of body, as an agent's smallest request.
std::string bench_request(bool stream);
// So many answers to it over so many connections. Errors: an answer that is not 200, too.
Result<LoadResult> run_bench_load(uint16_t port, int connections, int64_t requests, const std::string& request);

}  // namespace deepinfer
