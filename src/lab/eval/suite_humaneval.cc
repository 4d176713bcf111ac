// HumanEval: the answer's code is run with the tests of the problem.
#include <fmt/format.h>

#include "lab/eval/answer_text.h"
#include "lab/eval/suite_parts.h"

namespace deepinfer {
namespace {

bool is_indented(std::string_view code) {
  while (code.starts_with('\n')) code.remove_prefix(1);
  return code.starts_with(' ') || code.starts_with('\t');
}

std::string indented(const std::string& body) {
  std::string out = "    ";
  for (const char c : body) {
    out += c;
    if (c == '\n') out += "    ";
  }
  return out;
}

// A whole function, with what stands before it in the prompt (imports, helpers); or a body behind the prompt.
std::string program_of(const std::string& prompt, const std::string& entry, const std::string& answer) {
  const std::string head = fmt::format("def {}(", entry);
  const std::string code = code_of(answer, head);
  if (code.find(head) != std::string::npos) return prompt.substr(0, prompt.find(head)) + "\n" + code;
  return prompt + (is_indented(code) ? code : indented(code));
}

}  // namespace

Result<EvalCase> read_humaneval(const Json& line, int64_t number, const EvalSettings& settings) {
  EvalCase item;
  item.id = case_id(line, {"task_id"}, "humaneval", number);
  item.kind = "humaneval";
  DI_TRY(const std::string prompt, column(line, {"prompt"}));
  DI_TRY(const std::string test, column(line, {"test"}));
  DI_TRY(const std::string entry, column(line, {"entry_point"}));
  if (prompt.find(fmt::format("def {}(", entry)) == std::string::npos) {
    return corrupt(fmt::format("\"prompt\" does not define the entry_point {}", shown(entry)));
  }
  item.check = Json::object({{"prompt", prompt}, {"test", test}, {"entry_point", entry}});
  item.request = ask_request(
      fmt::format("Complete this Python function. Answer with the whole function in one code block.\n\n```python\n{}```", prompt),
      settings);
  return item;
}

Result<EvalVerdict> judge_humaneval(const EvalCase& item, const EvalAnswer& answer, const EvalTools& tools) {
  const std::string& entry = item.check.at("entry_point").as_string();
  const std::string program =
      fmt::format("{}\n{}\ncheck({})\n", program_of(item.check.at("prompt").as_string(), entry, answer.content),
                  item.check.at("test").as_string(), entry);
  DI_TRY(const std::optional<std::string> failure, tools.run_python(program));
  return EvalVerdict{!failure, failure.value_or("")};
}

}  // namespace deepinfer
