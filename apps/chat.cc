#include "apps/chat.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <clocale>

#include "apps/command.h"
#include "apps/terminal.h"
#include "base/file.h"
#include "base/nearest.h"
#include "images/resolve.h"
#include "lab/figures.h"
#include "lab/line_editor.h"

namespace deepinfer {
namespace {

const std::array<std::string, 5> kChatCommands = {"/help", "/exit", "/reset", "/system", "/stats"};
constexpr const char* kHelp =
    "/system TEXT  set the system message and start over\n"
    "/reset        forget the conversation\n"
    "/stats        print speeds after each answer, or stop that\n"
    "/exit         leave (also Ctrl-D)\n"
    "Ctrl-C stops the answer; at the prompt it clears the line.\n";
// How often a waiting answer looks for Ctrl-C.
constexpr auto kPatience = std::chrono::milliseconds(50);

Result<std::string> read_file_of(const char* flag, const std::string& path) {
  if (path.empty()) return invalid_argument(fmt::format("--{} needs the name of a file, got an empty one", flag));
  DI_TRY(std::string text, read_file(path));
  if (text.find_first_not_of(" \t\r\n") == std::string::npos) return invalid_argument(fmt::format("{}: the file is empty", path));
  return text;
}

// Writes answer text, thinking dim on a terminal.
class AnswerPrinter {
 public:
  Status show(const std::vector<OutputEvent>& events) {
    for (const OutputEvent& event : events) {
      if (event.kind == OutputEvent::Kind::kReasoning) DI_CHECK_OK(print(event.text, true));
      if (event.kind == OutputEvent::Kind::kContent) DI_CHECK_OK(print(event.text, false));
      if (event.kind == OutputEvent::Kind::kToolBegin) DI_CHECK_OK(print("\n[call " + event.text + "] ", false));
      if (event.kind == OutputEvent::Kind::kToolArguments) DI_CHECK_OK(print(event.text, false));
    }
    return {};
  }
  Status end() {
    DI_CHECK_OK(set_dim(false));
    return write_out("\n");
  }
  std::string content, reasoning;

