#include "lab/bench_recipe.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/file.h"
#include "host/host.h"
#include "host/shipped_files.h"
#include "lab/recipe_wire.h"
#include "lab/thread_time.h"
#include "recipe/parse.h"
#include "recipe/prompt_cache.h"
#include "recipe/render.h"
#include "text/tokenizer.h"

namespace deepinfer {
namespace {

// Prose and code of this tree; it comes with every copy of the program's sources.
std::string sample_text() {
  std::string text;
  for (const char* name :
       {"README.md", "docs/ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md", "src/recipe/parse.cc", "src/recipe/render.cc",
        "src/text/bpe.cc", "web/page/style.css", "web/page/view.js", "web/page/markdown.js", "web/page/app.js"}) {
    if (auto file = read_file(find_shipped(name))) text += *file;
  }
  if (text.size() < 4096) text = "The quick brown fox jumps over the lazy dog; 12 + 30 = 42, said Anna (again).\n";
  return text;
}

// Exchanges of an agent: a question, reasoning and a call, its result, an answer.
class HistoryMaker {
 public:
  HistoryMaker(const Tokenizer& tokenizer, std::string text) : tokenizer_(tokenizer), text_(std::move(text)) {}

  void add_exchange(Conversation& chat) {
    chat.messages.push_back(Message::user(slice(600)));
    Message call = Message::assistant(slice(200));
    call.reasoning = slice(900);
    const std::string id = fmt::format("call_{}", ++calls_);
    call.tool_calls = {{id, "read_file", R"({"path": "src/a.cc", "line": 12})"}};
    chat.messages.push_back(std::move(call));
    Message result = Message::plain(Role::kTool, slice(2400));
    result.tool_call_id = id;
    chat.messages.push_back(std::move(result));
    Message answer = Message::assistant(slice(1500));
    answer.reasoning = slice(500);
    chat.messages.push_back(std::move(answer));
  }

  Conversation history(size_t tokens) {
    Conversation chat;
    chat.tools = {{"read_file", "Reads a file.",
                   *Json::parse(R"({"type": "object", "properties": {"path": {"type": "string"}}})"), std::nullopt, false}};
    chat.messages.push_back(Message::system(slice(3000)));
    // The tokens of one exchange tell how many are needed.
    Conversation probe = chat;
    for (int i = 0; i < 8; ++i) add_exchange(probe);
    const Result<std::vector<TokenId>> ids = render_prompt(probe).encode(tokenizer_);
    const size_t each = ids ? std::max<size_t>(ids->size() / 8, 1) : 1500;
    for (size_t i = 0; i < tokens / each + 1; ++i) add_exchange(chat);
    return chat;
  }

 private:
  std::string slice(size_t bytes) {
    std::string out;
    while (out.size() < bytes) {
      const size_t size = std::min(bytes - out.size(), text_.size() - at_);
      out += text_.substr(at_, size);
      at_ = at_ + size == text_.size() ? 0 : at_ + size;
    }
    return to_text(std::move(out));
  }
  // Characters cut at the ends are dropped.
  static std::string to_text(std::string text) {
    while (!text.empty() && (static_cast<unsigned char>(text.front()) & 0xC0) == 0x80) text.erase(0, 1);
    while (!text.empty() && static_cast<unsigned char>(text.back()) >= 0x80) text.pop_back();
    return text;
  }

