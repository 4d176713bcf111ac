#include "lab/recipe_wire.h"

#include "api/chat/response.h"
#include "api/messages/request.h"
#include "api/messages/response.h"
#include "api/responses/response.h"

namespace deepinfer {

namespace {

constexpr const char* kShownModel = "deepseek-flash";
std::string call_suffix(int) { return "<RANDOM24>"; }

class ChatWire final : public WireWriter {
 public:
  explicit ChatWire(ChatAnswerInfo info) : writer_(info), fast_(std::move(info)) {}
  void write(const OutputEvent& event, const OutputStream& stream, Json& list) override {
    list.push_back(writer_.event(event, stream));
  }
  void append(const OutputEvent& event, const OutputStream& stream, std::string& out) override {
    fast_.append_event(event, stream, out);
  }
  Json response(const OutputStream& stream) const override { return writer_.response(stream); }

 private:
  ChatAnswerWriter writer_, fast_;
};

// Messages and Responses: named events.
template <class Writer, class Info>
class NamedWire final : public WireWriter {
 public:
  explicit NamedWire(Info info) : writer_(info), fast_(std::move(info)) {}
  void write(const OutputEvent& event, const OutputStream& stream, Json& list) override {
    std::vector<NamedEvent> events;
    writer_.event(event, stream, events);
    for (NamedEvent& named : events) list.push_back(Json::array({named.name, std::move(named.data)}));
  }
  void append(const OutputEvent& event, const OutputStream& stream, std::string& out) override {
    fast_.append_sse(event, stream, out);
  }
  Json response(const OutputStream& stream) const override { return writer_.response(stream); }

 private:
  Writer writer_, fast_;
};

}  // namespace

bool is_wire(std::string_view name) { return name == "chat" || name == "messages" || name == "responses"; }

Result<WireRequest> parse_wire_request(std::string_view wire, std::string_view body, const ApiOptions& options) {
  WireRequest out;
  out.wire = wire;
  if (wire == "responses") {
    DI_TRY(out.responses, parse_responses_request(body, options));
    out.chat = out.responses->chat;
  } else if (wire == "messages") {
    DI_TRY(out.chat, parse_messages_request(body, options));
  } else {
    DI_TRY(out.chat, parse_chat_request(body, options));
  }
  return out;
}

std::unique_ptr<WireWriter> make_wire_writer(const WireRequest& request) {
  const ChatRequest& chat = request.chat;
  if (request.wire == "messages") {
    MessagesAnswerInfo info{"msg-1", kShownModel, chat.conversation.thinking, call_suffix};
    return std::make_unique<NamedWire<MessagesAnswerWriter, MessagesAnswerInfo>>(std::move(info));
  }
  if (request.responses) {
    ResponsesAnswerInfo info;
    info.id = "resp-1";
    info.model = kShownModel;
    info.echo = request.responses->echo;
    info.namespaces = request.responses->namespaces;
    info.has_apply_patch = request.responses->has_apply_patch;
    info.call_suffix = call_suffix;
    return std::make_unique<NamedWire<ResponsesAnswerWriter, ResponsesAnswerInfo>>(std::move(info));
  }
  ChatAnswerInfo info;
  info.id = "cmpl-1";
  info.model = kShownModel;
  info.thinking = chat.conversation.thinking;
  info.continues_content = chat.parsing().start == ParseStart::kContentContinued;
  info.null_usage = !chat.stream || chat.include_usage;
  info.call_suffix = call_suffix;
  return std::make_unique<ChatWire>(std::move(info));
}

std::string wire_bytes(const Json& item) {
  if (!item.is_array()) return item.dump();
  std::string out;
  append_sse_event({item[0].as_string(), item[1]}, out);
  return out;
}

}  // namespace deepinfer
