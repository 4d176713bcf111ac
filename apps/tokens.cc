// deepinfer tokenize, detokenize, render: recipe steps by hand.
#include <fmt/format.h>

#include <iostream>
#include <iterator>

#include "apps/commands.h"
#include "apps/terminal.h"
#include "base/file.h"
#include "base/utf8.h"
#include "host/ask.h"
#include "recipe/render.h"

namespace deepinfer {
namespace {

std::string read_stdin() { return std::string(std::istreambuf_iterator<char>(std::cin), {}); }

struct TokenizerSettings {
  std::string model, tokenizer;
  bool json = false;
  void visit(FieldVisitor visit) {
    visit({.name = "model", .target = &model, .help = "whose tokenizer [the shipped model]", .value = "DIR", .letter = 'm'});
    visit({.name = "tokenizer", .target = &tokenizer, .help = "a tokenizer.json(.zst) instead", .value = "FILE"});
    visit({.name = "json", .target = &json, .help = "one JSON object"});
  }
  Result<std::unique_ptr<Tokenizer>> open() const {
    return tokenizer.empty() ? open_tokenizer(model) : open_tokenizer_file(tokenizer);
  }
};

Json id_array(const std::vector<TokenId>& ids) {
  Json out = Json::array();
  for (const TokenId id : ids) out.push_back(id);
  return out;
}

std::string id_line(const std::vector<TokenId>& ids) {
  std::string out;
  for (const TokenId id : ids) out += (out.empty() ? "" : " ") + std::to_string(id);
  return out + "\n";
}

struct TokenizeSettings : TokenizerSettings {
  bool content = false;
  void visit(FieldVisitor visit) {
    TokenizerSettings::visit(visit);
    visit({.name = "content", .target = &content, .help = "as text of a message: control tokens are ordinary text"});
  }
};

class TokenizeCommand final : public Command {
 public:
  std::string name() const override { return "tokenize"; }
  std::string summary() const override { return "text to token ids"; }
  std::string examples() const override {
    return "  deepinfer tokenize \"Hello, world!\"\n  deepinfer tokenize --content \"<think>\"\n  deepinfer tokenize --json < "
           "file.txt";
  }
  std::vector<Field> fields() override { return fields_of(settings_); }
  std::vector<Positional> positionals() override { return {{"TEXT", "read from stdin when there is none", &words_, 0, 1}}; }

  Result<int> run() override {
    DI_TRY(const auto tokenizer, settings_.open());
    const std::string text = words_.empty() ? read_stdin() : words_[0];
    if (!is_valid_utf8(text)) return invalid_argument("the text is not valid UTF-8; convert it first, for example with iconv");
    const std::vector<TokenId> ids = settings_.content ? tokenizer->encode_content(text) : tokenizer->encode(text);
    if (!settings_.json) return finish_with(write_out(id_line(ids)));
    Json tokens = Json::array();
    for (const TokenId id : ids) tokens.push_back(to_valid_utf8(tokenizer->token_bytes(id)));
    const Json out = Json::object({{"count", static_cast<int64_t>(ids.size())}, {"ids", id_array(ids)}, {"tokens", tokens}});
    return finish_with(write_out(out.dump() + "\n"));
  }

 private:
  TokenizeSettings settings_;
  std::vector<std::string> words_;
};

class DetokenizeCommand final : public Command {
 public:
  std::string name() const override { return "detokenize"; }
  std::string summary() const override { return "token ids to text, byte for byte"; }
  std::string examples() const override {
    return "  deepinfer detokenize 2282 14 1347 3\n  deepinfer tokenize \"Hi\" | deepinfer detokenize";
  }
  std::vector<Field> fields() override { return fields_of(settings_); }
  std::vector<Positional> positionals() override { return {{"ID", "read from stdin when there are none", &words_, 0, 1 << 20}}; }

  Result<int> run() override {
    DI_TRY(const auto tokenizer, settings_.open());
    std::string text;
    if (words_.empty()) text = read_stdin();
    for (const std::string& word : words_) text += word + " ";
    DI_TRY(const std::vector<TokenId> ids, parse_ids(text, *tokenizer));
    std::string bytes;
    for (const TokenId id : ids) bytes += tokenizer->token_bytes(id);
    if (!settings_.json) return finish_with(write_out(bytes));
    return finish_with(write_out(Json::object({{"text", to_valid_utf8(bytes)}}).dump() + "\n"));
  }

 private:
  static Result<std::vector<TokenId>> parse_ids(const std::string& text, const Tokenizer& tokenizer) {
    std::vector<TokenId> ids;
    const char* blanks = " \t\r\n,[]";
    for (size_t at = text.find_first_not_of(blanks); at != std::string::npos; at = text.find_first_not_of(blanks, at)) {
      const size_t end = std::min(text.find_first_of(blanks, at), text.size());
      int32_t id = 0;
      const double most = static_cast<double>(tokenizer.vocab_size()) - 1;
      const Field field{.name = "ID", .target = &id, .help = "", .min = 0, .max = most};
      const std::string word = text.substr(at, end - at);
      if (!set_field(field, word))
        return invalid_argument(fmt::format("'{}' is no token id from 0 to {}", word.substr(0, 40), most));
      ids.push_back(id);
      at = end;
    }
    return ids;
  }

  TokenizerSettings settings_;
  std::vector<std::string> words_;
};

}  // namespace

std::unique_ptr<Command> make_tokenize_command() { return std::make_unique<TokenizeCommand>(); }
std::unique_ptr<Command> make_detokenize_command() { return std::make_unique<DetokenizeCommand>(); }

}  // namespace deepinfer
