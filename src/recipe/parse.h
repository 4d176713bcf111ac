// recipe/parse.h - generated text to reasoning, answer text and tool calls, piece by piece.
//
// The parser is fed records: the text of one or more tokens. It answers with deltas as soon as a record's text can no
// longer turn out to be markup, a stop string or stripped blank space. Stop strings are decided here and nowhere else: the
// engine knows ids only.
// Promise: any text is accepted, malformed and cut-off markup included; cutting the same text into other records changes
// where deltas are cut, never what they add up to. A record is held or released as a whole (as the reference does), so
// deltas follow the records. Cost is linear in the text.
// Threads: one answer, one thread at a time.
//
//   OutputParser parser(options);
//   parser.feed("Hm.</think>Yes", marks, deltas);
//   if (parser.stopped()) ...          // a stop string ended the answer
//   parser.end(deltas);
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "recipe/conversation.h"

namespace deepinfer {

// Where the text of the answer begins; kRaw: it is no chat's, and nothing but a stop string is looked for.
enum class ParseStart { kPlain, kReasoning, kReasoningContinued, kContentContinued, kRaw };

struct ParseOptions {
  bool tool_calls = false;            // look for calls
  bool starts_in_tool_calls = false;  // the prompt already opened the block of calls
  bool json_output = false;           // keep one JSON value, drop talk and fences around it
  bool exact = false;                 // the answer is held to a form: nothing of it is dropped, whatever it spells
  ParseStart start = ParseStart::kPlain;
  std::vector<std::string> stop;  // stop strings, none empty
};

ParseOptions parse_options(const Conversation& conversation, std::vector<std::string> stop);

// A token of a record: where its text begins there, and a number its owner knows it by.
struct TokenMark {
  size_t offset = 0;
  int64_t token = 0;
};

struct OutputDelta {
  enum class Kind { kReasoning, kContent, kToolName, kToolArguments };
  Kind kind = Kind::kContent;
  std::string text;
  int tool_index = 0;           // calls only
  std::vector<int64_t> tokens;  // reasoning and content: the tokens that begin in this text
};

class OutputParser {
 public:
  explicit OutputParser(ParseOptions options);
  ~OutputParser();
  OutputParser(OutputParser&&) noexcept;
  OutputParser& operator=(OutputParser&&) noexcept;

  // REQUIRES: text is valid UTF-8; marks in order.
  void feed(std::string_view text, const std::vector<TokenMark>& marks, std::vector<OutputDelta>& out);
  // No more text: releases what was held.
  void end(std::vector<OutputDelta>& out);

  bool stopped() const;                    // by a stop string
  const std::string& stop_string() const;  // the one that did
  int num_tool_calls() const;              // begun so far

 private:
  class Machine;
  std::unique_ptr<Machine> machine_;
};

}  // namespace deepinfer
