#include "server/metrics.h"

#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>
#include <prometheus/text_serializer.h>
#include <sys/resource.h>
#include <unistd.h>

#include <fstream>
#include <map>
#include <mutex>

namespace deepinfer {

namespace {

using Buckets = prometheus::Histogram::BucketBoundaries;

const Buckets kSeconds = {0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300};

double seconds_of(const timeval& time) { return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) / 1e6; }

double resident_bytes() {
  std::ifstream file("/proc/self/statm");
  int64_t total = 0, resident = 0;
  file >> total >> resident;
  return static_cast<double>(resident * sysconf(_SC_PAGESIZE));
}

// A single value under its own name, as the serializer takes it.
prometheus::MetricFamily family(const char* name, const char* help, prometheus::MetricType type, double value,
                                std::vector<prometheus::ClientMetric::Label> labels = {}) {
  prometheus::ClientMetric metric;
  metric.label = std::move(labels);
  if (type == prometheus::MetricType::Counter) {
    metric.counter.value = value;
  } else {
    metric.gauge.value = value;
  }
  return {name, help, type, {metric}};
}

// Steps by kind.
void add_steps(const EngineStats& engine, std::vector<prometheus::MetricFamily>& all) {
  using prometheus::MetricType;
  std::vector<prometheus::ClientMetric> counts, seconds;
  for (size_t i = 0; i < kNumStepKinds; ++i) {
    prometheus::ClientMetric metric;
    metric.label = {{"kind", step_kind_name(static_cast<StepKind>(i))}};
    metric.counter.value = static_cast<double>(engine.times[i].steps);
    counts.push_back(metric);
    metric.counter.value = static_cast<double>(engine.times[i].us) / 1e6;
    seconds.push_back(metric);
  }
  all.push_back({"deepinfer_engine_steps_by_kind_total", "Steps by what their rows are", MetricType::Counter, counts});
  all.push_back({"deepinfer_engine_step_seconds_total", "Time of steps by what their rows are", MetricType::Counter, seconds});
}

// Nothing with one rank.
void add_ranks(const RankStats& ranks, std::vector<prometheus::MetricFamily>& all) {
  using prometheus::MetricType;
  if (ranks.ranks == 1) return;
  prometheus::MetricFamily work{
      "deepinfer_rank_work_rows_total", "Work of each rank, in rows without context", MetricType::Counter, {}};
  for (int32_t r = 0; r < ranks.ranks; ++r) {
    prometheus::ClientMetric metric;
    metric.label = {{"rank", std::to_string(r)}};
    metric.counter.value = ranks.work[static_cast<size_t>(r)];
    work.metric.push_back(std::move(metric));
  }
  all.push_back(std::move(work));
  all.push_back(family("deepinfer_rank_busiest_rows_total", "Work of the rank with most of it in each step", MetricType::Counter,
                       ranks.busiest));
  all.push_back(family("deepinfer_rank_imbalance", "Busiest rank over the mean of all, in the mean of steps since the start",
                       MetricType::Gauge, ranks.imbalance()));
}

void add_prefix(const PrefixStats& prefix, std::vector<prometheus::MetricFamily>& all) {
  const auto counter = [&](const char* name, const char* help, int64_t value) {
    all.push_back(family(name, help, prometheus::MetricType::Counter, static_cast<double>(value)));
  };
  counter("deepinfer_prefix_lookups_total", "Prompts looked up in the prefix cache", prefix.lookups);
  counter("deepinfer_prefix_hits_total", "Prompts of which a page was there", prefix.hits);
  counter("deepinfer_prefix_lookup_tokens_total", "Tokens of prompts looked up", prefix.lookup_tokens);
  counter("deepinfer_prefix_hit_tokens_total", "Tokens served from pages", prefix.hit_tokens);
  counter("deepinfer_prefix_replayed_tokens_total", "Of those, tokens run again to rebuild what pages do not hold",
          prefix.replayed_tokens);
  counter("deepinfer_prefix_published_pages_total", "Pages published", prefix.published_pages);
  counter("deepinfer_prefix_evicted_pages_total", "Pages that had to make room", prefix.evicted_pages);
}

// Nothing without a store.
void add_store(const StoreTierStats& store, std::vector<prometheus::MetricFamily>& all) {
  using prometheus::MetricType;
  if (!store.on) return;
  const auto add = [&](const char* name, const char* help, MetricType type, double value, const char* label = "",
                       const char* is = "") {
    if (!*label) return all.push_back(family(name, help, type, value));
    if (all.back().name != name) all.push_back({name, help, type, {}});
    all.back().metric.push_back(family(name, help, type, value, {{label, is}}).metric[0]);
  };
  const auto counter = [&](const char* name, const char* help, int64_t value, const char* label = "", const char* is = "") {
    add(name, help, MetricType::Counter, static_cast<double>(value), label, is);
  };
  const SegmentStoreStats& segments = store.segments;
  add("deepinfer_store_segments", "Segment files", MetricType::Gauge, static_cast<double>(segments.segments));
  add("deepinfer_store_bytes", "Bytes in segment files", MetricType::Gauge, static_cast<double>(segments.stored_bytes));
  add("deepinfer_store_index_bytes", "Memory of the index", MetricType::Gauge, static_cast<double>(segments.index_bytes));
  add("deepinfer_store_read_bytes_per_second", "Measured by the last loads, 0 = not yet", MetricType::Gauge,
      store.read_bytes_per_us * 1e6);
  counter("deepinfer_store_loads_total", "Prompts for which the store was read", store.loads);
  counter("deepinfer_store_loads_late_total", "Loads that ended by their deadline", store.late);
  counter("deepinfer_store_loaded_total", "What loads brought in time", store.loaded_pages, "kind", "page");
  counter("deepinfer_store_loaded_total", "", store.loaded_snapshots, "kind", "snapshot");
  counter("deepinfer_store_written_records_total", "Pages and snapshots written", segments.written_records);
  counter("deepinfer_store_written_bytes_total", "Bytes written", segments.written_bytes);
  counter("deepinfer_store_memory_bytes_total", "Bytes read that the memory in front of the disk had", segments.memory_bytes);
  counter("deepinfer_store_read_records_total", "Pages and snapshots read", segments.read_records);
  counter("deepinfer_store_read_bytes_total", "Bytes of them", segments.read_bytes);
  counter("deepinfer_store_not_stored_total", "Records that were not stored", store.dropped, "reason", "queue full");
  counter("deepinfer_store_not_stored_total", "", store.lost, "reason", "disk");
  counter("deepinfer_store_faults_total", "What the disk refused", segments.read_faults, "operation", "read");
  counter("deepinfer_store_faults_total", "", segments.write_faults, "operation", "write");
  counter("deepinfer_store_corrupt_total", "What failed a check and was forgotten", segments.corrupt_records, "reason", "record");
  counter("deepinfer_store_corrupt_total", "", segments.corrupt_segments, "reason", "segment");
  counter("deepinfer_store_corrupt_total", "", segments.wrong_records, "reason", "another's");
  counter("deepinfer_store_removed_segments_total", "Segments that expired or made room", segments.removed_segments);
}

// What speculation decides by: what a step takes, by rows and context, and a draft pass, by sequences.
void add_costs(const SpeculationStats& stats, std::vector<prometheus::MetricFamily>& all) {
  using prometheus::MetricType;
  const auto add = [](const CostTable& table, const char* label, const std::string& context, prometheus::MetricFamily& family) {
    for (size_t i = 0; i < table.size(); ++i) {
      if (table[i] == 0) continue;
      prometheus::ClientMetric metric;
      metric.label = {{label, std::to_string(first_rows(static_cast<int32_t>(i)))}};
      if (!context.empty()) metric.label.push_back({"context", context});
      metric.gauge.value = double{table[i]} / 1e6;
      family.metric.push_back(std::move(metric));
    }
  };
  prometheus::MetricFamily steps{
      "deepinfer_spec_step_seconds", "Cost table: a step, by its least rows and context", MetricType::Gauge, {}};
  prometheus::MetricFamily passes{
      "deepinfer_spec_pass_seconds", "Cost table: a draft pass, by its least sequences", MetricType::Gauge, {}};
  for (size_t at = 0; at < stats.step_costs.size(); ++at) {
    add(stats.step_costs[at], "rows", std::to_string(ContextCosts::first_context(at)), steps);
  }
  add(stats.pass_costs, "sequences", "", passes);
  all.push_back(std::move(steps));
  all.push_back(std::move(passes));
}

void add_calibration(const DraftControlStats& control, std::vector<prometheus::MetricFamily>& all) {
  prometheus::MetricFamily family{"deepinfer_spec_calibration_error",
                                  "How far the drafter's confidence is from what came, as it is and scaled",
                                  prometheus::MetricType::Gauge,
                                  {}};
  const auto add = [&](const char* confidence, const std::array<double, kMaxDraft>& errors) {
    for (size_t k = 0; k < errors.size() && (k == 0 || errors[k] > 0); ++k) {
      prometheus::ClientMetric metric;
      metric.label = {{"place", std::to_string(k + 1)}, {"confidence", confidence}};
      metric.gauge.value = errors[k];
      family.metric.push_back(std::move(metric));
    }
  };
  add("as given", control.error_unscaled);
  add("scaled", control.error_scaled);
  all.push_back(std::move(family));
}

// Places of a block count from 1, as people do.
void add_speculation(const SpeculationStats& stats, std::vector<prometheus::MetricFamily>& all) {
  using prometheus::MetricType;
  const auto by_place = [&](const char* name, const char* help, const std::array<int64_t, kMaxDraft>& counts) {
    prometheus::MetricFamily whole = family(name, help, MetricType::Counter, static_cast<double>(counts[0]), {{"place", "1"}});
    for (size_t k = 1; k < counts.size() && counts[k] > 0; ++k) {
      auto one = family(name, help, MetricType::Counter, static_cast<double>(counts[k]), {{"place", std::to_string(k + 1)}});
      whole.metric.push_back(one.metric[0]);
    }
    all.push_back(std::move(whole));
  };
  const auto add = [&](const char* name, const char* help, MetricType type, double value) {
    all.push_back(family(name, help, type, value));
  };
  by_place("deepinfer_spec_drafted_total", "Drafts made that might have been verified, by place in the block", stats.drafted);
  by_place("deepinfer_spec_verified_total", "Drafts verified, by place in the block", stats.verified);
  by_place("deepinfer_spec_accepted_total", "Drafts accepted, by place in the block", stats.accepted);
  add("deepinfer_spec_passes_total", "Draft passes", MetricType::Counter, static_cast<double>(stats.passes));
  add("deepinfer_spec_draft_seconds_total", "Time of draft passes", MetricType::Counter, stats.draft_us / 1e6);
  add("deepinfer_spec_verify_seconds_total", "Time of steps behind a draft pass", MetricType::Counter, stats.verify_us / 1e6);
  add("deepinfer_spec_gained_tokens", "Tokens won by speculation so far, negative = lost", MetricType::Gauge,
      stats.control.gained_tokens);
  add("deepinfer_spec_gained_seconds", "Time won by speculation so far, negative = lost", MetricType::Gauge,
      stats.control.gained_us / 1e6);
  add("deepinfer_spec_pauses_total", "Times drafting stopped because it did not pay", MetricType::Counter,
      static_cast<double>(stats.control.pauses));
  add("deepinfer_spec_calibration_fits_total", "Times the scaling was fitted", MetricType::Counter,
      static_cast<double>(stats.control.fits));
  add_calibration(stats.control, all);
  add_costs(stats, all);
}

}  // namespace

