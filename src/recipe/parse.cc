#include "recipe/parse.h"

#include <array>

#include "base/json.h"
#include "recipe/branch_matcher.h"
#include "recipe/tool_text.h"

namespace deepinfer {

namespace {

constexpr const char* kEndThink = "</think>";

enum class Stage {
  kText,         // the answer
  kTextLeading,  // the answer, line feeds at its start dropped
  kRaw,          // the answer, whatever it holds
  kReasoning,
  kReasoningLeading,
  kJson,      // inside the JSON value
  kJsonDone,  // after its closing fence
  kCalls,     // between invocations
  kCallName,
  kArguments,  // between parameters
  kParameterName,
  kParameterType,
  kParameterText,  // a string, to be escaped
  kParameterRaw,   // JSON as it stands
  kFinished,
  kCount,
};

// What happens to text that is part of no match.
enum class Action { kContent, kReasoning, kSpace, kName, kArguments, kEscaped, kDrop };

enum class Effect {
  kDropMatch,
  kStop,
  kKeepBracket,  // the match is the first character of the JSON value
  kBeginCall,
  kNextParameter,  // "{" or ", "
  kCloseCall,      // "}" or "{}"
  kColon,
  kOpenQuote,
  kCloseQuote,
};

struct Branch {
  BranchPattern pattern;
  Effect effect;
  Stage next;
};

BranchPattern literal(std::string text) { return {BranchPattern::Kind::kLiteral, std::move(text)}; }
BranchPattern after_newlines(std::string text) { return {BranchPattern::Kind::kLiteralAfterNewlines, std::move(text)}; }
BranchPattern leading_newline() { return {BranchPattern::Kind::kLeadingNewline, ""}; }

using Branches = std::vector<Branch>;

void add_stops(Branches& out, const ParseOptions& options) {
  for (const std::string& stop : options.stop) out.push_back({literal(stop), Effect::kStop, Stage::kFinished});
}

void add_calls(Branches& out, const ParseOptions& options) {
  if (options.tool_calls) out.push_back({after_newlines(std::string(call_markup::kMark)), Effect::kDropMatch, Stage::kCalls});
}

Branches text_branches(const ParseOptions& options, bool leading) {
  Branches out;
  if (options.json_output) {
    out.push_back({literal("```json\n"), Effect::kDropMatch, Stage::kJson});
    out.push_back({literal("```\n"), Effect::kDropMatch, Stage::kJson});
    out.push_back({literal("{"), Effect::kKeepBracket, Stage::kJson});
    out.push_back({literal("["), Effect::kKeepBracket, Stage::kJson});
  } else {
    add_stops(out, options);
  }
  add_calls(out, options);
  if (options.exact) return out;
  if (leading) out.push_back({leading_newline(), Effect::kDropMatch, Stage::kTextLeading});
  out.push_back({literal(kEndThink), Effect::kDropMatch, Stage::kText});
  return out;
}

Branches reasoning_branches(const ParseOptions& options, bool leading) {
  Branches out;
  add_calls(out, options);
  if (leading) out.push_back({leading_newline(), Effect::kDropMatch, Stage::kReasoningLeading});
  out.push_back({after_newlines(kEndThink), Effect::kDropMatch, Stage::kTextLeading});
  return out;
}

// The order inside a stage decides when two patterns end at the same character.
Branches branches_of(Stage stage, const ParseOptions& options) {
  Branches out;
  switch (stage) {
    case Stage::kText: return text_branches(options, false);
    case Stage::kTextLeading: return text_branches(options, true);
    case Stage::kRaw: add_stops(out, options); return out;
    case Stage::kReasoning: return reasoning_branches(options, false);
    case Stage::kReasoningLeading: return reasoning_branches(options, true);
    case Stage::kJson:
      add_stops(out, options);
      out.push_back({literal("\n```"), Effect::kDropMatch, Stage::kJsonDone});
      return out;
    case Stage::kJsonDone: add_calls(out, options); return out;
    case Stage::kCalls:
      return {{literal("invoke name=\""), Effect::kDropMatch, Stage::kCallName},
              {literal("</｜DSML｜tool_calls>"), Effect::kDropMatch, Stage::kFinished},
              {literal(std::string(call_markup::kClose)), Effect::kDropMatch, Stage::kFinished}};
    case Stage::kCallName: return {{literal("\""), Effect::kBeginCall, Stage::kArguments}};
    case Stage::kArguments:
      return {{literal("parameter name="), Effect::kNextParameter, Stage::kParameterName},
              {literal(std::string(call_markup::kEndMark)), Effect::kCloseCall, Stage::kCalls}};
    case Stage::kParameterName: return {{literal(" "), Effect::kColon, Stage::kParameterType}};
    case Stage::kParameterType:
      return {{literal("true\">"), Effect::kOpenQuote, Stage::kParameterText},
              {literal("false\">"), Effect::kDropMatch, Stage::kParameterRaw}};
    case Stage::kParameterText: return {{literal(std::string(call_markup::kEndMark)), Effect::kCloseQuote, Stage::kArguments}};
    case Stage::kParameterRaw: return {{literal(std::string(call_markup::kEndMark)), Effect::kDropMatch, Stage::kArguments}};
    case Stage::kFinished:
    case Stage::kCount: return {};
  }
  return {};
}

Action action_of(Stage stage, const ParseOptions& options) {
  switch (stage) {
    case Stage::kText:
    case Stage::kTextLeading: return options.json_output ? Action::kSpace : Action::kContent;
    case Stage::kRaw:
    case Stage::kJson: return Action::kContent;
    case Stage::kJsonDone: return Action::kSpace;
    case Stage::kReasoning:
    case Stage::kReasoningLeading: return Action::kReasoning;
    case Stage::kCallName: return Action::kName;
    case Stage::kParameterName:
    case Stage::kParameterRaw: return Action::kArguments;
    case Stage::kParameterText: return Action::kEscaped;
    default: return Action::kDrop;
  }
}

Stage first_stage(const ParseOptions& options) {
  if (options.starts_in_tool_calls) return Stage::kCalls;
  switch (options.start) {
    case ParseStart::kReasoning: return Stage::kReasoningLeading;
    case ParseStart::kReasoningContinued: return Stage::kReasoning;
    case ParseStart::kContentContinued: return Stage::kText;
    case ParseStart::kRaw: return Stage::kRaw;
    case ParseStart::kPlain: break;
  }
  return Stage::kTextLeading;
}

std::string escaped(std::string_view text) {
  std::string quoted;
  append_json_string(quoted, text);
  return quoted.substr(1, quoted.size() - 2);
}

}  // namespace

class OutputParser::Machine {
 public:
  explicit Machine(ParseOptions options) : options_(std::move(options)) {
    for (size_t i = 0; i < stages_.size(); ++i) {
      stages_[i].branches = branches_of(static_cast<Stage>(i), options_);
      std::vector<BranchPattern> patterns;
      for (const Branch& branch : stages_[i].branches) patterns.push_back(branch.pattern);
      stages_[i].matcher = std::make_unique<BranchMatcher>(patterns);
    }
    enter(first_stage(options_));
  }

