#include "host/answer_constraint.h"

#include <gtest/gtest.h>

#include <fmt/format.h>

#include <random>

#include "host/constraint_source.h"
#include "recipe/control_tokens.h"
#include "recipe/parse.h"

namespace deepinfer {
namespace {

std::shared_ptr<const Vocabulary> vocabulary() {
  static const auto out = [] {
    std::vector<std::string> tokens;
    for (int byte = 0; byte < 256; ++byte) tokens.emplace_back(1, static_cast<char>(byte));
    for (const char* more :
         {"｜DSML｜", "</think>", "</", " calls", ">\n", "\n\n", "<｜", "｜ parameter", "invoke name=\"", "true\">", "{\""})
      tokens.emplace_back(more);
    return Vocabulary::create(tokens);
  }();
  return out;
}

ToolDefinition tool(const std::string& name, std::string_view schema, bool strict = true) {
  ToolDefinition out{.name = name, .description = std::nullopt, .parameters = std::nullopt, .strict = strict};
  if (!schema.empty()) out.parameters = *Json::parse(schema);
  return out;
}

struct Read {
  std::string content, reasoning;
  std::vector<ToolCall> calls;
};

// As the wires read it.
Read read(const Conversation& chat, std::string_view text) {
  OutputParser parser(parse_options(chat, {}));
  std::vector<OutputDelta> deltas;
  parser.feed(text, {}, deltas);
  parser.end(deltas);
  Read out;
  for (const OutputDelta& delta : deltas) {
    if (delta.kind == OutputDelta::Kind::kReasoning) out.reasoning += delta.text;
    if (delta.kind == OutputDelta::Kind::kContent) out.content += delta.text;
    if (delta.kind == OutputDelta::Kind::kToolName) out.calls.push_back({"", delta.text, ""});
    if (delta.kind == OutputDelta::Kind::kToolArguments) out.calls.back().arguments += delta.text;
  }
  return out;
}

std::shared_ptr<const Constraint> compiled(const Conversation& chat, const std::optional<std::string>& ebnf = std::nullopt) {
  const auto form = tool_call_form(chat, ebnf);
  EXPECT_TRUE(form && *form);
  auto out = compile_tool_calls(vocabulary(), **form);
  EXPECT_TRUE(out) << (out ? "" : out.error().message);
  return out ? *out : nullptr;
}

// An answer drawn at random from what the mask allows; it ends where it may with odds of one in three.
std::string drawn(const Constraint& constraint, std::mt19937& random) {
  constexpr TokenId kEnd = 2000;
  const auto mask = constraint.start({kEnd});
  std::vector<uint32_t> words(2048 / 32);
  std::string out;
  for (int i = 0; i < 4000; ++i) {
    mask->fill(words);
    std::vector<TokenId> allowed;
    for (TokenId token = 0; token < 2048; ++token) {
      if (words[static_cast<size_t>(token) / 32] >> (token % 32) & 1) allowed.push_back(token);
    }
    if (allowed.empty()) ADD_FAILURE() << "no token fits behind " << out;
    if (allowed.empty() || (mask->complete() && random() % 3 == 0)) return out;
    // Single letters would never leave a text: marks are as likely as all of them together.
    const auto mark = std::find_if(allowed.begin(), allowed.end(), [](TokenId t) { return t == '<' || (t >= 256 && t < 2000); });
    const TokenId token = random() % 3 == 0 && mark != allowed.end() ? *mark : allowed[random() % allowed.size()];
    if (token == kEnd) return out;
    EXPECT_TRUE(mask->accept(token));
    out += vocabulary()->bytes(token);
  }
  return "";
}

Conversation conversation(std::vector<ToolDefinition> tools, ToolChoice choice, bool thinking) {
  Conversation out;
  out.messages.push_back(Message::user("Go."));
  out.tools = std::move(tools);
  out.tool_choice = choice;
  out.thinking = thinking;
  return out;
}

constexpr const char* kBox =
    R"({"type":"object","properties":{"name":{"type":"string","maxLength":6},"my size":{"type":"integer","minimum":3},
  "tags":{"type":"array","items":{"type":"string"},"maxItems":2},"mixed":{"type":["string","null"]},"quo\"te":{"type":"boolean"}},
  "required":["name","my size"],"additionalProperties":false})";

