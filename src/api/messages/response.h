// api/messages/response.h - the events of an answer in the Anthropic Messages wire form.
//
// One writer an answer. event() appends the named objects of a stream ("event: NAME\ndata: JSON\n\n" each, no end mark);
// the same events are collected, so response() gives the body of a non-stream answer after the last one.
// Threads: one answer, one thread at a time.
//
//   for (const OutputEvent& event : events) writer.append_sse(event, stream, out);
//   Json body = writer.response(stream);
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "api/named_event.h"
#include "base/json.h"
#include "base/result.h"
#include "recipe/output_stream.h"

namespace deepinfer {

struct MessagesAnswerInfo {
  std::string id;
  std::string model;  // as it is to be shown
  bool thinking = true;
  // The last 24 characters of a tool call's id; empty = tool_call_suffix(0, index).
  std::function<std::string(int index)> call_suffix;
};

class MessagesAnswerWriter {
 public:
  explicit MessagesAnswerWriter(MessagesAnswerInfo info) : info_(std::move(info)) {}

  void event(const OutputEvent& event, const OutputStream& stream, std::vector<NamedEvent>& out);
  // The same as server-sent events behind `out`; text deltas, which are nearly all, without building an object.
  void append_sse(const OutputEvent& event, const OutputStream& stream, std::string& out);
  Json response(const OutputStream& stream) const;

 private:
  enum class Kind { kThinking, kText, kToolUse };
  struct Block {
    Kind kind = Kind::kText;
    std::string text;  // or the arguments
    std::string id, name;
  };
  Json message(Json content, Json stop_reason, Json stop_sequence, Json usage) const;
  void delta(Kind kind, const std::string& text, std::vector<NamedEvent>& out);
  void open(Block block, std::vector<NamedEvent>& out);
  void close(std::vector<NamedEvent>& out);
  void finish(const OutputEvent& event, const OutputStream& stream, std::vector<NamedEvent>& out);

  MessagesAnswerInfo info_;
  std::vector<Block> blocks_;
  bool is_open_ = false;  // the last block
  AnswerEnd end_ = AnswerEnd::kStop;
  std::string stop_string_;
  std::vector<NamedEvent> events_;
};

// {"type": "error", "error": {"type", "message"}}: the envelope of this wire. Official clients also take error_body().
Json messages_error_body(int status, const std::string& message);

}  // namespace deepinfer
