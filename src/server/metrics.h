// server/metrics.h - what an operator watches, in the text form of Prometheus.
//
// Names are stable: deepinfer_... with unit and _total as is the custom (docs/serve.md lists them). Gauges of the engine and of
// the process are read when somebody asks.
// Threads: any; counters are atomic.
//
//   Metrics metrics;
//   metrics.count_request("/v1/models", "GET", 200, 0.001);
//   std::string text = metrics.text(engine_stats, ...);
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "engine/engine.h"
#include "net/http_server.h"

namespace deepinfer {

class Metrics {
 public:
  Metrics();
  ~Metrics();

  void count_request(const std::string& route, const std::string& method, int status, double seconds);
  // Seconds to the first token and between tokens of an answer.
  void count_answer(int64_t prompt_tokens, int64_t completion_tokens, double first_token_seconds);
  // An answer that nobody waited for: client_gone, slow_reader, stopped, deadline.
  void count_aborted(const std::string& reason);

  struct Reading {
    HttpServerStats http;
    EngineStats engine;
    bool has_engine = false;
    bool ready = false;
    double step_age_seconds = 0;
    double utilisation = 0, queue_seconds = 0, prefill_per_decode = 0;  // as /scale tells them
    bool breach_predicted = false;
    size_t stored_responses = 0, stored_bytes = 0;
    size_t body_bytes_at_work = 0;
    std::string version;
  };
  std::string text(const Reading& reading) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace deepinfer
