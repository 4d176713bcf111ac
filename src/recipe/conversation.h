// recipe/conversation.h - the one internal form of a conversation.
//
// Every wire dialect (and the command line) turns its request into a Conversation; the renderer knows nothing else. Plain
// data: roles, text with image positions, reasoning, tool calls and results, tools, the wanted form of the answer.
// Promise: an image is a position in a text, never a spelling, so text that looks like a placeholder stays text.
// Threads: values.
//
//   Conversation chat;
//   chat.messages.push_back(Message::system("You are terse."));
//   chat.messages.push_back(Message::user("What is 12 + 30?"));
//   Prompt prompt = render_prompt(chat);
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/json.h"

namespace deepinfer {

// An image as the client named it; fetching and preprocessing come later.
struct ImageReference {
  std::string url;  // data URL or http(s) address
  bool is_data_url = false;
  std::string detail = "high";  // low | high | original | auto
  std::string path;             // where it stood in the request, for error texts
};

// Text with images standing between its characters.
struct RichText {
  struct Placement {
    size_t offset = 0;  // byte offset in text
    ImageReference image;
  };

  std::string text;
  std::vector<Placement> images;  // offsets do not decrease

  RichText() = default;
  RichText(std::string plain) : text(std::move(plain)) {}

  bool empty() const { return text.empty() && images.empty(); }
  void append(std::string_view more) { text += more; }
  void append(const RichText& more);
  void append(ImageReference image) { images.push_back({text.size(), std::move(image)}); }
  // The text with every image written as the placeholder spelling; for people and goldens, not for encoding.
  std::string with_placeholders() const;
};

struct ToolCall {
  std::string id;
  std::string name;
  std::string arguments;  // JSON text as the client or the model wrote it
};

struct ToolDefinition {
  std::string name;
  std::optional<std::string> description;
  std::optional<Json> parameters;  // JSON Schema, key order kept
  std::optional<bool> strict;
  bool deferred = false;         // announced later by a system message, not shown at the top
  std::optional<Json> enforced;  // what arguments are held to, where that is more than the `parameters` of the prompt
};

enum class Role { kSystem, kUser, kAssistant, kTool, kReminder };
const char* role_name(Role role);

struct Message {
  Role role = Role::kUser;
  RichText content;
  std::optional<std::string> reasoning;   // assistant
  std::vector<ToolCall> tool_calls;       // assistant
  bool prefix = false;                    // assistant, last message only: the answer goes on from here
  std::string tool_call_id;               // tool
  std::vector<ToolDefinition> announced;  // system: tools that become available here
  // Of a rendered one: which message of the conversation it is, -1 = none; of merged ones the others, by where they begin in the
  // text.
  int32_t source = -1;
  std::vector<std::pair<size_t, int32_t>> joined;

  static Message system(std::string text) { return plain(Role::kSystem, std::move(text)); }
  static Message user(std::string text) { return plain(Role::kUser, std::move(text)); }
  static Message assistant(std::string text) { return plain(Role::kAssistant, std::move(text)); }
  static Message plain(Role role, std::string text);
};

enum class ToolChoice { kAuto, kNone, kRequired };
const char* tool_choice_name(ToolChoice choice);

enum class Effort { kLow, kHigh, kXhigh, kMax };
const char* effort_name(Effort effort);

struct ResponseFormat {
  enum class Kind { kText, kJsonObject, kJsonSchema, kRegex };
  Kind kind = Kind::kText;
  Json schema;             // json_schema, as the client gave it: this is shown in the prompt
  Json constraint_schema;  // json_schema: what the output is held to (normalised when strict)
  Json enforced;           // with strict, what the answer is held to here: all of the schema; null = constraint_schema
  std::string regex;
};
const char* response_format_name(ResponseFormat::Kind kind);

struct Conversation {
  std::vector<Message> messages;
  bool thinking = true;
  std::optional<Effort> effort;  // none given: as high
  std::vector<ToolDefinition> tools;
  ToolChoice tool_choice = ToolChoice::kAuto;
  int64_t max_calls = 0;     // in this answer; 0 = any number
  bool only_listed = false;  // other tools than `tools` are known to the model, and must not be called
  ResponseFormat format;

  // Tools take part in this turn.
  bool tools_active() const { return !tools.empty() && tool_choice != ToolChoice::kNone; }
  // The unfinished assistant message the answer continues, if there is one.
  const Message* prefix_message() const;
};

}  // namespace deepinfer
