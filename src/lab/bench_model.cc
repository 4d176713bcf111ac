#include "lab/bench_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <optional>
#include <string_view>
#include <thread>

#include <fcntl.h>
#include <unistd.h>

#include "base/file.h"
#include "base/huge_pages.h"
#include "base/thread_pool.h"
#include "core/event_queue.h"
#include "cpu/cpu_device.h"
#include "cuda/cuda_device.h"
#include "formats/checkpoint.h"
#include "host/constraints.h"
#include "host/open_device.h"
#include "model/v41_model.h"

namespace deepinfer {

namespace {

double now_seconds() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

// Prompts of ordinary ids, each its own, so that no two sequences share a prefix.
std::vector<TokenId> bench_prompt(const Host& host, int32_t length, int32_t salt) {
  const int32_t vocab = std::min(host.model().shape().vocab, host.tokenizer().vocab_size());
  std::vector<TokenId> ids = {host.model().shape().bos_id};
  for (int32_t i = 1; i < length; ++i) ids.push_back(3 + (i * 7919 + salt * 104729) % std::max(1, vocab / 2));
  return ids;
}

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

// Bytes of weights that a step of `rows` tokens reads: of tables only rows, of the routed experts as many as the tokens choose
// when they choose evenly.
double bytes_of_step(const LanguageModel& model, int32_t rows) {
  const auto* v41 = dynamic_cast<const V41Model*>(&model);
  if (!v41 || !v41->weights().checkpoint) return 0;
  const ModelShape& shape = model.shape();
  const double touched =
      shape.experts > 0 ? 1 - std::pow(1 - static_cast<double>(shape.experts_per_token) / shape.experts, rows) : 0;
  double bytes = 0;
  for (const TensorView& tensor : v41->weights().checkpoint->tensors()) {
    const double size = static_cast<double>(tensor.data.size());
    const bool table = tensor.name.starts_with("embed") || tensor.name.find("engram") != std::string::npos;
    const bool idle =
        tensor.name.starts_with("vision") || tensor.name.starts_with("mtp") || tensor.name.find("dspark") != std::string::npos;
    const bool expert = tensor.name.find(".experts.") != std::string::npos;
    if (table || idle) continue;
    bytes += expert ? size * touched : size;
  }
  return bytes;
}

// FLOPs a second of the multiply units, for FP4 weights and for others; 0 = not known.
struct Multiply {
  double fp4, others;
};
Multiply measure_multiply(Host& host) {
  const auto measured = [&](WeightFormat format) {
    return 2 * measure_multiply_adds(host.device().isa(), host.device().parallelism(), format);
  };
  return {measured(WeightFormat::kFp4), measured(WeightFormat::kF8Tile)};
}

// Seconds of the products with weights of a prompt of so many tokens at that speed, 0 = not known: decoder layers see its end
// only, the head its last token.
double prompt_seconds(const Host& host, const Multiply& multiply, int32_t prompt) {
  const auto* v41 = dynamic_cast<const V41Model*>(&host.whole_model());
  if (!v41 || !v41->weights().checkpoint || multiply.others == 0) return 0;
  const ModelShape& shape = v41->shape();
  const EngineOptions& options = host.engine().options();
  const int32_t keep = options.keep_tokens > 0 ? options.keep_tokens : shape.window;
  double seconds = 0;
  for (const TensorView& tensor : v41->weights().checkpoint->tensors()) {
    const bool layer = tensor.name.starts_with("layers."), scale = tensor.type == TensorType::kF8E8m0;
    if ((!layer && !tensor.name.starts_with("head")) || scale || tensor.shape.size() != 2) continue;
    if (tensor.name.find("engram.embed") != std::string::npos) continue;
    int32_t rows = layer ? prompt : 1;
    if (layer && shape.candidate_source >= 0 && options.replay == ReplayMode::kDecoder &&
        std::atoi(tensor.name.c_str() + sizeof "layers") >= shape.candidate_source)
      rows = std::min(prompt, keep);
    const bool expert = tensor.name.find(".experts.") != std::string::npos;
    const double share = expert ? static_cast<double>(shape.experts_per_token) / shape.experts : 1.0;
    const bool fp4 = tensor.type == TensorType::kI8;
    const double flops = 2.0 * rows * share * static_cast<double>(tensor.elements()) * (fp4 ? 2 : 1);
    seconds += flops / (fp4 ? multiply.fp4 : multiply.others);
  }
  return seconds;
}

// Of the memory that weights lie in, by a device of its own: the host's belongs to its engine.
double read_bandwidth(Host& host) {
  if (host.device().reads_host_memory()) return measure_read_bandwidth(0);
  const auto device = open_device(host.device().name(), 0);
  return device ? measure_cuda_read(**device) : 0;
}

}  // namespace

// Huge pages, eight sums a thread, and asking 2 KB ahead: with one sum and small pages the loop, not the memory, was measured
// (0.6 of this), without asking ahead 0.8.
double measure_read_bandwidth(int threads) {
  using Words = uint64_t __attribute__((vector_size(32)));
  constexpr int64_t kSums = 8, kBlocks = (int64_t{1} << 30) / static_cast<int64_t>(sizeof(Words)) / kSums, kAhead = 2048;
  const HugeVector<Words> words(static_cast<size_t>(kBlocks * kSums), Words{1, 1, 1, 1});
  ThreadPool pool(threads);
  std::vector<uint64_t> seen(static_cast<size_t>(pool.size()) * 8);
  double best = 0;
  for (int repeat = 0; repeat < 5; ++repeat) {
    const double begin = now_seconds();
    pool.run(kBlocks, [&](int64_t from, int64_t to, int worker) {
      Words sums[kSums] = {};
      for (int64_t block = from; block < to; ++block) {
        const Words* at = words.data() + block * kSums;
        for (int64_t line = 0; line < 256; line += 64) __builtin_prefetch(reinterpret_cast<const char*>(at) + kAhead + line);
        for (int64_t i = 0; i < kSums; ++i) sums[i] += at[i];
      }
      for (const Words& sum : sums) seen[static_cast<size_t>(worker) * 8] += sum[0] + sum[1] + sum[2] + sum[3];
    });
    best = std::max(best, static_cast<double>(words.size() * sizeof(Words)) / (now_seconds() - begin));
  }
  return best;
}

double measure_barrier(int threads) {
  constexpr int kCalls = 2000;
  ThreadPool pool(threads);
  double best = 1e30;
  for (int repeat = 0; repeat < 5; ++repeat) {
    const double begin = now_seconds();
    // Each part waits for all: a caller that is quicker than a worker would do its part, too.
    for (int i = 0; i < kCalls; ++i) {
      std::atomic<int> missing = pool.size();
      pool.run(pool.size(), [&](int64_t, int64_t, int) {
        --missing;
        for (int spins = 0; missing.load() > 0; ++spins) {
          if (spins > 1000) std::this_thread::yield();
        }
      });
    }
    best = std::min(best, (now_seconds() - begin) / kCalls);
  }
  return pool.size() > 1 ? best : 0;
}

double measure_disk_read(const Checkpoint& checkpoint) {
  constexpr size_t kPiece = size_t{8} << 20, kMost = size_t{512} << 20;
  if (checkpoint.shards().empty()) return 0;
  // Past the caches, as a checkpoint that does not fit them is read.
  const int file = ::open(checkpoint.shards()[0].path().c_str(), O_RDONLY | O_DIRECT | O_CLOEXEC);
  if (file < 0) return 0;
  HugeVector<char> room(kPiece);
  size_t done = 0;
  const double begin = now_seconds();
  for (ssize_t got = 1; got > 0 && done < kMost; done += static_cast<size_t>(std::max<ssize_t>(0, got)))
    got = ::pread(file, room.data(), kPiece, static_cast<off_t>(done));
  const double took = now_seconds() - begin;
  ::close(file);
  return static_cast<double>(done) / took;
}

namespace {

// What a machine gives, measured in this run; 0 = not measured.
struct Limits {
  double memory = 0, barrier = 0, disk = 0;  // bytes a second; seconds; bytes a second
  Multiply multiply = {};
};

// Seconds that the steps of `timing` take at least.
double least_seconds(const Host& host, const Timing& timing, int32_t streams, const Limits& limits) {
  if (timing.work.weight_bytes == 0) {  // a device that does not count
    const double each =
        std::max(bytes_of_step(host.whole_model(), streams) / limits.memory, streams * prompt_seconds(host, limits.multiply, 1));
    return each * static_cast<double>(timing.steps);
  }
  double least = static_cast<double>(timing.work.weight_bytes) / limits.memory;
  if (limits.multiply.others > 0) {
    least = std::max(least, 2 * static_cast<double>(timing.work.multiply_adds) / limits.multiply.others +
                                2 * static_cast<double>(timing.work.fp4_multiply_adds) / limits.multiply.fp4);
  }
  if (limits.disk > 0) least = std::max(least, static_cast<double>(timing.disk_bytes) / limits.disk);
  return least;
}

// What the limit is made of: bytes, beside those of experts chosen evenly; barriers; what was not in memory.
void report_work(const Host& host, const Timing& timing, int32_t streams, const Limits& limits, FigureReport& report) {
  const WorkCounts& work = timing.work;
  if (work.weight_bytes == 0 || timing.steps == 0) return;
  const auto steps = static_cast<double>(timing.steps), tokens = static_cast<double>(timing.decoded);
  const std::string name = fmt::format("decode/{}", streams);
  const double bytes = static_cast<double>(work.weight_bytes) / steps;
  report.add({.name = name + "/weights",
              .value = bytes / 1e6,
              .unit = "MB/step",
              .baseline = "experts chosen evenly",
              .ratio = bytes / bytes_of_step(host.whole_model(), streams)});
  if (limits.barrier > 0) {
    const double least = least_seconds(host, timing, streams, limits) + static_cast<double>(work.barriers) * limits.barrier;
    report.add({.name = name + "/barriers", .value = static_cast<double>(work.barriers) / steps, .unit = "a step"});
    report.add({.name = name + "/with_barriers", .value = tokens / timing.decode, .unit = "tokens/s", .limit = tokens / least});
  }
  if (work.expert_uses == 0) return;
  report.add({.name = name + "/experts_missed",
              .value = 100.0 * static_cast<double>(work.expert_misses) / static_cast<double>(work.expert_uses),
              .unit = "%"});
  report.add({.name = name + "/missed", .value = static_cast<double>(work.missed_bytes) / tokens / 1e6, .unit = "MB/token"});
  report.add({.name = name + "/disk", .value = static_cast<double>(timing.disk_bytes) / tokens / 1e6, .unit = "MB/token"});
}

Limits measure_limits(Host& host) {
  Limits out;
  if (bytes_of_step(host.whole_model(), 1) == 0) return out;
  out.memory = read_bandwidth(host);
  out.multiply = measure_multiply(host);
  if (!host.device().reads_host_memory()) return out;
  out.barrier = measure_barrier(host.device().parallelism());
  if (host.device().counts().expert_uses > 0)
    out.disk = measure_disk_read(*dynamic_cast<const V41Model&>(host.whole_model()).weights().checkpoint);
  return out;
}

}  // namespace

Status bench_decode(Host& host, const BenchModelOptions& options, FigureReport& report) {
  std::shared_ptr<const Constraint> grammar;
  if (options.schema) {
    DI_TRY(grammar, host.constraints().of({.kind = OutputConstraint::Kind::kJson, .schema = kRecords}));
  }
  std::optional<Limits> limits;
  for (const int32_t streams : options.streams) {
    if (streams > host.engine().options().max_batch) continue;
    Timing best, best_held;
    const auto rate = [](const Timing& t) { return t.decode > 0 ? static_cast<double>(t.decoded) / t.decode : 0; };
    for (int32_t repeat = 0; repeat < options.repeats; ++repeat) {
      DI_TRY(const Timing timing, run_streams(host, streams, 32, options.tokens, repeat));
      if (rate(timing) > rate(best)) best = timing;
      if (!grammar) continue;
      DI_TRY(const Timing held, run_streams(host, streams, 32, options.tokens, repeat + options.repeats, grammar.get()));
      if (rate(held) > rate(best_held)) best_held = held;
    }
    if (!limits) limits = measure_limits(host);
    FigureRow row{.name = fmt::format("decode/{}", streams), .value = rate(best), .unit = "tokens/s"};
    if (limits->memory > 0) row.limit = static_cast<double>(best.decoded) / least_seconds(host, best, streams, *limits);
    report.add(std::move(row));
    if (grammar) {
      report.add({.name = fmt::format("decode/{}/schema", streams),
                  .value = rate(best_held),
                  .unit = "tokens/s",
                  .baseline = "no schema",
                  .ratio = rate(best_held) / rate(best)});
    }
    if (streams == 1) report.add({.name = "decode/1/step", .value = 1e3 / rate(best), .unit = "ms"});
    report_work(host, best, streams, *limits, report);
  }
  if (!limits || limits->memory == 0) return {};
  report.add({.name = "memory/read", .value = limits->memory / 1e9, .unit = "GB/s"});
  if (limits->barrier > 0) report.add({.name = "barrier", .value = limits->barrier * 1e6, .unit = "us"});
  if (limits->disk > 0) report.add({.name = "disk/read", .value = limits->disk / 1e9, .unit = "GB/s"});
  return {};
}

Status bench_prefill(Host& host, const BenchModelOptions& options, FigureReport& report) {
  int32_t salt = 0;
  const Multiply multiply = measure_multiply(host);
  for (const int32_t prompt : options.prompts) {
    if (prompt + 1 > host.engine().options().context) continue;
    double best = 1e30;
    for (int32_t repeat = 0; repeat < options.repeats; ++repeat) {
      DI_TRY(const Timing timing, run_streams(host, 1, prompt, 1, salt++));
      best = std::min(best, timing.first_token);
    }
    FigureRow row{.name = fmt::format("prefill/{}", prompt), .value = prompt / best, .unit = "tokens/s"};
    if (const double seconds = prompt_seconds(host, multiply, prompt); seconds > 0) row.limit = prompt / seconds;
    report.add(std::move(row));
    report.add({.name = fmt::format("prefill/{}/first_token", prompt), .value = best * 1e3, .unit = "ms"});
  }
  return {};
}

}  // namespace deepinfer
