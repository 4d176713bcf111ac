#include "api/messages/turns.h"

#include <algorithm>
#include <set>

#include <fmt/format.h>

#include "api/images.h"
#include "recipe/python_json.h"

namespace deepinfer {

namespace {

using Block = MessagesBlock;
using Kind = Block::Kind;

// "\n\n" between parts, also around empty ones.
struct Joined {
  RichText text;
  bool any = false;
  void gap() {
    if (any) text.append("\n\n");
    any = true;
  }
};

class TurnConverter {
 public:
  TurnConverter(const MessagesBody& body, const ApiOptions& options, Conversation& conversation)
      : body_(body), options_(options), conversation_(conversation) {}

  Status convert() {
    if (body_.turns.empty()) return invalid_argument("messages: at least one message is required");
    if (body_.system) conversation_.messages.push_back(Message::system(*body_.system));
    for (index_ = 0; index_ < body_.turns.size(); ++index_) {
      const MessagesTurn& turn = body_.turns[index_];
      if (turn.is_list && turn.blocks.empty())
        return fault(fmt::format("messages.{}: all messages must have non-empty content", index_));
      if (!open_.empty() && turn.role != Role::kUser) return missing_results(fmt::format("messages.{}: ", index_));
      DI_CHECK_OK(one(turn));
    }
    return open_.empty() ? Status{} : missing_results(fmt::format("messages.{}:", caller_));
  }

 private:
  Status one(const MessagesTurn& turn) {
    switch (turn.role) {
      case Role::kUser: return user(turn);
      case Role::kAssistant: return assistant(turn);
      default: return system(turn);
    }
  }

  Status user(const MessagesTurn& turn) {
    std::vector<ToolDefinition> announced;
    for (size_t j = 0; j < turn.blocks.size(); ++j) {
      const Block& block = turn.blocks[j];
      DI_CHECK_OK(check_place(block, Role::kUser));
      if (block.kind == Kind::kToolResult) {
        DI_CHECK_OK(result(block, j, announced));
        continue;
      }
      if (!open_.empty()) return missing_results(fmt::format("messages.{}: ", index_));
      Joined joined;
      DI_CHECK_OK(part(block, j, joined));
      Message message;
      message.content = std::move(joined.text);
      conversation_.messages.push_back(std::move(message));
    }
    if (!open_.empty()) return missing_results(fmt::format("messages.{}:", caller_));
    answered_.clear();
    announce(std::move(announced));
    return {};
  }

  Status result(const Block& block, size_t j, std::vector<ToolDefinition>& announced) {
    if (!open_.erase(block.id)) {
      if (answered_.count(block.id)) {
        return fault(
            fmt::format("messages.{}.content.{}: each tool_use must have a single result. Found multiple "
                        "`tool_result` blocks with id: {}",
                        index_, j, block.id));
      }
      return fault(
          fmt::format("unexpected `messages.{}.content.{}: tool_use_id` found in `tool_result` blocks: {}. Each "
                      "`tool_result` block must have a corresponding `tool_use` block in the previous message.",
                      index_, j, block.id));
    }
    answered_.insert(block.id);
    Joined joined;
    for (const Block& item : block.content) {
      if (item.kind != Kind::kToolReference) {
        DI_CHECK_OK(part(item, j, joined));
        continue;
      }
      const ToolDefinition* tool = declared(item.name);
      if (!tool) {
        return fault(
            fmt::format("messages.{}.content.{}: tool reference '{}' not found in available tools", index_, j, item.name));
      }
      announced.push_back(*tool);
      joined.gap();
      joined.text.append(std::string_view(item.name));
    }
    Message message;
    message.role = Role::kTool;
    message.tool_call_id = block.id;
    message.content = std::move(joined.text);
    conversation_.messages.push_back(std::move(message));
    return {};
  }

  // Tools that become known through references in the results.
  void announce(std::vector<ToolDefinition> announced) {
    if (announced.empty() || body_.choice == ToolChoice::kNone) return;
    Message message = Message::system("");
    message.announced = std::move(announced);
    conversation_.messages.push_back(std::move(message));
  }

  Status system(const MessagesTurn& turn) {
    Message message;
    message.role = Role::kSystem;
    Joined joined;
    for (size_t j = 0; j < turn.blocks.size(); ++j) {
      const Block& block = turn.blocks[j];
      DI_CHECK_OK(check_place(block, Role::kSystem));
      if (block.kind != Kind::kToolAddition) {
        DI_CHECK_OK(part(block, j, joined));
        continue;
      }
      const ToolDefinition* tool = declared(block.name);
      if (!tool) {
        return fault(fmt::format("messages.{}.content.{}: `tool_addition` references unknown tool '{}'", index_, j, block.name));
      }
      if (body_.choice != ToolChoice::kNone) message.announced.push_back(*tool);
    }
    // Without tools nothing is left of a message that only adds some.
    if (!joined.any && message.announced.empty() && !turn.blocks.empty()) return {};
    message.content = std::move(joined.text);
    conversation_.messages.push_back(std::move(message));
    return {};
  }

