#include "lab/bench_serve.h"

#include <unistd.h>

#include <algorithm>
#include <vector>

#include <fmt/format.h>

#include "base/file.h"
#include "lab/load_client.h"
#include "lab/server_process.h"
#include "net/hello_server.h"

namespace deepinfer {

namespace {

constexpr int kTokens = kBenchTokens, kIdle = 2000, kSingle = 1000;

class ServeBench {
 public:
  ServeBench(const BenchServeOptions& options, FigureReport& report) : options_(options), report_(report) {}

  Status run(const std::string& model) {
    DI_CHECK_OK(server_.start(options_.program, {"serve", "--port", "0", "--store", "off", "-m", model, "--threads", "1",
                                                 "--access-log", "off", "--served-model-name", "bench", "--batch",
                                                 std::to_string(options_.streams), "--queue", "4096", "--context", "512"}));
    DI_TRY(hello_, HelloServer::start(600));
    DI_CHECK_OK(idle_connections());  // first, while the process is small
    DI_CHECK_OK(load(1, 200, false));
    DI_CHECK_OK(first_byte());
    DI_CHECK_OK(whole_answers());
    return streamed_tokens();
  }

 private:
  Result<LoadResult> load(int connections, int64_t requests, bool stream) {
    return run_bench_load(server_.port(), connections, requests, bench_request(stream));
  }

  Status idle_connections() {
    DI_CHECK_OK(load(options_.connections, 500, false));
    DI_TRY(const double before, server_.metric("process_resident_memory_bytes"));
    LoadClient idle(server_.port(), kIdle);
    DI_CHECK_OK(idle.connect());
    for (double open = 0; open < kIdle;) {
      DI_TRY(open, server_.metric("deepinfer_http_connections"));
    }
    DI_TRY(const double after, server_.metric("process_resident_memory_bytes"));
    report_.add({.name = "serve/idle connection", .value = (after - before) / kIdle / 1024, .unit = "KB"});
    return {};
  }

  Status first_byte() {
    DI_TRY(const LoadResult hello, run_bench_load(hello_->port(), 1, kSingle, bench_request(false)));
    DI_TRY(const LoadResult ours, load(1, kSingle, true));
    for (const auto& [name, share] : {std::pair("median", 0.5), std::pair("p99", 0.99)}) {
      const double mine = ours.first_byte(share) * 1e3, theirs = hello.first_byte(share) * 1e3;
      report_.add({.name = fmt::format("serve/first byte {}", name),
                   .value = mine,
                   .unit = "ms",
                   .baseline = "beast hello",
                   .ratio = mine / theirs});
    }
    return {};
  }

  Status whole_answers() {
    const int64_t requests = int64_t{80} * options_.streams;
    DI_TRY(const LoadResult hello, run_bench_load(hello_->port(), options_.connections, requests, bench_request(false)));
    DI_TRY(const double before, server_.metric("process_cpu_seconds_total"));
    DI_TRY(const LoadResult ours, load(options_.connections, requests, false));
    DI_TRY(const double after, server_.metric("process_cpu_seconds_total"));
    const double mine = static_cast<double>(requests) / ours.seconds, theirs = static_cast<double>(requests) / hello.seconds;
    report_.add({.name = "serve/hello requests", .value = theirs, .unit = "requests/s"});
    report_.add(
        {.name = "serve/whole answers", .value = mine, .unit = "requests/s", .baseline = "beast hello", .ratio = mine / theirs});
    report_.add({.name = "serve/processor time a request",
                 .value = (after - before) / static_cast<double>(requests) * 1e6,
                 .unit = "us"});
    return {};
  }

  Status streamed_tokens() {
    const int64_t requests = int64_t{8} * options_.streams;
    DI_TRY(const double before, server_.metric("process_cpu_seconds_total"));
    DI_TRY(const LoadResult ours, load(options_.streams, requests, true));
    DI_TRY(const double after, server_.metric("process_cpu_seconds_total"));
    const double tokens = static_cast<double>(requests) * kTokens;
    report_.add({.name = fmt::format("serve/processor time a streamed token, {} streams", options_.streams),
                 .value = (after - before) / tokens * 1e6,
                 .unit = "us"});
    report_.add({.name = fmt::format("serve/streamed tokens, {} streams", options_.streams),
                 .value = tokens / ours.seconds,
                 .unit = "tokens/s"});
    report_.add({.name = "serve/events a token", .value = static_cast<double>(ours.events) / tokens, .unit = ""});
    return {};
  }

  const BenchServeOptions& options_;
  FigureReport& report_;
  ServerProcess server_;
  std::unique_ptr<HelloServer> hello_;
};

}  // namespace

Status bench_serve(const BenchServeOptions& options, FigureReport& report) {
  DI_TRY(const BenchScript script, BenchScript::create());
  return ServeBench(options, report).run(script.model());
}

}  // namespace deepinfer
