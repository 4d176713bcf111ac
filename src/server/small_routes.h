// server/small_routes.h - routes that answer by themselves: page, health, metrics, models, tokens.
//
// Threads: the server's.
#pragma once

#include "server/context.h"
#include "server/health.h"

namespace deepinfer {

Readiness readiness_of(const ServerContext& context);

void answer_console(Call& call);
// `says_why`: the caller has a key, or none is needed; the reason speaks of what others do.
void answer_ready(const ServerContext& context, Call& call, bool says_why);
// For a 429: how long prompts wait now.
int retry_after_seconds(const ServerContext& context);
void answer_scale(const ServerContext& context, Call& call);
void answer_metrics(const ServerContext& context, Call& call);
void answer_cache_why(const ServerContext& context, Call& call);
void answer_models(const ServerContext& context, Call& call);
void answer_model(const ServerContext& context, Call& call);
void answer_tokenize(ServerContext& context, const CallPtr& call);
void answer_detokenize(ServerContext& context, const CallPtr& call);

}  // namespace deepinfer
