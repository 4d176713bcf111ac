#include "lab/eval/suite.h"

#include <gtest/gtest.h>

#include <set>

namespace deepinfer {
namespace {

Result<EvalCase> read(const char* suite, const char* line, const EvalSettings& settings = {.max_tokens = 100}) {
  return (*find_suite(suite))->read(*Json::parse(line), 1, settings);
}

EvalVerdict judge(const char* suite, const EvalCase& item, const std::string& content, const EvalTools& tools = {}) {
  return *(*find_suite(suite))->judge(item, {.content = content}, tools);
}

TEST(Suites, AreComplete) {
  std::set<std::string> names;
  for (const EvalSuite& suite : eval_suites()) {
    EXPECT_TRUE(names.insert(suite.name).second);
    EXPECT_TRUE(suite.read && suite.judge && suite.max_tokens > 0 && !suite.summary.empty()) << suite.name;
  }
  EXPECT_EQ(find_suite("gms8k").error().message.find("did you mean gsm8k?") == std::string::npos, false);
}

TEST(Tasks, RequestCarriesTheCase) {
  const auto item = read("tasks", R"({"id": "a", "kind": "k", "messages": [{"role": "user", "content": "x"}], "thinking": true,
    "tools": [], "check": {"type": "exact", "value": " y "}})");
  ASSERT_TRUE(item.ok()) << item.error().message;
  EXPECT_EQ(item->request.at("thinking").at("type").as_string(), "enabled");
  EXPECT_TRUE(item->request.find("tools"));
  EXPECT_EQ(item->request.at("temperature").number_text(), "0");
  EXPECT_TRUE(judge("tasks", *item, "y\n").right);
  EXPECT_FALSE(judge("tasks", *item, "Y").right);
}

TEST(Tasks, SettingsWin) {
  EvalSettings settings{.think = "off", .max_tokens = 9, .temperature = 0.5f};
  settings.body = *Json::parse(R"({"seed": null, "top_k": 3})");
  const auto item = read("tasks", R"({"id": "a", "kind": "k", "messages": [{"role": "user", "content": "x"}], "thinking": true,
    "check": {"type": "json", "value": null}})",
                         settings);
  EXPECT_EQ(item->request.at("thinking").at("type").as_string(), "disabled");
  EXPECT_EQ(item->request.at("max_tokens").number_text(), "9");
  EXPECT_FALSE(item->request.find("seed"));
  EXPECT_EQ(item->request.at("top_k").number_text(), "3");
}

TEST(Tasks, JsonStandsAlone) {
  const auto item =
      read("tasks", R"({"id": "a", "kind": "k", "messages": [1], "check": {"type": "json", "value": {"a": [1, "x"]}}})");
  EXPECT_TRUE(judge("tasks", *item, " {\"a\": [1.0, \"x\"]}\n").right);
  EXPECT_FALSE(judge("tasks", *item, "{\"a\": [1, \"x\"]} done").right);
  EXPECT_FALSE(judge("tasks", *item, "").right);
}

