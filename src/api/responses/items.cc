#include "api/responses/items.h"

#include <algorithm>
#include <map>
#include <unordered_set>

#include <fmt/format.h>

#include "api/images.h"
#include "api/responses/tools.h"

namespace deepinfer {

namespace {

using Item = ResponsesItem;

class ItemConverter {
 public:
  ItemConverter(const ResponsesBody& body, const ApiOptions& options, Conversation& conversation,
                std::vector<ToolDefinition>& found)
      : body_(body), options_(options), conversation_(conversation), found_(found) {}

  Status convert() {
    if (!body_.has_input && !body_.instructions) return invalid_argument("Either input or instructions must be provided");
    if (body_.input_is_list && body_.items.empty()) return invalid_argument("Input items array must not be empty");
    if (body_.instructions && !body_.instructions->empty()) {
      conversation_.messages.push_back(Message::system(*body_.instructions));
    }
    for (index_ = 0; index_ < body_.items.size(); ++index_) DI_CHECK_OK(one(body_.items[index_]));
    DI_CHECK_OK(check_group_closed());
    flush_reasoning();
    return {};
  }

 private:
  // A call of the open group and what came back.
  struct Call {
    ToolCall call;
    bool answered = false;
    RichText output;
    std::vector<ToolDefinition> announced;
  };

  Status one(const Item& item) {
    switch (item.kind) {
      case Item::Kind::kUnknown: return {};
      case Item::Kind::kCall: return call(item);
      case Item::Kind::kOutput:
      case Item::Kind::kToolSearchOutput: return output(item);
      case Item::Kind::kMessage: DI_CHECK_OK(check_group_closed()); return message(item);
      case Item::Kind::kReasoning: break;
    }
    DI_CHECK_OK(check_group_closed());
    reasoning_ = reasoning_ ? *reasoning_ + "\n" + item.text : item.text;
    return {};
  }

  Status check_group_closed() const {
    for (const auto& [id, call] : group_) {
      if (!call.answered) return invalid_argument(fmt::format("No tool output found for tool call {}.", id));
    }
    return {};
  }

  Status message(const Item& item) {
    Message message;
    message.role = item.role;
    const bool joins = item.role == Role::kAssistant && continues_turn();
    if (item.role == Role::kAssistant) {
      if (std::any_of(item.parts.begin(), item.parts.end(),
                      [](const auto& p) { return p.kind == ResponsesPart::Kind::kImage; })) {
        return invalid_argument(fmt::format("input[{}]: Image in assistant message is unsupported", index_));
      }
      take_reasoning(message);
    } else {
      flush_reasoning();
    }
    DI_TRY(message.content, content(item, "content"));
    if (joins) {
      conversation_.messages.back().content.append("\n\n");
      conversation_.messages.back().content.append(message.content);
    } else {
      conversation_.messages.push_back(std::move(message));
    }
    return {};
  }

  Status call(const Item& item) {
    if (item.call_id.empty()) {
      return invalid_argument(
          fmt::format("Invalid 'input[{}].call_id': empty string. Expected a string with minimum length 1, but "
                      "got an empty string instead.",
                      index_));
    }
    if (!known_.insert(item.call_id).second) return invalid_argument(fmt::format("Duplicate 'call_id': {}.", item.call_id));
    group_[item.call_id].call = {item.call_id, item.name, item.arguments};
    return {};
  }

  Status output(const Item& item) {
    const auto found = group_.find(item.call_id);
    if (found == group_.end() || found->second.answered) {
      const char* text = known_.count(item.call_id) ? "Duplicate tool output for call_id: {}."
                                                    : "No tool call found for tool output with call_id {}.";
      return invalid_argument(fmt::format(fmt::runtime(text), item.call_id));
    }
    Call& call = found->second;
    call.answered = true;
    if (item.kind == Item::Kind::kToolSearchOutput) {
      DI_CHECK_OK(check_responses_tools(item.tools, fmt::format("input[{}].tools", index_), options_));
      call.output = RichText(found_tools_text(item.tools));
      append_responses_tools(item.tools, true, call.announced, nullptr);
    } else {
      DI_TRY(call.output, content(item, "output"));
    }
    if (std::all_of(group_.begin(), group_.end(), [](const auto& entry) { return entry.second.answered; })) close_group();
    return {};
  }

