// api/completions/response.h - the events of an answer in the (legacy) Completions wire form.
//
// One writer a choice; stream and whole answers have the same shape. Text only: what the model writes is not parsed.
// Threads: one answer, one thread at a time.
//
//   writer.append_event(event, stream, sse);
//   Json choice = writer.choice();
#pragma once

#include <cstdint>
#include <string>

#include "base/json.h"
#include "recipe/output_stream.h"

namespace deepinfer {

struct CompletionInfo {
  std::string id, model;
  int64_t created = 0;
  int choice = 0;
  std::string echo;  // shown in front of the answer
};

Json completion_usage(const AnswerUsage& usage);

class CompletionWriter {
 public:
  explicit CompletionWriter(CompletionInfo info) : info_(std::move(info)) {}

  // The chunk of a stream as text behind `out`; nothing for an event that shows nothing. False: nothing was written.
  bool append_event(const OutputEvent& event, const OutputStream& stream, std::string& out);
  // Collects for choice().
  void take(const OutputEvent& event);
  Json choice() const;
  // A body with these choices; usage null = without.
  Json object(Json choices, Json usage, const OutputStream& stream) const;

 private:
  Json log_of(const OutputEvent& event);

  CompletionInfo info_;
  std::string text_;
  bool has_log_ = false;
  Json log_tokens_ = Json::array(), log_values_ = Json::array(), log_top_ = Json::array(), log_offsets_ = Json::array();
  int64_t offset_ = 0;  // characters shown so far
  AnswerEnd end_ = AnswerEnd::kStop;
};

}  // namespace deepinfer