  void feed(std::string_view text, const std::vector<TokenMark>& marks, std::vector<OutputDelta>& out) {
    ++record_;
    out_ = &out;
    mergeable_ = false;
    size_t next_mark = 0;
    segments_.push_back({record_, pending_.size(), pending_.size(), text.empty(), {}});
    for (size_t i = 0; i < text.size(); ++i) {
      for (; next_mark < marks.size() && marks[next_mark].offset <= i; ++next_mark) {
        segments_.back().marks.push_back({pending_.size(), marks[next_mark].token});
      }
      pending_.push_back(text[i]);
      ++segments_.back().end;
      const int branch = stage().matcher->advance(text[i]);
      if (branch != BranchMatcher::kNone) take(branch);
    }
    release_whole_records();
  }

  void end(std::vector<OutputDelta>& out) {
    out_ = &out;
    mergeable_ = false;
    flush_label();
    emit_until(pending_.size());
    clear();
  }

  bool stopped() const { return stopped_; }
  const std::string& stop_string() const { return stop_string_; }
  int num_tool_calls() const { return num_calls_; }

 private:
  struct StageTable {
    Branches branches;
    std::unique_ptr<BranchMatcher> matcher;
  };
  // The part of pending_ that came with one record.
  struct Segment {
    int64_t record;
    size_t begin, end;
    bool blank;                    // a record without text: worth an empty delta
    std::vector<TokenMark> marks;  // offsets in pending_
  };