TEST(Gsm8k, PublicAndSampleColumns) {
  const auto original = read("gsm8k", R"({"question": "q", "answer": "He has 1,000+200 = 1,200.\n#### 1,200"})");
  const auto sample = read("gsm8k", R"({"id": 5, "question": "q", "solution": "s", "answer": "1200"})");
  EXPECT_EQ(sample->id, "5");
  for (const auto* item : {&*original, &*sample}) {
    for (const char* right :
         {"#### 1200", "#### $1,200.00", "\\boxed{1200}", "\\boxed{\\$1,200} of 7", "so 1,200 dollars.", "= 600+600=1200"}) {
      EXPECT_TRUE(judge("gsm8k", *item, right).right) << right;
    }
    for (const char* wrong : {"#### 12", "1200 and then 5", "\\boxed{5} 1200", "", "many"})
      EXPECT_FALSE(judge("gsm8k", *item, wrong).right) << wrong;
  }
  const auto loss = read("gsm8k", R"({"question": "q", "answer": "-4"})");
  EXPECT_TRUE(judge("gsm8k", *loss, "It is -4").right);
  EXPECT_FALSE(judge("gsm8k", *loss, "10-4").right);
  EXPECT_TRUE(judge("gsm8k", *read("gsm8k", R"({"question": "q", "answer": "4"})"), "10-4").right);
}

TEST(Aime, WholeNumbersTo999) {
  const auto item = read("aime", R"({"ID": "2024-I-4", "Problem": "p", "Answer": 25, "Solution": "s"})");
  EXPECT_EQ(item->id, "2024-I-4");
  for (const char* right : {"\\boxed{25}", "\\boxed{025}", "The answer is 25."})
    EXPECT_TRUE(judge("aime", *item, right).right) << right;
  for (const char* wrong : {"\\boxed{2500}", "\\boxed{-25}", "\\boxed{25.5}", ""})
    EXPECT_FALSE(judge("aime", *item, wrong).right) << wrong;
  EXPECT_FALSE(read("aime", R"({"problem": "p", "answer": "-1"})").ok());
  EXPECT_TRUE(read("aime", R"({"problem": "p", "answer": "009", "year": 2024})").ok());
}

TEST(Gpqa, ShuffledBySeedAndStable) {
  const char* line = R"({"Record ID": "r", "Question": "q", "Correct Answer": "yes", "Incorrect Answer 1": "no 1",
    "Incorrect Answer 2": "no 2", "Incorrect Answer 3": "no 3", "High-level domain": "Chemistry"})";
  std::set<std::string> letters;
  for (uint64_t seed = 0; seed < 40; ++seed) {
    const auto item = read("gpqa", line, {.max_tokens = 1, .seed = seed});
    const std::string letter = item->check.as_string();
    letters.insert(letter);
    EXPECT_EQ(read("gpqa", line, {.max_tokens = 1, .seed = seed})->request.dump(), item->request.dump());
    EXPECT_NE(item->request.dump().find(letter + ") yes\\n"), std::string::npos);
    EXPECT_TRUE(judge("gpqa", *item, "Answer: " + letter).right);
    EXPECT_FALSE(judge("gpqa", *item, std::string("Answer: ") + (letter == "A" ? "B" : "A")).right);
    EXPECT_EQ(item->kind, "chemistry");
  }
  EXPECT_EQ(letters.size(), 4u);
}

TEST(Hle, FreeAnswersAndPictures) {
  const auto free = read(
      "hle",
      R"({"id": "a", "question": "q", "answer": "$12.50$", "answer_type": "exactMatch", "image": "data:image/png;base64,AA=="})");
  EXPECT_NE(free->request.dump().find("image_url"), std::string::npos);
  EXPECT_TRUE(judge("hle", *free, "Long talk 3.\nAnswer: 12.5").right);
  EXPECT_TRUE(judge("hle", *free, "\\boxed{12.50}").right);
  EXPECT_FALSE(judge("hle", *free, "Answer: 12.5 or 13").right);
  const auto choice = read("hle", R"({"id": "a", "question": "q", "answer": "F", "answer_type": "multipleChoice"})");
  EXPECT_TRUE(judge("hle", *choice, "Answer: F").right);
}

TEST(HumanEval, MakesAWholeProgram) {
  const auto item = read(
      "humaneval",
      R"({"task_id": "H/0", "prompt": "import re\ndef f(x):\n    '''doc'''\n", "test": "def check(c): pass", "entry_point": "f"})");
  std::string program;
  EvalTools tools;
  tools.run_python = [&](const std::string& text) -> Result<std::optional<std::string>> {
    program = text;
    return std::optional<std::string>("AssertionError");
  };
  EXPECT_EQ(judge("humaneval", *item, "```python\ndef f(x):\n    return 1\n```", tools).why, "AssertionError");
  EXPECT_EQ(program, "import re\n\ndef f(x):\n    return 1\n\ndef check(c): pass\ncheck(f)\n");
  judge("humaneval", *item, "y = 1\nreturn y", tools);
  EXPECT_EQ(program, "import re\ndef f(x):\n    '''doc'''\n    y = 1\n    return y\ndef check(c): pass\ncheck(f)\n");
  tools.run_python = [](const std::string&) -> Result<std::optional<std::string>> { return std::optional<std::string>(); };
  EXPECT_TRUE(judge("humaneval", *item, "return 1", tools).right);
}

TEST(SelectCases, FirstOfEachKind) {
  std::vector<EvalCase> cases;
  for (const char* kind : {"a", "b", "a", "a", "b"}) cases.push_back({.id = std::to_string(cases.size()), .kind = kind});
  const auto two = select_cases(cases, {}, 2);
  ASSERT_EQ(two->size(), 4u);
  EXPECT_EQ((*two)[3].id, "4");
  EXPECT_EQ(select_cases(cases, {"b"}, 0)->size(), 2u);
  EXPECT_FALSE(select_cases(cases, {"c"}, 0).ok());
}

}  // namespace
}  // namespace deepinfer