  const Tokenizer& tokenizer_;
  std::string text_;
  size_t at_ = 0;
  int calls_ = 0;
};

Status measure_prompt(const Tokenizer& tokenizer, const BenchRecipeOptions& options, FigureReport& report) {
  HistoryMaker maker(tokenizer, sample_text());
  const Conversation before = maker.history(options.history_tokens);
  Conversation after = before;
  maker.add_exchange(after);
  size_t num_tokens = 0;
  Status status;
  const double cold = best_seconds(options.repeats, [&] {
    const auto ids = render_prompt(before).encode(tokenizer);
    if (ids) num_tokens = ids->size();
  });
  double next = std::numeric_limits<double>::max();
  std::vector<TokenId> incremental;
  for (int i = 0; i < options.repeats; ++i) {
    PromptCache cache({});
    DI_CHECK_OK(cache.encode(render_prompt(before), tokenizer, ""));
    next = std::min(next, best_seconds(1, [&] {
                      auto ids = cache.encode(render_prompt(after), tokenizer, "");
                      if (ids) incremental = *std::move(ids);
                    }));
  }
  DI_TRY(const auto whole, render_prompt(after).encode(tokenizer));
  if (whole != incremental) return internal_error("the cached prompt has other ids than the whole one");
  report.add({.name = "recipe/prompt/tokens", .value = static_cast<double>(num_tokens), .unit = "tokens"});
  report.add({.name = "recipe/prompt/cold", .value = cold * 1e3, .unit = "ms", .limit = 60});
  report.add({.name = "recipe/prompt/next_turn", .value = next * 1e3, .unit = "ms", .limit = 5});
  return status;
}

struct Answer {
  const char* name;
  std::string text;
};

std::vector<Answer> sample_answers() {
  const std::string text = sample_text();
  const std::string body = text.substr(0, std::min<size_t>(text.size(), 120'000));
  std::string calls = "Let me look.</think>\n\n<｜DSML｜ calls>\n";
  for (int i = 0; i < 400; ++i) {
    calls += fmt::format(
        "<｜DSML｜ invoke name=\"read_file\">\n<｜DSML｜ parameter name=\"path\" string=\"true\">src/recipe/file_{}.cc</｜DSML｜ "
        "parameter>\n<｜DSML｜ parameter name=\"line\" string=\"false\">{}</｜DSML｜ parameter>\n</｜DSML｜ invoke>\n",
        i, i);
  }
  return {{"text", "</think>" + body}, {"reasoning", body}, {"calls", calls + "</｜DSML｜ calls>"}};
}

std::string request_body(std::string_view wire) {
  const std::string tool = R"("name": "read_file", "description": "d")";
  const std::string schema = R"({"type": "object", "properties": {"path": {"type": "string"}}})";
  constexpr std::string_view kHead = R"({"model": "DeepSeek-V4.1-Flash", "stream": true, )";
  if (wire == "chat") {
    return fmt::format(
        R"({}"messages": [{{"role": "user", "content": "x"}}], "tools": [{{"type": "function", "function": {{{}, "parameters": {}}}}}]}})",
        kHead, tool, schema);
  }
  if (wire == "messages") {
    return fmt::format(
        R"({}"max_tokens": 9, "messages": [{{"role": "user", "content": "x"}}], "tools": [{{{}, "input_schema": {}}}]}})", kHead,
        tool, schema);
  }
  return fmt::format(R"({}"input": "x", "tools": [{{"type": "function", {}, "parameters": {}}}]}})", kHead, tool, schema);
}

void measure_parser(const Tokenizer& tokenizer, const Answer& answer, int repeats, FigureReport& report) {
  std::vector<std::string> pieces;
  for (const TokenId id : tokenizer.encode(answer.text)) pieces.push_back(tokenizer.decode({&id, 1}));
  ParseOptions options;
  options.tool_calls = true;
  options.start = ParseStart::kReasoning;
  options.stop = {"\n\nUser:", "<|stop|>"};
  std::vector<OutputDelta> deltas;
  const double seconds = best_seconds(repeats, [&] {
    OutputParser parser(options);
    for (const std::string& piece : pieces) {
      deltas.clear();
      parser.feed(piece, {}, deltas);
    }
    parser.end(deltas);
  });
  report.add({.name = fmt::format("recipe/parse/{}", answer.name),
              .value = seconds / static_cast<double>(pieces.size()) * 1e6,
              .unit = "us/token",
              .limit = 2});
}

Status measure_wire(const Tokenizer& tokenizer, std::string_view wire, const Answer& answer, int repeats, FigureReport& report) {
  DI_TRY(const WireRequest request, parse_wire_request(wire, request_body(wire), {}));
  const std::vector<TokenId> ids = tokenizer.encode(answer.text);
  std::string bytes;
  const double seconds = best_seconds(repeats, [&] {
    OutputStream stream(tokenizer, request.chat.parsing());
    const auto writer = make_wire_writer(request);
    std::vector<OutputEvent> events;
    bytes.clear();
    for (const TokenId id : ids) {
      events.clear();
      if (!stream.push_tokens({&id, 1}, {}, events)) return;
      for (const OutputEvent& event : events) writer->append(event, stream, bytes);
    }
  });
  report.add({.name = fmt::format("recipe/wire/{}", wire),
              .value = seconds / static_cast<double>(ids.size()) * 1e6,
              .unit = "us/token"});
  return {};
}

}  // namespace

Status bench_recipe(const BenchRecipeOptions& options, FigureReport& report) {
  const std::string file = options.tokenizer.empty() ? find_shipped(kReleaseTokenizer) : options.tokenizer;
  if (file.empty()) return not_found("the release tokenizer is not beside the program; name one with --tokenizer FILE");
  DI_TRY(const auto tokenizer, open_tokenizer_file(file));
  DI_CHECK_OK(measure_prompt(*tokenizer, options, report));
  const std::vector<Answer> answers = sample_answers();
  for (const Answer& answer : answers) measure_parser(*tokenizer, answer, options.repeats, report);
  for (const char* wire : {"chat", "messages", "responses"}) {
    DI_CHECK_OK(measure_wire(*tokenizer, wire, answers[0], options.repeats, report));
  }
  return {};
}

}  // namespace deepinfer