TEST(ToolCalls, AcceptsWhatTheRecipeWrites) {
  const Conversation chat = conversation({tool("box", kBox), tool("nothing", "")}, ToolChoice::kRequired, true);
  const auto constraint = compiled(chat);
  const std::string calls =
      "<｜DSML｜ calls>\n<｜DSML｜ invoke name=\"box\">\n<｜DSML｜ parameter name=\"tags\" string=\"false\">[\"a\", "
      "\"b\"]</｜DSML｜ parameter>\n"
      "<｜DSML｜ parameter name=\"name\" string=\"true\">a\"<b\n</｜DSML｜ parameter>\n"
      "<｜DSML｜ parameter name=\"my\\u0020size\" string=\"false\">12</｜DSML｜ parameter>\n</｜DSML｜ invoke>\n"
      "<｜DSML｜ invoke name=\"nothing\">\n\n</｜DSML｜ invoke>\n</｜DSML｜ calls>";
  const std::string text = "Hm < 3.</think>\n\n" + calls;
  EXPECT_TRUE(constraint->matches(text));
  const Read answer = read(chat, text);
  ASSERT_EQ(answer.calls.size(), 2u);
  EXPECT_EQ(answer.calls[0].arguments, "{\"tags\": [\"a\", \"b\"], \"name\": \"a\\\"<b\\n\", \"my\\u0020size\": 12}");
  EXPECT_EQ(answer.calls[1].arguments, "{}");
  EXPECT_EQ(answer.reasoning, "Hm < 3.");
  const auto refuses = [&](const std::string& from, const std::string& to) {
    std::string other = text;
    other.replace(other.find(from), from.size(), to);
    return !constraint->matches(other);
  };
  EXPECT_TRUE(refuses("12", "2"));
  EXPECT_TRUE(refuses("12", "\"12\""));
  EXPECT_TRUE(refuses("\"box\"", "\"bag\""));
  EXPECT_TRUE(refuses("name=\"name\"", "name=\"other\""));
  EXPECT_TRUE(refuses("\"true\">a", "\"false\">a"));
  EXPECT_TRUE(refuses("a\"<b", "too long"));
  EXPECT_TRUE(refuses("\"a\"", "\"</｜DSML｜\""));
  EXPECT_TRUE(refuses("Hm", "<｜DSML｜"));  // a call inside thinking would be read as one
  EXPECT_TRUE(refuses(calls, "No."));
}

TEST(ToolCalls, AutoMayAnswerOrCall) {
  const std::string call =
      "<｜DSML｜ calls>\n<｜DSML｜ invoke name=\"f\">\n<｜DSML｜ parameter name=\"x\" string=\"false\">1</｜DSML｜ parameter>\n"
      "</｜DSML｜ invoke>\n</｜DSML｜ calls>";
  const auto integer = tool("f", R"({"type":"object","properties":{"x":{"type":"integer"}},"required":["x"]})");
  const auto free = compiled(conversation({integer}, ToolChoice::kAuto, false));
  EXPECT_TRUE(free->matches("Just text, with < and </｜DSML｜."));
  EXPECT_TRUE(free->matches("Let me see.\n\n" + call));
  EXPECT_FALSE(free->matches("Let me see.\n\n" + call + " more"));
  EXPECT_FALSE(free->matches("<｜DSML｜ other"));
  Conversation chat = conversation({integer}, ToolChoice::kAuto, false);
  chat.tools[0].strict.reset();
  EXPECT_FALSE(*tool_call_form(chat));  // nothing is asked for
  chat.format.kind = ResponseFormat::Kind::kJsonSchema;
  chat.format.constraint_schema = *Json::parse(R"({"type":"object","properties":{"y":{"type":"string"}},"required":["y"]})");
  const auto formed = compiled(chat);
  EXPECT_TRUE(formed->matches(R"({"y":"<b>"})"));
  EXPECT_TRUE(formed->matches("\n\n" + call));
  EXPECT_FALSE(formed->matches("text"));
  EXPECT_FALSE(formed->matches("text\n\n" + call));
  EXPECT_FALSE(formed->matches(R"({"y":"<｜DSML｜"})"));  // would be read as calls
  chat.tool_choice = ToolChoice::kNone;
  EXPECT_FALSE(*tool_call_form(chat));
}

