// api/chat/response.h - the events of an answer in the Chat Completions wire form.
//
// One writer an answer: event() gives the chunk object of a stream, or nothing; the same events are collected, so
// response() gives the body of a non-stream answer. SSE framing is a detail of the server: "data: " + dump() + blank line,
// "data: [DONE]" at the end.
// Threads: one answer, one thread at a time.
//
//   for (const OutputEvent& event : events) send(writer.event(event, stream).dump());
//   Json body = writer.response(stream);
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/json.h"
#include "recipe/output_stream.h"

namespace deepinfer {

struct ChatAnswerInfo {
  std::string id;
  std::string model;    // as it is to be shown
  int64_t created = 0;  // seconds since 1970
  bool thinking = true;
  // The answer goes on inside the content of a prefix message.
  bool continues_content = false;
  bool null_usage = false;   // chunks before the last say "usage": null
  bool usage_apart = false;  // the last chunk has no usage; a chunk of its own follows (usage_chunk)
  int choice = 0;
  // The last 24 characters of a tool call's id.
  std::function<std::string(int index)> call_suffix;
};

// 24 alphanumeric characters that depend on the seed and the index only.
std::string tool_call_suffix(uint64_t seed, int index);

// The usage object of the wire.
Json chat_usage(const AnswerUsage& usage, bool thinking);

class ChatAnswerWriter {
 public:
  explicit ChatAnswerWriter(ChatAnswerInfo info) : info_(std::move(info)) {}

  Json event(const OutputEvent& event, const OutputStream& stream);
  // event() as text behind `out`. A delta of plain text, which is nearly every event, is written without building an object.
  void append_event(const OutputEvent& event, const OutputStream& stream, std::string& out);
  // Keeps an event for response() without writing it.
  void collect(const OutputEvent& event);
  Json response(const OutputStream& stream) const;
  // The choice of response() alone, for answers with several.
  Json choice() const;
  // {"choices": [], "usage": ...} of a stream whose usage comes apart.
  Json usage_chunk(const AnswerUsage& usage, const OutputStream& stream) const;

 private:
  struct Call {
    std::string id, name, arguments;
  };
  Json delta_of(const OutputEvent& event);
  Json text_delta(Json content, Json reasoning) const;
  std::string begin_call(const OutputEvent& event);
  Json log_of(const OutputEvent& event);
  void prepare_text(const OutputStream& stream);

  ChatAnswerInfo info_;
  std::string content_, reasoning_;
  std::vector<Call> calls_;
  Json content_log_ = Json::array(), reasoning_log_ = Json::array();
  AnswerEnd end_ = AnswerEnd::kStop;
  // Around the text of a delta, made once: before, after content, after reasoning.
  std::string content_head_, content_tail_, reasoning_head_, reasoning_tail_;
};

}  // namespace deepinfer