struct Metrics::State {
  prometheus::Registry registry;
  prometheus::Family<prometheus::Counter>& requests =
      prometheus::BuildCounter().Name("deepinfer_http_requests_total").Help("Requests answered").Register(registry);
  prometheus::Family<prometheus::Histogram>& durations = prometheus::BuildHistogram()
                                                             .Name("deepinfer_http_request_seconds")
                                                             .Help("From the end of a request to the end of its answer")
                                                             .Register(registry);
  prometheus::Family<prometheus::Counter>& aborted =
      prometheus::BuildCounter().Name("deepinfer_requests_aborted_total").Help("Answers that were cut short").Register(registry);
  prometheus::Counter& prompt_tokens = prometheus::BuildCounter()
                                           .Name("deepinfer_prompt_tokens_total")
                                           .Help("Prompt tokens of finished answers")
                                           .Register(registry)
                                           .Add({});
  prometheus::Counter& completion_tokens = prometheus::BuildCounter()
                                               .Name("deepinfer_completion_tokens_total")
                                               .Help("Generated tokens of finished answers")
                                               .Register(registry)
                                               .Add({});
  prometheus::Histogram& first_token = prometheus::BuildHistogram()
                                           .Name("deepinfer_time_to_first_token_seconds")
                                           .Help("From the end of a request to its first token")
                                           .Register(registry)
                                           .Add({}, kSeconds);
  // Finding a series by its labels costs a map of strings; the few that exist are kept.
  std::mutex mutex;
  std::map<std::string, std::pair<prometheus::Counter*, prometheus::Histogram*>> by_label;
};

