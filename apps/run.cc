// deepinfer run [PROMPT]: one answer, or a chat.
#include <fmt/format.h>

#include <clocale>
#include <cstdio>
#include <iostream>
#include <iterator>

#include "apps/chat.h"
#include "apps/commands.h"
#include "apps/environment.h"
#include "apps/terminal.h"
#include "base/utf8.h"
#include "host/ask.h"

namespace deepinfer {
namespace {

struct RunSettings {
  HostSettings host;
  ChatSettings chat;
  void visit(FieldVisitor visit) {
    chat.visit(visit);
    host.visit(visit);
  }
};

class RunCommand final : public Command {
 public:
  std::string name() const override { return "run"; }
  std::string summary() const override { return "answer a prompt; without one on a terminal, chat"; }
  std::string examples() const override {
    return "  deepinfer run \"What is 12 + 30?\"\n"
           "  deepinfer run --think high --stats \"Tom has 3 boxes of 4 pens. How many pens?\"\n"
           "  echo \"What is the capital of France?\" | deepinfer run\n"
           "  deepinfer run -m scripted:examples/hello.script.jsonl \"Hello\"\n"
           "  deepinfer run";
  }
  std::vector<Field> fields() override { return fields_of(settings_); }
  std::vector<Positional> positionals() override {
    return {{"PROMPT", "the question; read from stdin when there is none", &words_, 0, 1}};
  }

  Result<int> run() override {
    DI_TRY(const std::optional<std::string> prompt, read_prompt());
    std::atomic<bool>& interrupted = catch_interrupts();
    ProgressBar bar("loading");
    DI_TRY(const auto host,
           Host::open(settings_.host, {.progress = [&](int64_t done, int64_t total) { bar.show(done, total); }, .max_batch = 1}));
    bar.clear();
    Chat chat(*host, settings_.chat, interrupted);
    if (!prompt) return chat.converse(history_file());
    DI_CHECK_OK(chat.say(*prompt));
    return chat.was_cancelled() ? kExitInterrupted : kExitOk;
  }

 private:
  // No value: a chat on the terminal.
  Result<std::optional<std::string>> read_prompt() {
    std::string prompt;
    if (!words_.empty()) {
      prompt = words_[0];
    } else if (stdin_is_terminal()) {
      if (stdout_is_terminal()) return std::optional<std::string>();
      return Error{ErrorCode::kInvalidArgument, "no prompt: give one in quotes, or pipe it to standard input"};
    } else {
      prompt.assign(std::istreambuf_iterator<char>(std::cin), {});
      while (!prompt.empty() && (prompt.back() == '\n' || prompt.back() == '\r')) prompt.pop_back();
    }
    if (prompt.empty())
      return Error{ErrorCode::kInvalidArgument, "the prompt is empty: give one in quotes, or pipe it to standard input"};
    if (!is_valid_utf8(prompt))
      return Error{ErrorCode::kInvalidArgument, "the prompt is not valid UTF-8; convert it first, for example with iconv"};
    return std::optional<std::string>(std::move(prompt));
  }

  static std::string history_file() {
    const std::string folder = state_directory();
    return folder.empty() ? "" : folder + "/history";
  }

  RunSettings settings_;
  std::vector<std::string> words_;
};

}  // namespace

std::unique_ptr<Command> make_run_command() { return std::make_unique<RunCommand>(); }

}  // namespace deepinfer
