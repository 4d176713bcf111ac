#include "lab/plan.h"

#include <fmt/format.h>
#include <sys/statvfs.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <vector>

#include "core/kv_layout.h"
#include "engine/limits.h"
#include "lab/measure_machine.h"
#include "lab/plan_inputs.h"
#include "lab/plan_text.h"

namespace deepinfer {
namespace {

constexpr double kGiga = 1e9;
constexpr double kGpuChunk = 4096;  // rows of a step of prompts; on a processor the engine's

double free_disk() {
  struct statvfs info {};
  return ::statvfs(".", &info) == 0 ? static_cast<double>(info.f_bavail) * static_cast<double>(info.f_frsize) : -1;
}

// What a plan lacks; the first two depend on the streams.
enum class Short : uint8_t { kNothing, kDevice, kMain, kTables, kDisk };

// What one way to share the experts holds and gives.
struct Split {
  int32_t ranks = 1, streams = 1;  // streams of one device
  std::vector<MemoryPart> parts;
  MemoryPart all;
  double resident = 1, from_disk = 0;  // of the experts, on a processor
  Short lacks = Short::kNothing;
  std::string problem;
  bool reached = true, more_would_do = false;  // the target; by more streams than memory holds
  DecodeEstimate least, decode;                // at the limits, expected
  PromptEstimate least_prompt, prompt;
};

class Planner {
 public:
  Planner(const PlanOptions& options, PlanModel model, Hardware hardware)
      : o_(options), model_(std::move(model)), hw_(std::move(hardware)), reached_(as_reached(hw_)) {
    context_ = o_.context > 0 ? o_.context : int64_t{o_.prompt} + o_.answer;
  }

  PlanReport report() {
    for (int32_t ranks = 1; ranks <= o_.gpus && ranks <= model_.shape.experts; ranks *= 2) {
      if (o_.gpus % ranks == 0) splits_.push_back(split_of(ranks));
    }
    if (o_.gpus > 1 && o_.gpus <= model_.shape.experts && splits_.back().ranks != o_.gpus) splits_.push_back(split_of(o_.gpus));
    best_ = &splits_.back();
    for (const Split& split : splits_) {
      const bool fits = split.problem.empty();
      if (fits && (!best_->problem.empty() || split.decode.per_device > best_->decode.per_device)) best_ = &split;
    }
    write_answers();
    write_memory();
    if (hw_.read > 0) write_times();
    if (o_.explain) write_formulas();
    out_.problem = best_->problem;
    return std::move(out_);
  }

 private:
  bool gpu() const { return !hw_.processor; }
  const char* unit() const { return gpu() ? "GPU" : "machine"; }
  void line(const char* key, const std::string& text) { out_.text += fmt::format("{:<8}{}\n", key, text); }
  void row(std::string name, double value, const char* unit, std::optional<double> limit = {}) {
    name.resize(std::min(name.size(), name.find(" (")));
    for (char& c : name) c = c == ' ' ? '_' : c;
    out_.figures.add({.name = std::move(name), .value = value, .unit = unit, .limit = limit});
  }

  DecodeWork decode_work(const Split& split) const {
    return {.streams = double{1} * split.streams,
            .context = o_.prompt + o_.answer / 2.0,
            .drafts = double{1} * o_.drafts,
            .accepted = static_cast<double>(o_.accepted),
            .ranks = split.ranks,
            .from_disk = split.from_disk};
  }

  bool chooses_streams() const { return o_.per_user > 0 && hw_.read > 0; }
  double all_streams(const Split& split) const {
    return chooses_streams() ? double{1} * split.streams * o_.gpus : double{1} * o_.streams;
  }
  double chunk() const { return gpu() ? kGpuChunk : double{kDefaultStepTokens}; }

  // What `streams` of one device hold, and what of it is short.
  Split placed(int32_t ranks, int32_t streams) const {
    Split out{.ranks = ranks, .streams = streams};
    out.parts = memory_parts(model_.shape, model_.bytes,
                             {.streams = streams,
                              .context = context_,
                              .step_rows = static_cast<int32_t>(chunk()),
                              .expert_ranks = ranks,
                              .processor = !gpu()});
    if (model_.in_memory) out.parts.push_back({"as made, beside", model_.bytes.dense + model_.bytes.tables});
    out.all = sum_of(out.parts);
    check_memory(out);
    return out;
  }
  static bool holds_streams(const Split& split) { return split.lacks != Short::kDevice && split.lacks != Short::kMain; }
  bool quick_enough(const Split& split) const {
    return estimate_decode(model_.shape, reached_, decode_work(split)).per_user >= double{o_.per_user};
  }

