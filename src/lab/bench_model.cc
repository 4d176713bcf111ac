#include "lab/bench_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <string_view>

#include "base/file.h"
#include "base/machine.h"
#include "core/event_queue.h"
#include "cost/room.h"
#include "cuda/cuda_device.h"
#include "formats/checkpoint.h"
#include "host/constraints.h"
#include "host/open_device.h"
#include "lab/measure_machine.h"
#include "model/v41_model.h"

namespace deepinfer {

namespace {

// Prompts of ordinary ids, each its own, so that no two sequences share a prefix.
std::vector<TokenId> bench_prompt(const Host& host, int32_t length, int32_t salt) {
  const int32_t vocab = std::min(host.model().shape().vocab, host.tokenizer().vocab_size());
  std::vector<TokenId> ids = {host.model().shape().bos_id};
  for (int32_t i = 1; i < length; ++i) ids.push_back(3 + (i * 7919 + salt * 104729) % std::max(1, vocab / 2));
  return ids;
}

constexpr int32_t kBenchPrompt = 32;  // tokens in front of what bench decode measures

struct Timing {
  double first_token = 0;  // from submit to the last stream's first token
  double decode = 0;       // from there to the end
  int64_t decoded = 0;     // tokens in that time
  // The same, of steps, the device's work and what was read from the disk.
  int64_t steps = 0, disk_bytes = 0;
  WorkCounts work;
};

// What this process has read from disks so far; 0 where the system does not say.
int64_t disk_bytes_read() {
  constexpr std::string_view kKey = "read_bytes: ";
  const Result<std::string> text = read_file("/proc/self/io");
  const size_t at = text ? text->find(kKey) : std::string::npos;
  return at == std::string::npos ? 0 : std::atoll(text->c_str() + at + kKey.size());
}

void mark(Host& host, Timing& timing) {
  const WorkCounts now = host.device().counts();
  timing.work = {now.weight_bytes - timing.work.weight_bytes,
                 now.multiply_adds - timing.work.multiply_adds,
                 now.fp4_multiply_adds - timing.work.fp4_multiply_adds,
                 now.product_seconds - timing.work.product_seconds,
                 now.barriers - timing.work.barriers,
                 now.expert_uses - timing.work.expert_uses,
                 now.expert_misses - timing.work.expert_misses,
                 now.missed_bytes - timing.work.missed_bytes};
  timing.steps = host.engine().stats().steps - timing.steps;
  timing.disk_bytes = disk_bytes_read() - timing.disk_bytes;
}

// Records without end, so that an answer has as many tokens as one that is held to nothing.
constexpr const char* kRecords =
    R"({"type":"array","minItems":100000,"items":{"type":"object","additionalProperties":false,"required":["name","size","kind"],)"
    R"("properties":{"name":{"type":"string","maxLength":12},"size":{"type":"integer","minimum":0,"maximum":99999},)"
    R"("kind":{"enum":["box","bag","jar"]}}}})";

// `grammar` may be null. `salt` makes the prompts of this run its own: the prefix cache would answer a second run of the same
// ones.
Result<Timing> run_streams(Host& host, int32_t streams, int32_t prompt, int32_t tokens, int32_t salt,
                           const Constraint* grammar = nullptr) {
  EventQueue queue;
  const double begin = now_seconds();
  for (int32_t s = 0; s < streams; ++s) {
    Request request;
    request.prompt = bench_prompt(host, prompt, salt * streams + s);
    request.sampling.temperature = 0;
    request.max_tokens = tokens;
    std::unique_ptr<TokenMask> mask = grammar ? grammar->start({host.model().shape().eos_id}) : nullptr;
    DI_CHECK_OK(host.engine().submit(std::move(request), queue.handler(), std::move(mask)));
  }
  Timing timing;
  int32_t started = 0, ended = 0;
  double all_started = 0;
  while (ended < streams) {
    const Event event = queue.pop();
    if (event.finish == FinishReason::kError) return internal_error(event.error);
    if (event.finish != FinishReason::kNone) ++ended;
    if (!event.token) continue;
    if (all_started > 0) ++timing.decoded;
    if (event.index == 0 && ++started == streams) {
      all_started = now_seconds();
      mark(host, timing);
    }
  }
  timing.first_token = all_started - begin;
  timing.decode = now_seconds() - all_started;
  mark(host, timing);
  return timing;
}

// The shape of a model whose work is known, or null.
const ModelShape* counted_shape(const Host& host) {
  const auto* v41 = dynamic_cast<const V41Model*>(&host.whole_model());
  return v41 && v41->weights().checkpoint ? &v41->shape() : nullptr;
}

// Bytes of weights that a step of `rows` tokens reads: of tables only rows, of the routed experts as many as the tokens choose
// when they choose evenly.
double bytes_of_step(const ModelShape& shape, int32_t rows) {
  double bytes = 0;
  for (const KernelCost& k : step_kernels(shape, {.rows = double{1} * rows})) bytes += k.weight_bytes;
  return bytes;
}

// Rows that the decoder layers see of a prompt: 0 = all.
int32_t kept_rows(const Host& host) {
  const EngineOptions& options = host.engine().options();
  if (options.replay == ReplayMode::kOff) return 0;
  return options.keep_tokens > 0 ? options.keep_tokens : host.model().shape().window;
}

// Seconds in which the products with weights of a prompt are multiplied, 0 = not known: decoder layers see its end only, the
// head its last token.
double prompt_seconds(const Host& host, const Hardware& limits, int32_t prompt) {
  const ModelShape* shape = counted_shape(host);
  if (!shape || limits.fp8 == 0) return 0;
  const int32_t keep = kept_rows(host);
  double seconds = 0;
  for (const KernelCost& k : step_kernels(
           *shape,
           {.rows = double{1} * prompt, .decoder_rows = double{1} * (keep ? std::min(keep, prompt) : prompt), .logit_rows = 1}))
    seconds += k.fp4_flops / limits.fp4 + (k.fp8_flops + k.wide_flops) / limits.fp8;
  return seconds;
}

// Of a GPU's memory, by a device of its own: the host's belongs to its engine.
double read_bandwidth(Host& host) {
  const auto device = open_device(host.device().name(), 0);
  return device ? measure_cuda_read(**device) : 0;
}

// Seconds that the steps of `timing` take at least.
double least_seconds(const Host& host, const Timing& timing, int32_t streams, const Hardware& limits) {
  if (timing.work.weight_bytes == 0) {  // a device that does not count
    const double each =
        std::max(bytes_of_step(*counted_shape(host), streams) / limits.read, streams * prompt_seconds(host, limits, 1));
    return each * static_cast<double>(timing.steps);
  }
  double least = static_cast<double>(timing.work.weight_bytes) / limits.read;
  if (limits.fp8 > 0) {
    least = std::max(least, 2 * static_cast<double>(timing.work.multiply_adds) / limits.fp8 +
                                2 * static_cast<double>(timing.work.fp4_multiply_adds) / limits.fp4);
  }
  // Missing experts, less those in the page cache, without what the device read beyond them.
  const int64_t from_disk = std::min(timing.work.missed_bytes, timing.disk_bytes);
  if (limits.disk > 0) least = std::max(least, static_cast<double>(from_disk) / limits.disk);
  return least;
}

// Share of the experts that is missing where they do not fit memory, when they are chosen evenly.
double expected_missing(const WorkCounts& counts) {
  return counts.expert_places == 0 ? 0 : 1 - static_cast<double>(counts.expert_slots) / static_cast<double>(counts.expert_places);
}

double expected_from_disk(const Host& host, const WorkCounts& counts) {
  const double missing = expected_missing(counts);
  if (missing == 0) return 0;
  double experts = 0;
  for (const TensorView& tensor : dynamic_cast<const V41Model&>(host.whole_model()).weights().checkpoint->tensors())
    experts += tensor.name.find(".experts.") != std::string::npos ? static_cast<double>(tensor.data.size()) : 0;
  return experts_from_disk(experts, 1 - missing, static_cast<double>(available_memory()));
}

// What the limit is made of: bytes, beside those of experts chosen evenly; barriers; each product's own limit; what was not in
// memory.
void report_work(Host& host, const Timing& timing, int32_t streams, const Hardware& limits, FigureReport& report) {
  const WorkCounts& work = timing.work;
  if (work.weight_bytes == 0 || timing.steps == 0) return;
  const auto steps = static_cast<double>(timing.steps), tokens = static_cast<double>(timing.decoded);
  const std::string name = fmt::format("decode/{}", streams);
  const double bytes = static_cast<double>(work.weight_bytes) / steps;
  report.add({.name = name + "/weights",
              .value = bytes / 1e6,
              .unit = "MB/step",
              .baseline = "experts chosen evenly",
              .ratio = bytes / bytes_of_step(*counted_shape(host), streams)});
  if (work.product_seconds > 0) {
    report.add({.name = name + "/products",
                .value = tokens / timing.decode,
                .unit = "tokens/s",
                .limit = tokens / work.product_seconds});
  }
  if (limits.barrier > 0) {
    const double least = least_seconds(host, timing, streams, limits) + static_cast<double>(work.barriers) * limits.barrier;
    report.add({.name = name + "/barriers", .value = static_cast<double>(work.barriers) / steps, .unit = "a step"});
    report.add({.name = name + "/with_barriers", .value = tokens / timing.decode, .unit = "tokens/s", .limit = tokens / least});
  }
  if (work.expert_uses == 0) return;
  const double missed = 100.0 * static_cast<double>(work.expert_misses) / static_cast<double>(work.expert_uses);
  report.add({.name = name + "/experts_missed", .value = missed, .unit = "%"});
  report.add({.name = name + "/missed", .value = static_cast<double>(work.missed_bytes) / tokens / 1e6, .unit = "MB/token"});
  report.add({.name = name + "/disk", .value = static_cast<double>(timing.disk_bytes) / tokens / 1e6, .unit = "MB/token"});
  FigureRow expected{
      .name = name + "/experts_missed/expected", .value = 100 * expected_missing(host.device().counts()), .unit = "%"};
  if (missed > 0) expected.baseline = "measured", expected.ratio = expected.value / missed;
  report.add(std::move(expected));
}

// What `plan` would say with the limits of this run; of a device whose share of them is known.
void report_expected(const std::string& name, double expected, double measured, FigureReport& report) {
  report.add(
      {.name = name + "/expected", .value = expected, .unit = "tokens/s", .baseline = "measured", .ratio = expected / measured});
}

Hardware measure_limits(Host& host) {
  Hardware out;
  Device& device = host.device();
  if (!counted_shape(host)) return out;
  if (!device.reads_host_memory()) {
    out.read = read_bandwidth(host);
    return out;
  }
  out = measure_processor(device.isa(), device.parallelism());
  if (device.counts().expert_places > 0)
    out.disk = measure_disk_read(*dynamic_cast<const V41Model&>(host.whole_model()).weights().checkpoint);
  device.set_limits({.bytes = out.read, .flops = out.fp8, .fp4_flops = out.fp4});
  return out;
}

}  // namespace

Status bench_decode(Host& host, const BenchModelOptions& options, FigureReport& report) {
  std::shared_ptr<const Constraint> grammar;
  if (options.schema) {
    DI_TRY(grammar, host.constraints().of({.kind = OutputConstraint::Kind::kJson, .schema = kRecords}));
  }
  const Hardware limits = measure_limits(host);
  for (const int32_t streams : options.streams) {
    if (streams > host.engine().options().max_batch) continue;
    Timing best, best_held;
    const auto rate = [](const Timing& t) { return t.decode > 0 ? static_cast<double>(t.decoded) / t.decode : 0; };
    for (int32_t repeat = 0; repeat < options.repeats; ++repeat) {
      DI_TRY(const Timing timing, run_streams(host, streams, kBenchPrompt, options.tokens, repeat));
      if (rate(timing) > rate(best)) best = timing;
      if (!grammar) continue;
      DI_TRY(const Timing held,
             run_streams(host, streams, kBenchPrompt, options.tokens, repeat + options.repeats, grammar.get()));
      if (rate(held) > rate(best_held)) best_held = held;
    }
    FigureRow row{.name = fmt::format("decode/{}", streams), .value = rate(best), .unit = "tokens/s"};
    if (limits.read > 0) row.limit = static_cast<double>(best.decoded) / least_seconds(host, best, streams, limits);
    report.add(std::move(row));
    if (limits.processor) {
      const DecodeWork work{.streams = double{1} * streams,
                            .context = kBenchPrompt + options.tokens / 2.0,
                            .from_disk = expected_from_disk(host, host.device().counts())};
      const double expected = estimate_decode(*counted_shape(host), as_reached(limits), work).per_device;
      report_expected(fmt::format("decode/{}", streams), expected, rate(best), report);
    }
    if (grammar) {
      report.add({.name = fmt::format("decode/{}/schema", streams),
                  .value = rate(best_held),
                  .unit = "tokens/s",
                  .baseline = "no schema",
                  .ratio = rate(best_held) / rate(best)});
    }
    if (streams == 1) report.add({.name = "decode/1/step", .value = 1e3 / rate(best), .unit = "ms"});
    report_work(host, best, streams, limits, report);
  }
  if (limits.read == 0) return {};
  report.add({.name = "memory/read", .value = limits.read / 1e9, .unit = "GB/s"});
  if (limits.barrier > 0) report.add({.name = "barrier", .value = limits.barrier * 1e6, .unit = "us"});
  if (limits.disk > 0) report.add({.name = "disk/read", .value = limits.disk / 1e9, .unit = "GB/s"});
  return {};
}

Status bench_prefill(Host& host, const BenchModelOptions& options, FigureReport& report) {
  int32_t salt = 0;
  const Hardware limits = measure_limits(host);
  for (const int32_t prompt : options.prompts) {
    if (prompt + 1 > host.engine().options().context) continue;
    double best = 1e30, products = 0;
    for (int32_t repeat = 0; repeat < options.repeats; ++repeat) {
      const double before = host.device().counts().product_seconds;
      DI_TRY(const Timing timing, run_streams(host, 1, prompt, 1, salt++));
      best = std::min(best, timing.first_token);
      products = host.device().counts().product_seconds - before;
    }
    const std::string name = fmt::format("prefill/{}", prompt);
    FigureRow row{.name = name, .value = prompt / best, .unit = "tokens/s"};
    if (const double seconds = prompt_seconds(host, limits, prompt); seconds > 0) row.limit = prompt / seconds;
    report.add(std::move(row));
    report.add({.name = name + "/first_token", .value = best * 1e3, .unit = "ms"});
    if (products > 0)
      report.add({.name = name + "/products", .value = prompt / best, .unit = "tokens/s", .limit = prompt / products});
    if (!limits.processor) continue;
    const PromptWork work{.tokens = double{1} * prompt,
                          .chunk = double{1} * host.engine().options().step_tokens,
                          .keep = double{1} * kept_rows(host),
                          .from_disk = expected_from_disk(host, host.device().counts())};
    report_expected(name, prompt / estimate_prompt(*counted_shape(host), as_reached(limits), work).seconds, prompt / best,
                    report);
  }
  return {};
}

}  // namespace deepinfer
