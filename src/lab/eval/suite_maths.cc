// GSM8K and AIME: one number.
#include <fmt/format.h>

#include "lab/eval/answer_text.h"
#include "lab/eval/suite_parts.h"

namespace deepinfer {
namespace {

constexpr std::string_view kAskBoxed = "\nReason step by step, and put your final answer within \\boxed{}.";

std::string behind_marks(const std::string& text) {
  const size_t at = text.rfind("####");
  return at == std::string::npos ? text : text.substr(at + 4);
}

// What the answer gives as its number: boxed, behind ####, else the last one of the text.
std::optional<std::string> final_number(const std::string& text) {
  if (const auto boxed = last_boxed(text)) {
    if (auto number = last_number(*boxed)) return number;
  }
  if (text.find("####") != std::string::npos) {
    if (auto number = last_number(behind_marks(text))) return number;
  }
  return last_number(text);
}

// A sign is one only where no operand stands before it: "= -4", not "10-4".
std::optional<std::string> without_false_sign(std::optional<std::string> number, const std::string& text) {
  if (!number || !number->starts_with('-')) return number;
  for (size_t at = text.rfind('-'); at != std::string::npos; at = at == 0 ? std::string::npos : text.rfind('-', at - 1)) {
    if (at + 1 >= text.size() || text[at + 1] != (*number)[1]) continue;
    const bool operand = at > 0 && ((text[at - 1] >= '0' && text[at - 1] <= '9') || text[at - 1] == ')');
    return operand ? number->substr(1) : *number;
  }
  return number;
}

}  // namespace

Result<EvalCase> read_gsm8k(const Json& line, int64_t number, const EvalSettings& settings) {
  EvalCase item;
  item.id = case_id(line, {"id"}, "gsm8k", number);
  item.kind = "gsm8k";
  DI_TRY(const std::string question, column(line, {"question"}));
  DI_TRY(const std::string answer, column(line, {"answer"}));
  const auto value = last_number(behind_marks(answer));
  if (!value) return corrupt("\"answer\" holds no number");
  item.check = *value;
  item.request = ask_request(std::string(trimmed(question)).append(kAskBoxed), settings);
  return item;
}

Result<EvalVerdict> judge_gsm8k(const EvalCase& item, const EvalAnswer& answer, const EvalTools&) {
  const auto number = without_false_sign(final_number(answer.content), answer.content);
  if (!number) return EvalVerdict{false, "no number"};
  const bool right = same_number(*number, item.check.as_string());
  return EvalVerdict{right, right ? "" : fmt::format("{}, expected {}", *number, item.check.as_string())};
}

Result<EvalCase> read_aime(const Json& line, int64_t number, const EvalSettings& settings) {
  EvalCase item;
  item.id = case_id(line, {"id", "ID"}, "aime", number);
  item.kind = "aime";
  DI_TRY(const std::string problem, column(line, {"problem", "Problem", "question", "Question"}));
  DI_TRY(const std::string answer, column(line, {"answer", "Answer"}));
  const auto value = last_integer(answer);
  if (!value || value->size() > 3 || value->starts_with('-')) return corrupt("\"answer\" must be a whole number from 0 to 999");
  item.check = *value;
  item.request = ask_request(std::string(trimmed(problem)).append(kAskBoxed), settings);
  return item;
}

Result<EvalVerdict> judge_aime(const EvalCase& item, const EvalAnswer& answer, const EvalTools&) {
  const auto number = last_integer(answer.content);
  if (!number) return EvalVerdict{false, "no whole number as result"};
  if (number->size() > 3 || number->starts_with('-')) return EvalVerdict{false, fmt::format("{} is not from 0 to 999", *number)};
  const bool right = *number == item.check.as_string();
  return EvalVerdict{right, right ? "" : fmt::format("{}, expected {}", *number, item.check.as_string())};
}

}  // namespace deepinfer
