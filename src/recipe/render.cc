#include "recipe/render.h"

#include <algorithm>
#include <unordered_map>

#include <fmt/format.h>

#include "recipe/control_tokens.h"
#include "recipe/tool_text.h"

namespace deepinfer {

namespace {

bool shows_schema(const Conversation& chat) {
  return chat.format.kind == ResponseFormat::Kind::kJsonObject || chat.format.kind == ResponseFormat::Kind::kJsonSchema;
}

std::vector<Message> merge_users(const std::vector<Message>& messages) {
  std::vector<Message> out;
  for (const Message& message : messages) {
    const auto source = static_cast<int32_t>(&message - messages.data());
    if (message.role == Role::kUser && !out.empty() && out.back().role == Role::kUser) {
      out.back().joined.emplace_back(out.back().content.text.size(), source);
      out.back().content.append("\n\n");
      out.back().content.append(message.content);
    } else {
      out.push_back(message);
      out.back().source = source;
    }
  }
  return out;
}

// The part [begin, end) of a text with its pictures from `next` on; one that stands at the end belongs to it.
RichText part_of(const RichText& text, size_t begin, size_t end, size_t& next) {
  RichText out(text.text.substr(begin, end - begin));
  for (; next < text.images.size() && text.images[next].offset <= end; ++next)
    out.images.push_back({text.images[next].offset - begin, text.images[next].image});
  return out;
}

using CallOrder = std::unordered_map<std::string, size_t>;

// Tool messages of [begin, end) sorted by the order of their calls, into the places tool messages occupy.
void sort_tool_results(std::vector<Message>& messages, size_t begin, size_t end, const CallOrder& order) {
  std::vector<size_t> places;
  for (size_t i = begin; i < end; ++i) {
    if (messages[i].role == Role::kTool) places.push_back(i);
  }
  if (places.size() < 2) return;
  const auto rank = [&](const Message& message) {
    const auto found = order.find(message.tool_call_id);
    return found == order.end() ? size_t{0} : found->second;
  };
  std::vector<Message> results;
  for (const size_t place : places) results.push_back(std::move(messages[place]));
  std::stable_sort(results.begin(), results.end(), [&](const Message& a, const Message& b) { return rank(a) < rank(b); });
  for (size_t i = 0; i < places.size(); ++i) messages[places[i]] = std::move(results[i]);
}

void order_tool_results(std::vector<Message>& messages) {
  CallOrder order;
  for (size_t i = 0; i < messages.size();) {
    const Message& message = messages[i];
    if (message.role == Role::kAssistant && !message.tool_calls.empty()) {
      order.clear();
      for (size_t k = 0; k < message.tool_calls.size(); ++k) order[message.tool_calls[k].id] = k;
    }
    size_t end = i;
    while (end < messages.size() && (messages[end].role == Role::kUser || messages[end].role == Role::kTool)) ++end;
    sort_tool_results(messages, i, end, order);
    i = std::max(end, i + 1);
  }
}

std::string effort_prefix(const Conversation& chat) {
  if (!chat.thinking) return {};
  int level = 75;
  if (chat.effort == Effort::kLow) level = 50;
  if (chat.effort == Effort::kMax) level = 100;
  return fmt::format("Reasoning Effort: {} (range 1-100, the higher the value, the more thorough the reasoning)\n\n", level);
}

class Renderer {
 public:
  explicit Renderer(const Conversation& chat) : chat_(chat), messages_(normalised_messages(chat)), active_(chat.tools_active()) {}

  Prompt render() {
    prompt_.add_control(control::kBeginOfText);
    for (size_t i = 0; i < messages_.size(); ++i) add_message(i);
    if (!chat_.prefix_message()) add_generation_header();
    return std::move(prompt_);
  }

 private:
  void add_message(size_t i) {
    const Message& message = messages_[i];
    prompt_.mark(message.source);
    if (i == 0) {
      const std::string effort = effort_prefix(chat_);
      if (!effort.empty() || message.role == Role::kSystem) prompt_.add_control(control::kSystem);
      prompt_.add_text(effort);
    }
    switch (message.role) {
      case Role::kSystem: return add_system(i);
      case Role::kUser: return add_user_side(i, "", "");
      case Role::kTool: return add_user_side(i, "<tool_result>", "</tool_result>");
      case Role::kReminder: prompt_.add_control(control::kReminder); return prompt_.add_rich(message.content);
      case Role::kAssistant: return add_assistant(i);
    }
  }

  void add_system(size_t i) {
    const Message& message = messages_[i];
    if (i > 0) prompt_.add_control(control::kSystem);
    prompt_.add_rich(message.content);
    if (i == 0 && active_) add_tool_section(prompt_, chat_.tools);
    if (i == 0) add_response_format(prompt_, chat_.format);
    if (!message.announced.empty()) add_announced_tools(prompt_, message.announced);
  }

  // User messages and tool results share one turn of the user.
  void add_user_side(size_t i, std::string_view open, std::string_view close) {
    const bool same_turn = i > 0 && (messages_[i - 1].role == Role::kUser || messages_[i - 1].role == Role::kTool);
    if (same_turn) {
      prompt_.add_text("\n\n");
    } else {
      prompt_.add_control(control::kUser);
    }
    prompt_.add_text(open);
    add_content(messages_[i]);
    prompt_.add_text(close);
  }

  void add_content(const Message& message) {
    const RichText& content = message.content;
    if (message.joined.empty()) return prompt_.add_rich(content);
    size_t begin = 0, picture = 0;
    for (const auto& [next, source] : message.joined) {
      prompt_.add_rich(part_of(content, begin, next, picture));
      prompt_.mark(source);
      begin = next;
    }
    prompt_.add_rich(part_of(content, begin, content.text.size(), picture));
  }

  void add_assistant(size_t i) {
    const Message& message = messages_[i];
    prompt_.add_control(control::kAssistant);
    const bool keep_reasoning = chat_.thinking && i > 0 && (active_ || message.prefix);
    if (keep_reasoning) {
      prompt_.add_control(control::kThink);
      prompt_.add_text(message.reasoning.value_or(""));
      if (message.prefix && message.content.empty()) return;  // the answer goes on inside the reasoning
    }
    prompt_.add_control(control::kEndThink);
    prompt_.add_rich(message.content);
    if (!message.tool_calls.empty()) add_tool_calls(prompt_, message.tool_calls);
    if (!message.prefix) prompt_.add_control(control::kEndOfText);
  }

  void add_generation_header() {
    prompt_.add_control(control::kAssistant);
    prompt_.add_control(chat_.thinking ? control::kThink : control::kEndThink);
    // While thinking, the call comes after the reasoning: then the engine's constraint asks for it.
    if (active_ && !chat_.thinking && chat_.tool_choice == ToolChoice::kRequired) add_open_tool_calls(prompt_);
  }

  const Conversation& chat_;
  std::vector<Message> messages_;
  bool active_;
  Prompt prompt_;
};

}  // namespace

std::vector<Message> normalised_messages(const Conversation& conversation) {
  std::vector<Message> messages = merge_users(conversation.messages);
  order_tool_results(messages);
  const bool needs_system = conversation.tools_active() || shows_schema(conversation);
  if (needs_system && (messages.empty() || messages.front().role != Role::kSystem)) {
    messages.insert(messages.begin(), Message::system(""));
  }
  return messages;
}

Prompt render_prompt(const Conversation& conversation) { return Renderer(conversation).render(); }

}  // namespace deepinfer
