#include "api/chat/response.h"
#include "api/responses/request.h"
#include "api/responses/response.h"
#include "server/chat_options.h"
#include "server/generation.h"

namespace deepinfer {

namespace {

class ResponseForm final : public AnswerForm {
 public:
  ResponseForm(const WireCall& wire, ResponsesRequest request, ResponsesAnswerInfo info)
      : writer_(std::move(info)),
        context_(wire.context),
        id_(wire.id),
        tenant_(wire.tenant),
        input_(std::move(request.input)),
        items_(std::move(request.items)),
        keeps_(request.store),
        background_(request.background) {}

  void collect(size_t, const OutputEvent& event, const OutputStream& stream) override {
    unseen_.clear();
    writer_.event(event, stream, unseen_);
    note_progress(event);
  }
  void append(size_t, const OutputEvent& event, const OutputStream& stream, std::string& out) override {
    if (event.kind == OutputEvent::Kind::kFinish && keeps_ && !background_) return append_last(event, stream, out);
    writer_.append_sse(event, stream, out);
    note_progress(event);
  }
  std::string body(const AnswerUsage&, const OutputStream& stream) const override {
    return (stream.finished() ? writer_.response(stream) : writer_.snapshot("queued")).dump();
  }
  void fail(const Error& error, std::string& out) override {
    if (error.code == ErrorCode::kCancelled) return writer_.append_cancelled(out);
    writer_.append_failure(code_of(error), error.message, out);
  }

  Status begun(std::function<void()> cancel) override {
    const bool can_hold = !keeps_ || context_.responses->can_hold(input_, items_);
    if (!background_) {
      if (!can_hold) give_up_keeping();
      return {};
    }
    if (!can_hold) return too_large("the input is larger than all responses this server may keep: send it without background");
    cancel_ = cancel;
    if (keep(writer_.snapshot("queued"), true)) return {};
    cancel_ = nullptr;
    return exhausted("the responses that run in the background fill the store: try again when one has ended");
  }
  void completed(const OutputStream& stream) override {
    if (!keeps_ || keep(writer_.response(stream), false)) return;
    if (!background_) return give_up_keeping();
    Json failed = writer_.failed("server_error", "the answer came, but there is no room to keep it");
    failed.set("output", Json::array());
    context_.responses->put(tenant_, id_, {std::move(failed), input_, items_, false, nullptr}, context_.clock.now_us());
  }
  void cancelled() override {
    // A deleted one stays deleted.
    if (context_.responses->find(tenant_, id_, context_.clock.now_us())) keep(writer_.cancelled(), false);
  }
  void broken(const Error& error) override {
    if (background_ && cancel_) keep(writer_.failed(code_of(error), error.message), false);
  }

 private:
  // The last event of a stream says whether the response is kept, so that comes first.
  void append_last(const OutputEvent& event, const OutputStream& stream, std::string& out) {
    std::vector<NamedEvent> events;
    writer_.event(event, stream, events);
    keeps_ = false;
    if (!keep(writer_.response(stream), false)) events.back().data.find("response")->set("store", false);
    for (const NamedEvent& named : events) append_sse_event(named, out);
  }

  static const char* code_of(const Error& error) {
    switch (error.code) {
      case ErrorCode::kExhausted: return "rate_limit_exceeded";
      case ErrorCode::kUnavailable: return "server_is_overloaded";
      default: return "server_error";
    }
  }

  // The first token of an answer in the background.
  void note_progress(const OutputEvent& event) {
    if (!background_ || is_running_ || event.kind == OutputEvent::Kind::kStart) return;
    is_running_ = true;
    keep(writer_.snapshot("in_progress"), true);
  }

  void give_up_keeping() {
    keeps_ = false;
    writer_.not_stored();
  }

  bool keep(Json response, bool is_running) {
    StoredResponse stored;
    stored.response = std::move(response);
    stored.input = input_;
    stored.items = items_;
    if (!is_running) {
      const Json output = writer_.output();
      for (const Json& item : output.items()) stored.items.push_back(item);
    }
    stored.is_running = is_running;
    if (is_running) stored.cancel = cancel_;
    return context_.responses->put(tenant_, id_, std::move(stored), context_.clock.now_us());
  }

  ResponsesAnswerWriter writer_;
  const ServerContext& context_;
  std::string id_, tenant_;
  Json input_, items_;
  bool keeps_, background_, is_running_ = false;
  std::function<void()> cancel_;
  std::vector<NamedEvent> unseen_;
};

Result<ResponsesRequest> read_request(const WireCall& wire) {
  const ServerContext& context = wire.context;
  return parse_responses_request(wire.body, context.api, [&](const std::string& id) {
    const auto stored = context.responses->find(wire.tenant, id, context.clock.now_us());
    return stored && !stored->is_running ? stored->items : Json();
  });
}

}  // namespace

Result<ChatRequest> read_response_chat(const WireCall& wire) {
  DI_TRY(ResponsesRequest request, read_request(wire));
  return std::move(request.chat);
}

Result<AnswerPlan> plan_response(const WireCall& wire) {
  DI_TRY(ResponsesRequest request, read_request(wire));
  DI_TRY(AnswerPlan plan, plan_conversation(wire, request.chat));
  plan.stream = request.stream;
  plan.background = request.background;
  ResponsesAnswerInfo info;
  info.id = wire.id;
  info.model = request.chat.model;
  info.created = now_seconds();
  info.echo = request.echo;
  info.namespaces = request.namespaces;
  info.has_apply_patch = request.has_apply_patch;
  info.now = now_seconds;
  info.call_suffix = [seed = answer_seed(wire.id)](int index) { return tool_call_suffix(seed, index); };
  plan.form = std::make_unique<ResponseForm>(wire, std::move(request), std::move(info));
  return plan;
}

}  // namespace deepinfer
