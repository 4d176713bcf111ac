#include "model/scripted_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <limits>
#include <span>
#include <thread>
#include <utility>

namespace deepinfer {
namespace {

// Larger than any penalty or bias can outweigh, at any temperature in use.
constexpr float kCertain = 1e6f;

// The head of a slot's state block; zero before the first token.
struct Progress {
  int64_t prompt_tokens = 0;  // 0 until the last prompt row has run
  int32_t reply = -1;         // index in Script::replies, -1 = nothing matches
};

struct ScriptedWorkspace final : Workspace {
  ScriptedWorkspace(Device& on, Buffer buffer) : device(on), buffer(std::move(buffer)) {}
  const float* logits() const override { return buffer.as<float>(); }

  Device& device;
  Buffer buffer;
  int64_t steps = 0;
};

uint64_t mix(uint64_t x) {
  x = (x ^ (x >> 33)) * 0x9E3779B97F4A7C15ull;
  x = (x ^ (x >> 29)) * 0xD6E8FEB86659FD93ull;
  return x ^ (x >> 32);
}

ModelShape scripted_shape(const Script& script) {
  ModelShape shape;
  shape.vocab = script.vocab;
  shape.max_context = script.context;
  shape.window = script.window;
  shape.eos_id = script.eos;
  // The smallest sizes with one page section and one ring; a token id needs 4 of the 16 bytes of its main code.
  shape.hidden = shape.head_dim = shape.index_dim = 32;
  shape.layers = shape.heads = shape.index_heads = 1;
  shape.rope_dim = 16;
  shape.compress_ratios = {1};
  shape.kv_sources = shape.index_sources = {0};
  shape.plan = {{.mode = AttentionMode::kFull, .ratio = 1, .kv_source = 0, .index_source = 0}};
  return shape;
}

// One step, run in stream order: `view` still holds device pointers.
class ScriptStep {
 public:
  ScriptStep(const Script& script, const KvLayout& layout, const StateView& view, const Device& device)
      : script_(script), layout_(layout), view_(view), device_(device) {}

  void run(const SequenceRows& rows, std::span<const TokenId> tokens, std::span<float* const> logits) {
    auto& progress = *host<Progress>(view_.states + rows.slot * layout_.state_bytes);
    // A resumed slot may hold the progress of the conversation its prefix came from.
    if (rows.begin < rows.prompt_tokens) progress = Progress{};
    for (int32_t i = 0; i < rows.count; ++i) {
      if (rows.begin + i >= rows.write_floor) token_at(rows.slot, rows.begin + i) = drawn(tokens[static_cast<size_t>(i)]);
    }
    const Position end = rows.begin + rows.count;
    if (end < rows.prompt_tokens) return;
    if (progress.prompt_tokens == 0) {
      progress.prompt_tokens = rows.prompt_tokens;
      progress.reply = choose(rows.slot, rows.prompt_tokens);
    }
    for (int32_t i = 0; i < rows.num_logits; ++i) {
      write_row(rows.slot, end - rows.num_logits + i, progress, logits[static_cast<size_t>(i)]);
    }
  }

  std::chrono::milliseconds delay() const { return std::chrono::milliseconds(delay_ms_); }

 private:
  template <class T>
  T* host(const void* device_pointer) const {
    return static_cast<T*>(device_.translate(const_cast<void*>(device_pointer)));
  }

  // The token itself, or the one the step before drew.
  TokenId drawn(TokenId token) const {
    return token >= 0 ? token : host<const SampleResult>(view_.draws + draw_of_token(token))->token;
  }

  TokenId& token_at(SlotId slot, Position position) {
    const int32_t page = *host<const int32_t>(view_.page_table + slot * view_.table_stride + position / layout_.page_tokens);
    uint8_t* codes = view_.pages + page * layout_.page_bytes + layout_.sections[0].main_codes;
    return *host<TokenId>(codes + position % layout_.page_tokens * int64_t{sizeof(TokenId)});
  }

  // The first reply whose match lies in the prompt.
  int32_t choose(SlotId slot, int64_t prompt_tokens) {
    std::vector<TokenId> prompt(static_cast<size_t>(prompt_tokens));
    for (Position i = 0; i < prompt_tokens; ++i) prompt[static_cast<size_t>(i)] = token_at(slot, i);
    for (size_t i = 0; i < script_.replies.size(); ++i) {
      const auto& match = script_.replies[i].match;
      if (std::search(prompt.begin(), prompt.end(), match.begin(), match.end()) != prompt.end() || match.empty()) {
        return static_cast<int32_t>(i);
      }
    }
    return -1;
  }

