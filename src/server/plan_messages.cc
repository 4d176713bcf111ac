#include "api/chat/response.h"
#include "api/errors.h"
#include "api/messages/request.h"
#include "api/messages/response.h"
#include "server/chat_options.h"
#include "server/generation.h"

namespace deepinfer {

namespace {

class MessagesForm final : public AnswerForm {
 public:
  MessagesForm(MessagesAnswerInfo info, Dialect dialect, std::string request_id)
      : writer_(std::move(info)), dialect_(dialect), request_id_(std::move(request_id)) {}
  void collect(size_t, const OutputEvent& event, const OutputStream& stream) override {
    unseen_.clear();
    writer_.event(event, stream, unseen_);
  }
  void append(size_t, const OutputEvent& event, const OutputStream& stream, std::string& out) override {
    writer_.append_sse(event, stream, out);
  }
  std::string body(const AnswerUsage&, const OutputStream& stream) const override { return writer_.response(stream).dump(); }
  void fail(const Error& error, std::string& out) override {
    const int status = wire_status(error.code).http;
    append_sse_event({"error", dialect_error(dialect_, status, error.message, request_id_)}, out);
  }
  // The SDK takes comments, too; a ping is what others know of this wire.
  void keep_alive(std::string& out) const override { out += "event: ping\ndata: {\"type\":\"ping\"}\n\n"; }

 private:
  MessagesAnswerWriter writer_;
  Dialect dialect_;
  std::string request_id_;
  std::vector<NamedEvent> unseen_;
};

}  // namespace

Result<AnswerPlan> plan_messages(const WireCall& wire) {
  DI_TRY(const ChatRequest request, parse_messages_request(wire.body, wire.context.api));
  // Agents of this wire always ask for as much as the largest model gives.
  const bool fits_max_tokens = profile_rules(wire.context.api.profile).messages_fits_max_tokens;
  DI_TRY(AnswerPlan plan, plan_conversation(wire, request, fits_max_tokens));
  MessagesAnswerInfo info;
  info.id = wire.id;
  info.model = request.model;
  info.thinking = request.conversation.thinking;
  info.call_suffix = [seed = answer_seed(wire.id)](int index) { return tool_call_suffix(seed, index); };
  plan.form = std::make_unique<MessagesForm>(std::move(info), wire.context.error_dialect("/v1/messages"), wire.request_id);
  return plan;
}

}  // namespace deepinfer
