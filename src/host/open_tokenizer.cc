#include <fmt/format.h>

#include <algorithm>

#include "base/file.h"
#include "host/compressed_file.h"
#include "host/host.h"
#include "host/shipped_files.h"

namespace deepinfer {

namespace {

constexpr const char* kShippedModel = "models/tiny-v41";

bool is_made_up(const std::string& model) { return model.starts_with("scripted:") || model.starts_with("random:"); }

}  // namespace

Result<std::string> resolve_model(const std::string& model) {
  if (!model.empty()) {
    if (is_made_up(model) || is_directory(model)) return model;
    const bool is_file = file_exists(model);
    const bool is_repository = !is_file && std::count(model.begin(), model.end(), '/') == 1 && model.front() != '.';
    return not_found(fmt::format("model {}: {}; -m names a checkpoint folder, scripted:FILE or random:SPEC{}", model,
                                 is_file ? "a file" : "there is no such folder",
                                 is_repository ? fmt::format("; deepinfer pull {} fetches one", model) : ""));
  }
  std::string found = find_shipped(kShippedModel);
  if (found.empty())
    return not_found(fmt::format(
        "the shipped model {} is not beside the program; name a checkpoint folder (-m DIR, options.model)", kShippedModel));
  return found;
}

Result<std::unique_ptr<Tokenizer>> open_tokenizer_file(const std::string& path) {
  DI_TRY(const std::string text, read_maybe_compressed(path));
  DI_TRY(Tokenizer tokenizer, Tokenizer::parse(text, path));
  return std::make_unique<Tokenizer>(std::move(tokenizer));
}

Result<std::unique_ptr<Tokenizer>> open_tokenizer(const std::string& model) {
  DI_TRY(const std::string folder, resolve_model(model));
  if (!is_made_up(folder)) return open_tokenizer_file(join_path(folder, "tokenizer.json"));
  // A script's logits are as long as the vocabulary, so a script takes the small one.
  if (const std::string shipped = find_shipped(kShippedModel); folder.starts_with("scripted:") && !shipped.empty())
    return open_tokenizer_file(join_path(shipped, "tokenizer.json"));
  const std::string release = find_shipped(kReleaseTokenizer);
  if (release.empty()) return not_found(fmt::format("the release tokenizer {} is not beside the program", kReleaseTokenizer));
  return open_tokenizer_file(release);
}

}  // namespace deepinfer