  // More streams are slower, and leave less memory to experts, which makes them slower still.
  Split with_target(int32_t ranks) const {
    constexpr int32_t kMostStreams = 4096;
    const int32_t most = most_streams(kMostStreams, [&](int32_t streams) {
      const Split split = placed(ranks, streams);
      return holds_streams(split) && quick_enough(split);
    });
    Split out = placed(ranks, std::max(1, most));
    out.reached = quick_enough(out);
    if (most == 0 || most == kMostStreams) return out;
    const Split next = placed(ranks, most + 1);
    out.more_would_do = !holds_streams(next) && quick_enough(next);
    return out;
  }

  Split split_of(int32_t ranks) {
    Split out = chooses_streams() ? with_target(ranks) : placed(ranks, (o_.streams + o_.gpus - 1) / o_.gpus);
    const DecodeWork work = decode_work(out);
    const PromptWork prompt{.tokens = double{1} * o_.prompt,
                            .cached = std::floor(o_.prompt * double{o_.cached} / 100),
                            .chunk = chunk(),
                            .keep = double{1} * model_.shape.window,
                            .ranks = ranks,
                            .from_disk = out.from_disk};
    out.least = estimate_decode(model_.shape, hw_, work), out.decode = estimate_decode(model_.shape, reached_, work);
    out.least_prompt = estimate_prompt(model_.shape, hw_, prompt);
    out.prompt = estimate_prompt(model_.shape, reached_, prompt);
    // Of all devices in the mean: some have a stream less than the fullest, whose step is estimated, or none.
    for (DecodeEstimate* of : {&out.least, &out.decode}) of->per_device = of->per_user * all_streams(out) / o_.gpus;
    return out;
  }

  // A processor keeps what it can of the experts, from files; without files all must fit.
  void check_memory(Split& split) const {
    const double have = hw_.memory_bytes, experts = gpu() ? 0 : model_.bytes.experts + model_.bytes.draft_experts;
    const double others = split.all.device - experts;
    if (!gpu()) split.resident = resident_experts(experts, others, have, double{o_.expert_memory} * kGiga);
    if (!model_.in_memory) split.from_disk = experts_from_disk(experts, split.resident, have - others - experts * split.resident);
    const bool from_files = !gpu() && !model_.in_memory && others < have * 0.75;
    if (split.all.device > have && !from_files) {
      split.lacks = gpu() ? Short::kDevice : Short::kMain;
      split.problem = fmt::format("{} memory is short by {}: {} needed, {} there", gpu() ? "device" : "main",
                                  plan_bytes(split.all.device - have), plan_bytes(split.all.device), plan_bytes(have));
    } else if (gpu() && o_.host_memory > 0 && split.all.host > double{o_.host_memory} * kGiga) {
      split.lacks = Short::kTables;
      split.problem = fmt::format("main memory beside the GPUs is short by {}: {} of tables",
                                  plan_bytes(split.all.host - double{o_.host_memory} * kGiga), plan_bytes(split.all.host));
    } else if (!gpu() && !model_.files && !model_.in_memory && free_disk() >= 0 && free_disk() < model_.bytes.total()) {
      split.lacks = Short::kDisk;
      split.problem =
          fmt::format("disk is short by {}: {} to download, {} free here", plan_bytes(model_.bytes.total() - free_disk()),
                      plan_bytes(model_.bytes.total()), plan_bytes(free_disk()));
    }
  }

  // What would help where memory is short.
  std::string help() {
    if (best_->lacks == Short::kDisk) return "another folder, or a larger disk";
    if (best_->lacks == Short::kTables) return "each machine holds all tables: more memory beside its GPUs would help";
    const std::string fewer = best_->streams > 1 ? "fewer --streams or a shorter --context" : "a shorter --context";
    if (best_->lacks == Short::kMain) return fewer + ", or a larger machine";
    for (int32_t ranks = 2; ranks <= 64 && ranks <= model_.shape.experts; ranks *= 2) {
      if (ranks > best_->ranks && split_of(ranks).all.device <= hw_.memory_bytes)
        return fmt::format("experts shared by {} GPUs would fit", ranks);
    }
    return fewer + ", or a larger device";
  }

