// api/responses/response.h - the events of an answer in the Responses wire form.
//
// One writer an answer. event() appends the named objects of a stream with their sequence numbers (no end mark follows);
// the same events are collected, so response() gives the body of a non-stream answer after the last one. A response that
// waits (background) is snapshot("queued" | "in_progress"); one that was given up is failed() or cancelled().
// Threads: one answer, one thread at a time.
//
//   for (const OutputEvent& event : events) writer.append_sse(event, stream, out);
//   Json body = writer.response(stream);
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "api/named_event.h"
#include "api/responses/custom_input.h"
#include "api/responses/request.h"
#include "recipe/output_stream.h"

namespace deepinfer {

struct ResponsesAnswerInfo {
  std::string id;
  std::string model;    // as it is to be shown
  int64_t created = 0;  // seconds since 1970
  ResponsesEcho echo;
  NamespaceNames namespaces;
  bool has_apply_patch = false;
  std::function<int64_t()> now;  // for completed_at; empty = `created`
  // The last 24 characters of a tool call's id; empty = tool_call_suffix(0, index).
  std::function<std::string(int index)> call_suffix;
};

class ResponsesAnswerWriter {
 public:
  explicit ResponsesAnswerWriter(ResponsesAnswerInfo info) : info_(std::move(info)) {}

  void event(const OutputEvent& event, const OutputStream& stream, std::vector<NamedEvent>& out);
  // The same as server-sent events behind `out`; text deltas, which are nearly all, without building an object.
  void append_sse(const OutputEvent& event, const OutputStream& stream, std::string& out);
  // REQUIRES: the finish event was taken.
  Json response(const OutputStream& stream) const;
  Json snapshot(const char* status) const;
  // The response when the answer broke - status "failed" and an error of that code - or was cancelled, with what had come.
  Json failed(const std::string& code, const std::string& message) const;
  Json cancelled() const { return given_up("cancelled"); }
  // What ends the stream then: response.failed or response.cancelled, and an error event that SDKs raise.
  void append_failure(const std::string& code, const std::string& message, std::string& out);
  void append_cancelled(std::string& out);
  // It could not be stored: `store` is false from here on.
  void not_stored() { info_.echo.store = false; }
  // The output items so far; with the request's items they are what a later response continues from.
  Json output() const;

 private:
  enum class Kind { kReasoning, kMessage, kFunction, kCustom };
  struct Item {
    Kind kind = Kind::kMessage;
    std::string id, status = "in_progress", phase = "final_answer";
    std::string text;  // or arguments or input
    std::string call_id, name, space;
    Json log = Json::array();
  };
  using Events = std::vector<NamedEvent>;

  Json envelope(const char* status, Json completed, Json incomplete, Json output, Json usage) const;
  Json given_up(const char* status) const;
  void append_end(const char* name, Json response, const std::string& code, const std::string& message, std::string& out);
  void emit(const char* name, std::vector<Json::Member> members, Events& out);
  void start(Events& out);
  void open(Item item, Events& out);
  void close(const char* status, Events& out);
  void begin_call(const OutputEvent& event, Events& out);
  void text_delta(Kind kind, const OutputEvent& event, Events& out);
  void arguments(const std::string& text, Events& out);
  void custom_delta(std::string text, Events& out);
  void finish(const OutputEvent& event, const OutputStream& stream, Events& out);
  Json item_json(const Item& item) const;
  static Json part_json(const Item& item);
  Json place() const { return static_cast<uint64_t>(items_.size() - 1); }

  ResponsesAnswerInfo info_;
  std::vector<Item> items_;
  bool is_open_ = false;  // the last item
  CustomInput custom_;
  AnswerEnd end_ = AnswerEnd::kStop;
  int64_t completed_ = 0;
  int64_t sequence_ = 0;
  Events events_;
};

}  // namespace deepinfer
