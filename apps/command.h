// apps/command.h - one command of the program: what it is called, what it takes, what it does.
//
// A command is one file in apps/ and one line in apps/commands.cc. The command line (apps/command_line.cc) makes flags, help and
// error messages from the fields the command lists; the command itself sees only its filled settings.
// Exit codes: 0 done, 1 failed, 2 used wrongly, 130 interrupted. Errors are one line: what, where, what to do.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/fields.h"
#include "base/result.h"

namespace deepinfer {

inline constexpr int kExitOk = 0, kExitFailed = 1, kExitUsage = 2, kExitInterrupted = 130;

// Words without a flag.
struct Positional {
  std::string name;  // as help shows it: "PROMPT"
  std::string help;
  std::vector<std::string>* target = nullptr;
  int min = 0, max = 1;  // how many words
};

class Command {
 public:
  virtual ~Command() = default;
  virtual std::string name() const = 0;
  virtual std::string summary() const = 0;
  // Lines of help, each an example that works.
  virtual std::string examples() const = 0;
  virtual std::vector<Field> fields() { return {}; }
  virtual std::vector<Positional> positionals() { return {}; }
  // Of a command with a field `config`: sets `fields` from that file. Flags come later and win.
  virtual Status read_config(const std::string& path, const std::vector<Field>& fields) {
    return (void)path, (void)fields, Status();
  }
  // The exit code, or an Error that becomes the one line on stderr (exit code 130 when cancelled, 2 for a wrong argument).
  virtual Result<int> run() = 0;
};

using CommandList = std::vector<std::unique_ptr<Command>>;
CommandList make_commands();

// The exit code of a command whose last act was `status`.
inline Result<int> finish_with(const Status& status) {
  if (!status) return status.error();
  return kExitOk;
}

// Prints `deepinfer: MESSAGE` on stderr.
void print_error(const Error& error);
void print_note(const std::string& message);

}  // namespace deepinfer