  void write_answers() {
    const Split& s = *best_;
    out_.text = fmt::format("{}: {} layers, {} experts, {} of weights; on {}{}, {} stream{} of {} + {} tokens\n\n", model_.name,
                            model_.shape.layers, model_.shape.experts, plan_bytes(model_.bytes.total()),
                            o_.gpus > 1 ? fmt::format("{} x ", o_.gpus) : "", hw_.name, plan_number(all_streams(s)),
                            all_streams(s) > 1 ? "s" : "", plan_number(o_.prompt), plan_number(o_.answer));
    row("fits", s.problem.empty() ? 1 : 0, "bool");
    const std::string partly =
        s.resident == 1 ? ""
                        : fmt::format("{:.0f} % of the experts in memory, the others read from {} as they are used",
                                      100 * s.resident, s.from_disk == 0 ? "where the system keeps files" : "the disk");
    if (!s.problem.empty()) {
      line("fits", fmt::format("no: {}; {}", s.problem, help()));
      if (!partly.empty()) line("", "then " + partly);
    } else if (gpu()) {
      line("fits", fmt::format("yes: {} of {} on each GPU; {} of main memory on each machine for tables",
                               plan_bytes(s.all.device), plan_bytes(hw_.memory_bytes), plan_bytes(s.all.host)));
    } else {
      line("fits", partly.empty() ? fmt::format("yes: {} of {}", plan_bytes(s.all.device), plan_bytes(hw_.memory_bytes))
                                  : "yes, " + partly);
    }
    if (hw_.read == 0) return line("speed", "not told: nothing was measured (--no-measure)");
    if (s.from_disk > 0 && hw_.disk == 0) {
      return line("speed",
                  fmt::format("at most {} tokens/s, if the disk were no limit: --disk GB/s tells it, -m FOLDER measures it",
                              plan_number(s.least.per_device)));
    }
    write_speed(s);
    write_split(s);
  }

  void write_speed(const Split& s) {
    line("speed", fmt::format("{}{} tokens/s{} ({} at the limits), {} a user; {} until the first token",
                              s.problem.empty() ? "" : "if it fitted, ", plan_number(s.decode.per_device), gpu() ? " a GPU" : "",
                              plan_number(s.least.per_device), plan_number(s.decode.per_user), plan_seconds(s.prompt.seconds)));
    line("limit", fmt::format("answers: {}; prompts: {}", bound_name(s.decode.bound), bound_name(s.prompt.bound)));
    if (!s.reached) line("", fmt::format("not even one stream reaches {} tokens/s", plan_number(double{o_.per_user})));
    if (s.more_would_do)
      line("", fmt::format("memory, not speed, limits the streams: more would still get {} tokens/s each",
                           plan_number(double{o_.per_user})));
    row("decode/user", s.decode.per_user, "tokens/s", s.least.per_user);
    row(gpu() ? "decode/gpu" : "decode/machine", s.decode.per_device, "tokens/s", s.least.per_device);
    row("decode/all", s.decode.per_device * o_.gpus, "tokens/s", s.least.per_device * o_.gpus);
    row("decode/step", 1e3 * s.decode.seconds, "ms");
    row("streams/device", s.streams, "streams");
    row("prompt/first_token", 1e3 * s.prompt.seconds, "ms");
    row(gpu() ? "prompt/gpu" : "prompt/machine", o_.prompt / s.prompt.seconds, "tokens/s", o_.prompt / s.least_prompt.seconds);
  }

  // Work of one request in seconds of a device: its prompt alone, its answer beside others.
  void write_split(const Split& s) {
    const double prompt = s.prompt.seconds, answer = o_.answer / s.decode.per_device, share = prompt / (prompt + answer);
    std::string text = fmt::format("prompts take {:.0f} % of the time, answers {:.0f} %", 100 * share, 100 * (1 - share));
    if (gpu() && o_.gpus > 1) {
      text = fmt::format("experts over {} GPUs, sequences over all; as roles of their own {} GPUs of prompts to one of answers",
                         s.ranks, plan_number(prompt / answer));
      row("split/experts_over", s.ranks, "GPUs");
    }
    row("split/prefill_per_decode", prompt / answer, unit());
    row("split/prompts", 100 * share, "%");
    if (model_.shape.vision) {
      const double seconds = picture_flops(model_.shape, model_.shape.vision->max_image_tokens) / reached_.wide;
      text += fmt::format("; a picture is encoded in {}", plan_seconds(seconds));
      row("split/picture", 1e3 * seconds, "ms");
    }
    line("split", text);
    const double in = 1e6 / o_.prompt * prompt / 3600, out = 1e6 / s.decode.per_device / 3600;
    std::string cost =
        fmt::format("{} {}-hours a million tokens of prompts, {} of answers", plan_number(in), unit(), plan_number(out));
    row("cost/prompts", in, gpu() ? "GPU-hours/Mtoken" : "machine-hours/Mtoken");
    row("cost/answers", out, gpu() ? "GPU-hours/Mtoken" : "machine-hours/Mtoken");
    if (o_.price > 0) {
      cost += fmt::format("; at {} an hour {} and {}", plan_number(double{o_.price}), plan_number(in * double{o_.price}),
                          plan_number(out * double{o_.price}));
      row("price/prompts", in * double{o_.price}, "price/Mtoken");
      row("price/answers", out * double{o_.price}, "price/Mtoken");
    }
    line("cost", cost);
    if (s.ranks > 1) line("", "(this version runs a model on one GPU: experts over several are arithmetic, not yet a flag)");
  }

