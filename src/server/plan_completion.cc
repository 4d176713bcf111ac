#include "api/completions/request.h"
#include "api/completions/response.h"
#include "base/utf8.h"
#include "server/chat_options.h"
#include "server/generation.h"

namespace deepinfer {

namespace {

class CompletionForm final : public AnswerForm {
 public:
  CompletionForm(std::vector<CompletionWriter> writers, bool wants_usage)
      : writers_(std::move(writers)), wants_usage_(wants_usage) {}
  void collect(size_t choice, const OutputEvent& event, const OutputStream&) override { writers_[choice].take(event); }
  void append(size_t choice, const OutputEvent& event, const OutputStream& stream, std::string& out) override {
    const size_t before = out.size();
    out += "data: ";
    if (writers_[choice].append_event(event, stream, out)) {
      out += "\n\n";
    } else {
      out.resize(before);
    }
  }
  std::string body(const AnswerUsage& usage, const OutputStream& stream) const override {
    Json choices = Json::array();
    for (const CompletionWriter& writer : writers_) choices.push_back(writer.choice());
    return writers_[0].object(std::move(choices), completion_usage(usage), stream).dump();
  }
  void end(const AnswerUsage& usage, const OutputStream& stream, std::string& out) const override {
    if (wants_usage_) out += "data: " + writers_[0].object(Json::array(), completion_usage(usage), stream).dump() + "\n\n";
    out += "data: [DONE]\n\n";
  }

 private:
  std::vector<CompletionWriter> writers_;
  bool wants_usage_;
};

}  // namespace

Result<AnswerPlan> plan_completion(const WireCall& wire) {
  DI_TRY(const CompletionRequest request, parse_completion_request(wire.body, wire.context.api));
  const Host& host = *wire.context.host;
  AnswerPlan plan;
  AskOptions& options = plan.options;
  options.draft_usage = profile_rules(wire.context.api.profile).draft_usage;
  options.temperature = request.temperature;
  options.top_p = request.top_p;
  options.frequency_penalty = request.frequency_penalty;
  options.presence_penalty = request.presence_penalty;
  options.logit_bias = request.logit_bias;
  set_foreign(request.foreign, options);
  options.seed = request.seed;
  options.num_logprobs = request.num_logprobs.value_or(-1);
  std::vector<CompletionWriter> writers;
  const int64_t created = now_seconds();
  for (const CompletionPrompt& given : request.prompts) {
    AskPrompt prompt;
    const auto* text = std::get_if<std::string>(&given);
    if (text) {
      if (!is_valid_utf8(*text)) return invalid_argument("the prompt is not valid UTF-8");
      DI_TRY(prompt.ids, render_completion(request, *text).encode(host.tokenizer()));
    } else {
      prompt.ids = std::get<std::vector<TokenId>>(given);
    }
    const int64_t context_tokens = host.facts().context, size = static_cast<int64_t>(prompt.ids.size());
    if (size + request.max_tokens > context_tokens) {
      return beyond_context(context_tokens, size, request.max_tokens);
    }
    prompt.max_tokens = request.max_tokens;
    prompt.parsing = {.start = ParseStart::kRaw, .stop = request.stop};
    const std::string echo = !request.echo ? "" : text ? *text : host.tokenizer().decode(prompt.ids);
    for (int i = 0; i < request.num_answers; ++i) {
      writers.emplace_back(CompletionInfo{wire.id, request.model, created, static_cast<int>(writers.size()), echo});
    }
    plan.prompts.push_back(std::move(prompt));
  }
  plan.num_answers = request.num_answers;
  plan.stream = request.stream;
  plan.form = std::make_unique<CompletionForm>(std::move(writers), request.include_usage);
  return plan;
}

}  // namespace deepinfer
