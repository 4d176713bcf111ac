// The project's own tasks: docs/formats/eval_tasks.md.
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/nearest.h"
#include "lab/eval/answer_text.h"
#include "lab/eval/suite_parts.h"

namespace deepinfer {
namespace {

const std::array<std::string, 5> kCheckTypes = {"exact", "number", "contains", "json", "tool_call"};

bool all_strings(const Json& list) {
  return list.is_array() &&
         std::all_of(list.items().begin(), list.items().end(), [](const Json& item) { return item.is_string(); });
}

bool all_calls(const Json& list) {
  return list.is_array() && std::all_of(list.items().begin(), list.items().end(), [](const Json& call) {
           return call.at("name").is_string() && call.at("arguments").is_object();
         });
}

Status check_of(const Json& check) {
  if (!check.is_object() || !check.at("type").is_string()) return corrupt("\"check\" must be an object with a \"type\"");
  const std::string& type = check.at("type").as_string();
  const Json* value = check.find("value");
  if (!value) return corrupt("\"check\" has no \"value\"");
  if (type == "json") return {};
  if (type == "exact") return value->is_string() ? Status() : corrupt("the value of an exact check must be a string");
  if (type == "number") return value->is_number() ? Status() : corrupt("the value of a number check must be a number");
  if (type == "contains") {
    return all_strings(*value) && value->size() > 0 ? Status()
                                                    : corrupt("the value of a contains check must be a list of strings");
  }
  if (type == "tool_call") {
    return all_calls(*value) ? Status() : corrupt("the value of a tool_call check must be a list of {name, arguments}");
  }
  return corrupt(fmt::format("unknown check '{}'{}", type, did_you_mean(type, kCheckTypes)));
}

EvalVerdict verdict(bool right, std::string why) { return {right, right ? "" : std::move(why)}; }

EvalVerdict judge_contains(const std::string& text, const Json& words) {
  for (const Json& word : words.items()) {
    if (!contains_word(text, word.as_string())) return {false, fmt::format("{} does not occur", shown(word.as_string()))};
  }
  return {true, ""};
}

EvalVerdict judge_json(const std::string& text, const Json& value) {
  const Result<Json> parsed = Json::parse(text);
  if (!parsed) return {false, "no JSON: " + parsed.error().message};
  return verdict(same_json(*parsed, value), fmt::format("expected {}", shown(value.dump())));
}

EvalVerdict judge_calls(const Json& calls, const Json& wanted) {
  if (calls.size() != wanted.size()) return {false, fmt::format("{} calls, expected {}", calls.size(), wanted.size())};
  for (size_t i = 0; i < calls.size(); ++i) {
    const std::string &name = calls[i].at("name").as_string(), &expected = wanted[i].at("name").as_string();
    if (name != expected) return {false, fmt::format("call {} is {}, expected {}", i + 1, shown(name), shown(expected))};
    const Result<Json> arguments = Json::parse(calls[i].at("arguments").as_string());
    if (!arguments) return {false, fmt::format("the arguments of call {} are no JSON: {}", i + 1, arguments.error().message)};
    if (!same_json(*arguments, wanted[i].at("arguments"))) {
      return {false, fmt::format("call {} has the arguments {}, expected {}", i + 1, shown(arguments->dump()),
                                 shown(wanted[i].at("arguments").dump()))};
    }
  }
  return {true, ""};
}

}  // namespace

Result<EvalCase> read_task(const Json& line, int64_t, const EvalSettings& settings) {
  EvalCase item;
  DI_TRY(item.id, column(line, {"id"}));
  DI_TRY(item.kind, column(line, {"kind"}));
  if (!line.at("messages").is_array() || line.at("messages").size() == 0) {
    return corrupt("\"messages\" must be there, a list that is not empty");
  }
  if (!line.at("thinking").is_bool() && !line.at("thinking").is_null()) return corrupt("\"thinking\" must be true or false");
  DI_CHECK_OK(check_of(line.at("check")));
  item.check = line.at("check");
  item.request = Json::object({{"messages", line.at("messages")}});
  for (const char* name : {"tools", "tool_choice", "response_format"}) {
    if (!line.at(name).is_null()) item.request.set(name, line.at(name));
  }
  finish_request(item.request, line.at("thinking").as_bool(), settings);
  return item;
}

Result<EvalVerdict> judge_task(const EvalCase& item, const EvalAnswer& answer, const EvalTools&) {
  const std::string& type = item.check.at("type").as_string();
  const Json& value = item.check.at("value");
  const std::string text(trimmed(answer.content));
  if (type == "exact") {
    return verdict(text == trimmed(value.as_string()), fmt::format("expected {}", shown(value.as_string())));
  }
  if (type == "number") {
    const auto number = last_number(text);
    if (!number) return EvalVerdict{false, "no number"};
    return verdict(same_number(*number, value.number_text()), fmt::format("{}, expected {}", *number, value.number_text()));
  }
  if (type == "contains") return judge_contains(text, value);
  if (type == "json") return judge_json(text, value);
  return judge_calls(answer.tool_calls, value);
}

}  // namespace deepinfer
