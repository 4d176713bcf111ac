#include "grammar/host_name.h"

#include <gtest/gtest.h>

#include "grammar/a_label.h"
#include "grammar/automaton.h"
#include "grammar/constraint.h"

namespace deepinfer {
namespace {

bool is_host(std::string_view text) {
  HostName name;
  for (const char c : text) {
    const auto next = name.after(static_cast<uint8_t>(c));
    if (!next) return false;
    name = HostName::unpacked(next->packed());
  }
  return name.ends();
}

TEST(HostName, LabelsOfAscii) {
  const std::string label(63, 'a');
  for (const std::string& text : {std::string("a"), std::string("1-b.C"), std::string("a--b.com"), std::string("xn-a.xna"),
                                  label + "." + label, label + "." + label + "." + label + "." + label.substr(2)})
    EXPECT_TRUE(is_host(text)) << text;
  for (const std::string& text :
       {std::string(), std::string("."), std::string("-a"), std::string("a-"), std::string("a..b"), std::string("ab--c"),
        std::string("a_b"), label + "a", label + "." + label + "." + label + "." + label.substr(1)})
    EXPECT_FALSE(is_host(text)) << text;
}

TEST(HostName, ALabels) {
  // Of RFC 3492, 7.1 and languages with signs of their own; judged by the package idna of Python.
  for (const char* text : {"bcher-kva", "9n2bp8q", "ihqwcrb4cv8a8dqg056pqjye", "ll-0ea", "wva3je", "4dbc5h", "k8j5u", "vek778f",
                           "ngba1o", "0-gyc", "11b2ezcw70k", "11b2ezcs70k", "ngba5hb2804a", "mgba3gch31f", "zca29lwxobi7a"})
    EXPECT_TRUE(a_label_ends(text)) << text;
  for (const char* text : {"", "x", "abc-", "-abc", "hello-txk", "al-0ea", "l-fda", "wva3j", "5db1e", "vek", "ngb6iyr",
                           "11b2er09f", "02b508i", "chb89f", "07jceefgh4c", "aa---o47jg78q", "9n2bp8", "99999999"})
    EXPECT_FALSE(a_label_ends(text)) << text;
  EXPECT_FALSE(a_label_goes_on("", 2));
}

// From every beginning that is allowed an end is found, by taking what is allowed; all of it is ASCII.
TEST(HostName, NoBeginningIsABlindAlley) {
  uint32_t random = 7;
  for (int round = 0; round < 40; ++round) {
    HostName name;
    std::string text;
    for (const char c : std::string_view(round % 3 ? "xn--" : "a.xn--")) name = *name.after(static_cast<uint8_t>(c)), text += c;
    for (int i = 0; i < 300; ++i) {
      std::vector<uint8_t> allowed;
      for (int byte = 0; byte < 256; ++byte) {
        if (name.after(static_cast<uint8_t>(byte))) allowed.push_back(static_cast<uint8_t>(byte));
      }
      if (allowed.empty()) break;
      random = random * 1664525 + 1013904223;
      const uint8_t byte = allowed[(random >> 8) % allowed.size()];
      name = *name.after(byte), text += static_cast<char>(byte);
    }
    EXPECT_TRUE(name.ends()) << text;
  }
}

// Of all beginnings inside an A-label only those that are gone on with otherwise are looked into.
TEST(HostName, TokensInsideALabelTakeFewSteps) {
  std::vector<std::string> tokens{"ab\"", "c.d", "a_"};
  for (char a = 'a'; a <= 'z'; ++a) {
    for (char b = 'a'; b <= 'z'; ++b) tokens.push_back({a, b, 'q'});
  }
  Lexer lexer;
  RegexArena& arena = lexer.arena();
  auto rules = std::make_unique<FixedRules>();
  const Nonterminal start = rules->add();
  rules->add(start, {Symbol::terminal(arena.concat({arena.json_body(arena.host_name()), arena.literal("\"")}))});
  rules->set_start(start);
  Automaton automaton(Vocabulary::create(tokens), lexer, std::move(rules));
  GrammarState state = automaton.begin();
  ASSERT_TRUE(automaton.advance(state, "xn--9n2bp8q"));
  const size_t before = automaton.num_states();
  std::vector<uint32_t> words(automaton.vocabulary().num_words());
  ASSERT_TRUE(automaton.mask(state, words));
  EXPECT_LT(automaton.num_states(), before + 20);
  for (TokenId token = 0; token < automaton.vocabulary().size(); ++token) {
    GrammarState behind = state;
    EXPECT_EQ(automaton.advance(behind, automaton.vocabulary().bytes(token)),
              (words[static_cast<size_t>(token) / 32] >> (token % 32) & 1) != 0)
        << tokens[static_cast<size_t>(token)];
  }
}

TEST(HostName, AsAFormat) {
  std::vector<std::string> tokens{"xn--", "9n2", "bp8q", "--", "ab"};
  for (int byte = 0; byte < 256; ++byte) tokens.emplace_back(1, static_cast<char>(byte));
  const auto compiled = [&](const char* schema) {
    auto out = compile_json_schema(Vocabulary::create(tokens), *Json::parse(schema));
    EXPECT_TRUE(out) << (out ? "" : out.error().message);
    return *out;
  };
  const auto host = compiled(R"({"type":"string","format":"hostname"})");
  EXPECT_TRUE(host->matches(R"("xn--9n2bp8q.example")"));
  EXPECT_FALSE(host->matches(R"("xn--x")"));
  const auto mask = host->start({});
  std::vector<uint32_t> words(16);
  for (const TokenId token : {5 + '"', 0, 1, 2}) {
    ASSERT_EQ(mask->fill(words), MaskFill::kReady);
    for (TokenId other = 0; other < static_cast<TokenId>(tokens.size()); ++other) {
      EXPECT_EQ(mask->accept(other), (words[static_cast<size_t>(other) / 32] >> (other % 32) & 1) != 0) << other;
      if (words[static_cast<size_t>(other) / 32] >> (other % 32) & 1) mask->rollback(1);
    }
    ASSERT_TRUE(mask->accept(token));
  }
  // Beside a length no A-labels are written, and a name that is excluded is one with A-labels, too.
  const auto shorter = compiled(R"({"type":"string","format":"hostname","minLength":4,"maxLength":20})");
  EXPECT_TRUE(shorter->matches(R"("abc.d")") && !shorter->matches(R"("abc")") && !shorter->matches(R"("xn--9n2bp8q")"));
  const auto other = compiled(R"({"type":"string","not":{"format":"hostname","maxLength":12}})");
  EXPECT_TRUE(other->matches(R"("a b")") && other->matches(R"("xn--9n2bp8q.xn--9n2bp8q")") &&
              !other->matches(R"("xn--9n2bp8q")"));
}

}  // namespace
}  // namespace deepinfer
