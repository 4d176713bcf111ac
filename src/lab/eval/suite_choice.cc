// GPQA (four choices) and Humanity's Last Exam (choices and free answers).
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "lab/eval/answer_text.h"
#include "lab/eval/suite_parts.h"

namespace deepinfer {
namespace {

// Hash of a text, keyed: the order of choices depends on seed, case and choice only.
uint64_t keyed_hash(uint64_t key, std::string_view text) {
  uint64_t hash = 0xCBF29CE484222325u ^ (key * 0x9E3779B97F4A7C15u);  // FNV-1a, then the SplitMix64 finaliser
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001B3u;
  hash = (hash ^ (hash >> 30)) * 0xBF58476D1CE4E5B9u;
  hash = (hash ^ (hash >> 27)) * 0x94D049BB133111EBu;
  return hash ^ (hash >> 31);
}

constexpr int kChoices = 4;

Result<EvalVerdict> judge_letter(const std::string& wanted, const EvalAnswer& answer, int num_choices) {
  const auto letter = chosen_letter(answer.content, num_choices);
  if (!letter) return EvalVerdict{false, "no choice found"};
  const bool right = wanted == std::string(1, *letter);
  return EvalVerdict{right, right ? "" : fmt::format("{}, expected {}", *letter, wanted)};
}

}  // namespace

Result<EvalCase> read_gpqa(const Json& line, int64_t number, const EvalSettings& settings) {
  EvalCase item;
  item.id = case_id(line, {"Record ID", "id"}, "gpqa", number);
  item.kind = kind_name(optional_column(line, {"High-level domain"}).value_or("gpqa"));
  DI_TRY(const std::string question, column(line, {"Question"}));
  std::array<std::pair<uint64_t, std::string>, kChoices> choices;
  const std::array<std::string_view, kChoices> names = {"Correct Answer", "Incorrect Answer 1", "Incorrect Answer 2",
                                                        "Incorrect Answer 3"};
  for (size_t i = 0; i < names.size(); ++i) {
    DI_TRY(choices[i].second, column(line, {names[i]}));
    choices[i].second = trimmed(choices[i].second);
    choices[i].first = keyed_hash(settings.seed + i, item.id + names[i].data());
  }
  const std::string correct = choices[0].second;
  std::sort(choices.begin(), choices.end());
  std::string text = std::string(trimmed(question)) + "\n\n";
  for (size_t i = 0; i < choices.size(); ++i) {
    const char letter = static_cast<char>('A' + i);
    text += fmt::format("{}) {}\n", letter, choices[i].second);
    if (choices[i].second == correct) item.check = std::string(1, letter);
  }
  text += "\nReason step by step, then end with a line of the form \"Answer: X\", where X is A, B, C or D.";
  item.request = ask_request(text, settings);
  return item;
}

Result<EvalVerdict> judge_gpqa(const EvalCase& item, const EvalAnswer& answer, const EvalTools&) {
  return judge_letter(item.check.as_string(), answer, kChoices);
}

Result<EvalCase> read_hle(const Json& line, int64_t number, const EvalSettings& settings) {
  EvalCase item;
  item.id = case_id(line, {"id"}, "hle", number);
  item.kind = kind_name(optional_column(line, {"category"}).value_or("hle"));
  DI_TRY(const std::string question, column(line, {"question"}));
  DI_TRY(const std::string answer, column(line, {"answer"}));
  const std::string type = optional_column(line, {"answer_type"}).value_or("exactMatch");
  if (type != "exactMatch" && type != "multipleChoice") {
    return corrupt(fmt::format("\"answer_type\" is exactMatch or multipleChoice, not {}", shown(type)));
  }
  item.check = Json::object({{"type", type}, {"value", answer}});
  const std::string text =
      std::string(trimmed(question)) +
      (type == "exactMatch" ? "\n\nReason step by step, then end with a line \"Answer: \" and the answer alone."
                            : "\n\nReason step by step, then end with a line \"Answer: \" and the letter of your choice.");
  item.request = ask_request(text, settings);
  if (const auto image = optional_column(line, {"image"}); image && !image->empty()) {
    Json parts = Json::array({Json::object({{"type", "image_url"}, {"image_url", Json::object({{"url", *image}})}}),
                              Json::object({{"type", "text"}, {"text", text}})});
    item.request.set("messages", Json::array({Json::object({{"role", "user"}, {"content", std::move(parts)}})}));
  }
  return item;
}

Result<EvalVerdict> judge_hle(const EvalCase& item, const EvalAnswer& answer, const EvalTools&) {
  const std::string& wanted = item.check.at("value").as_string();
  if (item.check.at("type").as_string() == "multipleChoice") return judge_letter(std::string(trimmed(wanted)), answer, 26);
  std::string given = after_answer_mark(answer.content).value_or(last_boxed(answer.content).value_or(answer.content));
  given = normalised_answer(last_boxed(given).value_or(given));
  const std::string expected = normalised_answer(wanted);
  const auto left = last_number(given), right = last_number(expected);
  const bool numbers = left && right && given.size() == left->size() && expected.size() == right->size();
  const bool equal = numbers ? same_number(given, expected) : given == expected;
  return EvalVerdict{equal, equal ? "" : fmt::format("{}, expected {}", shown(given), shown(expected))};
}

}  // namespace deepinfer
