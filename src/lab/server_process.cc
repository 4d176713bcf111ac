#include "lab/server_process.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>

#include "base/file.h"

namespace deepinfer {

ServerProcess::~ServerProcess() {
  if (pid_ <= 0) return;
  kill(pid_, SIGKILL);
  waitpid(pid_, nullptr, 0);
}

Status ServerProcess::start(const std::string& program, std::vector<std::string> words) {
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
  if (failed || at == std::string::npos)
    return io_error(fmt::format("{} {} did not start", program, words.size() > 1 ? words[1] : ""));
  DI_TRY(const Url url, parse_url(std::string_view(line).substr(at, line.find_first_of(", ", at) - at)));
  port_ = url.port;
  return {};
}

Result<double> ServerProcess::metric(const std::string& name) {
  DI_TRY(const HttpReply reply, client_.send({.url = fmt::format("http://127.0.0.1:{}/metrics", port_)}));
  const size_t at = reply.body.find("\n" + name + " ");
  if (at == std::string::npos) return corrupt(fmt::format("/metrics has no {}", name));
  return std::strtod(reply.body.c_str() + at + name.size() + 2, nullptr);
}

Result<BenchScript> BenchScript::create() {
  BenchScript script;
  script.path_ = fmt::format("/tmp/deepinfer-bench-{}.jsonl", getpid());
  std::string text;
  for (int i = 0; i < 2 * kBenchTokens; ++i) text += "word ";
  DI_CHECK_OK(write_file(script.path_, "{\"scripted\": 1}\n{\"text\": \"" + text + "\"}\n"));
  return script;
}

BenchScript::~BenchScript() {
  if (!path_.empty()) unlink(path_.c_str());
}

std::string bench_request(bool stream) {
  std::string body =
      fmt::format(R"({{"model":"bench","stream":{},"max_tokens":{},"temperature":0,"thinking":{{"type":"disabled"}},)"
                  R"("messages":[{{"role":"user","content":")",
                  stream, kBenchTokens);
  while (body.size() < 196) body += "word "[body.size() % 5];
  body += "\"}]}";
  return fmt::format(
      "POST /v1/chat/completions HTTP/1.1\r\nhost: bench\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{}",
      body.size(), body);
}

Result<LoadResult> run_bench_load(uint16_t port, int connections, int64_t requests, const std::string& request) {
  LoadClient client(port, connections);
  DI_CHECK_OK(client.connect());
  DI_TRY(LoadResult result, client.run(request, requests));
  if (result.failed > 0) return internal_error(fmt::format("{} of {} answers were not 200", result.failed, result.requests));
  return result;
}

}  // namespace deepinfer
