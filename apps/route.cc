// deepinfer route: the HTTP server in front of workers (deepinfer serve --worker-port).
#include "cluster/router.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "apps/commands.h"
#include "apps/environment.h"
#include "apps/serve_process.h"
#include "apps/terminal.h"
#include "base/nearest.h"

namespace deepinfer {
namespace {

struct RouteSettings {
  ServeSettings serve;
  std::string workers, secret, policy = "default";
  float wait = 60;
  void visit(FieldVisitor visit) {
    visit({.name = "workers",
           .target = &workers,
           .help = "worker ports of deepinfer serve --worker-port",
           .value = "HOST:PORT,..."});
    visit({.name = "cluster-secret",
           .target = &secret,
           .help = "file with the secret that routers and workers share",
           .value = "FILE"});
    visit({.name = "policy",
           .target = &policy,
           .help = "which worker gets a prompt",
           .choices = {std::begin(kRoutingPolicyNames), std::end(kRoutingPolicyNames)}});
    visit({.name = "wait-for-workers",
           .target = &wait,
           .help = "how long to wait for the first one at the start",
           .value = "S",
           .min = 0,
           .max = 1e6});
    visit({.name = "model",
           .target = &serve.host.model,
           .help = "folder of the workers' model, for its tokenizer [the shipped model]",
           .value = "DIR",
           .letter = 'm'});
    // Slots and queues are the workers'.
    serve.visit_server([&](const Field& field) {
      if (field.name != "batch" && field.name != "queue") visit(field);
    });
  }
};

class RouteCommand final : public Command {
 public:
  std::string name() const override { return "route"; }
  std::string summary() const override { return "one address in front of many workers: place, relay, carry on"; }
  std::string examples() const override {
    return "  deepinfer serve --port 8081 --worker-port 8101 &\n"
           "  deepinfer serve --port 8082 --worker-port 8102 &\n"
           "  deepinfer route --workers 127.0.0.1:8101,127.0.0.1:8102\n"
           "  deepinfer route --workers gpu1:8101,gpu2:8101 --cluster-secret secret.txt --keys keys.txt --host 0.0.0.0";
  }
  std::vector<Field> fields() override { return fields_of(settings_); }
  Status read_config(const std::string& path, const std::vector<Field>& fields) override {
    return apply_config_file(path, fields);
  }

  Result<int> run() override {
    if (settings_.serve.print_config) return finish_with(write_out(config_text(fields_of(settings_))));
    raise_file_limit();
    RouterOptions options;
    DI_TRY(options.workers, parse_worker_addresses(settings_.workers));
    if (options.workers.empty()) return invalid_argument("a router needs at least one worker: --workers HOST:PORT,...");
    DI_TRY(options.secret, read_cluster_secret(settings_.secret));
    options.policy = *routing_policy_of(settings_.policy);
    options.stall_us = static_cast<int64_t>(static_cast<double>(settings_.serve.stall_limit) * 1e6);
    DI_TRY(const auto server, Server::open(settings_.serve, {DEEPINFER_VERSION, state_directory(), ""}));
    DI_CHECK_OK(server->load({}, [&](const HostSettings& settings, HostOptions host_options) {
      return open_host(options, settings, std::move(host_options));
    }));
    serve_until_signal(settings_.serve, *server, fmt::format(", {} workers behind it", options.workers.size()), nullptr);
    return kExitOk;
  }

 private:
  Result<std::unique_ptr<Host>> open_host(RouterOptions options, const HostSettings& settings, HostOptions host_options) {
    options.settled = host_options.step_end;
    DI_TRY(auto router, Router::open(std::move(options)));
    DI_TRY(const ServiceFacts facts, router->wait_for_facts(static_cast<int64_t>(static_cast<double>(settings_.wait) * 1e6)));
    Router* const there = router.get();
    return Host::open_remote(settings, std::move(host_options),
                             {.service = std::move(router),
                              .facts = facts,
                              .health = [there] { return there->health(); },
                              .tower = [there](const PreparedImage& image) { return there->encode(image); },
                              .leave = [there] { there->leave(); },
                              .scale = [there](std::string_view role) { return there->scale(role); },
                              .metrics = [there] { return metrics_text(there->stats()); }});
  }

  RouteSettings settings_;
};

}  // namespace

std::unique_ptr<Command> make_route_command() { return std::make_unique<RouteCommand>(); }

}  // namespace deepinfer