 private:
  Status print(const std::string& text, bool thinking) {
    (thinking ? reasoning : content) += text;
    DI_CHECK_OK(set_dim(thinking));
    return write_out(text);
  }
  Status set_dim(bool dim) {
    if (dim == dim_) return {};
    dim_ = dim;
    const bool terminal = stdout_is_terminal();
    return write_out(dim ? (terminal ? "\033[2m" : "") : (terminal ? "\033[0m\n\n" : "\n\n"));
  }
  bool dim_ = false;
};

}  // namespace

Chat::Chat(Host& host, const ChatSettings& settings, std::atomic<bool>& interrupted)
    : host_(host), settings_(settings), interrupted_(interrupted) {
  reset();
}

void Chat::reset() {
  image_shown_ = false;
  conversation_.messages.clear();
  if (!settings_.system.empty()) conversation_.messages.push_back(Message::system(settings_.system));
}

Result<AskOptions> Chat::ask_options() const {
  AskOptions options;
  options.temperature = settings_.temperature;
  options.top_p = settings_.top_p;
  options.top_k = settings_.top_k;
  options.min_p = settings_.min_p;
  if (settings_.max_tokens > 0) options.max_tokens = settings_.max_tokens;
  if (!settings_.seed.empty()) {
    uint64_t seed = 0;
    const Field field{.name = "seed", .target = &seed, .help = "", .min = 0, .max = 9.2233720368547758e18};
    DI_CHECK_OK(set_field(field, settings_.seed));
    options.seed = seed;
  }
  if (settings_.grammar) {
    DI_TRY(options.grammar, read_file_of("grammar", *settings_.grammar));
  }
  return options;
}

Result<ResponseFormat> Chat::format() const {
  ResponseFormat out;
  const int given = (settings_.json_schema ? 1 : 0) + (settings_.regex ? 1 : 0) + (settings_.grammar ? 1 : 0);
  if (given > 1) return invalid_argument("give one of --json-schema, --regex and --grammar");
  if (settings_.regex) {
    out.kind = ResponseFormat::Kind::kRegex;
    out.regex = *settings_.regex;
  }
  if (!settings_.json_schema) return out;
  DI_TRY(const std::string text, read_file_of("json-schema", *settings_.json_schema));
  const auto schema = Json::parse(text);
  if (!schema) return invalid_argument(fmt::format("{}: {}", *settings_.json_schema, schema.error().message));
  out.kind = ResponseFormat::Kind::kJsonSchema;
  out.schema = out.constraint_schema = *schema;
  return out;
}

Result<Message> Chat::question(const std::string& text) const {
  if (settings_.image.empty() || image_shown_) return Message::user(text);
  DI_TRY(const std::string bytes, read_file(settings_.image));
  Message message = Message::user("");
  message.content.append(ImageReference{encode_data_url(bytes), true, "high", settings_.image});
  message.content.append(std::string_view("\n\n" + text));
  return message;
}

Status Chat::say(const std::string& text) {
  DI_TRY(const AskOptions options, ask_options());
  DI_CHECK_OK(set_thinking(conversation_, settings_.think));
  DI_TRY(conversation_.format, format());
  Conversation turn = conversation_;
  DI_TRY(Message message, question(text));
  turn.messages.push_back(std::move(message));
  EventQueue queue;
  auto started = Ask::start(host_, turn, options, queue);
  if (!started && started.error().code == ErrorCode::kTooLarge)
    return too_large(started.error().message + " --context raises the limit.");
  DI_TRY(const auto ask, std::move(started));
  AnswerPrinter printer;
  std::vector<OutputEvent> pieces;
  cancelled_ = false;
  for (bool done = false; !done;) {
    if (!cancelled_ && interrupted_.load()) ask->cancel(), cancelled_ = true, interrupted_ = false;
    const std::optional<Event> event = queue.pop_for(kPatience);
    if (!event) continue;
    pieces.clear();
    DI_TRY(done, ask->take(*event, pieces));
    if (const Status shown = printer.show(pieces); !shown) return ask->cancel(), shown;
  }
  DI_CHECK_OK(printer.end());
  image_shown_ = true;
  turn.messages.push_back(Message::assistant(printer.content));
  conversation_ = std::move(turn);
  if (settings_.stats) print_stats(ask->report());
  if (asks_for_form() && ask->report().end == AnswerEnd::kLength && !cancelled_) {
    return exhausted(fmt::format("the answer was cut at the limit of {} tokens, before its form was complete: raise --max-tokens",
                                 ask->report().usage.completion_tokens));
  }
  return {};
}

void Chat::print_stats(const AskReport& report) const {
  const double first = static_cast<double>(report.first_token_us) / 1e6;
  const double decode = static_cast<double>(report.total_us - report.first_token_us) / 1e6;
  const auto rate = [](int64_t tokens, double seconds) { return seconds > 0 ? static_cast<double>(tokens) / seconds : 0; };
  // The first token comes with the prompt's last step.
  const double per_step = static_cast<double>(report.usage.completion_tokens - 1) / std::max(report.engine.trace.decode_steps, 1);
  fmt::print(stderr,
             "prompt {} tokens{}, {:.0f} tokens/s | answer {} tokens, {:.0f} tokens/s | first token {:.0f} ms | peak memory "
             "{:.0f} MB{}{}\n",
             report.usage.prompt_tokens,
             report.usage.cached_tokens > 0 ? fmt::format(" ({} cached)", report.usage.cached_tokens) : "",
             rate(report.usage.prompt_tokens, first), report.usage.completion_tokens,
             rate(report.usage.completion_tokens - 1, decode), first * 1e3, static_cast<double>(peak_memory_bytes()) / 1e6,
             report.drafted_tokens > 0 ? fmt::format(" | drafts {} of {} accepted, {:.1f} tokens a step", report.accepted_tokens,
                                                     report.drafted_tokens, per_step)
                                       : "",
             report.end == AnswerEnd::kLength ? " | cut at the token limit" : "");
}

bool Chat::obey(const std::string& line) {
  const std::string word = line.substr(0, line.find(' '));
  const std::string rest = line.size() > word.size() ? line.substr(line.find_first_not_of(' ', word.size())) : "";
  if (word == "/exit" || word == "/quit") return true;
  if (word == "/help") {
    fmt::print("{}", kHelp);
  } else if (word == "/reset") {
    reset();
    fmt::print("the conversation begins anew\n");
  } else if (word == "/stats") {
    settings_.stats = !settings_.stats;
    fmt::print("statistics are {}\n", settings_.stats ? "on" : "off");
  } else if (word == "/system") {
    settings_.system = rest;
    reset();
    fmt::print("{}; the conversation begins anew\n", rest.empty() ? "no system message" : "the system message is set");
  } else {
    fmt::print("unknown command {}{}; /help lists them\n", word, did_you_mean(word, kChatCommands));
  }
  return false;
}

Result<int> Chat::converse(const std::string& history_file) {
  if (!std::setlocale(LC_CTYPE, "C.UTF-8")) std::setlocale(LC_CTYPE, "");
  fmt::print("{} - /help for commands, Ctrl-D to leave\n", host_.model().name());
  LineEditor editor("> ", history_file);
  while (const std::optional<std::string> line = editor.read(interrupted_)) {
    const size_t begin = line->find_first_not_of(" \t");
    if (begin == std::string::npos) continue;
    if ((*line)[begin] == '/') {
      if (obey(line->substr(begin))) break;
      continue;
    }
    if (const Status status = say(*line); !status) print_error(status.error());
  }
  return kExitOk;
}

}  // namespace deepinfer