  StageTable& stage() { return stages_[static_cast<size_t>(stage_)]; }

  void clear() {
    pending_.clear();
    segments_.clear();
  }

  void enter(Stage next) {
    stage_ = next;
    stage().matcher->reset();
    clear();
  }

  void take(int index) {
    const Branch& branch = stage().branches[static_cast<size_t>(index)];
    const size_t length = stage().matcher->match_length();
    const size_t begin = pending_.size() - length;
    flush_label();
    emit_until(begin);
    const std::string match = pending_.substr(begin);
    std::vector<int64_t> tokens = tokens_between(segments_.back(), begin, pending_.size());
    apply(branch, match, std::move(tokens));
    enter(branch.next);
    segments_.push_back({record_, 0, 0, false, {}});
  }

  void apply(const Branch& branch, const std::string& match, std::vector<int64_t> tokens) {
    mergeable_ = false;
    switch (branch.effect) {
      case Effect::kKeepBracket: label_ = OutputDelta{OutputDelta::Kind::kContent, match, 0, std::move(tokens)}; return;
      case Effect::kStop:
        stopped_ = true;
        stop_string_ = match;
        return;
      case Effect::kBeginCall:
        label_ = OutputDelta{OutputDelta::Kind::kToolName, std::move(name_), num_calls_++, {}};
        name_.clear();
        first_parameter_ = true;
        return;
      case Effect::kNextParameter:
        argument_label(first_parameter_ ? "{" : ", ");
        first_parameter_ = false;
        return;
      case Effect::kCloseCall: return argument_label(first_parameter_ ? "{}" : "}");
      case Effect::kColon: return argument_label(": ");
      case Effect::kOpenQuote:
      case Effect::kCloseQuote: return argument_label("\"");
      default: return;
    }
  }

  void argument_label(std::string text) {
    label_ = OutputDelta{OutputDelta::Kind::kToolArguments, std::move(text), num_calls_ - 1, {}};
  }

  void flush_label() {
    if (!label_) return;
    out_->push_back(*std::move(label_));
    label_.reset();
  }

  void arguments(std::string text) { out_->push_back({OutputDelta::Kind::kToolArguments, std::move(text), num_calls_ - 1, {}}); }

  static std::vector<int64_t> tokens_between(const Segment& segment, size_t begin, size_t end) {
    std::vector<int64_t> tokens;
    for (const TokenMark& mark : segment.marks) {
      if (mark.offset >= begin && mark.offset < end) tokens.push_back(mark.token);
    }
    return tokens;
  }

  // Gives pending_[0, limit) to the stage's action, one piece per record.
  void emit_until(size_t limit) {
    const Action action = action_of(stage_, options_);
    for (const Segment& segment : segments_) {
      const size_t end = std::min(segment.end, limit);
      if (segment.begin > limit || (segment.begin == end && !segment.blank)) continue;
      emit(action, std::string_view(pending_).substr(segment.begin, end - segment.begin), segment.record,
           tokens_between(segment, segment.begin, end));
    }
  }

