// deepinfer up: a router and its workers on this machine, as supervised child processes.
#include <arpa/inet.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <deque>
#include <optional>

#include "apps/command.h"
#include "apps/commands.h"
#include "apps/terminal.h"
#include "base/file.h"
#include "base/json.h"
#include "base/scratch_folder.h"
#include "cluster/cluster_file.h"
#include "cluster/etcd.h"
#include "cluster/supervisor.h"
#include "net/http_client.h"
#include "policy/autoscale.h"

namespace deepinfer {
namespace {

constexpr int64_t kDrainUs = 40'000'000, kScaleUs = 1'000'000;
constexpr int64_t kEtcdCallUs = 500'000;
constexpr int kEtcdTries = 100, kEtcdPauseUs = 100'000;

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

// A secret of this run, in memory that the children inherit: no file is left, however this process ends.
class SecretFile {
 public:
  static Result<SecretFile> create() {
    SecretFile file;
    file.handle_ = ::memfd_create("deepinfer-secret", 0);
    unsigned char bytes[32];
    if (file.handle_ < 0 || ::getentropy(bytes, sizeof(bytes)) != 0) return io_error("cannot make the cluster's secret");
    std::string text;
    for (const unsigned char byte : bytes) text += fmt::format("{:02x}", byte);
    text += '\n';
    if (::write(file.handle_, text.data(), text.size()) != static_cast<ssize_t>(text.size()))
      return io_error("cannot write the cluster's secret");
    return file;
  }
  SecretFile(SecretFile&& other) noexcept { std::swap(handle_, other.handle_); }
  SecretFile& operator=(SecretFile&&) = delete;
  ~SecretFile() {
    if (handle_ >= 0) ::close(handle_);
  }
  // As the children see it.
  std::string path() const { return fmt::format("/proc/self/fd/{}", handle_); }