Metrics::Metrics() : state_(std::make_unique<State>()) {}
Metrics::~Metrics() = default;

void Metrics::count_request(const std::string& route, const std::string& method, int status, double seconds) {
  const std::string code = std::to_string(status), label = route + ' ' + method + ' ' + code;
  std::pair<prometheus::Counter*, prometheus::Histogram*> series;
  {
    const std::lock_guard lock(state_->mutex);
    auto& known = state_->by_label[label];
    if (!known.first) {
      known.first = &state_->requests.Add({{"route", route}, {"method", method}, {"status", code}});
      known.second = &state_->durations.Add({{"route", route}}, kSeconds);
    }
    series = known;
  }
  series.first->Increment();
  series.second->Observe(seconds);
}

void Metrics::count_answer(int64_t prompt_tokens, int64_t completion_tokens, double first_token_seconds) {
  state_->prompt_tokens.Increment(static_cast<double>(prompt_tokens));
  state_->completion_tokens.Increment(static_cast<double>(completion_tokens));
  if (first_token_seconds > 0) state_->first_token.Observe(first_token_seconds);
}

void Metrics::count_aborted(const std::string& reason) { state_->aborted.Add({{"reason", reason}}).Increment(); }

std::string Metrics::text(const Reading& reading) const {
  using prometheus::MetricType;
  std::vector<prometheus::MetricFamily> all = state_->registry.Collect();
  const auto gauge = [&](const char* name, const char* help, double value) {
    all.push_back(family(name, help, MetricType::Gauge, value));
  };
  const auto counter = [&](const char* name, const char* help, double value) {
    all.push_back(family(name, help, MetricType::Counter, value));
  };
  gauge("deepinfer_ready", "1 when steps finish", reading.ready ? 1 : 0);
  gauge("deepinfer_utilisation", "The scarcest of pages, slots and wait over its target", reading.utilisation);
  gauge("deepinfer_queue_seconds", "A prompt waits so long before it is computed", reading.queue_seconds);
  gauge("deepinfer_breach_predicted", "1 when that is over --target-first-token", reading.breach_predicted ? 1 : 0);
  gauge("deepinfer_prefill_per_decode", "Prefill workers for each decode worker at this load, 0 = not known",
        reading.prefill_per_decode);
  all.push_back(family("deepinfer_build_info", "Version of the program", MetricType::Gauge, 1, {{"version", reading.version}}));
  gauge("deepinfer_http_connections", "Open connections", static_cast<double>(reading.http.connections));
  gauge("deepinfer_http_requests_in_flight", "Requests whose answer is not complete",
        static_cast<double>(reading.http.exchanges));
  counter("deepinfer_http_connections_total", "Connections accepted", static_cast<double>(reading.http.accepted));
  counter("deepinfer_http_connections_refused_total", "Connections beyond the limit",
          static_cast<double>(reading.http.turned_away));
  counter("deepinfer_http_received_bytes_total", "Bytes received", static_cast<double>(reading.http.bytes_in));
  counter("deepinfer_http_sent_bytes_total", "Bytes sent", static_cast<double>(reading.http.bytes_out));
  gauge("deepinfer_http_body_bytes_at_work", "Bodies that wait for the workers or are in their hands",
        static_cast<double>(reading.body_bytes_at_work));
  gauge("deepinfer_stored_responses", "Responses kept for later", static_cast<double>(reading.stored_responses));
  gauge("deepinfer_stored_responses_bytes", "Memory of kept responses", static_cast<double>(reading.stored_bytes));
  if (reading.has_engine) {
    const EngineStats& engine = reading.engine;
    gauge("deepinfer_engine_running", "Sequences that run", engine.running);
    gauge("deepinfer_engine_waiting", "Requests that wait for a slot", engine.waiting);
    gauge("deepinfer_engine_pages", "Pages of the pool", engine.pages);
    gauge("deepinfer_engine_pages_free", "Free pages of the pool", engine.free_pages);
    gauge("deepinfer_engine_pages_cached", "Pages that hold finished prefixes, free when needed", engine.cached_pages);
    gauge("deepinfer_engine_pages_leased", "Pages of running sequences", engine.leased_pages);
    gauge("deepinfer_engine_step_age_seconds", "Since a step finished while there was work", reading.step_age_seconds);
    counter("deepinfer_engine_steps_total", "Steps run", static_cast<double>(engine.steps));
    counter("deepinfer_engine_rows_total", "Rows run", static_cast<double>(engine.rows));
    counter("deepinfer_engine_accepted_total", "Requests accepted by the engine", static_cast<double>(engine.accepted));
    counter("deepinfer_engine_preempted_total", "Times a running request gave its pages up",
            static_cast<double>(engine.preempted));
    counter("deepinfer_engine_between_steps_seconds_total", "Time between steps while there was work",
            static_cast<double>(engine.between_us) / 1e6);
    add_steps(engine, all);
    add_ranks(engine.ranks, all);
    add_prefix(engine.prefix, all);
    add_store(engine.store, all);
    counter("deepinfer_engine_ended_total", "Requests ended by the engine", static_cast<double>(engine.ended));
    add_speculation(engine.speculation, all);
  }
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  counter("process_cpu_seconds_total", "User and system time", seconds_of(usage.ru_utime) + seconds_of(usage.ru_stime));
  gauge("process_resident_memory_bytes", "Resident memory", resident_bytes());
  return prometheus::TextSerializer().Serialize(all);
}

}  // namespace deepinfer
