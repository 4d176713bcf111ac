// apps/chat.h - a conversation with a person: streams answers, keeps the history, obeys Ctrl-C.
#pragma once

#include <atomic>
#include <optional>
#include <string>

#include "base/fields.h"
#include "host/ask.h"

namespace deepinfer {

struct ChatSettings {
  std::string system;
  std::string think = "off";
  std::optional<float> temperature, top_p;
  int32_t top_k = 0;
  float min_p = 0;
  std::string seed, image;
  std::optional<std::string> json_schema, regex, grammar;
  int64_t max_tokens = 0;
  bool stats = false;

  void visit(FieldVisitor visit) {
    visit({.name = "system", .target = &system, .help = "system message", .value = "TEXT"});
    visit({.name = "think", .target = &think, .help = "thinking before the answer", .choices = {"off", "low", "high", "max"}});
    visit({.name = "temperature", .target = &temperature, .help = "0 = greedy [the model's]", .value = "T", .min = 0, .max = 2});
    visit({.name = "top-p", .target = &top_p, .help = "nucleus [the model's]", .value = "P", .min = 1e-9, .max = 1});
    visit({.name = "top-k", .target = &top_k, .help = "the k likeliest tokens, 0 = all", .value = "K", .min = 0, .max = 1 << 24});
    visit({.name = "min-p",
           .target = &min_p,
           .help = "tokens at least this likely, relative to the best",
           .value = "P",
           .min = 0,
           .max = 1});
    visit({.name = "seed", .target = &seed, .help = "whole number; the same seed gives the same answer", .value = "N"});
    visit({.name = "image", .target = &image, .help = "picture shown with the first question", .value = "F"});
    visit({.name = "max-tokens",
           .target = &max_tokens,
           .help = "length of an answer, 0 = what the context leaves",
           .value = "N",
           .min = 0,
           .max = 1 << 30});
    visit({.name = "json-schema", .target = &json_schema, .help = "the answer satisfies the JSON Schema in F", .value = "F"});
    visit({.name = "regex", .target = &regex, .help = "the answer matches R", .value = "R"});
    visit({.name = "grammar", .target = &grammar, .help = "the answer follows the EBNF grammar in F", .value = "F"});
    visit({.name = "stats", .target = &stats, .help = "print speeds and memory to stderr"});
  }
};

class Chat {
 public:
  Chat(Host& host, const ChatSettings& settings, std::atomic<bool>& interrupted);

  // Asks, streams the answer to stdout, keeps both in the history.
  Status say(const std::string& text);
  // Reads lines until the person leaves; returns the exit code.
  Result<int> converse(const std::string& history_file);
  bool was_cancelled() const { return cancelled_; }

 private:
  void reset();
  Result<AskOptions> ask_options() const;
  bool asks_for_form() const { return settings_.json_schema || settings_.regex || settings_.grammar; }
  // What json_schema and regex ask for.
  Result<ResponseFormat> format() const;
  // The question, with the picture of the settings when it was not shown yet.
  Result<Message> question(const std::string& text) const;
  // A line that starts with '/'; true = leave.
  bool obey(const std::string& line);
  void print_stats(const AskReport& report) const;

  Host& host_;
  ChatSettings settings_;
  std::atomic<bool>& interrupted_;
  Conversation conversation_;
  bool cancelled_ = false;
  bool image_shown_ = false;
};

}  // namespace deepinfer