 private:
  SecretFile() = default;
  int handle_ = -1;
};

// Of a flag; "" when it is not there.
std::string value_of(const std::vector<std::string>& words, const char* flag) {
  const auto found = std::find(words.begin(), words.end(), flag);
  return found == words.end() || found + 1 == words.end() ? "" : *(found + 1);
}

void add_unless_set(std::vector<std::string>& words, const char* flag, const std::string& value) {
  if (std::find(words.begin(), words.end(), flag) != words.end()) return;
  words.push_back(flag);
  words.push_back(value);
}

// The children of one description.
class LocalCluster {
 public:
  LocalCluster(const ClusterFile& cluster, const std::string& secret)
      : cluster_(cluster),
        secret_(secret),
        etcd_(cluster.etcd),
        children_(join_path(executable_directory(), "deepinfer"), print_note),
        scale_client_({.connect_timeout_us = 500'000, .verify = false, .total_timeout_us = 1'000'000}) {}

  // Without etcd the router knows the addresses of all workers there may be; those that do not run are not connected.
  Status start(const StopSignals& signals) {
    if (cluster_.starts_etcd) DI_CHECK_OK(start_etcd(signals));
    if (signals.count() > 0) return {};
    std::string addresses;
    for (const WorkerGroup& described : cluster_.groups) {
      ScaleOptions scale = cluster_.scale;
      scale.min = described.min, scale.max = described.max;
      Group& group = groups_.emplace_back(Group{described, {}, 0, Autoscaler(scale)});
      for (int32_t i = 0; i < described.max; ++i) {
        DI_TRY(const uint16_t port, free_port());
        group.ports.push_back(port);
        addresses += fmt::format("{}127.0.0.1:{}", addresses.empty() ? "" : ",", port);
      }
      while (group.running < described.min) DI_CHECK_OK(add_worker(group));
    }
    std::vector<std::string> words = {"route", etcd_.empty() ? "--workers" : "--etcd", etcd_.empty() ? addresses : etcd_};
    words.insert(words.end(), {"--cluster-secret", secret_});
    words.insert(words.end(), cluster_.router.begin(), cluster_.router.end());
    // The router reads the tokenizer of the workers' model.
    if (const std::string model = value_of(cluster_.groups[0].words, "--model"); !model.empty())
      add_unless_set(words, "--model", model);
    DI_CHECK_OK(find_scale(words));
    // One that ends because no worker was ready in time is to be tried again.
    const bool waits = !value_of(words, "--wait-for-workers").empty();
    return children_.start({.name = "router", .words = std::move(words), .may_fail = waits});
  }

  Status tend() {
    DI_CHECK_OK(children_.tend());
    if (!scales() || clock_.now_us() < next_scale_us_) return {};
    next_scale_us_ = clock_.now_us() + kScaleUs;
    const auto told = read_scale();
    if (!told) return {};
    for (Group& group : groups_) {
      const Json& role = told->at("roles").at(group.described.role);
      // Of a role without a worker that is ready nothing is said.
      const auto busy = role.at("utilisation").to_double("utilisation");
      if (busy && group.described.min < group.described.max) DI_CHECK_OK(scale(group, *busy));
    }
    return {};
  }

  void stop(const std::function<bool()>& hurry) {
    children_.stop("router", kDrainUs, hurry);
    children_.stop("worker", kDrainUs, hurry);
    children_.stop("etcd", kDrainUs, hurry);
  }

 private:
  struct Group {
    const WorkerGroup& described;
    std::vector<uint16_t> ports;
    int32_t running = 0;  // started and not retired
    Autoscaler scaler;
  };

  // One member, for this run only; whoever is on this machine may read and write it, but without the secret no link opens.
  Status start_etcd(const StopSignals& signals) {
    DI_TRY(ScratchFolder folder, ScratchFolder::create("etcd"));
    etcd_folder_.emplace(std::move(folder));
    DI_TRY(const uint16_t clients, free_port());
    DI_TRY(const uint16_t peers, free_port());
    etcd_ = fmt::format("http://127.0.0.1:{}", clients);
    const std::string peer = fmt::format("http://127.0.0.1:{}", peers);
    std::vector<std::string> words = {"--data-dir", etcd_folder_->path(), "--logger", "zap", "--log-level", "error"};
    words.insert(words.end(), {"--listen-client-urls", etcd_, "--advertise-client-urls", etcd_, "--listen-peer-urls", peer,
                               "--initial-advertise-peer-urls", peer, "--initial-cluster", "default=" + peer});
    DI_CHECK_OK(children_.start({.name = "etcd", .words = std::move(words), .is_quiet = true, .program = "etcd"}));
    // Whoever asks before it answers would tell of an outage.
    Etcd etcd({.endpoints = {etcd_}, .call_us = kEtcdCallUs});
    for (int tries = 0; signals.count() == 0 && !etcd.grant(1); ++tries) {
      if (tries == kEtcdTries) return Error{ErrorCode::kUnavailable, "the etcd that was started does not answer"};
      DI_CHECK_OK(children_.tend());
      ::usleep(kEtcdPauseUs);
    }
    return {};
  }

  static std::string worker_name(const Group& group, int32_t i) {
    return fmt::format("worker {}{}", i + 1, group.described.role == "all" ? "" : " (" + group.described.role + ")");
  }

  bool scales() const {
    return std::any_of(cluster_.groups.begin(), cluster_.groups.end(), [](const auto& group) { return group.min < group.max; });
  }

  Status scale(Group& group, double busy) {
    const int32_t wanted = group.scaler.decide(clock_.now_us(), group.running, busy);
    if (wanted == group.running) return {};
    const std::string role = group.described.role == "all" ? "" : group.described.role + " ";
    print_note(fmt::format("{} {}worker(s) instead of {}: {:.0f} % used", wanted, role, group.running, busy * 100));
    while (group.running < wanted) DI_CHECK_OK(add_worker(group, true));
    while (group.running > wanted) children_.retire(worker_name(group, --group.running));
    return {};
  }

  // `later`: others serve already, and one that does not start must not end them.
  Status add_worker(Group& group, bool later = false) {
    const uint16_t port = group.ports[static_cast<size_t>(group.running)];
    std::vector<std::string> words = {"serve", "--worker-port", fmt::format("{}", port), "--cluster-secret", secret_};
    words.insert(words.end(), group.described.words.begin(), group.described.words.end());
    if (!etcd_.empty()) words.insert(words.end(), {"--etcd", etcd_});
    add_unless_set(words, "--port", "0");
    add_unless_set(words, "--access-log", "off");
    return children_.start(
        {.name = worker_name(group, group.running++), .words = std::move(words), .is_quiet = true, .may_fail = later});
  }

  // Where the router tells how busy it is; any free port becomes a certain one for that.
  Status find_scale(std::vector<std::string>& words) {
    if (!scales()) return {};
    std::string port = value_of(words, "--port");
    if (port == "0") {
      DI_TRY(const uint16_t chosen, free_port());
      port = fmt::format("{}", chosen);
      *(std::find(words.begin(), words.end(), "--port") + 1) = port;
    }
    const bool is_tls = !value_of(words, "--tls-certificate").empty();
    scale_url_ = fmt::format("{}://127.0.0.1:{}/scale", is_tls ? "https" : "http", port.empty() ? "8080" : port);
    return {};
  }

  // Nothing while the router does not say.
  std::optional<Json> read_scale() {
    HttpCall call{.url = scale_url_};
    if (!cluster_.scale_key.empty()) call.headers.set("authorization", "Bearer " + cluster_.scale_key);
    const auto reply = scale_client_.send(call);
    if (!reply || reply->status != 200) return std::nullopt;
    auto body = Json::parse(reply->body);
    return body ? std::optional<Json>(*std::move(body)) : std::nullopt;
  }

  const ClusterFile& cluster_;
  const std::string secret_;
  std::string etcd_;                          // endpoints; "" = none
  std::optional<ScratchFolder> etcd_folder_;  // behind etcd, which is among the children
  Supervisor children_;
  HttpClient scale_client_;
  const SteadyClock clock_;
  std::deque<Group> groups_;
  std::string scale_url_;
  int64_t next_scale_us_ = 0;
};

class UpCommand final : public Command {
 public:
  std::string name() const override { return "up"; }
  std::string summary() const override { return "a whole cluster on this machine: a router and workers, supervised"; }
  std::string examples() const override { return "  deepinfer up deploy/examples/local.toml"; }
  std::vector<Positional> positionals() override {
    return {{"CLUSTER.toml",
             "tables [router], [worker], [encode], [prefill], [decode] with flags of route and serve, [scale], [etcd]", &words_,
             1, 1}};
  }

  Result<int> run() override {
    DI_TRY(const std::string text, read_file(words_[0]));
    DI_TRY(const ClusterFile cluster, parse_cluster_file(text, words_[0]));
    DI_TRY(const SecretFile secret, SecretFile::create());
    const StopSignals& signals = catch_stop_signals();
    LocalCluster running(cluster, secret.path());
    DI_CHECK_OK(running.start(signals));
    while (signals.count() == 0) {
      DI_CHECK_OK(running.tend());
      signals.wait_ms(100);
    }
    print_note("stopping: the router finishes its answers first");
    running.stop([&] { return signals.count() > 1; });
    return kExitOk;
  }

 private:
  std::vector<std::string> words_;
};

}  // namespace

std::unique_ptr<Command> make_up_command() { return std::make_unique<UpCommand>(); }

}  // namespace deepinfer
