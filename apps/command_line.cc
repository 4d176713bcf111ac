// Turns argv into one filled command and runs it. The only file that includes CLI11, which costs five seconds to compile.
#include <CLI/CLI.hpp>

#include <algorithm>
#include <array>
#include <cstdio>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "apps/command.h"
#include "apps/environment.h"
#include "base/file.h"
#include "base/nearest.h"

namespace deepinfer {

void print_note(const std::string& message) { fmt::print(stderr, "deepinfer: {}\n", message); }
void print_error(const Error& error) { print_note(error.message); }

namespace {

// Commands that later versions bring; naming them is better than "unknown".
const std::array<std::string, 3> kPlanned = {"simulate", "capture", "reproduce"};

// How other servers and runners call what is a flag here.
constexpr std::pair<std::string_view, std::string_view> kOtherNames[] = {
    {"max-model-len", "context"}, {"ctx-size", "context"}, {"c", "context"},    {"api-key", "keys"},
    {"api-key", "key"},           {"p", "port"},           {"n", "max-tokens"}, {"temp", "temperature"},
    {"n-predict", "max-tokens"},  {"t", "threads"},
};

// What one command looks like to CLI11.
struct Bound {
  Command* command = nullptr;
  CLI::App* app = nullptr;
  std::vector<Field> fields;
  std::vector<Positional> positionals;
};

void add_field(CLI::App& app, const Field& field) {
  std::string flag = "--" + field.name;
  if (field.letter) flag = fmt::format("-{},{}", field.letter, flag);
  if (field.is_switch()) {
    app.add_flag_callback(
        flag, [&field] { *std::get<bool*>(field.target) = true; }, field.help);
    return;
  }
  std::string help = field.help;
  if (!field.choices.empty()) {
    help += ": ";
    for (size_t i = 0; i < field.choices.size(); ++i) help += (i ? " | " : "") + field.choices[i];
  }
  if (const std::string standard = field_text(field); !standard.empty()) help += fmt::format(" [{}]", standard);
  const auto store = [&field](const std::string& text) {
    if (const Status status = set_field(field, text); !status) throw CLI::ValidationError(status.error().message);
  };
  app.add_option_function<std::string>(flag, store, help)->type_name(field.value.empty() ? "VALUE" : field.value);
}

Bound bind(CLI::App& root, Command& command) {
  Bound bound{&command, root.add_subcommand(command.name(), command.summary()), command.fields(), command.positionals()};
  bound.app->footer("Examples:\n" + command.examples());
  bound.app->allow_extras();
  for (const Positional& positional : bound.positionals) {
    bound.app->add_option(positional.name, *positional.target, positional.help)->type_name("")->expected(0, 1 << 24);
  }
  return bound;
}

std::vector<std::string> field_names(const Bound& bound) {
  std::vector<std::string> names = {"help"};
  for (const Field& field : bound.fields) names.push_back(field.name);
  return names;
}

Error unknown_flag(const Bound& bound, const std::string& word) {
  const size_t begin = std::min(word.find_first_not_of('-'), word.size());
  const std::string flag = word.substr(0, word.find('=')), bare = flag.substr(std::min(begin, flag.size()));
  const std::string command = bound.command->name();
  const std::vector<std::string> fields = field_names(bound);
  for (const auto& [theirs, ours] : kOtherNames) {
    if (bare == theirs && std::find(fields.begin(), fields.end(), ours) != fields.end())
      return invalid_argument(fmt::format("unknown flag {} of {}; here it is --{}", flag, command, ours));
  }
  return invalid_argument(
      fmt::format("unknown flag {} of {}{}; see deepinfer {} --help", flag, command, did_you_mean(bare, fields, "--"), command));
}

Error unexpected_word(const Bound& bound, const std::string& word) {
  const std::string command = bound.command->name();
  const std::vector<std::string> fields = field_names(bound);
  if (is_directory(word) && std::find(fields.begin(), fields.end(), "model") != fields.end())
    return invalid_argument(fmt::format("unexpected argument '{}' of {}; did you mean -m {}?", word, command, word));
  return invalid_argument(
      fmt::format("unexpected argument '{}' of {} (a text of several words needs quotes); see deepinfer {} --help",
                  word.substr(0, 60), command, command));
}

Status check_words(const Bound& bound) {
  for (const std::string& word : bound.app->remaining()) {
    if (word.size() > 1 && word[0] == '-' && word != "--") return unknown_flag(bound, word);
  }
  for (const std::string& word : bound.app->remaining()) {
    if (word != "--") return unexpected_word(bound, word);
  }
  for (const Positional& positional : bound.positionals) {
    const int count = static_cast<int>(positional.target->size());
    if (count > positional.max) return unexpected_word(bound, (*positional.target)[static_cast<size_t>(positional.max)]);
    if (count < positional.min) {
      return invalid_argument(
          fmt::format("{} needs {}; see deepinfer {} --help", bound.command->name(), positional.name, bound.command->name()));
    }
  }
  return {};
}

Status apply_environment(const Bound& bound) {
  const Environment environment = read_environment();
  for (const std::string& note : environment.notes) print_note(note);
  for (const EnvironmentSetting& setting : environment.settings) {
    for (const Field& field : bound.fields) {
      if (field.name != setting.field) continue;
      if (const Status status = set_field(field, setting.value); !status) {
        return invalid_argument(fmt::format("{}={}: {}", setting.variable, setting.value, status.error().message));
      }
    }
  }
  const bool has_device = nearest_name("device", field_names(bound)) == "device";
  if (!environment.errors.empty() && has_device) return unsupported(environment.errors.front());
  return {};
}

// DEEPINFER_ISA holds for a CPU device whether a flag, a file or nobody named it, unless the name says its kernels.
Status apply_isa(const Bound& bound) {
  const std::string isa = read_environment().isa;
  for (const Field& field : bound.fields) {
    if (!isa.empty() && field.name == "device" && field_text(field) == "cpu") return set_field(field, "cpu:" + isa);
  }
  return {};
}

// --config FILE stands below flags and above the environment, so it is read before the flags are.
Status apply_config(const Bound& bound, int argc, char** argv) {
  const std::string flag = "--config", with_value = flag + "=";
  for (int i = 2; i < argc; ++i) {
    const std::string word = argv[i];
    if (word == "--") break;
    if (word == flag && i + 1 < argc) return bound.command->read_config(argv[i + 1], bound.fields);
    if (word.starts_with(with_value)) return bound.command->read_config(word.substr(with_value.size()), bound.fields);
  }
  return {};
}

Error unknown_command(const std::string& word, const CommandList& commands) {
  for (const std::string& planned : kPlanned) {
    if (word == planned) return unsupported(fmt::format("{}: not built yet in this version; see deepinfer --help", word));
  }
  std::vector<std::string> names;
  for (const auto& command : commands) names.push_back(command->name());
  if (word.starts_with("-"))
    return invalid_argument(fmt::format("unknown flag {}; flags follow the command; see deepinfer --help", word));
  return invalid_argument(
      fmt::format("unknown command '{}'{}; see deepinfer --help", word.substr(0, 60), did_you_mean(word, names)));
}

int finish(const Error& error) {
  if (!error.message.empty()) print_error(error);
  if (error.code == ErrorCode::kCancelled) return kExitInterrupted;
  return error.code == ErrorCode::kInvalidArgument ? kExitUsage : kExitFailed;
}

int run_bound(const Bound& bound) {
  if (const Status status = check_words(bound); !status) return finish(status.error());
  const Result<int> result = bound.command->run();
  if (!result) return finish(result.error());
  if (std::fflush(stdout) != 0) return finish(io_error("cannot write to standard output: disk full or closed pipe"));
  return *result;
}

int parse_and_run(int argc, char** argv) {
  CLI::App root("deepinfer " DEEPINFER_VERSION " - serves DeepSeek-V4.1 models", "deepinfer");
  root.set_version_flag("--version", "deepinfer " DEEPINFER_VERSION);
  root.footer(
      "deepinfer COMMAND --help shows flags and examples of a command.\nExamples:\n"
      "  deepinfer run \"What is 12 + 30?\"\n  deepinfer run");
  root.require_subcommand(0, 1);  // "bench serve": the second word is no command
  CommandList commands = make_commands();
  const std::string word = argc < 2 ? "--help" : argv[1];
  std::vector<Bound> bounds;
  bounds.reserve(commands.size());
  Bound* chosen = nullptr;
  for (const auto& command : commands) {
    bounds.push_back(bind(root, *command));
    if (command->name() == word) chosen = &bounds.back();
  }
  if (argc < 2) return fmt::print(stderr, "{}", root.help()), kExitUsage;
  if (!chosen && word != "--help" && word != "-h" && word != "--version") return finish(unknown_command(word, commands));
  if (chosen) {
    if (const Status status = apply_environment(*chosen); !status) return finish(status.error());
    if (const Status status = apply_config(*chosen, argc, argv); !status) return finish(status.error());
    for (const Field& field : chosen->fields) add_field(*chosen->app, field);
  }
  // Words behind "--" are no flags, whatever they begin with.
  const int end = static_cast<int>(std::find(argv, argv + argc, std::string_view("--")) - argv);
  try {
    root.parse(end, argv);
  } catch (const CLI::CallForHelp& call) {
    return root.exit(call);
  } catch (const CLI::CallForVersion& call) {
    return root.exit(call);
  } catch (const CLI::ParseError& error) {
    std::string text = error.what();
    if (const size_t end = text.find('\n'); end != std::string::npos) text.resize(end);
    return finish(invalid_argument(text));
  }
  for (int i = end + 1; i < argc; ++i) {
    if (chosen->positionals.empty()) return finish(unexpected_word(*chosen, argv[i]));
    chosen->positionals.back().target->push_back(argv[i]);
  }
  if (const Status status = apply_isa(*chosen); !status) return finish(status.error());
  return run_bound(*chosen);
}

}  // namespace
}  // namespace deepinfer

int run_command_line(int argc, char** argv) { return deepinfer::parse_and_run(argc, argv); }
