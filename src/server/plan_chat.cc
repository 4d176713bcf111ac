#include "api/chat/request.h"
#include "api/chat/response.h"
#include "server/chat_options.h"
#include "server/generation.h"

namespace deepinfer {

namespace {

class ChatForm final : public AnswerForm {
 public:
  ChatForm(const ChatAnswerInfo& info, int num_choices, bool wants_usage) : wants_usage_(wants_usage && info.usage_apart) {
    for (int i = 0; i < num_choices; ++i) {
      ChatAnswerInfo own = info;
      own.choice = i;
      own.call_suffix = [seed = answer_seed(info.id) + static_cast<uint64_t>(i)](int index) {
        return tool_call_suffix(seed, index);
      };
      writers_.emplace_back(std::move(own));
    }
    thinking_ = info.thinking;
  }
  void collect(size_t choice, const OutputEvent& event, const OutputStream&) override { writers_[choice].collect(event); }
  void append(size_t choice, const OutputEvent& event, const OutputStream& stream, std::string& out) override {
    out += "data: ";
    writers_[choice].append_event(event, stream, out);
    out += "\n\n";
  }
  std::string body(const AnswerUsage& usage, const OutputStream& stream) const override {
    Json body = writers_[0].response(stream);
    for (size_t i = 1; i < writers_.size(); ++i) body.find("choices")->push_back(writers_[i].choice());
    body.set("usage", chat_usage(usage, thinking_));
    return body.dump();
  }
  void end(const AnswerUsage& usage, const OutputStream& stream, std::string& out) const override {
    if (wants_usage_) out += "data: " + writers_[0].usage_chunk(usage, stream).dump() + "\n\n";
    out += "data: [DONE]\n\n";
  }

 private:
  std::vector<ChatAnswerWriter> writers_;
  bool wants_usage_ = false, thinking_ = false;
};

}  // namespace

Result<AnswerPlan> plan_conversation(const WireCall& wire, const ChatRequest& request, bool fits_max_tokens) {
  AnswerPlan plan;
  plan.options = chat_ask_options(request);
  plan.options.tenant = wire.tenant;
  plan.options.fits_max_tokens = fits_max_tokens;
  plan.options.draft_usage = profile_rules(wire.context.api.profile).draft_usage;
  DI_TRY(AskPrompt prompt, Ask::prepare(*wire.context.host, request.conversation, plan.options));
  plan.prompts.push_back(std::move(prompt));
  plan.stream = request.stream;
  return plan;
}

Result<AnswerPlan> plan_chat(const WireCall& wire) {
  const ServerContext& context = wire.context;
  DI_TRY(const ChatRequest request, parse_chat_request(wire.body, context.api));
  DI_TRY(AnswerPlan plan, plan_conversation(wire, request));
  plan.num_answers = request.num_answers;
  ChatAnswerInfo info;
  info.id = wire.id;
  info.model = request.model;
  info.created = now_seconds();
  info.thinking = request.conversation.thinking;
  info.continues_content = request.parsing().start == ParseStart::kContentContinued;
  info.null_usage = request.include_usage;
  // Who asks for usage waits for a chunk of its own; the official form has it on the last chunk in any case.
  info.usage_apart = request.num_answers > 1 || (profile_rules(context.api.profile).usage_apart && request.include_usage);
  plan.form = std::make_unique<ChatForm>(info, request.num_answers, request.include_usage);
  return plan;
}

}  // namespace deepinfer
