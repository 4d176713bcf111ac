#include "lab/bench_serve.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <vector>

#include <fmt/format.h>

#include "base/file.h"
#include "lab/load_client.h"
#include "net/hello_server.h"
#include "net/http_client.h"

namespace deepinfer {

namespace {

constexpr int kTokens = 16, kIdle = 2000, kSingle = 1000;

// `serve` as a child process; ends with this object.
class ServerProcess {
 public:
  ~ServerProcess() {
    if (pid_ <= 0) return;
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }

  Status start(const std::string& program, std::vector<std::string> words) {
    int pipe_ends[2];
    if (pipe2(pipe_ends, O_CLOEXEC) != 0) return io_error("no pipe");
    std::vector<char*> arguments;
    words.insert(words.begin(), program);
    for (std::string& word : words) arguments.push_back(word.data());
    arguments.push_back(nullptr);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, pipe_ends[1], STDOUT_FILENO);
    char* none[] = {nullptr};
    const int failed = posix_spawn(&pid_, program.c_str(), &actions, nullptr, arguments.data(), none);
    posix_spawn_file_actions_destroy(&actions);
    close(pipe_ends[1]);
    std::string line;
    char byte = 0;
    while (!failed && line.size() < 1000 && read(pipe_ends[0], &byte, 1) == 1 && byte != '\n') line += byte;
    close(pipe_ends[0]);
    const size_t at = line.find("http://");
    if (failed || at == std::string::npos) return io_error(fmt::format("{} serve did not start", program));
    DI_TRY(const Url url, parse_url(line.substr(at)));
    port_ = url.port;
    return {};
  }
  uint16_t port() const { return port_; }

  Result<double> metric(const std::string& name) {
    DI_TRY(const HttpReply reply, client_.send({.url = fmt::format("http://127.0.0.1:{}/metrics", port_)}));
    const size_t at = reply.body.find("\n" + name + " ");
    if (at == std::string::npos) return corrupt(fmt::format("/metrics has no {}", name));
    return std::strtod(reply.body.c_str() + at + name.size() + 2, nullptr);
  }

 private:
  pid_t pid_ = 0;
  uint16_t port_ = 0;
  HttpClient client_;
};

std::string chat_request(bool stream) {
  // 200 bytes of body, as an agent's smallest request.
  std::string body =
      fmt::format(R"({{"model":"bench","stream":{},"max_tokens":{},"temperature":0,"thinking":{{"type":"disabled"}},)"
                  R"("messages":[{{"role":"user","content":")",
                  stream, kTokens);
  while (body.size() < 196) body += "word "[body.size() % 5];
  body += "\"}]}";
  return fmt::format(
      "POST /v1/chat/completions HTTP/1.1\r\nhost: bench\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{}",
      body.size(), body);
}

class ServeBench {
 public:
  ServeBench(const BenchServeOptions& options, FigureReport& report) : options_(options), report_(report) {}

  Status run(const std::string& script) {
    DI_CHECK_OK(server_.start(
        options_.program,
        {"serve", "--port", "0", "--store", "off", "-m", "scripted:" + script, "--threads", "1", "--access-log", "off",
         "--served-model-name", "bench", "--batch", std::to_string(options_.streams), "--queue", "4096", "--context", "512"}));
    DI_TRY(hello_, HelloServer::start(600));
    DI_CHECK_OK(idle_connections());  // first, while the process is small
    DI_CHECK_OK(load(1, 200, false).status);
    DI_CHECK_OK(first_byte());
    DI_CHECK_OK(whole_answers());
    return streamed_tokens();
  }

 private:
  struct Load {
    Status status;
    LoadResult result;
  };

  Load run_load(uint16_t port, int connections, int64_t requests, const std::string& request) {
    Load load;
    LoadClient client(port, connections);
    load.status = client.connect();
    if (!load.status) return load;
    auto result = client.run(request, requests);
    if (!result) return load.status = result.error(), load;
    if (result->failed > 0)
      load.status = internal_error(fmt::format("{} of {} answers were not 200", result->failed, result->requests));
    load.result = std::move(*result);
    return load;
  }
  Load load(int connections, int64_t requests, bool stream) {
    return run_load(server_.port(), connections, requests, chat_request(stream));
  }

  Status idle_connections() {
    DI_CHECK_OK(load(options_.connections, 500, false).status);
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
    const Load hello = run_load(hello_->port(), 1, kSingle, chat_request(false));
    DI_CHECK_OK(hello.status);
    const Load ours = load(1, kSingle, true);
    DI_CHECK_OK(ours.status);
    for (const auto& [name, share] : {std::pair("median", 0.5), std::pair("p99", 0.99)}) {
      const double mine = ours.result.first_byte(share) * 1e3, theirs = hello.result.first_byte(share) * 1e3;
      report_.add({.name = fmt::format("serve/first byte {}", name),
                   .value = mine,
                   .unit = "ms",
                   .baseline = "beast hello",
                   .ratio = mine / theirs});
    }
    return {};
  }

  Status whole_answers() {
    const int64_t requests = 20'000;
    const Load hello = run_load(hello_->port(), options_.connections, requests, chat_request(false));
    DI_CHECK_OK(hello.status);
    DI_TRY(const double before, server_.metric("process_cpu_seconds_total"));
    const Load ours = load(options_.connections, requests, false);
    DI_CHECK_OK(ours.status);
    DI_TRY(const double after, server_.metric("process_cpu_seconds_total"));
    const double mine = static_cast<double>(requests) / ours.result.seconds,
                 theirs = static_cast<double>(requests) / hello.result.seconds;
    report_.add({.name = "serve/hello requests", .value = theirs, .unit = "requests/s"});
    report_.add(
        {.name = "serve/whole answers", .value = mine, .unit = "requests/s", .baseline = "beast hello", .ratio = mine / theirs});
    report_.add({.name = "serve/processor time a request",
                 .value = (after - before) / static_cast<double>(requests) * 1e6,
                 .unit = "us"});
    return {};
  }

  Status streamed_tokens() {
    DI_TRY(const double before, server_.metric("process_cpu_seconds_total"));
    const Load ours = load(options_.streams, options_.requests, true);
    DI_CHECK_OK(ours.status);
    DI_TRY(const double after, server_.metric("process_cpu_seconds_total"));
    const double tokens = static_cast<double>(options_.requests) * kTokens;
    report_.add({.name = fmt::format("serve/processor time a streamed token, {} streams", options_.streams),
                 .value = (after - before) / tokens * 1e6,
                 .unit = "us"});
    report_.add({.name = fmt::format("serve/streamed tokens, {} streams", options_.streams),
                 .value = tokens / ours.result.seconds,
                 .unit = "tokens/s"});
    report_.add({.name = "serve/events a token", .value = static_cast<double>(ours.result.events) / tokens, .unit = ""});
    return {};
  }

  const BenchServeOptions& options_;
  FigureReport& report_;
  ServerProcess server_;
  std::unique_ptr<HelloServer> hello_;
};

}  // namespace

Status bench_serve(const BenchServeOptions& options, FigureReport& report) {
  const std::string script = fmt::format("/tmp/deepinfer-bench-{}.jsonl", getpid());
  std::string text;
  for (int i = 0; i < 2 * kTokens; ++i) text += "word ";
  DI_CHECK_OK(write_file(script, "{\"scripted\": 1}\n{\"text\": \"" + text + "\"}\n"));
  const Status status = ServeBench(options, report).run(script);
  unlink(script.c_str());
  return status;
}

}  // namespace deepinfer
