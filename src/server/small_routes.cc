#include "server/small_routes.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "host/prefix_report.h"
#include "server/body_work.h"
#include "server/console.h"

namespace deepinfer {

Readiness readiness_of(const ServerContext& context) {
  const auto limit_us = static_cast<int64_t>(static_cast<double>(context.settings.stall_limit) * 1e6);
  return readiness_of(context.host, context.draining, limit_us);
}

void answer_console(Call& call) {
  call.headers.set("etag", std::string(console_etag()));
  call.headers.set("cache-control", "no-cache");
  call.headers.set("x-content-type-options", "nosniff");
  call.headers.set("x-frame-options", "DENY");
  call.headers.set("referrer-policy", "no-referrer");
  if (call.request().headers.get("if-none-match") == console_etag()) return call.respond(304, "text/html; charset=utf-8", "");
  call.respond(200, "text/html; charset=utf-8", std::string(console_page()));
}

void answer_ready(const ServerContext& context, Call& call, bool says_why) {
  const Readiness readiness = readiness_of(context);
  Json body = Json::object({{"status", readiness.state}});
  if (!readiness.reason.empty() && says_why) body.set("reason", readiness.reason);
  if (!readiness.ready) call.headers.set("retry-after", "1");
  call.headers.set("cache-control", "no-store");
  call.respond_json(readiness.ready ? 200 : 503, body);
}

namespace {

double per_second(const StepTimes& times) {
  return times.us > 0 ? 1e6 * static_cast<double>(times.rows) / static_cast<double>(times.us) : 0;
}

PhaseRates rates_of(const EngineStats& stats) {
  if (stats.ended == 0) return {};
  const auto ended = static_cast<double>(stats.ended);
  return {
      .prefill_tokens_s = per_second(stats.times[static_cast<size_t>(StepKind::kPrefill)]),
      .decode_tokens_s = per_second(stats.times[static_cast<size_t>(StepKind::kDecode)]),
      .uncached_prompt_tokens = static_cast<double>(std::max<int64_t>(0, stats.prompt_tokens - stats.prefix.hit_tokens)) / ended,
      .output_tokens = static_cast<double>(stats.completion_tokens) / ended};
}

ScaleSample scale_sample(Host& host, bool ready) {
  if (!host.is_local()) return host.remote().scale("");
  const EngineStats stats = host.engine().stats();
  const StepTimes& prompts = stats.times[static_cast<size_t>(StepKind::kPrefill)];
  const double us_per_row = prompts.rows > 0 ? static_cast<double>(prompts.us) / static_cast<double>(prompts.rows) : 0;
  const double mean_prompt = stats.ended > 0 ? static_cast<double>(stats.prompt_tokens) / static_cast<double>(stats.ended) : 0;
  return {.workers = ready ? 1 : 0,
          .kv_share = stats.pages > 0 ? static_cast<double>(stats.leased_pages) / stats.pages : 0,
          .active_share = static_cast<double>(stats.running + stats.waiting) / std::max(1, host.facts().max_batch),
          .queue_seconds = stats.waiting * mean_prompt * us_per_row * 1e-6,
          .rates = rates_of(stats)};
}

}  // namespace

int retry_after_seconds(const ServerContext& context) {
  if (!context.host) return 1;
  return static_cast<int>(std::clamp(std::ceil(scale_sample(*context.host, true).queue_seconds), 1.0, 600.0));
}

void answer_scale(const ServerContext& context, Call& call) {
  const double target = static_cast<double>(context.settings.target_first_token);
  const auto described = [&](const ScaleSample& sample) {
    return Json::object({{"workers_ready", int64_t{sample.workers}},
                         {"utilisation", utilisation(sample, target)},
                         {"kv_share", sample.kv_share},
                         {"active_share", sample.active_share},
                         {"queue_seconds", sample.queue_seconds},
                         {"target_first_token_seconds", target},
                         {"breach_predicted", sample.queue_seconds > target},
                         {"prefill_tokens_per_second", sample.rates.prefill_tokens_s},
                         {"decode_tokens_per_second", sample.rates.decode_tokens_s},
                         {"uncached_prompt_tokens", sample.rates.uncached_prompt_tokens},
                         {"output_tokens", sample.rates.output_tokens},
                         {"prefill_per_decode", prefill_per_decode(sample.rates)}});
  };
  Json body = described(scale_sample(*context.host, readiness_of(context).ready));
  Json roles = Json::object({});
  for (const char* role : {"all", "encode", "prefill", "decode"}) {
    const ScaleSample sample = context.host->is_local() ? ScaleSample() : context.host->remote().scale(role);
    if (sample.workers > 0) roles.set(role, described(sample));
  }
  if (!context.host->is_local()) {
    body.set("roles", std::move(roles));
  } else if (const RankStats ranks = context.host->engine().stats().ranks; ranks.ranks > 1) {
    body.set("ranks", int64_t{ranks.ranks});
    body.set("rank_imbalance", ranks.imbalance());
  }
  call.headers.set("cache-control", "no-store");
  call.respond_json(200, body);
}

void answer_metrics(const ServerContext& context, Call& call) {
  Metrics::Reading reading;
  reading.http = context.http->stats();
  reading.has_engine = context.host && context.host->is_local();
  if (reading.has_engine) {
    reading.engine = context.host->engine().stats();
    reading.step_age_seconds = static_cast<double>(context.host->engine().progress().since_us) / 1e6;
  }
  reading.ready = readiness_of(context).ready;
  if (context.host) {
    const ScaleSample sample = scale_sample(*context.host, reading.ready);
    const double target = static_cast<double>(context.settings.target_first_token);
    reading.utilisation = utilisation(sample, target);
    reading.queue_seconds = sample.queue_seconds;
    reading.breach_predicted = sample.queue_seconds > target;
    reading.prefill_per_decode = prefill_per_decode(sample.rates);
  }
  reading.stored_responses = context.responses->size();
  reading.stored_bytes = context.responses->bytes();
  reading.body_bytes_at_work = context.body_bytes_at_work;
  reading.version = context.version;
  std::string text = context.metrics.text(reading);
  if (context.host && context.host->remote().metrics) text += context.host->remote().metrics();
  call.respond(200, "text/plain; version=0.0.4; charset=utf-8", std::move(text));
}

void answer_cache_why(const ServerContext& context, Call& call) {
  const CacheLog::Entry* entry = context.cache_log.find(call.params[0], call.key);
  if (!entry) {
    return call.fail(404, fmt::format("no answer `{}` is known here: the last few thousand are, by their x-request-id",
                                      call.params[0].substr(0, 200)));
  }
  Json body = Json::object({{"request_id", entry->request_id}});
  const Json report = prefix_report(entry->verdict, entry->prompt_tokens, context.host->tokenizer(), entry->map);
  for (const auto& [name, value] : report.members()) body.set(name, value);
  call.respond_json(200, body);
}

void answer_models(const ServerContext& context, Call& call) { call.respond_json(200, model_list(context.cards)); }

void answer_model(const ServerContext& context, Call& call) {
  for (const ModelCard& card : context.cards) {
    if (card.id == call.params[0]) return call.respond_json(200, model_json(card));
  }
  call.fail(404, fmt::format("The model `{}` does not exist here", call.params[0].substr(0, 200)));
}

void answer_tokenize(ServerContext& context, const CallPtr& call) {
  work_on_body(context, call, [&context, call](const std::string& body) -> Reply {
    const auto tokens = [&]() -> Result<Json> {
      DI_TRY(const TokenizeRequest request, parse_tokenize_request(body));
      DI_TRY(const auto ids, context.host->tokenize(request.text, request.add_special_tokens, request.parse_special));
      return tokenize_json(ids, context.host->facts().context);
    };
    return [call, answer = tokens()] { answer ? call->respond_json(200, *answer) : call->fail(answer.error()); };
  });
}

void answer_detokenize(ServerContext& context, const CallPtr& call) {
  work_on_body(context, call, [&context, call](const std::string& body) -> Reply {
    const auto text = [&]() -> Result<Json> {
      DI_TRY(const auto ids, parse_detokenize_request(body, context.host->tokenizer().vocab_size()));
      return detokenize_json(context.host->tokenizer().decode(ids));
    };
    return [call, answer = text()] { answer ? call->respond_json(200, *answer) : call->fail(answer.error()); };
  });
}

}  // namespace deepinfer
