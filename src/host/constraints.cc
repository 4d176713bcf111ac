#include "host/constraints.h"

#include <fmt/format.h>

#include <algorithm>

#include "recipe/control_tokens.h"

namespace deepinfer {
namespace {

// An entry takes about a megabyte, five when answers have visited much of it.
constexpr size_t kMaxEntries = 64;
// Compiled, a large source takes tens of megabytes: it is made anew for each request.
constexpr size_t kMaxKeptSource = 32 << 10;
// A refusal is only its source.
constexpr size_t kMaxRefusedSource = 2 << 20;
constexpr size_t kMaxKeyBytes = 8 << 20;

}  // namespace

std::shared_ptr<const Vocabulary> Constraints::vocabulary(bool with_markup) {
  const std::lock_guard lock(mutex_);
  auto& out = vocabularies_[with_markup ? 1 : 0];
  if (!out && with_markup) out = Vocabulary::create(tokenizer_, {control::kMarkup, control::kEndThink});
  if (!out) out = Vocabulary::create(tokenizer_);
  return out;
}

template <class Compile>
ConstraintResult Constraints::find(std::string key, Compile compile) {
  {
    const std::lock_guard lock(mutex_);
    for (Entry& entry : entries_) {
      if (entry.key != key) continue;
      entry.used = ++clock_;
      return entry.result;
    }
  }
  ConstraintResult result = compile();
  if (key.size() > (result ? kMaxKeptSource : kMaxRefusedSource)) return result;
  const std::lock_guard lock(mutex_);
  key_bytes_ += key.size();
  entries_.push_back({std::move(key), result, ++clock_});
  while (entries_.size() > kMaxEntries || key_bytes_ > kMaxKeyBytes) {
    const auto oldest =
        std::min_element(entries_.begin(), entries_.end(), [](const Entry& a, const Entry& b) { return a.used < b.used; });
    key_bytes_ -= oldest->key.size();
    entries_.erase(oldest);
  }
  return result;
}

ConstraintResult Constraints::of_source(const ConstraintSource& source) {
  const auto* form = std::get_if<ToolCallForm>(&source.what);
  const auto* grammar = std::get_if<EbnfText>(&source.what);
  DI_TRY(auto whole, form ? of_tools(*form) : grammar ? of_grammar(grammar->text) : of(std::get<OutputConstraint>(source.what)));
  if (source.written.empty()) return whole;
  auto rest = whole->after(source.written);
  if (!rest) return invalid_argument("no answer of the wanted form begins with the text of the prefix message");
  return rest;
}

ConstraintResult Constraints::of(const OutputConstraint& wanted) {
  return find(std::string(constraint_name(wanted.kind)) + " " + wanted.schema, [&]() -> ConstraintResult {
    if (wanted.kind == OutputConstraint::Kind::kRegex) return compile_regex(vocabulary(), wanted.schema);
    if (wanted.kind != OutputConstraint::Kind::kJson) return internal_error("tools are held to a ToolCallForm");
    if (wanted.schema.empty()) return compile_json_object(vocabulary());
    if (wanted.schema.size() > CompileLimits{}.max_source_bytes) return too_large("the JSON Schema is larger than 1 MiB");
    DI_TRY(const Json schema, Json::parse(wanted.schema));
    return compile_json_schema(vocabulary(), schema);
  });
}

ConstraintResult Constraints::of_grammar(const std::string& ebnf) {
  return find("grammar " + ebnf, [&] { return compile_ebnf(vocabulary(), ebnf); });
}

ConstraintResult Constraints::of_tools(const ToolCallForm& form) {
  Json tools = Json::array();
  for (const ToolCallForm::Tool& tool : form.tools) {
    Json entry = Json::array();
    entry.push_back(tool.name);
    entry.push_back(tool.parameters.value_or(Json()));
    entry.push_back(tool.strict);
    tools.push_back(std::move(entry));
  }
  std::string key =
      fmt::format("tools {:d}{:d}{:d}{} {}", form.required, form.opened, form.thinking, form.max_calls, tools.dump());
  if (form.schema) key += " schema " + form.schema->dump();
  if (form.regex) key += " regex " + *form.regex;
  if (form.ebnf) key += " grammar " + *form.ebnf;
  return find(std::move(key), [&] { return compile_tool_calls(vocabulary(true), form); });
}

}  // namespace deepinfer
