#include "lab/bench_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>

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
};

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
    if (event.index == 0 && ++started == streams) all_started = now_seconds();
  }
  timing.first_token = all_started - begin;
  timing.decode = now_seconds() - all_started;
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
  const auto* v41 = dynamic_cast<const V41Model*>(&host.model());
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

Status bench_decode(Host& host, const BenchModelOptions& options, FigureReport& report) {
  const double bandwidth = bytes_of_step(host.model(), 1) > 0 ? read_bandwidth(host) : 0;
  const double multiply_seconds = prompt_seconds(host, measure_multiply(host), 1);
  std::shared_ptr<const Constraint> grammar;
  if (options.schema) {
    DI_TRY(grammar, host.constraints().of({.kind = OutputConstraint::Kind::kJson, .schema = kRecords}));
  }
  for (const int32_t streams : options.streams) {
    if (streams > host.engine().options().max_batch) continue;
    double best = 0, best_held = 0;
    for (int32_t repeat = 0; repeat < options.repeats; ++repeat) {
      DI_TRY(const Timing timing, run_streams(host, streams, 32, options.tokens, repeat));
      best = std::max(best, static_cast<double>(timing.decoded) / timing.decode);
      if (!grammar) continue;
      DI_TRY(const Timing held, run_streams(host, streams, 32, options.tokens, repeat + options.repeats, grammar.get()));
      best_held = std::max(best_held, static_cast<double>(held.decoded) / held.decode);
    }
    FigureRow row{.name = fmt::format("decode/{}", streams), .value = best, .unit = "tokens/s"};
    if (bandwidth > 0) {
      row.limit = streams / std::max(bytes_of_step(host.model(), streams) / bandwidth, streams * multiply_seconds);
    }
    report.add(std::move(row));
    if (grammar) {
      report.add({.name = fmt::format("decode/{}/schema", streams),
                  .value = best_held,
                  .unit = "tokens/s",
                  .baseline = "no schema",
                  .ratio = best_held / best});
    }
    if (streams == 1) report.add({.name = "decode/1/step", .value = 1e3 / best, .unit = "ms"});
  }
  if (bandwidth > 0) report.add({.name = "memory/read", .value = bandwidth / 1e9, .unit = "GB/s"});
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
