#include "lab/golden.h"

#include <fmt/format.h>

#include <filesystem>
#include <map>
#include <set>

#include "base/file.h"
#include "host/compressed_file.h"
#include "host/host.h"
#include "host/open_device.h"
#include "lab/golden_model.h"
#include "lab/golden_ops.h"
#include "lab/golden_recipe.h"
#include "lab/golden_tokenize.h"
#include "lab/unpacked_folder.h"

namespace deepinfer {

namespace {

bool is_case_file(std::string_view name) { return name.ends_with(".jsonl") || name.ends_with(".jsonl.zst"); }

class GoldenRun {
 public:
  explicit GoldenRun(const GoldenOptions& options) : options_(options) {}

  Status path(const std::string& path) {
    if (!is_directory(path)) return case_file(path);
    if (is_directory(join_path(path, "golden"))) return model_folder(path);
    DI_TRY(const auto names, list_directory(path));
    bool found = false;
    for (const std::string& name : names) {
      const std::string child = join_path(path, name);
      const bool model = is_directory(join_path(child, "golden"));
      if (!model && (is_directory(child) ? !holds_cases(child) : !is_case_file(name))) continue;
      found = true;
      DI_CHECK_OK(this->path(child));
    }
    if (!found) return not_found(fmt::format("{}: holds no golden case file (.jsonl) and no golden/ folder", path));
    return {};
  }
  const GoldenCounts& counts() const { return counts_; }

 private:
  void say(const std::string& message) const {
    if (options_.say) options_.say(message);
  }

  static bool holds_cases(const std::string& folder) {
    std::error_code error;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(folder, error)) {
      if (is_case_file(entry.path().filename().string()) || (entry.is_directory() && entry.path().filename() == "golden"))
        return true;
    }
    return false;
  }

  // Cases with `op` are the tokenizer's, all others the recipe's.
  Status case_file(const std::string& path) {
    DI_TRY(const std::string lines, read_maybe_compressed(path));
    DI_TRY(const Tokenizer* tokenizer, this->tokenizer());
    const Result<Json> first = Json::parse(std::string_view(lines).substr(0, lines.find('\n')));
    if (!first || !first->is_object())
      return corrupt(fmt::format("{}: the first line is no JSON object; golden files are JSON Lines", path));
    GoldenCounts counts;
    if (first->find("op") && first->find("ids")) {
      DI_TRY(counts, run_tokenize_cases(lines, *tokenizer));
    } else {
      DI_TRY(RecipeGolden result, run_recipe_lines(lines, *tokenizer, std::filesystem::path(path).parent_path().string()));
      counts = std::move(result.counts);
      for (const auto& [reason, number] : result.left_out) say(fmt::format("{}: {} left out: {}", path, number, reason));
    }
    say(fmt::format("{}: {} passed, {} failed", path, counts.passed, counts.failed));
    counts_.add(counts);
    return {};
  }

  Status model_folder(const std::string& path) {
    DI_TRY(const UnpackedFolder folder, UnpackedFolder::open(path));
    if (!device_) {
      DI_TRY(device_, open_device(options_.device, options_.threads));
    }
    GoldenCounts counts;  // a trained model's folder may come without single operators
    if (file_exists(join_path(folder.path(), "golden/ops.safetensors"))) {
      DI_TRY(counts, run_ops_goldens(folder.path(), *device_));
    }
    DI_TRY(const GoldenCounts model, run_model_goldens(folder.path(), *device_));
    counts.add(model);
    say(fmt::format("{}: {} passed, {} failed", path, counts.passed, counts.failed));
    counts_.add(counts);
    return {};
  }

  Result<const Tokenizer*> tokenizer() {
    if (!tokenizer_) {
      if (options_.tokenizer.empty())
        return not_found("the release tokenizer is not beside the program; name one with --tokenizer FILE");
      DI_TRY(tokenizer_, open_tokenizer_file(options_.tokenizer));
    }
    return tokenizer_.get();
  }

  const GoldenOptions& options_;
  std::unique_ptr<Tokenizer> tokenizer_;
  std::unique_ptr<Device> device_;
  GoldenCounts counts_;
};

}  // namespace

Result<GoldenCounts> run_golden(const std::string& path, const GoldenOptions& options) {
  GoldenRun run(options);
  DI_CHECK_OK(run.path(path));
  return run.counts();
}

}  // namespace deepinfer