  void emit(Action action, std::string_view text, int64_t record, std::vector<int64_t> tokens) {
    if (action == Action::kDrop) return;
    if (action == Action::kName) {
      name_ += text;
      return;
    }
    if (mergeable_ && last_action_ == action && last_record_ == record) {
      out_->back().text += text;
      out_->back().tokens.insert(out_->back().tokens.end(), tokens.begin(), tokens.end());
      return;
    }
    mergeable_ = action != Action::kSpace;
    last_action_ = action;
    last_record_ = record;
    switch (action) {
      case Action::kArguments: return arguments(std::string(text));
      case Action::kEscaped: return arguments(escaped(text));
      case Action::kReasoning: out_->push_back({OutputDelta::Kind::kReasoning, std::string(text), 0, std::move(tokens)}); return;
      default: break;
    }
    out_->push_back({OutputDelta::Kind::kContent, action == Action::kSpace ? " " : std::string(text), 0, std::move(tokens)});
  }

  // Releases the records that lie wholly before whatever may still become a match.
  void release_whole_records() {
    const size_t held = stage().matcher->held();
    // What a match stands for waits with the text behind it when all of that may be part of the next match.
    if (pending_.empty() || held < pending_.size()) flush_label();
    if (stage().matcher->waits_for_first_byte() && pending_.empty()) return;
    const size_t limit = pending_.size() - held;
    size_t count = 0;
    while (count < segments_.size() && segments_[count].end <= limit) ++count;
    if (count == 0) return;
    const size_t cut = segments_[count - 1].end;
    std::vector<Segment> rest(segments_.begin() + static_cast<std::ptrdiff_t>(count), segments_.end());
    segments_.resize(count);
    emit_until(cut);
    pending_.erase(0, cut);
    for (Segment& segment : rest) {
      segment.begin -= cut;
      segment.end -= cut;
      for (TokenMark& mark : segment.marks) mark.offset -= cut;
    }
    segments_ = std::move(rest);
  }

  ParseOptions options_;
  std::array<StageTable, static_cast<size_t>(Stage::kCount)> stages_;
  Stage stage_ = Stage::kText;
  std::string pending_;            // text of this stage that is not yet given out
  std::vector<Segment> segments_;  // of pending_, in order
  int64_t record_ = 0;
  std::vector<OutputDelta>* out_ = nullptr;
  std::optional<OutputDelta> label_;  // what the last match stands for, not given out yet
  bool mergeable_ = false;            // the last delta may still grow
  Action last_action_ = Action::kDrop;
  int64_t last_record_ = 0;
  std::string name_;
  int num_calls_ = 0;
  bool first_parameter_ = true;
  bool stopped_ = false;
  std::string stop_string_;
};

OutputParser::OutputParser(ParseOptions options) : machine_(std::make_unique<Machine>(std::move(options))) {}
OutputParser::~OutputParser() = default;
OutputParser::OutputParser(OutputParser&&) noexcept = default;
OutputParser& OutputParser::operator=(OutputParser&&) noexcept = default;

void OutputParser::feed(std::string_view text, const std::vector<TokenMark>& marks, std::vector<OutputDelta>& out) {
  machine_->feed(text, marks, out);
}
void OutputParser::end(std::vector<OutputDelta>& out) { machine_->end(out); }
bool OutputParser::stopped() const { return machine_->stopped(); }
const std::string& OutputParser::stop_string() const { return machine_->stop_string(); }
int OutputParser::num_tool_calls() const { return machine_->num_tool_calls(); }

ParseOptions parse_options(const Conversation& conversation, std::vector<std::string> stop) {
  ParseOptions options;
  options.tool_calls = conversation.tools_active();
  options.starts_in_tool_calls =
      options.tool_calls && !conversation.thinking && conversation.tool_choice == ToolChoice::kRequired;
  options.json_output = conversation.format.kind == ResponseFormat::Kind::kJsonObject;
  options.stop = std::move(stop);
  if (!conversation.thinking) return options;
  options.start = ParseStart::kReasoning;
  const Message* prefix = conversation.prefix_message();
  if (!prefix) return options;
  if (conversation.messages.size() == 1 || !prefix->content.empty()) {
    options.start = ParseStart::kContentContinued;
  } else if (prefix->reasoning && !prefix->reasoning->empty()) {
    options.start = ParseStart::kReasoningContinued;
  }
  return options;
}

}  // namespace deepinfer
