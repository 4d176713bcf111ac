// apps/serve_process.h - what `serve` and `route` have in common as processes.
#pragma once

#include <string>

#include "base/result.h"
#include "cluster/worker_port.h"
#include "server/server.h"

namespace deepinfer {

// Connections need file handles; the soft limit is often 1,024 where the hard one is far above.
void raise_file_limit();

bool is_loopback(const std::string& address);

// Says where it serves, waits for TERM or INT, drains, stops. `port` may be null; it is drained, too.
void serve_until_signal(const ServeSettings& settings, Server& server, const std::string& too, WorkerPort* port);

}  // namespace deepinfer
