#include "api/chat/messages.h"

#include <algorithm>
#include <unordered_set>

#include <fmt/format.h>

#include "api/images.h"

namespace deepinfer {

namespace {

constexpr const char* kTooFewResults =
    "An assistant message with 'tool_calls' must be followed by tool messages responding to each 'tool_call_id'. (insufficient "
    "tool "
    "messages following tool_calls message)";

class MessageConverter {
 public:
  MessageConverter(const ChatBody& body, Conversation& conversation) : body_(body), conversation_(conversation) {}

  Status convert() {
    for (index_ = 0; index_ < body_.messages.size(); ++index_) {
      const ChatMessage& message = body_.messages[index_];
      if (!open_calls_.empty() && message.role != Role::kTool) return invalid_argument(kTooFewResults);
      DI_CHECK_OK(convert_one(message));
    }
    if (!open_calls_.empty()) return invalid_argument(kTooFewResults);
    if (body_.messages.empty()) return invalid_argument("Empty input messages");
    return {};
  }

 private:
  Status convert_one(const ChatMessage& message) {
    Message out;
    out.role = message.role;
    switch (message.role) {
      case Role::kAssistant: return assistant(message, std::move(out));
      case Role::kTool: DI_CHECK_OK(check_result(message)); break;
      default: break;
    }
    DI_TRY(out.content, content(*message.content));
    out.tool_call_id = message.tool_call_id;
    if (message.role == Role::kSystem && out.content.empty()) return {};
    conversation_.messages.push_back(std::move(out));
    return {};
  }

  Status assistant(const ChatMessage& message, Message out) {
    out.prefix = message.prefix.value_or(false);
    if (out.prefix) DI_CHECK_OK(check_prefix());
    if (message.content) {
      for (const ChatPart& part : message.content->parts) {
        if (part.kind != ChatPart::Kind::kText) return invalid_argument("Image in assistant message is not supported");
      }
      DI_TRY(out.content, content(*message.content));
    }
    if (message.tool_calls) {
      if (message.tool_calls->empty()) {
        return invalid_argument(
            fmt::format("Invalid 'messages[{}].tool_calls': empty array. Expected an array with minimum length 1, "
                        "but got an empty array instead.",
                        index_));
      }
      out.tool_calls = *message.tool_calls;
      DI_CHECK_OK(open_calls(out.tool_calls));
    } else if (!message.content) {
      return invalid_argument("Invalid assistant message: content or tool_calls must be set");
    }
    out.reasoning = message.reasoning;
    conversation_.messages.push_back(std::move(out));
    return {};
  }

  Status check_prefix() const {
    if (index_ + 1 != body_.messages.size()) {
      return invalid_argument(
          "Invalid completion message: prefix set true with message which is not final message or message role is not assistant");
    }
    if (!body_.tools.empty()) return invalid_argument("Function call should not be used with prefix");
    if (conversation_.format.kind == ResponseFormat::Kind::kJsonObject) {
      return invalid_argument("response_format json_object should not be used with prefix");
    }
    return {};
  }

  Status open_calls(const std::vector<ToolCall>& calls) {
    known_calls_.clear();
    for (const ToolCall& call : calls) {
      if (!known_calls_.insert(call.id).second) return duplicate(call.id);
    }
    open_calls_ = known_calls_;
    return {};
  }

  Status check_result(const ChatMessage& message) {
    if (open_calls_.empty()) {
      return invalid_argument("Messages with role 'tool' must be a response to a preceding message with 'tool_calls'");
    }
    if (open_calls_.erase(message.tool_call_id)) return {};
    if (known_calls_.count(message.tool_call_id)) return duplicate(message.tool_call_id);
    return invalid_argument(fmt::format(
        "An assistant message with 'tool_calls' must be followed by tool messages responding to each 'tool_call_id', The "
        "following tool_call_ids did not have response messages: {}",
        message.tool_call_id));
  }

  Error duplicate(const std::string& id) const {
    return invalid_argument(fmt::format("Duplicate value for 'tool_call_id' of {} in message[{}]", id, index_));
  }

  Result<RichText> content(const ChatContent& content) const {
    RichText out;
    const std::string path = fmt::format(".messages[{}]", index_);
    for (size_t i = 0; i < content.parts.size(); ++i) {
      const ChatPart& part = content.parts[i];
      if (i) out.append("\n\n");
      if (part.kind == ChatPart::Kind::kText) {
        out.append(std::string_view(part.text));
        continue;
      }
      DI_TRY(ImageReference image,
             part.kind == ChatPart::Kind::kImageUrl ? image_from_url(part.text, part.detail, path) : file(part, path));
      out.append(std::move(image));
    }
    return out;
  }

  static Result<ImageReference> file(const ChatPart& part, const std::string& path) {
    const auto get = [](const std::optional<std::string>& text) { return text ? &*text : nullptr; };
    return image_from_file(get(part.file_id), get(part.file_data), get(part.filename), path);
  }

  const ChatBody& body_;
  Conversation& conversation_;
  size_t index_ = 0;
  std::unordered_set<std::string> known_calls_;  // of the last assistant message with calls
  std::unordered_set<std::string> open_calls_;   // those without a result yet
};

}  // namespace

Status convert_chat_messages(const ChatBody& body, Conversation& conversation) {
  return MessageConverter(body, conversation).convert();
}

}  // namespace deepinfer
