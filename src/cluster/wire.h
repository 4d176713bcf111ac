// cluster/wire.h - what router and workers tell each other, as bytes of frames (cluster.md section 2).
//
// Each message is a struct with one visit function that writes and reads its fields in order, so both directions cannot differ.
// Numbers in messages name requests of one link: the router draws them. Promise: read() takes any bytes and gives the message or
// kCorrupt; what was written reads back equal. Threads: pure.
//
//   hub.send(link, SubmitMessage::kType, write_message(submit));
//   DI_TRY(const SubmitMessage submit, read_message<SubmitMessage>(bytes));
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "cluster/bytes.h"
#include "core/service_facts.h"
#include "core/types.h"
#include "kvcache/page_key.h"

namespace deepinfer {

// Differs when any message does.
inline constexpr uint32_t kClusterProtocol = 2;

// What a worker is for. One that computes prompts or decodes does the other, too, where there is nobody else.
enum class WorkerRole : uint8_t { kAll, kEncode, kPrefill, kDecode };
inline constexpr std::string_view kWorkerRoleNames[] = {"all", "encode", "prefill", "decode"};

// So many pictures are encoded side by side; more of them wait.
inline constexpr int32_t kPicturesAtOnce = 2;

// Worker to router, first on a link.
struct HelloMessage {
  static constexpr uint8_t kType = 1;
  uint32_t protocol = kClusterProtocol;
  ServiceFacts facts;
  WorkerRole role = WorkerRole::kAll;
  uint16_t page_port = 0;  // of its page exchange
};

// Router to worker.
struct SubmitMessage {
  static constexpr uint8_t kType = 2;
  uint64_t number = 0;
  Request request;  // its deadline is what is left of it, in microseconds
  // Not 0: its pages are handed over. To whom, and from which one on; without a host: to this worker, which has the first token.
  uint64_t hand_over = 0;
  std::string to_host;
  uint16_t to_port = 0;
  int64_t first_page = 0;
};
struct CancelMessage {
  static constexpr uint8_t kType = 3;
  uint64_t number = 0;
};
struct FinishMessage {
  static constexpr uint8_t kType = 4;
  uint64_t number = 0;
  int64_t last_index = 0;
};
// A picture for the vision tower.
struct EncodeMessage {
  static constexpr uint8_t kType = 9;
  uint64_t number = 0;
  int32_t width = 0, height = 0, tokens = 0;
  std::string content_hash;
  std::vector<uint8_t> pixels;  // RGB, row by row
};

// Worker to router.
struct EncodedMessage {
  static constexpr uint8_t kType = 10;
  uint64_t number = 0;
  std::vector<uint16_t> embeddings;  // BF16 [tokens, hidden]
};
struct EventMessage {
  static constexpr uint8_t kType = 5;
  uint64_t number = 0;
  Event event;
};
struct RefusedMessage {
  static constexpr uint8_t kType = 6;
  uint64_t number = 0;
  ErrorCode code = ErrorCode::kInternal;
  std::string message;
};
struct LoadMessage {
  static constexpr uint8_t kType = 7;
  uint64_t sequence = 0;  // of these messages, from 0
  int32_t running = 0, waiting = 0;
  int32_t pages = 0, free_pages = 0, cached_pages = 0;
  int64_t step_age_us = 0;                   // 0: idle
  int64_t prefill_rows = 0, prefill_us = 0;  // since the start
  int64_t decode_rows = 0, decode_us = 0;
  bool ready = false;
  std::string reason;
};
struct BlocksMessage {
  static constexpr uint8_t kType = 8;
  uint64_t sequence = 0;  // of these messages, from 0, which holds all there is
  std::vector<PageKey> stored, removed;
};

template <class S, class T>
concept SameWire = std::is_same_v<std::remove_const_t<S>, T>;

// Values that a ByteWriter and a ByteReader take alike.
template <class IO, PlainNumber T>
void wire_field(IO& io, T& value) {
  io.number(value);
}
template <class IO, PlainNumber T>
void wire_field(IO& io, const T& value) {
  io.number(value);
}
template <class IO, class T>
requires(SameWire<T, std::string>) void wire_field(IO& io, T& value) { io.text(value); }

template <class IO, class... T>
void wire_fields(IO& io, T&... values) {
  (wire_field(io, values), ...);
}

template <class IO, class T>
requires(SameWire<T, PageKey>) void wire_field(IO& io, T& key) { wire_fields(io, key.low, key.high); }
template <class IO, class T>
requires(SameWire<T, TokenLogprob>) void wire_field(IO& io, T& entry) { wire_fields(io, entry.token, entry.logprob); }

inline constexpr auto kEachWire = [](auto& io, auto& value) { wire_field(io, value); };

// An optional value, as a flag and the value.
template <class T, class F>
void wire_optional(ByteWriter& io, const std::optional<T>& value, F each) {
  io.number(value.has_value());
  if (value) each(io, *value);
}
template <class T, class F>
void wire_optional(ByteReader& io, std::optional<T>& value, F each) {
  bool there = false;
  io.number(there);
  if (there) each(io, value.emplace());
}

// Of an enumeration: what is beyond its last value does not read.
template <class IO, class T>
void wire_choice(IO& io, T& value, std::remove_const_t<T> last) {
  wire_field(io, value);
  if (value < std::remove_const_t<T>{} || value > last) io.fail();
}

template <class IO, class T>
requires(SameWire<T, SamplingParams>) void wire_field(IO& io, T& s) {
  wire_fields(io, s.temperature, s.top_k, s.top_p, s.min_p, s.frequency_penalty, s.presence_penalty, s.repetition_penalty,
              s.num_logprobs);
  wire_optional(io, s.seed, kEachWire);
  io.list(s.logit_bias, [](auto& out, auto& pair) { wire_fields(out, pair.first, pair.second); });
}
template <class IO, class T>
requires(SameWire<T, ImageSpan>) void wire_field(IO& io, T& image) {
  wire_fields(io, image.begin, image.rows, image.content_hash);
  io.numbers(image.embeddings);
}
template <class IO, class T>
requires(SameWire<T, Request>) void wire_field(IO& io, T& r) {
  io.numbers(r.prompt);
  io.numbers(r.answered);
  io.list(r.images, kEachWire);
  wire_field(io, r.sampling);
  wire_field(io, r.speculation.max_draft);
  io.numbers(r.stop_ids);
  wire_fields(io, r.constraint.begins_after, r.constraint.source);
  wire_fields(io, r.max_tokens, r.tenant, r.priority, r.deadline_us, r.original_prompt_tokens);
  wire_choice(io, r.retention, RetentionClass::kPinned);
}
template <class IO, class T>
requires(SameWire<T, Usage>) void wire_field(IO& io, T& u) {
  wire_fields(io, u.prompt_tokens, u.cached_tokens, u.replayed_tokens, u.completion_tokens, u.drafted_tokens, u.accepted_tokens);
}
template <class IO, class T>
requires(SameWire<T, TokenWindow>) void wire_field(IO& io, T& window) {
  wire_field(io, window.count);
  if (window.count < 0 || window.count > static_cast<int32_t>(TokenWindow::kMost)) io.fail();
  for (auto& id : window.ids) wire_field(io, id);
}
template <class IO, class T>
requires(SameWire<T, PrefixVerdict>) void wire_field(IO& io, T& v) {
  wire_choice(io, v.reason, MissReason::kOtherTenant);
  wire_fields(io, v.cached_tokens, v.loaded_tokens, v.replayed_tokens, v.first_different, v.before, v.here, v.there, v.elsewhere);
}
template <class IO, class T>
requires(SameWire<T, RequestReport>) void wire_field(IO& io, T& report) {
  wire_optional(io, report.prefix, kEachWire);
  auto& t = report.trace;
  wire_fields(io, t.waiting_us, t.prefill_us, t.decode_us, t.prefill_steps, t.decode_steps, t.preempted);
}
template <class IO, class T>
requires(SameWire<T, Event>) void wire_field(IO& io, T& e) {
  wire_choice(io, e.finish, FinishReason::kDeadline);
  wire_choice(io, e.error_code, ErrorCode::kInternal);
  wire_fields(io, e.index, e.error, e.usage);
  wire_optional(io, e.token, kEachWire);
  wire_optional(io, e.logprob, kEachWire);
  io.list(e.top_logprobs, kEachWire);
  wire_optional(io, e.report, kEachWire);
}
template <class IO, class T>
requires(SameWire<T, VisionShape>) void wire_field(IO& io, T& v) {
  wire_fields(io, v.layers, v.hidden, v.heads, v.intermediate, v.patch, v.downsample, v.max_image_tokens, v.min_pixels,
              v.rope_theta);
  wire_optional(io, v.max_wh_ratio, kEachWire);
}
template <class IO, class T>
requires(SameWire<T, ServiceFacts>) void wire_field(IO& io, T& f) {
  auto& s = f.shape;
  wire_fields(io, f.model, f.fingerprint, s.vocab, s.hidden, s.window, s.max_context, s.bos_id, s.eos_id, s.pad_id, s.image_id);
  wire_optional(io, s.vision, kEachWire);
  wire_fields(io, f.context, f.max_batch, f.queue_limit, f.pages, f.page_tokens, f.pages_fingerprint, f.bounded_pages);
}

template <class IO, class T>
requires(SameWire<T, HelloMessage>) void wire_message(IO& io, T& m) {
  wire_fields(io, m.protocol, m.facts, m.page_port);
  wire_choice(io, m.role, WorkerRole::kDecode);
}
template <class IO, class T>
requires(SameWire<T, SubmitMessage>) void wire_message(IO& io, T& m) {
  wire_fields(io, m.number, m.request, m.hand_over, m.to_host, m.to_port, m.first_page);
}
template <class IO, class T>
requires(SameWire<T, CancelMessage>) void wire_message(IO& io, T& m) { wire_fields(io, m.number); }
template <class IO, class T>
requires(SameWire<T, FinishMessage>) void wire_message(IO& io, T& m) { wire_fields(io, m.number, m.last_index); }
template <class IO, class T>
requires(SameWire<T, EncodeMessage>) void wire_message(IO& io, T& m) {
  wire_fields(io, m.number, m.width, m.height, m.tokens, m.content_hash);
  io.numbers(m.pixels);
}
template <class IO, class T>
requires(SameWire<T, EncodedMessage>) void wire_message(IO& io, T& m) {
  wire_field(io, m.number);
  io.numbers(m.embeddings);
}
template <class IO, class T>
requires(SameWire<T, EventMessage>) void wire_message(IO& io, T& m) { wire_fields(io, m.number, m.event); }
template <class IO, class T>
requires(SameWire<T, RefusedMessage>) void wire_message(IO& io, T& m) {
  wire_choice(io, m.code, ErrorCode::kInternal);
  wire_fields(io, m.number, m.message);
}
template <class IO, class T>
requires(SameWire<T, LoadMessage>) void wire_message(IO& io, T& m) {
  wire_fields(io, m.sequence, m.running, m.waiting, m.pages, m.free_pages, m.cached_pages, m.step_age_us, m.prefill_rows,
              m.prefill_us, m.decode_rows, m.decode_us, m.ready, m.reason);
}
template <class IO, class T>
requires(SameWire<T, BlocksMessage>) void wire_message(IO& io, T& m) {
  wire_field(io, m.sequence);
  io.list(m.stored, kEachWire);
  io.list(m.removed, kEachWire);
}

template <class M>
std::string write_message(const M& value) {
  ByteWriter out;
  wire_message(out, value);
  return out.bytes();
}

template <class M>
Result<M> read_message(std::string_view bytes) {
  ByteReader in(bytes);
  M value;
  wire_message(in, value);
  if (!in.done()) return corrupt(fmt::format("a message of type {} with {} bytes does not read", M::kType, bytes.size()));
  return value;
}

}  // namespace deepinfer