  // Logits of the token after `position`.
  void write_row(SlotId slot, Position position, const Progress& progress, float* logits) {
    std::fill_n(logits, script_.vocab, 0.0f);
    const int64_t index = position + 1 - progress.prompt_tokens;
    const ScriptReply* reply = progress.reply < 0 ? nullptr : &script_.replies[static_cast<size_t>(progress.reply)];
    if (!reply || index >= reply->size()) {
      logits[script_.eos] = kCertain;
    } else if (reply->hash_tokens > 0) {
      write_hash(slot, position, reply->hash_seed, logits);
    } else {
      logits[reply->ids[static_cast<size_t>(index)]] = kCertain;
    }
    if (!reply) return;
    int64_t delay = reply->delay_ms;
    for (const ScriptFault& fault : reply->faults) {
      if (fault.at != index) continue;
      delay += fault.ms;
      if (fault.kind == ScriptFaultKind::kNan) std::fill_n(logits, script_.vocab, std::numeric_limits<float>::quiet_NaN());
    }
    delay_ms_ = std::max(delay_ms_, delay);
  }

  // Values in [-4, 4) from everything up to `position`, and no end.
  void write_hash(SlotId slot, Position position, uint64_t seed, float* logits) {
    uint64_t history = mix(seed + 1);
    for (Position i = 0; i <= position; ++i) history = mix(history ^ static_cast<uint64_t>(token_at(slot, i) + 1));
    for (int32_t id = 0; id < script_.vocab; ++id) {
      const uint64_t bits = mix(history + static_cast<uint64_t>(id) * 0x9E3779B97F4A7C15ull) >> 40;
      logits[id] = static_cast<float>(bits) * 0x1p-21f - 4.0f;
    }
    logits[script_.eos] = -kCertain;
  }

  const Script& script_;
  const KvLayout& layout_;
  const StateView view_;
  const Device& device_;
  int64_t delay_ms_ = 0;
};

}  // namespace

ScriptedModel::ScriptedModel(Script script)
    : script_(std::move(script)), shape_(scripted_shape(script_)), layout_(make_kv_layout(shape_, script_.page_tokens)) {}

Result<std::unique_ptr<Workspace>> ScriptedModel::make_workspace(Device& device, const WorkspaceLimits& limits) const {
  DI_TRY(Buffer logits,
         device.allocate(sizeof(float) * static_cast<size_t>(limits.max_logits) * static_cast<size_t>(shape_.vocab)));
  return std::unique_ptr<Workspace>(std::make_unique<ScriptedWorkspace>(device, std::move(logits)));
}

Status ScriptedModel::forward(const StepPlan& plan, const StateView& state, Workspace& workspace) const {
  auto& scratch = static_cast<ScriptedWorkspace&>(workspace);
  const int64_t step = ++scratch.steps;
  int64_t delay_ms = script_.delay_ms;
  bool nan = false;
  for (const ScriptFault& fault : script_.faults) {
    if (fault.at != step) continue;
    if (fault.kind == ScriptFaultKind::kError) return internal_error(fmt::format("scripted fault: error at step {}", step));
    nan |= fault.kind == ScriptFaultKind::kNan;
    delay_ms += fault.ms;
  }
  scratch.device.host_call([this, state, &scratch, delay_ms, nan, tokens = plan.tokens, sequences = plan.sequences] {
    ScriptStep work(script_, layout_, state, scratch.device);
    std::vector<float*> rows;
    float* next = scratch.buffer.as<float>();
    for (const SequenceRows& sequence : sequences) {
      rows.clear();
      for (int32_t i = 0; i < sequence.num_logits; ++i, next += script_.vocab) {
        rows.push_back(static_cast<float*>(scratch.device.translate(next)));
      }
      work.run(sequence,
               std::span(tokens).subspan(static_cast<size_t>(sequence.first_token), static_cast<size_t>(sequence.count)), rows);
      for (float* row : rows) {
        if (nan) std::fill_n(row, script_.vocab, std::numeric_limits<float>::quiet_NaN());
      }
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(delay_ms) + work.delay());
  });
  return {};
}

}  // namespace deepinfer
