// server/response_routes.h - kept responses: retrieve, delete, cancel, what they were asked.
//
// A response belongs to the key that asked for it; to others it does not exist.
// Threads: the server's.
#pragma once

#include "server/context.h"

namespace deepinfer {

void answer_kept_response(ServerContext& context, Call& call);

}  // namespace deepinfer
