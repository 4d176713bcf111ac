// deepinfer serve: the HTTP server.
#include "server/server.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <optional>
#include <thread>

#include "apps/cluster_settings.h"
#include "apps/commands.h"
#include "apps/environment.h"
#include "apps/serve_process.h"
#include "apps/terminal.h"

namespace deepinfer {
namespace {

// The port for routers, besides the server's own settings.
struct WorkerSettings {
  std::string address = "127.0.0.1", role = "all";
  int32_t port = 0, page_port = 0;
  std::string advertise;
  ClusterSettings cluster;
  void visit(FieldVisitor visit) {
    visit({.name = "worker-port",
           .target = &port,
           .help = "port on which routers (deepinfer route) reach this engine, 0 = none",
           .value = "N",
           .min = 0,
           .max = 65535});
    visit({.name = "role",
           .target = &role,
           .help = "what routers use it for: whole requests, pictures, prompts whose answers go on elsewhere, or those answers",
           .choices = {std::begin(kWorkerRoleNames), std::end(kWorkerRoleNames)}});
    visit({.name = "page-port",
           .target = &page_port,
           .help = "port on which other workers hand it pages, 0 = any free one",
           .value = "N",
           .min = 0,
           .max = 65535});
    visit({.name = "worker-host", .target = &address, .help = "address of that port", .value = "ADDRESS"});
    visit({.name = "advertise",
           .target = &advertise,
           .help = "host or address under which routers find that port in etcd [worker-host]",
           .value = "HOST"});
    cluster.visit(visit);
  }
};

class ServeCommand final : public Command {
 public:
  std::string name() const override { return "serve"; }
  std::string summary() const override { return "serve the model over HTTP, with a chat page"; }
  std::string examples() const override {
    return "  deepinfer serve\n"
           "  deepinfer serve --port 9000 --keys keys.txt --access-log requests.jsonl\n"
           "  deepinfer serve --print-config > serve.toml && deepinfer serve --config serve.toml\n"
           "  deepinfer serve --port 8081 --worker-port 8101      # for deepinfer route --workers 127.0.0.1:8101\n"
           "  curl http://127.0.0.1:8080/v1/chat/completions -H 'Content-Type: application/json' \\\n"
           "    -d '{\"model\": \"tiny-v41\", \"messages\": [{\"role\": \"user\", \"content\": \"Hello\"}]}'";
  }
  std::vector<Field> fields() override {
    std::vector<Field> all = fields_of(settings_);
    const std::vector<Field> worker = fields_of(worker_);
    all.insert(all.end(), worker.begin(), worker.end());
    return all;
  }
  Status read_config(const std::string& path, const std::vector<Field>& fields) override {
    return apply_config_file(path, fields);
  }

  Result<int> run() override {
    if (settings_.print_config) return finish_with(write_out(config_text(fields())));
    raise_file_limit();
    DI_TRY(const auto port, open_worker_port());
    const std::string state = state_directory();
    DI_TRY(const auto server, Server::open(settings_, {DEEPINFER_VERSION, state, cache_directory()}));
    ProgressBar bar("loading");
    DI_CHECK_OK(server->load([&](int64_t done, int64_t total) { bar.show(done, total); },
                             [&](const HostSettings& settings, HostOptions options) {
                               options.pictures_only = worker_.role == "encode";
                               if (port) {
                                 options.pages_changed = [&](std::span<const PageChange> changes) { port->note_pages(changes); };
                                 options.metrics = [&] { return port->metrics(); };
                                 options.pictures_share = [&] {
                                   return static_cast<double>(port->num_running()) / kPicturesAtOnce;
                                 };
                               }
                               return Host::open(settings, std::move(options));
                             }));
    bar.clear();
    if (const std::string& store = server->host().store_summary(); !store.empty()) print_note(store);
    if (const std::string pages = port ? port->transport() : ""; !pages.empty()) print_note(pages);
    readiness_ = [&] { return server->readiness(); };
    if (port) port->serve(server->host());
    std::optional<Registration> entry;  // once it can serve, and until it has drained
    if (port && !worker_.cluster.etcd.empty()) {
      DI_TRY(MembershipOptions membership, worker_.cluster.membership());
      const std::string epoch = fmt::format("{}-{}", DateClock().now_us(), ::getpid());
      entry.emplace(std::move(membership), Member{.at = {advertised_host(), port->port()}, .epoch = epoch, .role = worker_.role},
                    print_note);
    }
    const std::string too = port ? fmt::format(", for routers on port {}", port->port()) : "";
    serve_until_signal(settings_, *server, too, port.get());
    return kExitOk;
  }

 private:
  const std::string& advertised_host() const { return worker_.advertise.empty() ? worker_.address : worker_.advertise; }

  // Before the model loads: a port that is taken is told at once.
  Result<std::unique_ptr<WorkerPort>> open_worker_port() {
    if (worker_.port == 0 && !worker_.cluster.etcd.empty())
      return invalid_argument("--etcd enters the port for routers: it needs --worker-port N");
    const auto role = std::find(std::begin(kWorkerRoleNames), std::end(kWorkerRoleNames), worker_.role);
    if (worker_.port == 0 && role != std::begin(kWorkerRoleNames))
      return invalid_argument("--role " + worker_.role + " is for routers: it needs --worker-port N");
    if (worker_.port == 0) return std::unique_ptr<WorkerPort>();
    DI_TRY(LinkSecurity security, worker_.cluster.security());
    if (!security.is_any() && !is_loopback(worker_.address))
      return invalid_argument("--worker-host " + worker_.address +
                              ": beyond this machine a worker port needs --cluster-secret FILE or --cluster-cert FILE");
    if (!worker_.cluster.etcd.empty()) {
      DI_TRY(const MembershipOptions checked, worker_.cluster.membership());
      if (advertised_host() == "0.0.0.0" || advertised_host() == "::")
        return invalid_argument("--worker-host " + worker_.address + ": routers need --advertise HOST, by which they find it");
    }
    return WorkerPort::open({.hub = {.security = std::move(security),
                                     .address = worker_.address,
                                     .port = static_cast<uint16_t>(worker_.port),
                                     .lane = worker_.cluster.lane()},
                             .readiness = [this] { return readiness_(); },
                             .role = static_cast<WorkerRole>(role - std::begin(kWorkerRoleNames)),
                             .page_port = static_cast<uint16_t>(worker_.page_port)});
  }

  ServeSettings settings_;
  WorkerSettings worker_;
  std::function<Status()> readiness_ = [] { return Status(Error{ErrorCode::kUnavailable, "loading"}); };
};

}  // namespace

std::unique_ptr<Command> make_serve_command() { return std::make_unique<ServeCommand>(); }

}  // namespace deepinfer
