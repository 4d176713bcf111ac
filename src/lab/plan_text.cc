#include "lab/plan_text.h"

#include <fmt/format.h>

#include <cmath>
#include <iterator>

namespace deepinfer {
namespace {

std::string three_digits(double value) {
  if (value == std::round(value) && value < 1000) return fmt::format("{:.0f}", value);
  if (value < 0.995) return fmt::format("{:.2g}", value);
  return fmt::format("{:.{}f}", value, value >= 99.95 ? 0 : value >= 9.995 ? 1 : 2);
}

std::string scaled(double value, const char* unit) {
  constexpr const char* kPrefixes[] = {"", "k", "M", "G", "T", "P"};
  size_t prefix = 0;
  for (; value >= 999.5 && prefix + 1 < std::size(kPrefixes); ++prefix) value /= 1000;
  return fmt::format("{} {}{}", three_digits(value), kPrefixes[prefix], unit);
}

struct Published {
  const char *what, *where;
};
constexpr Published kPublished[] = {
    {"decode 14,000 tokens/s a GPU on line, 26,000 at most; 230 tokens/s a user; first token 400 ms; EP64",
     "DeepSeek's answers on the V4.1 service, SM100 (77,000 tokens of input, 96 % of it cached)"},
    {"prefill 60,000 tokens/s a GPU without cache, 1.5 million with; prefill : decode about 1 : 1", "the same"},
    {"3.51 tokens come of a step with five drafts", "InferenceX, V4.1 on GB300"},
    {"V4-Flash in FP4, SGLang, 4 x H200: 606, 2,538 and 4,872 tokens/s a GPU for 1, 16 and 256 streams, input counted",
     "SGLang's figures, 8,000 in and 1,000 out"},
    {"llama.cpp decodes V4-Flash at about 40 % of a processor's bandwidth", "EPYC 9V45, 32 cores, users' figures"},
    {"6,374, 11,082 and 15,773 tokens/s a GPU for 64, 128 and 256 rows of 77,000 tokens, the exchange not counted",
     "the best public kernel for each product, one H200, 2026-11-29, added up"},
};

}  // namespace

std::string plan_bytes(double bytes) { return scaled(bytes, "B"); }

std::string plan_seconds(double seconds) {
  if (seconds >= 1 || seconds == 0) return three_digits(seconds) + " s";
  return seconds >= 1e-3 ? three_digits(seconds * 1e3) + " ms" : three_digits(seconds * 1e6) + " us";
}

std::string plan_number(double value) {
  if (value < 999.5) return three_digits(value);
  std::string digits = fmt::format("{:.0f}", value);
  for (size_t at = digits.size(); at > 3;) digits.insert(at -= 3, ",");
  return digits;
}

std::string explain_kernels(const std::vector<KernelCost>& kernels, const Hardware& hardware) {
  struct Line {
    KernelCost sum;
    int times = 0;
    double seconds = 0;
  };
  std::vector<Line> lines;
  for (const KernelCost& k : kernels) {
    auto line = lines.begin();
    while (line != lines.end() && (line->sum.name != std::string_view(k.name) || line->sum.group != k.group)) ++line;
    if (line == lines.end()) line = lines.insert(line, {.sum = {.group = k.group, .name = k.name}});
    line->sum.weights += k.weights, line->sum.weight_bytes += k.weight_bytes, line->sum.other_bytes += k.other_bytes;
    line->sum.fp4_flops += k.fp4_flops, line->sum.fp8_flops += k.fp8_flops, line->sum.wide_flops += k.wide_flops;
    ++line->times, line->seconds += kernel_seconds(k, hardware);
  }
  std::string out;
  for (const auto& [k, times, seconds] : lines) {
    const std::string name = fmt::format("{}{}", k.group == KernelGroup::kDraft ? "draft: " : "", k.name);
    out += fmt::format("  {:<22}{:>3} x  max(({} weights + {} other) / {}/s", name, times, plan_bytes(k.weight_bytes),
                       plan_bytes(k.other_bytes), plan_bytes(hardware.read));
    for (const auto& [unit, flops, rate] : {std::tuple{"FP4", k.fp4_flops, hardware.fp4},
                                            {"fp8", k.fp8_flops, hardware.fp8},
                                            {"wide", k.wide_flops, hardware.wide}})
      if (flops > 0) out += fmt::format(", {} / {} {}", scaled(flops, "FLOP"), scaled(rate, "FLOP/s"), unit);
    out += fmt::format(") = {}\n", plan_seconds(seconds));
  }
  return out;
}

std::string published_figures() {
  std::string out;
  for (const auto& [what, where] : kPublished) out += fmt::format("  {}\n      {}\n", what, where);
  return out;
}

}  // namespace deepinfer