  void write_memory() {
    out_.text += fmt::format("\n{:<30}{:>12}{}\n", "holds", gpu() ? "a GPU" : "memory", gpu() ? "     its host" : "");
    for (const MemoryPart& part : best_->parts) write_part(part, {});
    write_part(best_->all, hw_.memory_bytes);
    if (!model_.in_memory) {
      out_.text += fmt::format("{:<30}{:>12}\n", "checkpoint on disk", plan_bytes(model_.bytes.total()));
      row("disk/checkpoint", model_.bytes.total() / kGiga, "GB");
    }
    if (gpu()) return;
    row("experts/in_memory", 100 * best_->resident, "%");
    row("experts/from_disk", 100 * best_->from_disk, "%");
  }

  void write_part(const MemoryPart& part, std::optional<double> limit) {
    if (part.device + part.host == 0) return;
    out_.text += fmt::format("{:<30}{:>12}", part.name, plan_bytes(part.device));
    out_.text += part.host > 0 ? fmt::format("{:>13}\n", plan_bytes(part.host)) : "\n";
    row("memory/" + part.name, part.device / kGiga, "GB", limit ? std::optional(*limit / kGiga) : std::nullopt);
    if (part.host > 0) row("host_memory/" + part.name, part.host / kGiga, "GB");
  }

  void write_times() {
    const Split& s = *best_;
    out_.text += fmt::format("\n{:<30}{:>12}{:>13}\n", "a step of decoding", "limits", "expected");
    const auto times = [&](const char* name, double least, double expected) {
      if (least + expected == 0) return;
      out_.text += fmt::format("{:<30}{:>12}{:>13}\n", name, plan_seconds(least), plan_seconds(expected));
      row(fmt::format("step/{}", name), 1e3 * expected, "ms");
    };
    for (size_t g = 0; g < kKernelGroups; ++g)
      times(kernel_group_name(static_cast<KernelGroup>(g)), s.least.step.by_group[g], s.decode.step.by_group[g]);
    times("threads meet", s.least.barriers, s.decode.barriers);
    times("disk", s.least.disk, s.decode.disk);
    times("exchange (overlaps)", s.least.exchange, s.decode.exchange);
    times("all", s.least.seconds, s.decode.seconds);
    if (splits_.size() > 1) {
      out_.text += fmt::format("\n{:<14}{:>12}{:>13}{:>11}{:>12}  {}\n", "experts over", "a GPU holds", "tokens/s/GPU", "a user",
                               "to answer", "limit");
    }
    for (const Split& split : splits_) {
      if (splits_.size() == 1) break;
      out_.text += fmt::format("{:<14}{:>12}", fmt::format("{} GPU{}", split.ranks, split.ranks > 1 ? "s" : ""),
                               plan_bytes(split.all.device));
      if (!split.problem.empty()) {
        out_.text += "  does not fit\n";
        continue;
      }
      out_.text +=
          fmt::format("{:>13}{:>11}{:>12}  {}\n", plan_number(split.decode.per_device), plan_number(split.decode.per_user),
                      plan_seconds(split.prompt.seconds), bound_name(split.decode.bound));
      row(fmt::format("experts_over/{}", split.ranks), split.decode.per_device, "tokens/s", split.least.per_device);
    }
    out_.text += fmt::format("\nlimits    {}\nexpected  {:.0f} % of reading, {:.0f} % of multiplying: {}\n", hw_.source,
                             100 * hw_.reached_read, 100 * hw_.reached_products, hw_.reached_source);
  }

  void write_formulas();

