#include "recipe/parse.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include "base/utf8.h"

namespace deepinfer {
namespace {

// What deltas add up to.
struct Answer {
  std::string reasoning, content;
  std::vector<std::pair<std::string, std::string>> calls;
  std::string stop;
  bool operator==(const Answer&) const = default;
};

void showValue(const Answer& answer, std::ostream& out) { out << answer.reasoning << " | " << answer.content; }

Answer parse(const ParseOptions& options, const std::vector<std::string>& records) {
  OutputParser parser(options);
  std::vector<OutputDelta> deltas;
  for (const std::string& record : records) parser.feed(record, {}, deltas);
  parser.end(deltas);
  Answer answer;
  for (const OutputDelta& delta : deltas) {
    switch (delta.kind) {
      case OutputDelta::Kind::kReasoning: answer.reasoning += delta.text; break;
      case OutputDelta::Kind::kContent: answer.content += delta.text; break;
      case OutputDelta::Kind::kToolName: answer.calls.emplace_back(delta.text, ""); break;
      case OutputDelta::Kind::kToolArguments: answer.calls.back().second += delta.text; break;
    }
  }
  answer.stop = parser.stop_string();
  return answer;
}

const std::string kCall =
    "\n\n<｜DSML｜ calls>\n<｜DSML｜ invoke name=\"add\">\n<｜DSML｜ parameter name=\"a\" string=\"false\">12</｜DSML｜ "
    "parameter>\n"
    "<｜DSML｜ parameter name=\"note\" string=\"true\">say \"hi\"\n</｜DSML｜ parameter>\n</｜DSML｜ invoke>\n"
    "<｜DSML｜ invoke name=\"now\">\n</｜DSML｜ invoke>\n</｜DSML｜ calls>";

TEST(OutputParser, ReasoningThenAnswer) {
  const Answer answer = parse({.start = ParseStart::kReasoning}, {"\n\nHm.\n\n</think>\n\nForty-two.\n"});
  EXPECT_EQ(answer.reasoning, "Hm.");
  EXPECT_EQ(answer.content, "Forty-two.\n");
}

TEST(OutputParser, PlainAnswerKeepsInnerNewlines) {
  EXPECT_EQ(parse({}, {"\n\na\n\nb\n"}).content, "a\n\nb\n");
  EXPECT_EQ(parse({.start = ParseStart::kContentContinued}, {"\na"}).content, "\na");
  EXPECT_EQ(parse({.start = ParseStart::kReasoningContinued}, {"\nx</think>y"}).reasoning, "\nx");
}

TEST(OutputParser, RawTextStaysAsItIs) {
  const std::string text = "\n\na</think>b\n</think>" + kCall;
  EXPECT_EQ(parse({.start = ParseStart::kRaw}, {text}).content, text);
  const Answer stopped = parse({.start = ParseStart::kRaw, .stop = {"k>b"}}, {text});
  EXPECT_EQ(stopped.content, "\n\na</thin");
  EXPECT_EQ(stopped.stop, "k>b");
}

TEST(OutputParser, UnfinishedMarkupBecomesText) {
  EXPECT_EQ(parse({.start = ParseStart::kReasoning}, {"so </thi"}).reasoning, "so </thi");
  EXPECT_EQ(parse({.tool_calls = true}, {"a\n<｜DSM"}).content, "a\n<｜DSM");
}

TEST(OutputParser, ToolCalls) {
  const Answer answer = parse({.tool_calls = true, .start = ParseStart::kReasoning}, {"Plan.</think>Calling." + kCall});
  EXPECT_EQ(answer.reasoning, "Plan.");
  EXPECT_EQ(answer.content, "Calling.");
  ASSERT_EQ(answer.calls.size(), 2u);
  EXPECT_EQ(answer.calls[0].first, "add");
  EXPECT_EQ(answer.calls[0].second, R"({"a": 12, "note": "say \"hi\"\n"})");
  EXPECT_EQ(answer.calls[1].second, "{}");
}

TEST(OutputParser, MarkupIsTextWithoutTools) { EXPECT_EQ(parse({}, {"x" + kCall}).content, "x" + kCall); }

TEST(OutputParser, CutOffCallKeepsWhatCame) {
  const Answer answer = parse({.tool_calls = true}, {kCall.substr(0, kCall.find("12") + 1)});
  ASSERT_EQ(answer.calls.size(), 1u);
  EXPECT_EQ(answer.calls[0].second, R"({"a": 1)");
}

TEST(OutputParser, StopStrings) {
  const ParseOptions options{.start = ParseStart::kReasoning, .stop = {"END", "\n\n"}};
  const Answer answer = parse(options, {"no END here</think>one EN", "D two"});
  EXPECT_EQ(answer.reasoning, "no END here");
  EXPECT_EQ(answer.content, "one ");
  EXPECT_EQ(answer.stop, "END");
}

TEST(OutputParser, JsonOutputDropsFences) {
  EXPECT_EQ(parse({.json_output = true}, {"```json\n{\"a\": 1}\n```\n"}).content, "{\"a\": 1} ");
  EXPECT_EQ(parse({.json_output = true}, {"[1]"}).content, "[1]");
}

TEST(OutputParser, TextIsGivenOutAsSoonAsItIsSafe) {
  OutputParser parser({.tool_calls = true});
  std::vector<OutputDelta> deltas;
  parser.feed("Hello", {}, deltas);
  ASSERT_EQ(deltas.size(), 1u);
  parser.feed("\n", {}, deltas);
  EXPECT_EQ(deltas.size(), 1u);
  parser.feed("there", {}, deltas);
  EXPECT_EQ(deltas.size(), 3u);  // one delta a record
}

TEST(OutputParser, TokensGoWithTheTextTheyBegin) {
  OutputParser parser({.start = ParseStart::kReasoning, .stop = {"lo"}});
  std::vector<OutputDelta> deltas;
  parser.feed("Hm</think>Hello", {{0, 7}, {2, 8}, {10, 9}}, deltas);
  ASSERT_EQ(deltas.size(), 2u);
  EXPECT_EQ(deltas[0].tokens, std::vector<int64_t>{7});
  EXPECT_EQ(deltas[1].text, "Hel");
  EXPECT_EQ(deltas[1].tokens, std::vector<int64_t>{9});
}

// Text made of the pieces that matter, so that markup and near misses are frequent.
rc::Gen<std::string> markup_text() {
  const std::vector<std::string> pieces{"\n",
                                        "<",
                                        "</think>",
                                        "</thi",
                                        "｜DSML｜",
                                        " calls>",
                                        "<｜DSML｜ invoke name=\"f\">",
                                        "<｜DSML｜ parameter name=\"k\" string=\"true\">",
                                        "<｜DSML｜ parameter name=\"k\" string=\"false\">",
                                        "</｜DSML｜ parameter>",
                                        "</｜DSML｜ invoke>",
                                        "</｜DSML｜ calls>",
                                        "a",
                                        "ä",
                                        "\"",
                                        "{",
                                        "[",
                                        "```",
                                        "json\n",
                                        "END",
                                        "EN",
                                        " "};
  return rc::gen::map(rc::gen::container<std::vector<std::string>>(rc::gen::elementOf(pieces)), [](const auto& parts) {
    std::string text;
    for (const std::string& part : parts) text += part;
    return text;
  });
}

std::vector<std::string> cut(const std::string& text, const std::vector<uint8_t>& sizes) {
  std::vector<std::string> records;
  size_t at = 0, next = 0;
  while (at < text.size()) {
    size_t end = at;
    const size_t wanted = next < sizes.size() ? sizes[next++] % 7 + 1 : text.size();
    for (size_t i = 0; i < wanted && end < text.size(); ++i) next_code_point(text, end);
    records.push_back(text.substr(at, end - at));
    at = end;
  }
  return records;
}

// An answer that is held to a form arrives as it was made; the marks of calls and stop strings keep their meaning.
TEST(OutputParser, NothingOfAFormedAnswerIsDropped) {
  ParseOptions options;
  options.exact = true;
  options.start = ParseStart::kReasoning;
  EXPECT_EQ(parse(options, {"Hm.</think>", "\n\"a</th", "ink>b\""}), (Answer{"Hm.", "\n\"a</think>b\"", {}, ""}));
  options.start = ParseStart::kPlain;
  options.tool_calls = true;
  options.stop = {"END"};
  const Answer called = parse(options, {"\n{\"x\": \"</think>\"}" + kCall});
  EXPECT_EQ(called.content, "\n{\"x\": \"</think>\"}");
  EXPECT_EQ(called.calls.size(), 2u);
  EXPECT_EQ(parse(options, {"</think>END?"}), (Answer{"", "</think>", {}, "END"}));
}

TEST(OutputParser, AnySplitGivesTheSameAnswer) {
  rc::check("records do not change the answer", [] {
    ParseOptions options;
    options.tool_calls = *rc::gen::arbitrary<bool>();
    options.starts_in_tool_calls = options.tool_calls && *rc::gen::inRange(0, 4) == 0;
    options.start = *rc::gen::element(ParseStart::kPlain, ParseStart::kReasoning, ParseStart::kReasoningContinued,
                                      ParseStart::kContentContinued);
    if (*rc::gen::arbitrary<bool>()) options.stop = {"END", "\n\n"};
    const std::string text = *markup_text();
    const Answer whole = parse(options, {text});
    RC_ASSERT(parse(options, cut(text, *rc::gen::arbitrary<std::vector<uint8_t>>())) == whole);
  });
}

}  // namespace
}  // namespace deepinfer
