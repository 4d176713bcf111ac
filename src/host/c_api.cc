// The C API of libdeepinfer (include/deepinfer.h) over Host and Ask.
#include <deepinfer.h>

#include <fmt/format.h>

#include <chrono>
#include <exception>
#include <string>
#include <vector>

#include "host/ask.h"

struct deepinfer_engine {
  std::unique_ptr<deepinfer::Host> host;
};

namespace deepinfer {
namespace {

// A C caller has no other place to read a message from; per thread, so that callers do not see each other's.
thread_local std::string last_error;

deepinfer_code code_of(ErrorCode code) {
  switch (code) {
    case ErrorCode::kInvalidArgument: return DEEPINFER_INVALID_ARGUMENT;
    case ErrorCode::kNotFound: return DEEPINFER_NOT_FOUND;
    case ErrorCode::kCorrupt: return DEEPINFER_CORRUPT;
    case ErrorCode::kUnsupported: return DEEPINFER_UNSUPPORTED;
    case ErrorCode::kTooLarge: return DEEPINFER_TOO_LARGE;
    case ErrorCode::kExhausted:
    case ErrorCode::kUnavailable: return DEEPINFER_EXHAUSTED;
    case ErrorCode::kDeadline:
    case ErrorCode::kCancelled: return DEEPINFER_CANCELLED;
    case ErrorCode::kPermission:
    case ErrorCode::kIo: return DEEPINFER_IO;
    case ErrorCode::kInternal: break;
  }
  return DEEPINFER_INTERNAL;
}

deepinfer_code fail(const Error& error) {
  last_error = error.message;
  return code_of(error.code);
}

// Nothing of ours throws, but memory may run out, and an exception must not cross into C.
template <class Body>
deepinfer_code guarded(Body body) {
  try {
    const Status status = body();
    return status ? DEEPINFER_OK : fail(status.error());
  } catch (const std::exception& problem) {
    return fail(exhausted(fmt::format("out of memory or an unexpected failure: {}", problem.what())));
  }
}

Status open_engine(const deepinfer_options* options, deepinfer_engine** engine) {
  if (!engine) return invalid_argument("deepinfer_open: engine must not be NULL");
  *engine = nullptr;
  HostSettings settings;
  if (options) {
    if (options->model) settings.model = options->model;
    if (options->device) settings.device = options->device;
    settings.threads = options->threads;
    settings.context = options->context;
  }
  DI_TRY(auto host, Host::open(settings, {}));
  *engine = new deepinfer_engine{std::move(host)};
  return {};
}

Result<Conversation> conversation_of(const deepinfer_request& request) {
  if (!request.messages || request.num_messages == 0) return invalid_argument("deepinfer_generate: the request has no messages");
  Conversation conversation;
  for (size_t i = 0; i < request.num_messages; ++i) {
    const deepinfer_message& message = request.messages[i];
    const std::string role = message.role ? message.role : "";
    if (!message.content) return invalid_argument(fmt::format("deepinfer_generate: message {} has no content", i));
    if (role == "system") {
      conversation.messages.push_back(Message::system(message.content));
    } else if (role == "user") {
      conversation.messages.push_back(Message::user(message.content));
    } else if (role == "assistant") {
      conversation.messages.push_back(Message::assistant(message.content));
    } else {
      return invalid_argument(
          fmt::format("deepinfer_generate: message {} has role '{}'; known are system, user, assistant", i, role));
    }
  }
  DI_CHECK_OK(set_thinking(conversation, request.think ? request.think : "off"));
  return conversation;
}

AskOptions ask_options_of(const deepinfer_request& request) {
  AskOptions options;
  if (request.temperature >= 0) options.temperature = request.temperature;
  if (request.top_p >= 0) options.top_p = request.top_p;
  options.top_k = request.top_k;
  options.min_p = request.min_p;
  options.seed = request.seed;
  if (request.max_tokens > 0) options.max_tokens = request.max_tokens;
  return options;
}

Status generate(Host& host, const deepinfer_request& request, deepinfer_on_text on_text, void* user, deepinfer_result* result) {
  DI_TRY(const Conversation conversation, conversation_of(request));
  EventQueue queue;
  DI_TRY(const auto ask, Ask::start(host, conversation, ask_options_of(request), queue));
  std::vector<OutputEvent> pieces;
  bool stopped = false;
  for (bool done = false; !done;) {
    pieces.clear();
    DI_TRY(done, ask->take(queue.pop(), pieces));
    for (const OutputEvent& piece : pieces) {
      const bool reasoning = piece.kind == OutputEvent::Kind::kReasoning;
      if (stopped || !on_text || (!reasoning && piece.kind != OutputEvent::Kind::kContent)) continue;
      stopped = on_text(user, piece.text.data(), piece.text.size(), reasoning) != 0;
      if (stopped) ask->cancel();
    }
  }
  if (!result) return {};
  const AskReport& report = ask->report();
  result->finish = report.cancelled || stopped        ? DEEPINFER_FINISH_CANCELLED
                   : report.end == AnswerEnd::kLength ? DEEPINFER_FINISH_LENGTH
                                                      : DEEPINFER_FINISH_STOP;
  result->prompt_tokens = report.usage.prompt_tokens;
  result->completion_tokens = report.usage.completion_tokens;
  result->first_token_seconds = static_cast<double>(report.first_token_us) / 1e6;
  result->total_seconds = static_cast<double>(report.total_us) / 1e6;
  return {};
}

}  // namespace
}  // namespace deepinfer

extern "C" {

deepinfer_code deepinfer_open(const deepinfer_options* options, deepinfer_engine** engine) {
  return deepinfer::guarded([&] { return deepinfer::open_engine(options, engine); });
}

void deepinfer_close(deepinfer_engine* engine) { delete engine; }

deepinfer_code deepinfer_generate(deepinfer_engine* engine, const deepinfer_request* request, deepinfer_on_text on_text,
                                  void* user, deepinfer_result* result) {
  return deepinfer::guarded([&]() -> deepinfer::Status {
    if (!engine || !request) return deepinfer::invalid_argument("deepinfer_generate: engine and request must not be NULL");
    return deepinfer::generate(*engine->host, *request, on_text, user, result);
  });
}

const char* deepinfer_last_error(void) { return deepinfer::last_error.c_str(); }

const char* deepinfer_version(void) { return DEEPINFER_VERSION; }

}  // extern "C"
