#include "host/answer_constraint.h"

#include <algorithm>

#include "host/constraints.h"
#include "recipe/constraint.h"
#include "recipe/control_tokens.h"
#include "recipe/parse.h"
#include "recipe/tool_text.h"

namespace deepinfer {
namespace {

using Format = ResponseFormat::Kind;

CallMarkup markup() {
  namespace m = call_markup;
  const auto s = [](std::string_view text) { return std::string(text); };
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

const Json& enforced_schema(const ResponseFormat& format) {
  return format.enforced.is_null() ? format.constraint_schema : format.enforced;
}

bool needs_form(const Conversation& chat) {
  const auto strict = [](const ToolDefinition& tool) { return tool.strict.value_or(false); };
  return chat.tool_choice == ToolChoice::kRequired || chat.format.kind != Format::kText || chat.max_calls > 0 ||
         chat.only_listed || std::any_of(chat.tools.begin(), chat.tools.end(), strict);
}

}  // namespace

Result<std::optional<ToolCallForm>> tool_call_form(const Conversation& chat) {
  if (!chat.tools_active() || !needs_form(chat)) return std::optional<ToolCallForm>();
  const ParseStart start = parse_options(chat, {}).start;
  ToolCallForm form;
  for (const ToolDefinition& tool : chat.tools) {
    form.tools.push_back({tool.name, tool.enforced ? tool.enforced : tool.parameters, tool.strict.value_or(false)});
  }
  form.max_calls = chat.max_calls;
  form.required = chat.tool_choice == ToolChoice::kRequired;
  form.opened = form.required && !chat.thinking && !chat.prefix_message();
  form.thinking = start == ParseStart::kReasoning || start == ParseStart::kReasoningContinued;
  form.markup = markup();
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

Result<std::shared_ptr<const Constraint>> wanted_grammar(const Host& host, const Conversation& chat,
                                                         const std::optional<std::string>& ebnf) {
  if (ebnf) return host.constraints().of_grammar(*ebnf);
  if (chat.tools_active()) {
    DI_TRY(const std::optional<ToolCallForm> form, tool_call_form(chat));
    if (!form) return std::shared_ptr<const Constraint>();
    return host.constraints().of_tools(*form);
  }
  std::optional<OutputConstraint> wanted = output_constraint(chat);
  if (!wanted) return std::shared_ptr<const Constraint>();
  if (chat.format.kind == Format::kJsonSchema) wanted->schema = enforced_schema(chat.format).dump();
  return host.constraints().of(*wanted);
}

}  // namespace

Result<AnswerConstraint> answer_constraint(const Host& host, const Conversation& chat, const std::optional<std::string>& ebnf) {
  AnswerConstraint out;
  DI_TRY(out.grammar, wanted_grammar(host, chat, ebnf));
  if (!out.grammar) return out;
  const ParseStart start = parse_options(chat, {}).start;
  const bool thinks = start == ParseStart::kReasoning || start == ParseStart::kReasoningContinued;
  const Message* prefix = chat.prefix_message();
  if (!thinks && prefix && !prefix->content.text.empty()) {
    out.grammar = out.grammar->after(prefix->content.text);
    if (!out.grammar) return invalid_argument("no answer of the wanted form begins with the text of the prefix message");
  }
  const bool is_whole = !ebnf && chat.tools_active();  // the grammar of calls holds the thinking, too
  if (!thinks || is_whole) return out;
  const std::optional<TokenId> end = host.tokenizer().added_token(control::kEndThink);
  if (!end) return unsupported("the tokenizer has no token for the end of thinking: turn thinking off");
  out.begins_after = *end;
  return out;
}

}  // namespace deepinfer
