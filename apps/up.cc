// deepinfer up: a router and its workers on this machine, as supervised child processes.
#include <arpa/inet.h>
#include <fmt/format.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>

#include "apps/command.h"
#include "apps/commands.h"
#include "apps/terminal.h"
#include "base/file.h"
#include "cluster/cluster_file.h"
#include "cluster/supervisor.h"

namespace deepinfer {
namespace {

constexpr int64_t kDrainUs = 40'000'000;

// A port of this machine that nobody has now.
Result<uint16_t> free_port() {
  const int handle = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  const bool works = handle >= 0 && ::bind(handle, reinterpret_cast<sockaddr*>(&address), size) == 0 &&
                     ::getsockname(handle, reinterpret_cast<sockaddr*>(&address), &size) == 0;
  if (handle >= 0) ::close(handle);
  if (!works) return io_error("no free port on 127.0.0.1");
  return ntohs(address.sin_port);
}

// A secret of this run in a file that its user alone can read; gone with it.
class SecretFile {
 public:
  static Result<SecretFile> create() {
    SecretFile file;
    const char* folder = ::access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp";
    file.path_ = fmt::format("{}/deepinfer-secret-XXXXXX", folder);
    const int handle = ::mkstemp(file.path_.data());
    unsigned char bytes[32];
    if (handle < 0 || ::getentropy(bytes, sizeof(bytes)) != 0)
      return io_error("cannot make a file for the cluster's secret in " + std::string(folder));
    std::string text;
    for (const unsigned char byte : bytes) text += fmt::format("{:02x}", byte);
    text += '\n';
    const bool whole = ::write(handle, text.data(), text.size()) == static_cast<ssize_t>(text.size());
    ::close(handle);
    if (!whole) return io_error(file.path_ + ": cannot write");
    return file;
  }
  SecretFile(SecretFile&& other) noexcept { path_.swap(other.path_); }
  SecretFile& operator=(SecretFile&&) = delete;
  ~SecretFile() {
    if (!path_.empty()) ::unlink(path_.c_str());
  }
  const std::string& path() const { return path_; }

 private:
  SecretFile() = default;
  std::string path_;
};

void add_unless_set(std::vector<std::string>& words, const char* flag, const std::string& value) {
  if (std::find(words.begin(), words.end(), flag) != words.end()) return;
  words.push_back(flag);
  words.push_back(value);
}

class UpCommand final : public Command {
 public:
  std::string name() const override { return "up"; }
  std::string summary() const override { return "a whole cluster on this machine: a router and workers, supervised"; }
  std::string examples() const override { return "  deepinfer up deploy/examples/local.toml"; }
  std::vector<Positional> positionals() override {
    return {{"CLUSTER.toml", "tables [router] and [worker] with the flags of route and serve", &words_, 1, 1}};
  }

  Result<int> run() override {
    DI_TRY(const std::string text, read_file(words_[0]));
    DI_TRY(const ClusterFile cluster, parse_cluster_file(text, words_[0]));
    DI_TRY(const SecretFile secret, SecretFile::create());
    const StopSignals& signals = catch_stop_signals();
    Supervisor children(join_path(executable_directory(), "deepinfer"), print_note);
    DI_CHECK_OK(start(cluster, secret.path(), children));
    while (signals.count() == 0) {
      DI_CHECK_OK(children.tend());
      signals.wait_ms(100);
    }
    print_note("stopping: the router finishes its answers first");
    children.stop("router", signals.count() > 1 ? 0 : kDrainUs);
    children.stop("worker", kDrainUs);
    return kExitOk;
  }

 private:
  static Status start(const ClusterFile& cluster, const std::string& secret, Supervisor& children) {
    std::string addresses;
    for (int32_t i = 1; i <= cluster.num_workers; ++i) {
      DI_TRY(const uint16_t port, free_port());
      addresses += fmt::format("{}127.0.0.1:{}", addresses.empty() ? "" : ",", port);
      std::vector<std::string> words = {"serve", "--worker-port", fmt::format("{}", port), "--cluster-secret", secret};
      words.insert(words.end(), cluster.worker.begin(), cluster.worker.end());
      add_unless_set(words, "--port", "0");
      add_unless_set(words, "--access-log", "off");
      DI_CHECK_OK(children.start({.name = fmt::format("worker {}", i), .words = std::move(words), .is_quiet = true}));
    }
    std::vector<std::string> words = {"route", "--workers", addresses, "--cluster-secret", secret};
    words.insert(words.end(), cluster.router.begin(), cluster.router.end());
    // The router reads the tokenizer of the workers' model.
    const auto model = std::find(cluster.worker.begin(), cluster.worker.end(), "--model");
    if (model != cluster.worker.end()) add_unless_set(words, "--model", *(model + 1));
    return children.start({.name = "router", .words = std::move(words)});
  }

  std::vector<std::string> words_;
};

}  // namespace

std::unique_ptr<Command> make_up_command() { return std::make_unique<UpCommand>(); }

}  // namespace deepinfer