  Status assistant(const MessagesTurn& turn) {
    Message message;
    message.role = Role::kAssistant;
    Joined text, reasoning;
    answered_.clear();
    caller_ = index_;
    for (size_t j = 0; j < turn.blocks.size(); ++j) {
      const Block& block = turn.blocks[j];
      DI_CHECK_OK(check_place(block, Role::kAssistant));
      if (block.kind == Kind::kServerToolUse || block.kind == Kind::kWebSearchResult) {
        if (drops_web_search(options_)) continue;
        return fault("Unsupported content block: server tools are not supported");
      }
      if (block.kind == Kind::kToolUse) {
        if (!open_.insert(block.id).second) {
          return fault(fmt::format("messages.{}.content.{}: `tool_use` ids must be unique", index_, j));
        }
        message.tool_calls.push_back({block.id, block.name, python_json(block.input)});
        continue;
      }
      if (!open_.empty()) return missing_results(fmt::format("messages.{}.{}: ", index_, j));
      if (block.kind == Kind::kThinking) {
        reasoning.gap();
        reasoning.text.append(std::string_view(block.text));
      } else {
        DI_CHECK_OK(part(block, j, text));
      }
    }
    message.content = std::move(text.text);
    if (reasoning.any) message.reasoning = std::move(reasoning.text.text);
    conversation_.messages.push_back(std::move(message));
    return {};
  }

  Status check_place(const Block& block, Role role) const {
    const char* what = nullptr;
    switch (block.kind) {
      case Kind::kToolUse:
      case Kind::kServerToolUse:
        if (role != Role::kAssistant) what = "messages.{}: `tool_use` blocks can only be in `assistant` messages";
        break;
      case Kind::kWebSearchResult:
        if (role != Role::kAssistant) what = "messages.{}: `web_search_tool_result` blocks can only be in `assistant` messages";
        break;
      case Kind::kThinking:
        if (role != Role::kAssistant) what = "messages.{}.content: thinking blocks may only be in `assistant` messages";
        break;
      case Kind::kToolResult:
        if (role != Role::kUser) what = "messages.{}: `tool_result` blocks can only be in `user` messages";
        break;
      case Kind::kToolAddition:
        if (role != Role::kSystem) what = "messages.{}: `tool_addition` blocks can only be in `system` messages";
        break;
      case Kind::kImage:
        if (role == Role::kAssistant) what = "Image in assistant message is unsupported";
        break;
      default: break;
    }
    return what ? Status(fault(fmt::format(fmt::runtime(what), index_))) : Status{};
  }

  // Text, image or document.
  Status part(const Block& block, size_t j, Joined& joined) const {
    joined.gap();
    if (block.kind == Kind::kDocument) {
      joined.text.append(std::string_view(fmt::format("[Unsupported document type: {}]", block.media_type)));
    } else if (block.kind == Kind::kImage) {
      DI_TRY(ImageReference reference, image(block, fmt::format("messages.{}.content[{}]", index_, j)));
      joined.text.append(std::move(reference));
    } else {
      joined.text.append(std::string_view(block.text));
    }
    return {};
  }

  static Result<ImageReference> image(const Block& block, const std::string& path) {
    switch (block.source) {
      case Block::Source::kFile: return fault(path + ": file_id is not supported. Pass the image as a base64 data url instead.");
      case Block::Source::kUrl: return image_from_link(block.text, path);
      case Block::Source::kBase64: break;
    }
    return ImageReference{fmt::format("data:{};base64,{}", block.media_type, block.text), true, "high", path};
  }

  const ToolDefinition* declared(const std::string& name) const {
    const auto found =
        std::find_if(body_.tools.begin(), body_.tools.end(), [&](const MessagesTool& tool) { return tool.tool.name == name; });
    return found == body_.tools.end() ? nullptr : &found->tool;
  }

  Error missing_results(const std::string& place) const {
    return fault(
        fmt::format("{}`tool_use` ids were found without `tool_result` blocks immediately after: {}. Each `tool_use` "
                    "block must have a corresponding `tool_result` block in the next message.",
                    place, fmt::join(open_, ", ")));
  }
  static Error fault(std::string text) { return invalid_argument(std::move(text)); }

  const MessagesBody& body_;
  const ApiOptions& options_;
  Conversation& conversation_;
  size_t index_ = 0;
  size_t caller_ = 0;               // the assistant message that opened the calls
  std::set<std::string> open_;      // calls without a result yet
  std::set<std::string> answered_;  // calls with one
};

}  // namespace

Status convert_messages_turns(const MessagesBody& body, const ApiOptions& options, Conversation& conversation) {
  return TurnConverter(body, options, conversation).convert();
}

}  // namespace deepinfer
