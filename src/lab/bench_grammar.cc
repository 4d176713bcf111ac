#include "lab/bench_grammar.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <vector>

#include "base/json.h"
#include "grammar/number_text.h"
#include "grammar/room.h"
#include "host/compressed_file.h"
#include "host/shipped_files.h"
#include "lab/thread_time.h"
#include "text/tokenizer.h"

namespace deepinfer {
namespace {

struct Tally {
  int64_t schemas = 0, refused = 0, valid = 0, invalid = 0, blocked = 0, accepted = 0;
  std::vector<double> compile_us, mask_us;
  struct Slow {
    double us;
    std::string where;
  };
  std::vector<Slow> slowest;  // masks
};

double percentile(std::vector<double>& values, double share) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  return values[std::min(values.size() - 1, static_cast<size_t>(share * static_cast<double>(values.size())))];
}

// As answers write it: integers without fraction and exponent.
Json plainly(Json value) {
  for (Json& item : value.items()) item = plainly(std::move(item));
  for (auto& [name, member] : value.members()) member = plainly(std::move(member));
  if (!value.is_number()) return value;
  const auto decimal = parse_decimal(value.number_text());
  if (!decimal || !decimal->fraction.empty()) return value;
  return Json::number((decimal->negative ? "-" : "") + decimal->whole);
}

class GrammarBench {
 public:
  GrammarBench(const Tokenizer& tokenizer, bool list)
      : tokenizer_(tokenizer), list_(list), vocabulary_(Vocabulary::create(tokenizer)) {}

  void row(const Json& row) {
    const std::string file = row.at("file").is_string() ? row.at("file").as_string() : "";
    std::string name = row.at("name").is_string() ? row.at("name").as_string() : file;
    if (row.at("description").is_string()) name += ": " + row.at("description").as_string();
    SchemaOptions options{.assert_formats = file.find("/format/") != file.npos, .draft = std::nullopt};
    if (row.at("draft").is_string()) {
      options.draft = row.at("draft").as_string() == "draft7" ? SchemaDraft::kDraft7 : SchemaDraft::k2020;
    }
    ++tally_.schemas;
    const Json schema = row.at("schema");
    ConstraintResult constraint = internal_error("");
    tally_.compile_us.push_back(1e6 * best_seconds(1, [&] { constraint = compile_json_schema(vocabulary_, schema, options); }));
    if (!constraint) {
      ++tally_.refused;
      note("refused", name, constraint.error().message);
      return;
    }
    for (const Json& test : row.at("tests").items()) {
      const bool valid = test.at("valid").is_bool() && test.at("valid").as_bool();
      const std::string text = test.at("data").dump();
      const std::string plain = plainly(test.at("data")).dump();
      const bool passed = walk(**constraint, name, text) || (plain != text && walk(**constraint, name, plain));
      ++(valid ? tally_.valid : tally_.invalid);
      if (passed == valid) continue;
      ++(valid ? tally_.blocked : tally_.accepted);
      note(valid ? "BLOCKED" : "ACCEPTED", name, text);
    }
  }

  void report(FigureReport& report) {
    for (const Tally::Slow& slow : tally_.slowest) note("slow mask", fmt::format("{:.0f} us", slow.us), slow.where);
    const auto add = [&](const char* name, double value, const char* unit) {
      report.add({.name = fmt::format("grammar/{}", name), .value = value, .unit = unit});
    };
    add("schemas", static_cast<double>(tally_.schemas), "");
    add("refused", static_cast<double>(tally_.refused), "");
    add("valid", static_cast<double>(tally_.valid), "");
    add("valid blocked", static_cast<double>(tally_.blocked), "");
    add("invalid", static_cast<double>(tally_.invalid), "");
    add("invalid accepted", static_cast<double>(tally_.accepted), "");
    for (auto& [name, values] : {std::pair{"compile", &tally_.compile_us}, std::pair{"mask", &tally_.mask_us}}) {
      for (const auto& [label, share] :
           {std::pair{"p50", 0.5}, std::pair{"p99", 0.99}, std::pair{"p99.9", 0.999}, std::pair{"max", 1.0}}) {
        add(fmt::format("{} {}", name, label).c_str(), percentile(*values, share), "us");
      }
    }
  }

