#include "host/constraint_source.h"

#include "base/json.h"
#include "recipe/control_tokens.h"
#include "recipe/tool_text.h"

namespace deepinfer {
namespace {

using Kind = OutputConstraint::Kind;

Json to_json(const ToolCallForm& form) {
  Json tools = Json::array();
  for (const ToolCallForm::Tool& tool : form.tools) {
    tools.push_back(Json::object({{"name", tool.name}, {"strict", tool.strict}}));
    if (tool.parameters) tools.items().back().set("parameters", *tool.parameters);
  }
  Json out = Json::object({{"tools", std::move(tools)},
                           {"required", form.required},
                           {"opened", form.opened},
                           {"thinking", form.thinking},
                           {"max_calls", form.max_calls}});
  if (form.schema) out.set("schema", *form.schema);
  if (form.regex) out.set("regex", *form.regex);
  if (form.ebnf) out.set("ebnf", *form.ebnf);
  return out;
}

Result<ToolCallForm> form_of(const Json& json) {
  ToolCallForm form;
  for (const Json& entry : json.at("tools").items()) {
    ToolCallForm::Tool& tool = form.tools.emplace_back();
    DI_TRY(tool.name, entry.at("name").to_string("name"));
    DI_TRY(tool.strict, entry.at("strict").to_bool("strict"));
    if (const Json* parameters = entry.find("parameters")) tool.parameters = *parameters;
  }
  DI_TRY(form.required, json.at("required").to_bool("required"));
  DI_TRY(form.opened, json.at("opened").to_bool("opened"));
  DI_TRY(form.thinking, json.at("thinking").to_bool("thinking"));
  DI_TRY(form.max_calls, json.at("max_calls").to_int64("max_calls"));
  if (const Json* schema = json.find("schema")) form.schema = *schema;
  if (const Json* regex = json.find("regex")) {
    DI_TRY(form.regex, regex->to_string("regex"));
  }
  if (const Json* ebnf = json.find("ebnf")) {
    DI_TRY(form.ebnf, ebnf->to_string("ebnf"));
  }
  form.markup = recipe_call_markup();
  return form;
}

Result<ConstraintSource> source_of(const Json& json) {
  ConstraintSource source;
  DI_TRY(source.written, json.at("written").to_string("written"));
  if (const Json* calls = json.find("calls")) {
    DI_TRY(source.what, form_of(*calls));
    return source;
  }
  DI_TRY(std::string text, json.at("text").to_string("text"));
  const std::string_view kind = json.at("kind").is_string() ? std::string_view(json.at("kind").as_string()) : "";
  if (kind == "ebnf") return source.what = EbnfText{std::move(text)}, source;
  if (kind == "json") return source.what = OutputConstraint{Kind::kJson, std::move(text)}, source;
  if (kind == "regex") return source.what = OutputConstraint{Kind::kRegex, std::move(text)}, source;
  return invalid_argument("unknown kind");
}

}  // namespace

std::string write_constraint_source(const ConstraintSource& source) {
  Json out = Json::object({{"written", source.written}});
  if (const auto* form = std::get_if<ToolCallForm>(&source.what)) {
    out.set("calls", to_json(*form));
  } else if (const auto* grammar = std::get_if<EbnfText>(&source.what)) {
    out.set("kind", "ebnf");
    out.set("text", grammar->text);
  } else {
    const auto& wanted = std::get<OutputConstraint>(source.what);
    out.set("kind", wanted.kind == Kind::kRegex ? "regex" : "json");
    out.set("text", wanted.schema);
  }
  return out.dump();
}

Result<ConstraintSource> read_constraint_source(std::string_view text) {
  const Result<Json> json = Json::parse(text);
  Result<ConstraintSource> source = json ? source_of(*json) : json.error();
  if (!source) return corrupt("the source of a constraint does not read: " + source.error().message);
  return source;
}

CallMarkup recipe_call_markup() {
  namespace m = call_markup;
  const auto s = [](std::string_view part) { return std::string(part); };
  return {.lead = s(m::kLead),
          .open = s(m::kOpen),
          .close = s(m::kClose),
          .call = s(m::kCall),
          .named = s(m::kNamed),
          .end_call = s(m::kEndCall),
          .argument = {s(m::kParameter), s(m::kText), s(m::kJson), s(m::kEndParameter), "\n"},
          .mark = s(m::kMark),
          .end_mark = s(m::kEndMark),
          .end_thinking = s(control::kEndThink)};
}

}  // namespace deepinfer
