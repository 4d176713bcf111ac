#include "host/answer_constraint.h"

#include <algorithm>

#include "host/constraint_source.h"
#include "host/constraints.h"
#include "recipe/constraint.h"
#include "recipe/control_tokens.h"
#include "recipe/parse.h"

namespace deepinfer {
namespace {

using Format = ResponseFormat::Kind;

const Json& enforced_schema(const ResponseFormat& format) {
  return format.enforced.is_null() ? format.constraint_schema : format.enforced;
}

bool needs_form(const Conversation& chat) {
  const auto strict = [](const ToolDefinition& tool) { return tool.strict.value_or(false); };
  return chat.tool_choice == ToolChoice::kRequired || chat.format.kind != Format::kText || chat.max_calls > 0 ||
         chat.only_listed || std::any_of(chat.tools.begin(), chat.tools.end(), strict);
}

}  // namespace

Result<std::optional<ToolCallForm>> tool_call_form(const Conversation& chat, const std::optional<std::string>& ebnf) {
  if (!chat.tools_active() || !(ebnf || needs_form(chat))) return std::optional<ToolCallForm>();
  const ParseStart start = parse_options(chat, {}).start;
  ToolCallForm form;
  for (const ToolDefinition& tool : chat.tools) {
    form.tools.push_back({tool.name, tool.enforced ? tool.enforced : tool.parameters, tool.strict.value_or(false)});
  }
  form.max_calls = chat.max_calls;
  form.required = chat.tool_choice == ToolChoice::kRequired;
  form.opened = form.required && !chat.thinking && !chat.prefix_message();
  form.thinking = start == ParseStart::kReasoning || start == ParseStart::kReasoningContinued;
  form.markup = recipe_call_markup();
  form.ebnf = ebnf;
  if (ebnf) return std::optional<ToolCallForm>(std::move(form));
  switch (chat.format.kind) {
    case Format::kText: break;
    case Format::kJsonObject:
      form.schema = Json::object();
      form.schema->set("type", "object");
      break;
    case Format::kJsonSchema: form.schema = enforced_schema(chat.format); break;
    case Format::kRegex: form.regex = chat.format.regex; break;
  }
  return std::optional<ToolCallForm>(std::move(form));
}

namespace {

Result<std::optional<ConstraintSource>> wanted_source(const Conversation& chat, const std::optional<std::string>& ebnf) {
  std::optional<ConstraintSource> source;
  if (chat.tools_active()) {
    DI_TRY(std::optional<ToolCallForm> form, tool_call_form(chat, ebnf));
    if (form) source = ConstraintSource{.what = *std::move(form)};
    return source;
  }
  if (ebnf) return source = ConstraintSource{.what = EbnfText{*ebnf}}, source;
  std::optional<OutputConstraint> wanted = output_constraint(chat);
  if (!wanted) return source;
  if (chat.format.kind == Format::kJsonSchema) wanted->schema = enforced_schema(chat.format).dump();
  return source = ConstraintSource{.what = *std::move(wanted)}, source;
}

}  // namespace

Result<AnswerConstraint> answer_constraint(const Host& host, const Conversation& chat, const std::optional<std::string>& ebnf) {
  AnswerConstraint out;
  DI_TRY(std::optional<ConstraintSource> source, wanted_source(chat, ebnf));
  if (!source) return out;
  const ParseStart start = parse_options(chat, {}).start;
  const bool thinks = start == ParseStart::kReasoning || start == ParseStart::kReasoningContinued;
  const Message* prefix = chat.prefix_message();
  if (!thinks && prefix) source->written = prefix->content.text;
  DI_TRY(out.grammar, host.constraints().of_source(*source));
  out.source = write_constraint_source(*source);
  const bool is_whole = chat.tools_active();  // the grammar of calls holds the thinking, too
  if (!thinks || is_whole) return out;
  const std::optional<TokenId> end = host.tokenizer().added_token(control::kEndThink);
  if (!end) return unsupported("the tokenizer has no token for the end of thinking: turn thinking off");
  out.begins_after = *end;
  return out;
}

}  // namespace deepinfer
