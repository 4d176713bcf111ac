#include "lab/bench_tokenizer.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "base/file.h"
#include "base/json.h"
#include "host/compressed_file.h"
#include "host/shipped_files.h"
#include "lab/thread_time.h"
#include "text/tokenizer.h"

namespace deepinfer {
namespace {

// The `text` fields of a corpus file, one after another, up to about `bytes`. `suffix`: of `path`, where rows have one.
Result<std::string> corpus_text(const std::string& file, std::string_view suffix, size_t bytes) {
  DI_TRY(const std::string lines, read_maybe_compressed(file));
  std::string text;
  for (std::string_view rest = lines; !rest.empty() && text.size() < bytes;) {
    const std::string_view line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(rest.size(), line.size() + 1));
    auto row = Json::parse(line);
    if (!row) return corrupt(fmt::format("{}: {}", file, row.error().message));
    const Json& path = row->at("path");
    if (!suffix.empty() && !(path.is_string() && path.as_string().ends_with(suffix))) continue;
    if (row->at("text").is_string()) text += row->at("text").as_string() + "\n";
  }
  return text;
}

// Files below `folder` that end in `suffix`, up to about `bytes`.
std::string folder_text(const std::string& folder, std::string_view suffix, size_t bytes) {
  std::vector<std::string> paths;
  std::error_code error;
  for (std::filesystem::recursive_directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    if (it->path().native().ends_with(suffix)) paths.push_back(it->path().native());
  }
  std::sort(paths.begin(), paths.end());
  std::string text;
  for (size_t i = 0; i < paths.size() && text.size() < bytes; ++i) {
    if (auto file = read_file(paths[i])) text += *file;
  }
  return text;
}

struct Sample {
  std::string name;
  std::string text;
};

// Ends at a character's end.
void trim(std::string& text, size_t bytes) {
  if (text.size() <= bytes) return;
  while (bytes > 0 && (static_cast<unsigned char>(text[bytes]) & 0xC0) == 0x80) --bytes;
  text.resize(bytes);
}

Result<std::vector<Sample>> collect_samples(const BenchTokenizerOptions& options) {
  struct Source {
    const char *name, *file, *suffix;
  };
  constexpr Source kSources[] = {
      {"python", "code", ".py"}, {"english", "books_en", ""}, {"chinese", "zh_classics", ""}, {"japanese", "ja_aozora", ""}};
  const std::string corpus = options.corpus.empty() ? find_shipped("../shared/data/corpus") : options.corpus;
  std::vector<Sample> samples;
  if (corpus.empty()) {
    samples.push_back({"python (of this machine)", folder_text("/usr/lib/python3", ".py", options.text_bytes)});
    samples.push_back({"english (documents of the tree)", folder_text(find_shipped("docs"), ".md", options.text_bytes)});
  } else {
    for (const Source& source : kSources) {
      const std::string file = join_path(corpus, fmt::format("{}.jsonl.zst", source.file));
      DI_TRY(std::string text, corpus_text(file, source.suffix, options.text_bytes));
      samples.push_back({source.name, std::move(text)});
    }
  }
  std::erase_if(samples, [](const Sample& sample) { return sample.text.empty(); });
  for (Sample& sample : samples) trim(sample.text, options.text_bytes);
  return samples;
}

void measure_sample(const Tokenizer& tokenizer, const Sample& sample, int repeats, FigureReport& report) {
  std::vector<TokenId> ids;
  const double seconds = best_seconds(repeats, [&] { ids = tokenizer.encode(sample.text); });
  const auto megabytes = static_cast<double>(sample.text.size()) / 1e6;
  report.add({.name = fmt::format("tokenizer/encode/{}", sample.name),
              .value = static_cast<double>(ids.size()) / seconds,
              .unit = "tokens/s"});
  report.add({.name = fmt::format("tokenizer/encode/{}/bytes", sample.name), .value = megabytes / seconds, .unit = "MB/s"});
  if (!sample.name.starts_with("english")) return;
  std::string text;
  const double decode = best_seconds(repeats, [&] { text = tokenizer.decode(ids); });
  report.add({.name = fmt::format("tokenizer/decode/{}", sample.name),
              .value = static_cast<double>(ids.size()) / decode,
              .unit = "tokens/s"});
}

void measure_repeated(const Tokenizer& tokenizer, std::string_view name, std::string_view unit, int repeats,
                      FigureReport& report) {
  const auto text_of = [&](size_t bytes) {
    std::string text;
    while (text.size() < bytes) text += unit;
    return text;
  };
  const std::string short_text = text_of(1'000'000), long_text = text_of(2'000'000);
  double one = std::numeric_limits<double>::max(), two = one;
  for (int i = 0; i < std::max(repeats, 1); ++i) {  // in turns, so that a disturbance meets both
    one = std::min(one, best_seconds(1, [&] { (void)tokenizer.encode(short_text); }));
    two = std::min(two, best_seconds(1, [&] { (void)tokenizer.encode(long_text); }));
  }
  report.add({.name = fmt::format("tokenizer/repeated/{}", name), .value = 2 / two, .unit = "MB/s"});
  report.add({.name = fmt::format("tokenizer/repeated/{}/growth", name), .value = two / one, .unit = "x"});
}

}  // namespace

Status bench_tokenizer(const BenchTokenizerOptions& options, FigureReport& report) {
  const std::string path = options.tokenizer.empty() ? find_shipped(kReleaseTokenizer) : options.tokenizer;
  if (path.empty())
    return not_found(
        fmt::format("the release tokenizer {} is not beside the program; name one with --tokenizer FILE", kReleaseTokenizer));
  DI_TRY(const std::string json, read_maybe_compressed(path));
  DI_TRY(const Tokenizer tokenizer, Tokenizer::parse(json, path));
  const double load = best_seconds(options.repeats, [&] { (void)Tokenizer::parse(json, path); });
  report.add({.name = "tokenizer/load", .value = load * 1e3, .unit = "ms"});
  DI_TRY(const std::vector<Sample> samples, collect_samples(options));
  for (const Sample& sample : samples) measure_sample(tokenizer, sample, options.repeats, report);
  constexpr std::pair<const char*, const char*> kRepeated[] = {
      {"letter", "a"}, {"space", " "}, {"newline", "\n"}, {"digit", "0"}, {"equals sign", "="}, {"combining mark", "\u0301"},
      {"Han", "中"},   {"emoji", "😀"}, {"zero byte", ""}};
  for (const auto& [name, unit] : kRepeated) {
    measure_repeated(tokenizer, name, *unit ? std::string_view(unit) : std::string_view("\0", 1), options.repeats, report);
  }
  return {};
}

}  // namespace deepinfer
