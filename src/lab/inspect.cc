#include "lab/inspect.h"

#include <algorithm>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "formats/value_scan.h"
#include "model/config.h"
#include "model/engram_tables.h"
#include "model/weights.h"

namespace deepinfer {
namespace {

// Which part of the model a tensor belongs to; draft stages keep their own rows.
std::string part_of(std::string_view name) {
  const auto has = [&](std::string_view part) { return name.find(part) != name.npos; };
  const std::string prefix = name.starts_with("mtp.") ? "draft " : "";
  if (name.starts_with("vision.") || name.starts_with("aligner.") || name.starts_with("image_")) return "vision";
  if (has(".engram.embed.")) return "engram tables";
  if (has(".engram.")) return "engram";
  if (has(".ffn.experts.")) return prefix + "routed experts";
  if (has(".ffn.shared_experts.")) return prefix + "shared experts";
  if (has(".ffn.gate.")) return prefix + "router";
  if (has(".attn.compressor.")) return "compressor";
  if (has(".attn.indexer.")) return "indexer";
  if (has(".attn.")) return prefix + "attention";
  if (has(".hc_")) return prefix + "streams";
  if (name.starts_with("mtp.")) return "draft heads";
  if (name == "embed.weight") return "embedding";
  if (name == "head.weight") return "head";
  return "norms";
}

std::string human_bytes(int64_t bytes) {
  const char* units[] = {"B", "kB", "MB", "GB", "TB"};
  auto value = static_cast<double>(bytes);
  size_t unit = 0;
  for (; value >= 1000 && unit + 1 < std::size(units); ++unit) value /= 1000;
  return unit == 0 ? fmt::format("{} B", bytes) : fmt::format("{:.1f} {}", value, units[unit]);
}

// What keeps a tensor from being used, or "".
std::string fault_of(const TensorView& tensor, const TensorSpec& spec) {
  if (const auto status = check_tensor(tensor, spec.type, spec.shape); !status) return status.error().message;
  const int64_t bad = first_invalid_value(tensor);
  if (bad < 0) return "";
  return fmt::format("{}: tensor \"{}\": element {} is NaN or infinite", *tensor.file, tensor.name, bad);
}

void compare(InspectReport& report, const LoadProgress& progress) {
  constexpr int64_t kStep = int64_t{4} << 20;
  const int64_t total = report.checkpoint->tensor_bytes();
  int64_t done = 0, reported = 0;
  std::set<std::string> known;
  for (TensorSpec& spec : expected_tensors(report.shape)) {
    const TensorView* tensor = report.checkpoint->find(spec.name);
    if (!tensor && !spec.optional) report.missing.push_back(spec.name);
    if (tensor) {
      if (std::string fault = fault_of(*tensor, spec); !fault.empty()) report.faults.push_back(std::move(fault));
      done += static_cast<int64_t>(tensor->data.size());
      if (progress && done - reported >= kStep && done < total) progress(reported = done, total);
    }
    known.insert(std::move(spec.name));
  }
  for (const TensorView& tensor : report.checkpoint->tensors()) {
    if (!known.contains(tensor.name)) report.extra.push_back(tensor.name);
    TensorGroup& group = report.groups[{part_of(tensor.name), tensor_type_name(tensor.type)}];
    ++group.tensors;
    group.bytes += static_cast<int64_t>(tensor.data.size());
  }
  std::sort(report.missing.begin(), report.missing.end());
  if (progress) progress(total, total);
}

std::string layer_text(const ModelShape& shape) {
  std::string out = "layer  attention  ratio  global KV  selection  extra\n";
  const auto number = [](int32_t value) { return value < 0 ? std::string("-") : std::to_string(value); };
  for (size_t l = 0; l < shape.plan.size(); ++l) {
    const LayerPlan& plan = shape.plan[l];
    std::string extra;
    const auto add = [&extra](const char* word) { extra.append(extra.empty() ? "" : ", ").append(word); };
    if (plan.engram >= 0) add("Engram");
    if (static_cast<int32_t>(l) == shape.candidate_source) add("candidates");
    if (plan.tap >= 0) add("draft tap");
    std::string line =
        fmt::format("{:>5}  {:<9}  {:>5}  {:>9}  {:>9}  {}", l, attention_mode_name(plan.mode),
                    number(plan.ratio > 0 ? plan.ratio : -1), number(plan.kv_source), number(plan.index_source), extra);
    line.erase(line.find_last_not_of(' ') + 1);
    out += line + '\n';
  }
  for (int32_t s = 0; s < shape.draft_stages; ++s)
    out += fmt::format("mtp {}  window         -          -          -  draft stage\n", s);
  return out;
}

std::string config_text(const ModelShape& s) {
  std::string out =
      fmt::format("DeepSeek-V4.1: {} layers, hidden {}, vocabulary {}, context {}\n", s.layers, s.hidden, s.vocab, s.max_context);
  out += fmt::format("attention   {} heads x {} (rope {}), q rank {}, output {} groups x {}, window {}\n", s.heads, s.head_dim,
                     s.rope_dim, s.q_rank, s.o_groups, s.o_rank, s.window);
  if (!s.kv_sources.empty()) {
    out += fmt::format("selection   top {} of an index of {} heads x {}, {} candidate blocks x {}\n", s.index_topk, s.index_heads,
                       s.index_dim, s.candidate_blocks, s.candidate_block);
  }
  out += fmt::format("experts     {} x {}, top {}, one shared; {} residual streams\n", s.experts, s.expert_hidden,
                     s.experts_per_token, s.streams);
  if (!s.engram_layers.empty()) {
    out += fmt::format("Engram      {} layers, {} heads x {}, n-grams up to {}\n", s.engram_layers.size(), s.engram_heads,
                       s.engram_dim, s.engram_ngram);
  }
  if (s.draft_stages > 0) {
    out += fmt::format("draft       {} stages, blocks of {}, {} experts top {}, Markov rank {}\n", s.draft_stages, s.draft_block,
                       s.draft_experts, s.draft_experts_per_token, s.markov_rank);
  }
  out += s.vision ? fmt::format("vision      {} layers, hidden {}, up to {} tokens an image\n", s.vision->layers,
                                s.vision->hidden, s.vision->max_image_tokens)
                  : "vision      none\n";
  return out;
}

Json strings(const std::vector<std::string>& lines) {
  Json out = Json::array();
  for (const std::string& line : lines) out.push_back(Json(line));
  return out;
}

Json layer_json(const ModelShape& shape) {
  Json out = Json::array();
  for (size_t l = 0; l < shape.plan.size(); ++l) {
    const LayerPlan& plan = shape.plan[l];
    out.push_back(Json::object({{"layer", static_cast<int64_t>(l)},
                                {"mode", attention_mode_name(plan.mode)},
                                {"ratio", plan.ratio},
                                {"kv_source", plan.kv_source},
                                {"index_source", plan.index_source},
                                {"engram", plan.engram >= 0},
                                {"candidates", static_cast<int32_t>(l) == shape.candidate_source},
                                {"draft_tap", plan.tap}}));
  }
  return out;
}

}  // namespace

std::vector<std::string> InspectReport::problems() const {
  std::vector<std::string> out;
  for (const std::string& name : missing) out.push_back("missing: " + name);
  for (const std::string& name : extra) out.push_back("extra: " + name);
  for (const std::string& fault : faults) out.push_back("fault: " + fault);
  return out;
}

std::string InspectReport::text(bool all_tensors) const {
  std::string out = fmt::format("{}: ", checkpoint->path()) + config_text(shape) + '\n' + layer_text(shape) + '\n';
  out += fmt::format("{:<22} {:<8} {:>8} {:>16}\n", "part", "type", "tensors", "bytes");
  for (const auto& [key, group] : groups) {
    out += fmt::format("{:<22} {:<8} {:>8} {:>16}  {}\n", key.first, key.second, group.tensors, group.bytes,
                       human_bytes(group.bytes));
  }
  const int64_t total = checkpoint->tensor_bytes();
  out += fmt::format("{:<22} {:<8} {:>8} {:>16}  {} in {} file(s)\n", "all", "", checkpoint->tensors().size(), total,
                     human_bytes(total), checkpoint->shards().size());
  if (all_tensors) {
    out += '\n';
    for (const TensorView& tensor : checkpoint->tensors()) {
      out += fmt::format("{:<52} {:<8} {:<18} {:>12}\n", tensor.name, tensor_type_name(tensor.type), shape_text(tensor.shape),
                         tensor.data.size());
    }
  }
  out += '\n';
  constexpr size_t kMost = 40;
  const std::vector<std::string> lines = problems();
  for (size_t i = 0; i < std::min(kMost, lines.size()); ++i) out += lines[i] + '\n';
  if (lines.size() > kMost) out += fmt::format("... and {} more problems (--json lists all)\n", lines.size() - kMost);
  if (complete()) out += "complete: nothing is missing, extra or damaged\n";
  return out;
}

Json InspectReport::json(bool all_tensors) const {
  Json parts = Json::array();
  for (const auto& [key, group] : groups) {
    parts.push_back(Json::object(
        {{"part", Json(key.first)}, {"type", Json(key.second)}, {"tensors", Json(group.tensors)}, {"bytes", Json(group.bytes)}}));
  }
  const auto config = Json::parse(model_config_text(shape));
  Json out = Json::object({{"path", Json(checkpoint->path())},
                           {"complete", Json(complete())},
                           {"tensors", Json(static_cast<int64_t>(checkpoint->tensors().size()))},
                           {"bytes", Json(checkpoint->tensor_bytes())},
                           {"files", Json(static_cast<int64_t>(checkpoint->shards().size()))},
                           {"parts", std::move(parts)},
                           {"problems", strings(problems())},
                           {"layers", layer_json(shape)},
                           {"config", config ? *config : Json()}});
  if (!all_tensors) return out;
  Json list = Json::array();
  for (const TensorView& tensor : checkpoint->tensors()) {
    Json dims = Json::array();
    for (const int64_t dim : tensor.shape) dims.push_back(Json(dim));
    list.push_back(Json::object({{"name", Json(tensor.name)},
                                 {"type", tensor_type_name(tensor.type)},
                                 {"shape", std::move(dims)},
                                 {"bytes", Json(static_cast<int64_t>(tensor.data.size()))}}));
  }
  out.set("all_tensors", std::move(list));
  return out;
}

Result<InspectReport> inspect_checkpoint(std::shared_ptr<const Checkpoint> checkpoint, const LoadProgress& progress) {
  InspectReport report;
  DI_TRY(report.shape, parse_model_config(checkpoint->config_text(), checkpoint->config_path()));
  report.checkpoint = std::move(checkpoint);
  compare(report, progress);
  if (!report.shape.engram_layers.empty()) {
    if (const auto tables = make_engram_tables(report.shape); !tables) report.faults.push_back(tables.error().message);
  }
  return report;
}

Result<InspectReport> inspect_checkpoint(const std::string& directory, const LoadProgress& progress) {
  DI_TRY(auto checkpoint, Checkpoint::open(directory));
  return inspect_checkpoint(std::move(checkpoint), progress);
}

}  // namespace deepinfer
