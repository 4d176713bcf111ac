// The engine of this process. Many asks at once share its batch.
#include <chrono>
#include <thread>

#include "api/chat/request.h"
#include "api/chat/response.h"
#include "core/event_queue.h"
#include "host/ask.h"
#include "lab/eval/target.h"
#include "server/chat_options.h"

namespace deepinfer {
namespace {

constexpr auto kLook = std::chrono::milliseconds(50);
const Error kInterrupted{ErrorCode::kCancelled, "interrupted"};

class LocalTarget final : public EvalTarget {
 public:
  explicit LocalTarget(Host& host) : host_(host) {}

  std::string model() const override { return host_.model().fingerprint(); }

  Result<EvalAnswer> ask(const Json& body, const std::atomic<bool>& interrupted) override {
    ApiOptions api;
    api.profile = Profile::kOpen;
    Json named = body;
    named.set("model", api.models[0]);
    DI_TRY(const ChatRequest request, parse_chat_request(named.dump(), api));
    EventQueue queue;
    DI_TRY(const auto ask, start(request, chat_ask_options(request), queue, interrupted));
    ChatAnswerInfo info;
    info.thinking = request.conversation.thinking;
    ChatAnswerWriter writer(std::move(info));
    bool cancelled = false;
    for (bool done = false; !done;) {
      if (!cancelled && interrupted.load()) ask->cancel(), cancelled = true;
      const std::optional<Event> event = queue.pop_for(kLook);
      if (!event) continue;
      std::vector<OutputEvent> pieces;
      DI_TRY(done, ask->take(*event, pieces));
      for (const OutputEvent& piece : pieces) writer.event(piece, ask->stream());
    }
    if (ask->report().cancelled) return kInterrupted;
    return answer_of_response(writer.response(ask->stream()));
  }

 private:
  // Waits while the engine's queue is full.
  Result<std::unique_ptr<Ask>> start(const ChatRequest& request, const AskOptions& options, EventQueue& queue,
                                     const std::atomic<bool>& interrupted) {
    while (!interrupted.load()) {
      auto ask = Ask::start(host_, request.conversation, options, queue);
      if (ask || ask.error().code != ErrorCode::kExhausted) return ask;
      std::this_thread::sleep_for(kLook);
    }
    return kInterrupted;
  }

  Host& host_;
};

}  // namespace

std::unique_ptr<EvalTarget> make_local_target(Host& host) { return std::make_unique<LocalTarget>(host); }

}  // namespace deepinfer