  const PlanOptions& o_;
  PlanModel model_;
  Hardware hw_, reached_;
  int64_t context_ = 0;
  std::vector<Split> splits_;
  const Split* best_ = nullptr;
  PlanReport out_;
};

void Planner::write_formulas() {
  const Split& s = *best_;
  const ModelShape& m = model_.shape;
  const DecodeWork work = decode_work(s);
  const double rows = work.streams * (1 + work.drafts);
  std::vector<KernelCost> kernels =
      step_kernels(m, {.sequences = work.streams, .rows = rows, .context = work.context, .expert_ranks = s.ranks});
  out_.text += fmt::format(
      "\nformulas\n  a kernel takes max(bytes / read, sum of FLOP / rate); a step is their sum, here at the limits\n"
      "  rows = streams x (1 + drafts) = {} x {} = {}; a row sees {} tokens\n"
      "  distinct experts of a layer = {} (1 - (1 - {}/{})^({} rows x {})) = {:.1f}, of them here 1/{}\n",
      s.streams, 1 + o_.drafts, plan_number(rows), plan_number(work.context), m.experts, m.experts_per_token, m.experts,
      plan_number(rows), s.ranks, distinct_experts(m.experts, m.experts_per_token, rows * s.ranks), s.ranks);
  if (hw_.read > 0) out_.text += explain_kernels(kernels, hw_);
  if (o_.drafts > 0 && hw_.read > 0) out_.text += explain_kernels(draft_kernels(m, work.streams, work.accepted, s.ranks), hw_);
  if (s.ranks > 1) {
    out_.text += fmt::format("  exchange = rows x layers x {} x ({} + {} + 2 x {}) B x {}/{} / {}/s = {}\n", m.experts_per_token,
                             m.hidden, m.hidden / 32, m.hidden, s.ranks - 1, s.ranks,
                             plan_bytes(s.ranks <= hw_.node ? hw_.node_send : hw_.send), plan_seconds(s.least.exchange));
  }
  if (s.from_disk > 0) {
    out_.text += fmt::format("  disk = {:.2f} of the experts' bytes / {}/s = {}; what is longer than experts take adds\n",
                             s.from_disk, plan_bytes(hw_.disk), plan_seconds(s.least.disk));
  }
  const KvLayout layout = make_kv_layout(m);
  out_.text += fmt::format(
      "  tokens/s a user = {} accepted / step; of a device x {} streams, in the mean\n"
      "  KV pages = streams x ceil({} / {}) x {} B; state = streams x {} B\n"
      "  a prompt = steps of {:.0f} rows; layers from {} on and the head see its last {} tokens\n"
      "  device-hours a million tokens: of prompts = seconds of a prompt / {} x 10^6 / 3600, of answers = 10^6 / tokens/s / "
      "3600\n",
      plan_number(work.accepted), plan_number(all_streams(s) / o_.gpus), context_, layout.page_tokens, layout.page_bytes,
      layout.state_bytes, chunk(), m.candidate_source, m.window, o_.prompt);
  out_.text += "\npublished, by others\n" + published_figures();
}

}  // namespace

Result<PlanReport> make_plan(const PlanOptions& options) {
  DI_TRY(PlanModel model, open_plan_model(options.model));
  const int64_t asked = std::max(options.context, int64_t{options.prompt} + options.answer);
  if (asked > model.shape.max_context) {
    return invalid_argument(
        fmt::format("{} tokens of a conversation are more than the {} the model holds", asked, model.shape.max_context));
  }
  if (options.context > 0 && options.context < int64_t{options.prompt} + options.answer)
    return invalid_argument(fmt::format("--context {} is less than --prompt and --answer together", options.context));
  if (options.drafts > 0 && model.shape.draft_stages == 0) return invalid_argument("--drafts: the model has no draft stages");
  if (options.drafts > model.shape.draft_block && options.drafts > 0)
    return invalid_argument(fmt::format("--drafts {}: the model drafts at most {}", options.drafts, model.shape.draft_block));
  if (options.per_user > 0 && options.streams > 1)
    return invalid_argument("--target-tokens-per-user chooses the streams; give it or --streams");
  if (options.drafts == 0 && options.accepted > 1)
    return invalid_argument("--accepted says how many tokens come of a step with --drafts N; add --drafts");
  if (options.accepted > static_cast<float>(options.drafts + 1))
    return invalid_argument(
        fmt::format("--accepted {}: {} drafts give at most {}", options.accepted, options.drafts, options.drafts + 1));
  DI_TRY(Hardware hardware, open_plan_hardware(options));
  if (options.measure && hardware.processor && model.files) hardware.disk = measure_disk_read(*model.files);
  if (options.disk > 0) hardware.disk = double{options.disk} * kGiga;
  return Planner(options, std::move(model), std::move(hardware)).report();
}

}  // namespace deepinfer
