#include "apps/serve_process.h"

#include <fmt/format.h>
#include <sys/resource.h>
#include <unistd.h>

#include "apps/command.h"
#include "apps/environment.h"
#include "apps/terminal.h"

namespace deepinfer {
namespace {

constexpr unsigned kLeaveSeconds = 15;

}  // namespace

void raise_file_limit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}

bool is_loopback(const std::string& address) { return address == "localhost" || address.starts_with("127.") || address == "::1"; }

void serve_until_signal(const ServeSettings& settings, Server& server, const std::string& too, WorkerPort* port) {
  // Until here a signal ends the program at once: nothing is running yet.
  const StopSignals& signals = catch_stop_signals();
  static_cast<void>(write_out(fmt::format("deepinfer serves {} on {}{}\n", server.host().facts().model, server.url(), too)));
  if (!is_loopback(settings.address) && settings.keys.empty())
    print_note("whoever can reach this machine may use the server; --keys FILE asks for keys");
  while (signals.count() == 0) signals.wait_ms(1000);
  print_note(fmt::format("stopping: answers may finish within {} s; a second signal leaves now", settings.drain_timeout));
  if (port) port->drain();
  server.drain();
  const auto is_busy = [&] { return !server.is_drained() || (port && port->num_running() > 0); };
  for (int64_t left_ms = static_cast<int64_t>(settings.drain_timeout * 1000.0F); left_ms > 0 && signals.count() < 2 && is_busy();
       left_ms -= 20)
    signals.wait_ms(20);
  // What a thread is at, decoding pictures say, is waited for by nobody for long.
  ::alarm(signals.count() >= 2 ? 1 : kLeaveSeconds);
  if (port) port->withdraw();
  server.stop();
}

}  // namespace deepinfer
