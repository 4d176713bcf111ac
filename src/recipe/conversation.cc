#include "recipe/conversation.h"

#include "recipe/control_tokens.h"

namespace deepinfer {

void RichText::append(const RichText& more) {
  const size_t shift = text.size();
  text += more.text;
  for (Placement placement : more.images) {
    placement.offset += shift;
    images.push_back(std::move(placement));
  }
}

std::string RichText::with_placeholders() const {
  std::string out;
  size_t at = 0;
  for (const Placement& placement : images) {
    out.append(text, at, placement.offset - at);
    out += control::kImage;
    at = placement.offset;
  }
  out.append(text, at);
  return out;
}

Message Message::plain(Role role, std::string text) {
  Message message;
  message.role = role;
  message.content = RichText(std::move(text));
  return message;
}

const char* role_name(Role role) {
  switch (role) {
    case Role::kSystem: return "system";
    case Role::kUser: return "user";
    case Role::kAssistant: return "assistant";
    case Role::kTool: return "tool";
    case Role::kReminder: return "latest_reminder";
  }
  return "unknown";
}

const char* tool_choice_name(ToolChoice choice) {
  switch (choice) {
    case ToolChoice::kAuto: return "auto";
    case ToolChoice::kNone: return "none";
    case ToolChoice::kRequired: return "required";
  }
  return "unknown";
}

const char* effort_name(Effort effort) {
  switch (effort) {
    case Effort::kLow: return "low";
    case Effort::kHigh: return "high";
    case Effort::kXhigh: return "xhigh";
    case Effort::kMax: return "max";
  }
  return "unknown";
}

const char* response_format_name(ResponseFormat::Kind kind) {
  switch (kind) {
    case ResponseFormat::Kind::kText: return "text";
    case ResponseFormat::Kind::kJsonObject: return "json_object";
    case ResponseFormat::Kind::kJsonSchema: return "json_schema";
    case ResponseFormat::Kind::kRegex: return "regex";
  }
  return "unknown";
}

const Message* Conversation::prefix_message() const {
  if (messages.empty()) return nullptr;
  const Message& last = messages.back();
  return last.role == Role::kAssistant && last.prefix ? &last : nullptr;
}

}  // namespace deepinfer
