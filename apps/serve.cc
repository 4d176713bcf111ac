// deepinfer serve: the HTTP server.
#include "server/server.h"

#include <fmt/format.h>
#include <sys/resource.h>
#include <unistd.h>

#include <thread>

#include "apps/commands.h"
#include "apps/environment.h"
#include "apps/terminal.h"

namespace deepinfer {
namespace {

// Connections need file handles; the soft limit is often 1,024 where the hard one is far above.
void raise_file_limit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}

class ServeCommand final : public Command {
 public:
  std::string name() const override { return "serve"; }
  std::string summary() const override { return "serve the model over HTTP, with a chat page"; }
  std::string examples() const override {
    return "  deepinfer serve\n"
           "  deepinfer serve --port 9000 --keys keys.txt --access-log requests.jsonl\n"
           "  deepinfer serve --print-config > serve.toml && deepinfer serve --config serve.toml\n"
           "  curl http://127.0.0.1:8080/v1/chat/completions -H 'Content-Type: application/json' \\\n"
           "    -d '{\"model\": \"tiny-v41\", \"messages\": [{\"role\": \"user\", \"content\": \"Hello\"}]}'";
  }
  std::vector<Field> fields() override { return fields_of(settings_); }
  Status read_config(const std::string& path, const std::vector<Field>& fields) override {
    return apply_config_file(path, fields);
  }

  Result<int> run() override {
    if (settings_.print_config) return finish_with(write_out(config_text(fields_of(settings_))));
    raise_file_limit();
    const std::string state = state_directory();
    DI_TRY(const auto server, Server::open(settings_, {DEEPINFER_VERSION, state, cache_directory()}));
    ProgressBar bar("loading");
    DI_CHECK_OK(server->load([&](int64_t done, int64_t total) { bar.show(done, total); }));
    bar.clear();
    if (const std::string& store = server->host().store_summary(); !store.empty()) print_note(store);
    // Until here a signal ends the program at once: nothing is running yet.
    const StopSignals& signals = catch_stop_signals();
    DI_CHECK_OK(write_out(fmt::format("deepinfer serves {} on {}\n", server->host().model().name(), server->url())));
    const bool is_local = settings_.address == "localhost" || settings_.address.starts_with("127.") || settings_.address == "::1";
    if (!is_local && settings_.keys.empty())
      print_note("whoever can reach this machine may use the server; --keys FILE asks for keys");
    while (signals.count() == 0) signals.wait_ms(1000);
    print_note(fmt::format("stopping: answers may finish within {} s; a second signal leaves now", settings_.drain_timeout));
    server->drain();
    while (signals.count() < 2 && !server->is_drained()) signals.wait_ms(20);
    // What a worker is at, decoding pictures say, is not waited for.
    if (signals.count() >= 2) ::alarm(1);
    server->stop();
    return kExitOk;
  }

 private:
  ServeSettings settings_;
};

}  // namespace

std::unique_ptr<Command> make_serve_command() { return std::make_unique<ServeCommand>(); }

}  // namespace deepinfer
