// deepinfer route: the HTTP server in front of workers (deepinfer serve --worker-port).
#include "cluster/router.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <charconv>

#include "apps/cluster_settings.h"
#include "apps/commands.h"
#include "apps/environment.h"
#include "apps/serve_process.h"
#include "apps/terminal.h"
#include "base/nearest.h"

namespace deepinfer {
namespace {

// Of a cluster in etcd: each costs a bit of every page that is known.
constexpr int32_t kMostWorkers = 128;

struct RouteSettings {
  ServeSettings serve;
  std::string workers, policy = "default";
  std::string objective;
  ClusterSettings cluster;
  float wait = 60;
  void visit(FieldVisitor visit) {
    visit({.name = "workers",
           .target = &workers,
           .help = "worker ports of deepinfer serve --worker-port",
           .value = "HOST:PORT,..."});
    cluster.visit(visit);
    visit({.name = "policy",
           .target = &policy,
           .help = "which worker gets a prompt",
           .choices = {std::begin(kRoutingPolicyNames), std::end(kRoutingPolicyNames)}});
    visit({.name = "first-token-objective",
           .target = &objective,
           .help = "refuse what would begin later than so many seconds: 10, or by class: chat=5,agent=20 [any time]",
           .value = "S|CLASS=S,..."});
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

// By RetentionClass; a number alone is for all of them.
Result<std::array<int64_t, 4>> parse_objectives(const std::string& text) {
  constexpr std::string_view kClasses[] = {"session", "agent", "chat", "pinned"};
  std::array<int64_t, 4> out{};
  for (size_t at = 0; at < text.size();) {
    const size_t comma = std::min(text.find(',', at), text.size());
    const std::string one = text.substr(at, comma - at);
    at = comma + 1;
    const size_t equals = one.find('=');
    const std::string name = equals == std::string::npos ? "" : one.substr(0, equals);
    const char* digits = one.data() + (equals == std::string::npos ? 0 : equals + 1);
    const auto* known = std::find(std::begin(kClasses), std::end(kClasses), name);
    double seconds = 0;
    const bool reads = std::from_chars(digits, one.data() + one.size(), seconds).ptr == one.data() + one.size() && seconds > 0;
    if (!reads || seconds > 1e6 || (known == std::end(kClasses) && equals != std::string::npos))
      return invalid_argument("--first-token-objective '" + one +
                              "': seconds, or CLASS=seconds for session, agent, chat, pinned");
    for (size_t i = 0; i < out.size(); ++i) {
      if (equals == std::string::npos || kClasses[i] == name) out[i] = static_cast<int64_t>(seconds * 1e6);
    }
  }
  return out;
}

class RouteCommand final : public Command {
 public:
  std::string name() const override { return "route"; }
  std::string summary() const override { return "one address in front of many workers: place, relay, carry on"; }
  std::string examples() const override {
    return "  deepinfer serve --port 8081 --worker-port 8101 &\n"
           "  deepinfer serve --port 8082 --worker-port 8102 &\n"
           "  deepinfer route --workers 127.0.0.1:8101,127.0.0.1:8102\n"
           "  deepinfer route --workers gpu1:8101,gpu2:8101 --cluster-secret secret.txt --keys keys.txt --host 0.0.0.0\n"
           "  deepinfer route --etcd http://10.0.0.5:2379 --cluster blue --cluster-secret secret.txt";
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
    const bool by_etcd = !settings_.cluster.etcd.empty();
    if (options.workers.empty() != by_etcd)
      return invalid_argument("a router needs --workers HOST:PORT,... or --etcd URL,... to find its workers, and not both");
    if (by_etcd) options.slots = kMostWorkers;
    DI_TRY(options.security, settings_.cluster.security());
    options.lane = settings_.cluster.lane();
    DI_TRY(options.first_token_us, parse_objectives(settings_.objective));
    options.policy = *routing_policy_of(settings_.policy);
    options.stall_us = static_cast<int64_t>(static_cast<double>(settings_.serve.stall_limit) * 1e6);
    DI_TRY(const auto server, Server::open(settings_.serve, {DEEPINFER_VERSION, state_directory(), ""}));
    DI_CHECK_OK(server->load({}, [&](const HostSettings& settings, HostOptions host_options) {
      return open_host(options, settings, std::move(host_options));
    }));
    const std::string behind = by_etcd ? "workers of etcd" : fmt::format("{} workers", options.workers.size());
    serve_until_signal(settings_.serve, *server, fmt::format(", {} behind it", behind), nullptr);
    return kExitOk;
  }

 private:
  Result<std::unique_ptr<Host>> open_host(RouterOptions options, const HostSettings& settings, HostOptions host_options) {
    options.settled = host_options.step_end;
    DI_TRY(auto router, Router::open(std::move(options)));
    std::shared_ptr<MemberWatch> watch;  // it must end before the router
    if (!settings_.cluster.etcd.empty()) {
      DI_TRY(MembershipOptions membership, settings_.cluster.membership());
      const auto changed = [there = router.get()](std::vector<Member> members) { there->set_workers(std::move(members)); };
      watch = std::make_shared<MemberWatch>(std::move(membership), changed, print_note);
    }
    DI_TRY(const ServiceFacts facts, router->wait_for_facts(static_cast<int64_t>(static_cast<double>(settings_.wait) * 1e6)));
    Router* const there = router.get();
    return Host::open_remote(settings, std::move(host_options),
                             {.service = std::move(router),
                              .facts = facts,
                              .health = [there] { return there->health(); },
                              .tower = [there](const PreparedImage& image) { return there->encode(image); },
                              .leave =
                                  [there, watch] {
                                    if (watch) watch->stop();
                                    there->leave();
                                  },
                              .scale = [there](std::string_view role) { return there->scale(role); },
                              .metrics = [there] { return metrics_text(there->stats()); }});
  }

  RouteSettings settings_;
};

}  // namespace

std::unique_ptr<Command> make_route_command() { return std::make_unique<RouteCommand>(); }

}  // namespace deepinfer