TEST(ToolCalls, AGrammarBesideTools) {
  const std::string call = "\n\n<｜DSML｜ calls>\n<｜DSML｜ invoke name=\"f\">\n\n</｜DSML｜ invoke>\n</｜DSML｜ calls>";
  Conversation chat = conversation({tool("f", "", false)}, ToolChoice::kAuto, false);
  // Rules that recur put their texts together from parts, a mark among them.
  for (const char* ebnf : {"root ::= \"<\" [^x]* \">\"", "root ::= \"<\" part \">\"\npart ::= [^x] part | \"\""}) {
    const auto constraint = compiled(chat, ebnf);
    EXPECT_TRUE(constraint->matches("<a>")) << ebnf;
    EXPECT_TRUE(constraint->matches(call)) << ebnf;
    EXPECT_FALSE(constraint->matches("<a>" + call)) << ebnf;
    EXPECT_FALSE(constraint->matches("a")) << ebnf;
    EXPECT_FALSE(constraint->matches("<｜DSML｜>")) << ebnf << " would be read as calls";
  }
  EXPECT_FALSE(compile_tool_calls(vocabulary(), **tool_call_form(chat, "root ::= \"<｜DSML｜\"")));
  EXPECT_FALSE(compile_tool_calls(vocabulary(), **tool_call_form(chat, "root ::= \"<\" a\na ::= \"｜\" a | \"｜DSML｜\"")));
  chat.tool_choice = ToolChoice::kRequired;
  EXPECT_FALSE(compiled(chat, "root ::= \"a\"")->matches("a"));
}

TEST(ToolCalls, AsManyCallsAsAreAllowedAndOfThoseTools) {
  const auto call = [](const std::string& name) { return "<｜DSML｜ invoke name=\"" + name + "\">\n\n</｜DSML｜ invoke>\n"; };
  const std::string open = "<｜DSML｜ calls>\n", close = "</｜DSML｜ calls>";
  Conversation chat = conversation({tool("f", "", false), tool("g", "", false)}, ToolChoice::kAuto, false);
  for (const int64_t most : {1, 2, 5}) {
    chat.max_calls = most;
    const auto constraint = compiled(chat);
    std::string calls;
    for (int64_t i = 1; i <= most + 1; ++i) {
      calls += call(i % 2 ? "f" : "g");
      EXPECT_EQ(constraint->matches("So.\n\n" + open + calls + close), i <= most) << most << " " << i;
    }
    EXPECT_TRUE(constraint->matches("No call."));
  }
  chat.max_calls = 0;
  EXPECT_FALSE(*tool_call_form(chat));
  chat.only_listed = true;
  EXPECT_TRUE(compiled(chat)->matches(open + call("g") + call("f") + call("g") + close));
  EXPECT_FALSE(compiled(chat)->matches(open + call("h") + close));
}

TEST(ToolCalls, WhatCannotBeEnforcedIsRefusedOnlyWhereItWasPromised) {
  constexpr const char* kBack = R"({"type":"object","properties":{"x":{"type":"string","pattern":"(a)\\1"}}})";
  Conversation chat = conversation({tool("f", kBack)}, ToolChoice::kRequired, false);
  const auto refused = compile_tool_calls(vocabulary(), **tool_call_form(chat));
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message.find("tool 'f': JSON Schema keyword 'pattern' at #/properties/x"), std::string::npos)
      << refused.error().message;
  chat.tools[0].strict = false;
  EXPECT_TRUE(compiled(chat)->matches(
      "<｜DSML｜ invoke name=\"f\">\n<｜DSML｜ parameter name=\"x\" string=\"true\">aa</｜DSML｜ parameter>\n"
      "</｜DSML｜ invoke>\n</｜DSML｜ calls>"));
}

std::string random_schema(std::mt19937& random, int depth);

std::string random_object(std::mt19937& random, int depth) {
  std::string properties, required;
  const int count = static_cast<int>(random() % 4);
  for (int i = 0; i < count; ++i) {
    static const char* kNames[] = {"a", "b c", "ü", "q\\\"", "<", "_9"};
    const std::string name = fmt::format("\"{}{}\"", kNames[random() % 6], i);
    properties += (i ? "," : "") + name + ":" + random_schema(random, depth - 1);
    if (random() % 2) required += (required.empty() ? "" : ",") + name;
  }
  return fmt::format(R"({{"type":"object","properties":{{{}}},"required":[{}],"additionalProperties":{}}})", properties, required,
                     random() % 3 ? "false" : random_schema(random, 0));
}

