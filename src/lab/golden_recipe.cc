#include "lab/golden_recipe.h"

#include <filesystem>

#include <fmt/format.h>

#include "api/errors.h"
#include "base/file.h"
#include "lab/golden_images.h"
#include "lab/golden_streams.h"
#include "lab/recipe_forms.h"
#include "lab/recipe_wire.h"
#include "recipe/python_json.h"
#include "recipe/render.h"

namespace deepinfer {

namespace {

constexpr int64_t kContextLimit = 1048576;

// Numbers of a schema are equal when their values are: 1e21 and 1e+21.
Json with_plain_numbers(const Json& json) {
  const Result<Json> plain = Json::parse(python_json(json));
  return plain ? *plain : json;
}

std::string difference(const std::string& what, const Json& want, const Json& got) {
  if (want == got || with_plain_numbers(want) == with_plain_numbers(got)) return {};
  return fmt::format("{}: want {} got {}", what, want.dump().substr(0, 300), got.dump().substr(0, 300));
}

Json ids_form(const std::vector<TokenId>& ids) {
  Json out = Json::array();
  for (const TokenId id : ids) out.push_back(static_cast<int64_t>(id));
  return out;
}

Json ranges_form(const Prompt& prompt) {
  Json out = Json::array();
  for (const auto& [begin, end] : prompt.special_ranges()) {
    Json range = Json::array();
    range.push_back(static_cast<uint64_t>(begin));
    range.push_back(static_cast<uint64_t>(end));
    out.push_back(std::move(range));
  }
  return out;
}

std::string body_text(const Json& golden) {
  const Json* raw = golden.find("raw_body");
  return raw && raw->is_string() ? raw->as_string() : golden.at("body").dump();
}

Result<WireRequest> parse_case(const Json& golden) {
  return parse_wire_request(golden.at("wire").as_string(), body_text(golden), options_from_form(golden.at("options")));
}

// The namespaces of tools in any order: {"ns::fn": ["ns", "fn"]}.
Json namespaces_form(const NamespaceNames& names) {
  Json out = Json::object();
  for (const auto& [name, split] : names) out.set(name, Json::array({split.first, split.second}));
  return out;
}

std::string run_request(const Json& golden, const Tokenizer& tokenizer) {
  const Result<WireRequest> request = parse_case(golden);
  if (!request) return "refused: " + request.error().message;
  const Json& expect = golden.at("expect");
  const ChatRequest& chat = request->chat;
  const Conversation& conversation = chat.conversation;
  const Prompt prompt = render_prompt(conversation);
  const Result<std::vector<TokenId>> ids = prompt.encode(tokenizer);
  if (!ids) return "not encoded: " + ids.error().message;
  const auto num_tokens = static_cast<int64_t>(ids->size());
  const Result<int64_t> limit = resolve_max_tokens(conversation, chat.max_tokens, num_tokens, kContextLimit);
  const std::pair<const char*, Json> found[] = {
      {"model", chat.model},
      {"stream", chat.stream},
      {"conversation", conversation_form(conversation)},
      {"prompt", prompt.text()},
      {"special_ranges", ranges_form(prompt)},
      {"images", images_form(prompt.images())},
      {"token_ids", ids_form(*ids)},
      {"inference", inference_form(chat)},
      {"parsing", parsing_form(chat.parsing(), conversation.thinking)},
      {"resolved_max_tokens", limit ? Json(*limit) : Json()},
  };
  for (const auto& [key, value] : found) {
    const std::string what = difference(key, expect.at(key), value);
    if (!what.empty()) return what;
  }
  if (!request->responses) return {};
  const std::string what =
      difference("namespace_tool_map", expect.at("namespace_tool_map"), namespaces_form(request->responses->namespaces));
  return what.empty() ? difference("echo", expect.at("echo"), request->responses->echo.summary_form()) : what;
}

std::string run_error(const Json& golden) {
  const Result<WireRequest> request = parse_case(golden);
  const Json& expect = golden.at("expect");
  if (const Json* text = expect.find("deserialize_error")) {
    if (request) return "accepted, want " + text->as_string();
    return difference("error", *text, request.error().message);
  }
  if (const Json* error = expect.find("error")) {
    if (request) return "accepted, want " + error->dump();
    const Json status = wire_status(request.error().code).http;
    const std::string what = difference("status", error->at("status"), status);
    return what.empty() ? difference("body", error->at("body"), error_body(request.error())) : what;
  }
  if (!request) return "refused: " + request.error().message;
  std::string what = difference("prompt", expect.at("prompt"), render_prompt(request->chat.conversation).text());
  if (what.empty()) what = difference("inference", expect.at("inference"), inference_form(request->chat));
  if (what.empty())
    what =
        difference("parsing", expect.at("parsing"), parsing_form(request->chat.parsing(), request->chat.conversation.thinking));
  return what;
}

std::string run_limit(const Json& golden) {
  Json message = Json::object({{"role", "user"}, {"content", "hi"}});
  Json body = Json::object({{"model", "DeepSeek-V4.1-Flash"}, {"messages", Json::array({std::move(message)})}});
  for (const auto& [key, value] : golden.at("request").members()) body.set(key, value);
  const Result<WireRequest> request = parse_wire_request("chat", body.dump(), {});
  if (!request) return "refused: " + request.error().message;
  const auto prompt_tokens = golden.at("prompt_tokens").to_int64("prompt_tokens");
  const auto context = golden.at("context_limit").to_int64("context_limit");
  if (!prompt_tokens || !context) return "bad case: prompt_tokens and context_limit must be integers";
  const Result<int64_t> limit =
      resolve_max_tokens(request->chat.conversation, request->chat.max_tokens, *prompt_tokens, *context);
  const Json& expect = golden.at("expect");
  if (const Json* error = expect.find("error")) {
    if (limit) return fmt::format("accepted with {}", *limit);
    return difference("body", error->at("body"), error_body(limit.error()));
  }
  if (!limit) return "refused: " + limit.error().message;
  return difference("max_tokens", expect.at("max_tokens"), *limit);
}

// Why a case is not run, or nothing.
std::string reason_to_leave_out(const Json& golden) {
  if (golden.find("prompt_tokens")) return {};
  if (golden.find("op")) return "a tokenizer case, run elsewhere";
  const Json& wire = golden.at("wire");
  if (!wire.is_string()) return {};
  if (!is_wire(wire.as_string())) return "the wire '" + wire.as_string() + "' is not built yet";
  return {};
}

}  // namespace

std::string run_recipe_case(const Json& golden, const Tokenizer& tokenizer, const std::string& folder) {
  if (golden.find("prompt_tokens")) return run_limit(golden);
  if (golden.find("expect_compact_per_split")) return run_chat_two_way(golden, tokenizer);
  if (golden.find("chunks")) return run_stream(golden, tokenizer);
  if (!golden.at("wire").is_string()) return run_image_case(golden, folder);
  return golden.at("expect").find("token_ids") ? run_request(golden, tokenizer) : run_error(golden);
}

Result<RecipeGolden> run_recipe_lines(std::string_view lines, const Tokenizer& tokenizer, const std::string& folder) {
  RecipeGolden result;
  for (size_t number = 1; !lines.empty(); ++number) {
    const size_t end = std::min(lines.find('\n'), lines.size());
    const std::string_view line = lines.substr(0, end);
    lines.remove_prefix(std::min(end + 1, lines.size()));
    if (line.empty()) continue;
    const Result<Json> golden = Json::parse(line);
    if (!golden) return corrupt(fmt::format("line {}: {}", number, golden.error().message));
    const Json& id = golden->at("id");
    if (const std::string reason = reason_to_leave_out(*golden); !reason.empty()) {
      result.counts.leave_out();
      ++result.left_out[reason];
      continue;
    }
    const std::string what = run_recipe_case(*golden, tokenizer, folder);
    if (what.empty()) {
      result.counts.pass();
    } else {
      result.counts.fail(fmt::format("{}: {}", id.is_string() ? id.as_string() : fmt::format("line {}", number), what));
    }
  }
  return result;
}

Result<RecipeGolden> run_recipe_cases(const std::string& path, const Tokenizer& tokenizer) {
  DI_TRY(const std::string content, read_file(path));
  Result<RecipeGolden> result = run_recipe_lines(content, tokenizer, std::filesystem::path(path).parent_path().string());
  if (!result) return Error{result.error().code, path + " " + result.error().message};
  return result;
}

}  // namespace deepinfer
