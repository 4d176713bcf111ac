// deepinfer render: a Chat Completions body to prompt and ids; deepinfer parse: generated text to events.
#include <fmt/format.h>

#include <array>
#include <iostream>
#include <iterator>

#include "api/chat/request.h"
#include "apps/commands.h"
#include "apps/terminal.h"
#include "base/file.h"
#include "base/utf8.h"
#include "host/ask.h"
#include "recipe/parse.h"
#include "recipe/render.h"

namespace deepinfer {
namespace {

Result<std::string> read_input(const std::vector<std::string>& words) {
  if (!words.empty()) return read_file(words[0]);
  return std::string(std::istreambuf_iterator<char>(std::cin), {});
}

// The official profile: a body from a golden or a client renders as the service would. Any model name is accepted.
Result<ChatRequest> read_request(const std::string& text, const std::string& where) {
  ApiOptions options;
  if (const auto body = Json::parse(text); body && body->at("model").is_string())
    options.models = {body->at("model").as_string()};
  auto request = parse_chat_request(text, options);
  if (!request) return Error{request.error().code, fmt::format("{}: {}", where, request.error().message)};
  return request;
}

struct RenderSettings {
  std::string model, tokenizer;
  bool ids = false, json = false;
  void visit(FieldVisitor visit) {
    visit({.name = "model", .target = &model, .help = "whose tokenizer [the shipped model]", .value = "DIR", .letter = 'm'});
    visit({.name = "tokenizer", .target = &tokenizer, .help = "a tokenizer.json(.zst) instead", .value = "FILE"});
    visit({.name = "ids", .target = &ids, .help = "print token ids"});
    visit({.name = "json", .target = &json, .help = "one JSON object: prompt, special_ranges, token_ids"});
  }
};

class RenderCommand final : public Command {
 public:
  std::string name() const override { return "render"; }
  std::string summary() const override { return "a chat request (JSON) to its prompt or token ids"; }
  std::string examples() const override {
    return "  echo '{\"model\": \"m\", \"messages\": [{\"role\": \"user\", \"content\": \"Hi\"}]}' | deepinfer render\n"
           "  deepinfer render request.json --json";
  }
  std::vector<Field> fields() override { return fields_of(settings_); }
  std::vector<Positional> positionals() override {
    return {{"FILE", "request body; read from stdin when there is none", &words_, 0, 1}};
  }

  Result<int> run() override {
    DI_TRY(const std::string text, read_input(words_));
    DI_TRY(const ChatRequest request, read_request(text, words_.empty() ? "standard input" : words_[0]));
    const Prompt prompt = render_prompt(request.conversation);
    if (!settings_.ids && !settings_.json) return finish_with(write_out(prompt.text() + "\n"));
    DI_TRY(const auto tokenizer,
           settings_.tokenizer.empty() ? open_tokenizer(settings_.model) : open_tokenizer_file(settings_.tokenizer));
    DI_TRY(const std::vector<TokenId> ids, prompt.encode(*tokenizer));
    Json id_list = Json::array(), ranges = Json::array();
    std::string line;
    for (const TokenId id : ids) id_list.push_back(id), line += (line.empty() ? "" : " ") + std::to_string(id);
    if (!settings_.json) return finish_with(write_out(line + "\n"));
    for (const auto& [begin, end] : prompt.special_ranges()) {
      ranges.push_back(Json::array({static_cast<int64_t>(begin), static_cast<int64_t>(end)}));
    }
    const Json out = Json::object({{"prompt", prompt.text()}, {"special_ranges", ranges}, {"token_ids", id_list}});
    return finish_with(write_out(out.dump() + "\n"));
  }

 private:
  RenderSettings settings_;
  std::vector<std::string> words_;
};

struct ParseSettings {
  std::string request;
  bool think = false, tools = false;
  void visit(FieldVisitor visit) {
    visit({.name = "request",
           .target = &request,
           .help = "chat request the text answers: decides thinking, tools, stop strings",
           .value = "FILE"});
    visit({.name = "think", .target = &think, .help = "the text begins inside thinking"});
    visit({.name = "tools", .target = &tools, .help = "look for tool calls"});
  }
};

class ParseCommand final : public Command {
 public:
  std::string name() const override { return "parse"; }
  std::string summary() const override { return "generated text to events: reasoning, content, tool calls"; }
  std::string examples() const override {
    return "  echo 'Six times seven.</think>42' | deepinfer parse --think\n  deepinfer parse answer.txt --request request.json";
  }
  std::vector<Field> fields() override { return fields_of(settings_); }
  std::vector<Positional> positionals() override {
    return {{"FILE", "generated text; read from stdin when there is none", &words_, 0, 1}};
  }

  Result<int> run() override {
    ParseOptions options;
    if (!settings_.request.empty()) {
      DI_TRY(const std::string body, read_file(settings_.request));
      DI_TRY(const ChatRequest request, read_request(body, settings_.request));
      options = request.parsing();
    }
    if (settings_.think) options.start = ParseStart::kReasoning;
    options.tool_calls |= settings_.tools;
    DI_TRY(std::string text, read_input(words_));
    if (!is_valid_utf8(text)) return invalid_argument("the text is not valid UTF-8; convert it first, for example with iconv");
    OutputParser parser(options);
    std::vector<OutputDelta> deltas;
    parser.feed(text, {}, deltas);
    if (!parser.stopped()) parser.end(deltas);
    std::string out;
    for (const OutputDelta& delta : deltas) out += event_line(delta);
    if (parser.stopped()) out += Json::object({{"event", "stop"}, {"stop_string", parser.stop_string()}}).dump() + "\n";
    return finish_with(write_out(out));
  }

 private:
  static std::string event_line(const OutputDelta& delta) {
    constexpr std::array<const char*, 4> kNames = {"reasoning", "content", "tool_name", "tool_arguments"};
    Json event = Json::object({{"event", kNames[static_cast<size_t>(delta.kind)]}, {"text", delta.text}});
    if (delta.kind >= OutputDelta::Kind::kToolName) event.set("tool_index", delta.tool_index);
    return event.dump() + "\n";
  }

  ParseSettings settings_;
  std::vector<std::string> words_;
};

}  // namespace

std::unique_ptr<Command> make_render_command() { return std::make_unique<RenderCommand>(); }
std::unique_ptr<Command> make_parse_command() { return std::make_unique<ParseCommand>(); }

}  // namespace deepinfer