  // One assistant turn with the calls, then the results, both in the order of the ids; then the tools they announce.
  void close_group() {
    std::vector<Message>& messages = conversation_.messages;
    if (!continues_turn()) {
      Message turn;
      turn.role = Role::kAssistant;
      take_reasoning(turn);
      messages.push_back(std::move(turn));
    }
    for (auto& [id, call] : group_) messages.back().tool_calls.push_back(std::move(call.call));
    std::vector<Message> announcements;
    for (auto& [id, call] : group_) {
      Message result;
      result.role = Role::kTool;
      result.tool_call_id = id;
      result.content = std::move(call.output);
      messages.push_back(std::move(result));
      if (call.announced.empty() || body_.choice == ToolChoice::kNone) continue;
      found_.insert(found_.end(), call.announced.begin(), call.announced.end());
      announcements.push_back(Message::system(""));
      announcements.back().announced = std::move(call.announced);
    }
    group_.clear();
    std::move(announcements.begin(), announcements.end(), std::back_inserter(messages));
  }

  // An assistant's item behind its text belongs to the same turn, unless new reasoning stands between.
  bool continues_turn() const {
    const std::vector<Message>& messages = conversation_.messages;
    return !reasoning_ && !messages.empty() && messages.back().role == Role::kAssistant && messages.back().tool_calls.empty();
  }

  void take_reasoning(Message& message) {
    if (reasoning_ && !reasoning_->empty()) message.reasoning = std::move(*reasoning_);
    reasoning_.reset();
  }

  // Reasoning that nothing of the assistant follows is a turn of its own.
  void flush_reasoning() {
    if (!reasoning_) return;
    Message turn;
    turn.role = Role::kAssistant;
    take_reasoning(turn);
    conversation_.messages.push_back(std::move(turn));
  }

  Result<RichText> content(const Item& item, const char* field) const {
    RichText out;
    for (size_t j = 0; j < item.parts.size(); ++j) {
      const ResponsesPart& part = item.parts[j];
      if (j) out.append("\n\n");
      if (part.kind == ResponsesPart::Kind::kText) {
        out.append(std::string_view(part.text));
      } else if (part.kind == ResponsesPart::Kind::kFile) {
        out.append("[Unsupported Document]");
      } else {
        DI_TRY(ImageReference reference, image(part, fmt::format("input[{}].{}[{}]", index_, field, j)));
        out.append(std::move(reference));
      }
    }
    return out;
  }

  Result<ImageReference> image(const ResponsesPart& part, const std::string& place) const {
    const auto fault = [&](std::string_view text) { return invalid_argument(fmt::format("{}: {}", place, text)); };
    if (part.image_url.empty() && part.file_id.empty()) return fault("input_image must have image_url or file_id");
    if (!part.image_url.empty() && !part.file_id.empty()) return fault("input_image cannot have both image_url and file_id");
    if (part.image_url.empty()) return fault("file_id is not supported. Pass the image as a base64 data url instead.");
    if (const Status fits = check_link_length(part.image_url); !fits) return fault("image_url " + fits.error().message);
    return image_from_url(part.image_url, part.detail, fmt::format("input[{}]", index_));
  }

  const ResponsesBody& body_;
  const ApiOptions& options_;
  Conversation& conversation_;
  std::vector<ToolDefinition>& found_;
  size_t index_ = 0;
  std::map<std::string, Call> group_;  // open calls by id
  std::unordered_set<std::string> known_;
  std::optional<std::string> reasoning_;  // waits for its turn
};

}  // namespace

Status convert_responses_items(const ResponsesBody& body, const ApiOptions& options, Conversation& conversation,
                               std::vector<ToolDefinition>& found) {
  return ItemConverter(body, options, conversation, found).convert();
}

}  // namespace deepinfer
