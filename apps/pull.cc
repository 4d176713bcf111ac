// deepinfer pull REPO[@REVISION]: downloads a checkpoint.
#include "lab/pull.h"

#include <fmt/format.h>

#include "apps/commands.h"
#include "apps/terminal.h"
#include "base/file.h"

namespace deepinfer {
namespace {

struct PullSettings {
  std::string endpoint = "https://huggingface.co";
  std::string output, proxy, token_file, ca_file;
  int32_t connections = 4;
  float timeout = 60;
  int32_t range_mb = 16;
  void visit(FieldVisitor visit) {
    visit({.name = "endpoint", .target = &endpoint, .help = "the hub", .value = "URL"});
    visit({.name = "output", .target = &output, .help = "folder [the model's name]", .value = "DIR", .letter = 'o'});
    visit({.name = "connections", .target = &connections, .help = "at once", .value = "N", .min = 1, .max = 64});
    visit({.name = "range-mb", .target = &range_mb, .help = "size of a piece", .value = "N", .min = 1, .max = 4096});
    visit({.name = "proxy", .target = &proxy, .help = "http://HOST:PORT", .value = "URL"});
    visit({.name = "token-file", .target = &token_file, .help = "file with a token for the hub", .value = "FILE"});
    visit({.name = "ca-file", .target = &ca_file, .help = "certificates to trust instead of the system's", .value = "FILE"});
    visit({.name = "timeout", .target = &timeout, .help = "without a byte", .value = "SECONDS", .min = 0.1, .max = 1e6});
  }
};

class PullCommand final : public Command {
 public:
  std::string name() const override { return "pull"; }
  std::string summary() const override { return "download a checkpoint from a hub; again: go on where it stopped"; }
  std::string examples() const override {
    return "  deepinfer pull deepseek-ai/DeepSeek-V4.1-Flash -o flash\n"
           "  deepinfer pull org/model@v2 --endpoint http://hub.local:8000 --connections 8";
  }
  std::vector<Field> fields() override { return fields_of(settings_); }
  std::vector<Positional> positionals() override { return {{"REPO", "ORGANISATION/NAME[@REVISION]", &words_, 1, 1}}; }

  Result<int> run() override {
    PullOptions options;
    const size_t at = words_[0].find('@');
    options.repo = words_[0].substr(0, at);
    if (at != std::string::npos) options.revision = words_[0].substr(at + 1);
    const bool strange =
        options.repo.find_first_of("?#%\\ ") != std::string::npos || options.revision.find_first_of("?#\\ ") != std::string::npos;
    if (options.repo.find('/') == std::string::npos || options.repo.find("..") != std::string::npos || strange)
      return invalid_argument(
          fmt::format("'{}' is no model of a hub; write ORGANISATION/NAME or ORGANISATION/NAME@REVISION", words_[0]));
    options.folder = settings_.output.empty() ? options.repo.substr(options.repo.rfind('/') + 1) : settings_.output;
    options.endpoint = settings_.endpoint;
    while (options.endpoint.ends_with('/')) options.endpoint.pop_back();
    options.proxy = settings_.proxy;
    options.ca_file = settings_.ca_file;
    options.connections = settings_.connections;
    options.range_bytes = int64_t{settings_.range_mb} << 20;
    options.timeout_seconds = static_cast<double>(settings_.timeout);
    if (!settings_.token_file.empty()) {
      DI_TRY(options.token, read_file(settings_.token_file));
      while (!options.token.empty() && options.token.back() <= ' ') options.token.pop_back();
    }
    std::atomic<bool>& interrupted = catch_interrupts();
    ProgressBar bar(options.repo);
    options.progress = [&](int64_t done, int64_t total) { bar.show(done, total); };
    DI_TRY(const PullReport report, pull(options, interrupted));
    bar.clear();
    if (report.interrupted) {
      print_note(fmt::format("interrupted; run the same command again to go on ({:.1f} of {:.1f} MB are there)",
                             static_cast<double>(report.resumed + report.fetched) / 1e6,
                             static_cast<double>(report.bytes) / 1e6));
      return kExitInterrupted;
    }
    print_note(fmt::format("{} at {}: {} files, {:.1f} MB in {} ({:.1f} MB fetched now)", options.repo,
                           report.commit.substr(0, 12), report.files, static_cast<double>(report.bytes) / 1e6, options.folder,
                           static_cast<double>(report.fetched) / 1e6));
    return kExitOk;
  }

 private:
  PullSettings settings_;
  std::vector<std::string> words_;
};

}  // namespace

std::unique_ptr<Command> make_pull_command() { return std::make_unique<PullCommand>(); }

}  // namespace deepinfer