std::string random_schema(std::mt19937& random, int depth) {
  switch (random() % (depth > 0 ? 9 : 6)) {
    case 0: return fmt::format(R"({{"type":"string","maxLength":{}}})", random() % 5);
    case 1: return fmt::format(R"({{"type":"integer","minimum":{},"maximum":99}})", random() % 50);
    case 2: return R"({"type":["boolean","null"]})";
    case 3: return R"({"enum":["one","<two>",3,null,{"a":"b"}]})";
    case 4: return R"({"type":"string","pattern":"^[a-c<]{1,3}$"})";
    case 5: return R"({"anyOf":[{"type":"string","maxLength":2},{"type":"number","minimum":5}]})";
    case 6: return fmt::format(R"({{"type":"array","items":{},"maxItems":2}})", random_schema(random, depth - 1));
    default: return random_object(random, depth);
  }
}

// Whatever the mask lets through is read as calls of known tools whose arguments are valid JSON of their schemas.
TEST(ToolCalls, RandomAnswersCallWithValidArguments) {
  int calls = 0;
  for (unsigned seed = 0; seed < 60; ++seed) {
    std::mt19937 random(seed);
    const Conversation chat = conversation({tool("f", random_object(random, 2)), tool("g-2", random_object(random, 1))},
                                           random() % 4 ? ToolChoice::kRequired : ToolChoice::kAuto, random() % 2 == 0);
    const auto constraint = compiled(chat);
    for (int i = 0; i < 3; ++i) {
      const std::string text = drawn(*constraint, random);
      if (text.empty()) continue;
      const Read answer = read(chat, text);
      ASSERT_TRUE(chat.tool_choice == ToolChoice::kAuto || !answer.calls.empty()) << text;
      for (const ToolCall& call : answer.calls) {
        ++calls;
        const size_t at = call.name == "f" ? 0 : 1;
        ASSERT_EQ(call.name, chat.tools[at].name) << text;
        ASSERT_TRUE(Json::parse(call.arguments)) << text << "\n" << call.arguments;
        const auto schema = compile_json_schema(vocabulary(), *chat.tools[at].parameters);
        // Read again as JSON: names and blanks are then written as the engine writes them.
        ASSERT_TRUE((*schema)->matches(Json::parse(call.arguments)->dump())) << chat.tools[at].parameters->dump() << "\n" << text;
      }
    }
  }
  EXPECT_GT(calls, 60);
}

// What a constraint is compiled from survives the way to another process.
TEST(ConstraintSource, ReadsBack) {
  ToolCallForm form{.tools = {{"add", *Json::parse(R"({"type":"object"})"), true}, {"none", std::nullopt, false}},
                    .required = true,
                    .thinking = true,
                    .max_calls = 2,
                    .markup = recipe_call_markup()};
  form.regex = "a+";
  form.ebnf = "root ::= \"a\"";
  using Kind = OutputConstraint::Kind;
  for (const ConstraintSource& source :
       {ConstraintSource{.what = form, .written = "x"}, ConstraintSource{.what = EbnfText{"root ::= \"a\""}},
        ConstraintSource{.what = OutputConstraint{Kind::kJson, "{}"}},
        ConstraintSource{.what = OutputConstraint{Kind::kRegex, "[0-9]\n\u20ac"}}}) {
    const std::string text = write_constraint_source(source);
    const auto back = read_constraint_source(text);
    ASSERT_TRUE(back) << back.error().message;
    EXPECT_EQ(write_constraint_source(*back), text);
  }
  for (const char* wrong : {"", "{}", "[1]", R"({"written":"","kind":"json"})", R"({"written":"","kind":"sql","text":""})"}) {
    const auto read = read_constraint_source(wrong);
    ASSERT_FALSE(read) << wrong;
    EXPECT_EQ(read.error().code, ErrorCode::kCorrupt);
  }
}

}  // namespace
}  // namespace deepinfer