 private:
  // Whether every token of the text is in the mask before it, and the text may end.
  bool walk(const Constraint& constraint, const std::string& name, const std::string& text) {
    const std::vector<TokenId> ids = tokenizer_.encode_content(text);
    std::vector<uint32_t> words(vocabulary_->num_words());
    std::unique_ptr<TokenMask> mask = constraint.start({});
    for (size_t at = 0; const TokenId id : ids) {
      tally_.mask_us.push_back(1e6 * best_seconds(1, [&] { mask->fill(words); }));
      if (list_) note_slow(tally_.mask_us.back(), name, text, at);
      at += tokenizer_.token_bytes(id).size();
      const bool allowed = words[static_cast<size_t>(id) / 32] >> (id % 32) & 1;
      if (mask->accept(id) != allowed) note("MASK AND ACCEPT DIFFER", text, fmt::format("token {}", id));
      if (!allowed) return false;
    }
    return mask->complete();
  }

  void note_slow(double us, const std::string& name, const std::string& text, size_t at) {
    constexpr size_t kListed = 20, kBefore = 60;
    std::vector<Tally::Slow>& list = tally_.slowest;
    if (list.size() == kListed && list.back().us >= us) return;
    const size_t from = at - std::min(at, kBefore);
    const auto place = std::find_if(list.begin(), list.end(), [&](const Tally::Slow& other) { return other.us < us; });
    list.insert(place, {us, fmt::format("{} behind {}", name, text.substr(from, at - from))});
    if (list.size() > kListed) list.pop_back();
  }

  void note(const char* what, const std::string& name, const std::string& text) const {
    if (list_) fmt::print(stderr, "{}: {}: {}\n", what, name, text.substr(0, 300));
  }

  const Tokenizer& tokenizer_;
  const bool list_;
  const std::shared_ptr<const Vocabulary> vocabulary_;
  Tally tally_;
};

Result<std::vector<std::string>> data_files(const std::string& data) {
  std::vector<std::string> files;
  std::error_code error;
  if (std::filesystem::is_directory(data, error)) {
    for (const auto& entry : std::filesystem::directory_iterator(data, error)) {
      const std::string& path = entry.path().native();
      if (path.ends_with(".jsonl") || path.ends_with(".jsonl.zst")) files.push_back(path);
    }
    std::sort(files.begin(), files.end());
  } else {
    files.push_back(data);
  }
  if (files.empty()) return not_found(fmt::format("{}: no *.jsonl or *.jsonl.zst there", data));
  return files;
}

}  // namespace

Status bench_grammar(const BenchGrammarOptions& options, FigureReport& report) {
  const std::string path = options.tokenizer.empty() ? find_shipped(kReleaseTokenizer) : options.tokenizer;
  if (path.empty()) return not_found("the release tokenizer is not beside the program; name one with --tokenizer FILE");
  if (options.data.empty()) return invalid_argument("bench grammar needs --data DIR: a folder of schemas with instances");
  DI_TRY(const std::string json, read_maybe_compressed(path));
  DI_TRY(const Tokenizer tokenizer, Tokenizer::parse(json, path));
  DI_TRY(const std::vector<std::string> files, data_files(options.data));
  GrammarBench bench(tokenizer, options.list);
  for (const std::string& file : files) {
    DI_TRY(const std::string lines, read_maybe_compressed(file));
    for (std::string_view rest = lines; !rest.empty();) {
      const std::string_view line = rest.substr(0, rest.find('\n'));
      rest.remove_prefix(std::min(rest.size(), line.size() + 1));
      const auto row = Json::parse(line);
      if (!row) return corrupt(fmt::format("{}: {}", file, row.error().message));
      if (row->at("tests").is_array()) bench.row(*row);
    }
  }
  bench.report(report);
  return {};
}

}  // namespace deepinfer
