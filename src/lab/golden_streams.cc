#include "lab/golden_streams.h"

#include <algorithm>
#include <cstdlib>

#include <fmt/format.h>

#include "lab/recipe_forms.h"
#include "lab/recipe_wire.h"
#include "recipe/output_stream.h"

namespace deepinfer {

namespace {

int64_t integer(const Json& json) {
  const auto value = json.to_int64("");
  return value ? *value : 0;
}
// Like json[index], but null when there is no such item.
const Json& item(const Json& json, size_t index) {
  static const Json null;
  return index < json.items().size() ? json[index] : null;
}
double real(const Json& json) { return std::strtod(json.number_text().c_str(), nullptr); }

AnswerEnd answer_end(const std::string& reason) {
  if (reason == "length") return AnswerEnd::kLength;
  if (reason == "content_filter") return AnswerEnd::kContentFilter;
  return AnswerEnd::kStop;
}

Status push_token_record(const Json& record, OutputStream& stream, std::vector<OutputEvent>& events) {
  std::vector<TokenId> ids;
  for (const Json& id : record.at("ids").items()) ids.push_back(static_cast<TokenId>(integer(id)));
  std::vector<TokenLogprobs> logprobs;
  for (const Json& entry : record.at("logprobs").items()) {
    TokenLogprobs& token = logprobs.emplace_back();
    token.logprob = real(item(entry, 0));
    for (const Json& choice : item(entry, 1).items())
      token.top.emplace_back(static_cast<TokenId>(integer(item(choice, 0))), real(item(choice, 1)));
  }
  return stream.push_tokens(ids, logprobs, events);
}

Status push_record(const Json& record, OutputStream& stream, std::vector<OutputEvent>& events) {
  const std::string& kind = record.at("kind").as_string();
  if (kind == "tokens") return push_token_record(record, stream, events);
  if (kind == "text") {
    stream.push_text(record.at("content").as_string(), integer(record.at("tokens")), events);
  } else if (kind == "finish") {
    stream.push_finish(answer_end(record.at("reason").as_string()), events);
  } else {
    const Json& usage = record.at("usage");
    const Json& fingerprint = record.at("system_fingerprint");
    const bool known = usage.size() == 2;
    stream.push_ready(known ? integer(item(usage, 0)) : 0, known ? integer(item(usage, 1)) : 0,
                      fingerprint.is_string() ? std::optional(fingerprint.as_string()) : std::nullopt, events);
  }
  return {};
}

std::string difference(const std::string& what, const Json& want, const Json& got) {
  const std::string wanted = want.dump(), found = got.dump();
  if (wanted == found) return {};
  size_t at = 0;
  while (at < wanted.size() && at < found.size() && wanted[at] == found[at]) ++at;
  const size_t from = at > 40 ? at - 40 : 0;
  return fmt::format("{}: want ...{} got ...{}", what, wanted.substr(from, 160), found.substr(from, 160));
}

class Replay {
 public:
  Replay(const WireRequest& request, const Tokenizer& tokenizer)
      : stream_(tokenizer, request.chat.parsing()), writer_(make_wire_writer(request)) {}

  Status push(const Json& record) {
    std::vector<OutputEvent> events;
    DI_CHECK_OK(push_record(record, stream_, events));
    write(events);
    return {};
  }
  void end() {
    std::vector<OutputEvent> events;
    stream_.end_of_input(events);
    write(events);
  }
  bool finished() const { return stream_.finished(); }
  const Json& lists() const { return lists_; }
  Json response() const { return writer_->response(stream_); }
  // Empty when the writer's fast path wrote the bytes of the same events.
  std::string bytes_difference() const { return slow_ == fast_ ? "" : "bytes: the fast path differs from the events"; }

 private:
  void write(const std::vector<OutputEvent>& events) {
    Json list = Json::array();
    for (const OutputEvent& event : events) {
      writer_->write(event, stream_, list);
      writer_->append(event, stream_, fast_);
    }
    for (const Json& item : list.items()) slow_ += wire_bytes(item);
    lists_.push_back(std::move(list));
  }

  OutputStream stream_;
  std::unique_ptr<WireWriter> writer_;
  Json lists_ = Json::array();
  std::string slow_, fast_;
};

// One wire chunk in the short form of the two-way goldens.
void append_compact(const Json& chunk, Json& list) {
  const Json& choice = item(chunk.at("choices"), 0);
  const Json& delta = choice.at("delta");
  const auto add = [&](std::vector<Json> items) { list.push_back(Json::array(std::move(items))); };
  if (delta.find("role")) return add({"role"});
  if (choice.at("finish_reason").is_string()) {
    return add({"finish", choice.at("finish_reason"), chunk.at("usage").at("completion_tokens")});
  }
  if (delta.at("reasoning_content").is_string()) return add({"reasoning", delta.at("reasoning_content")});
  if (delta.at("content").is_string()) return add({"content", delta.at("content")});
  const Json& call = item(delta.at("tool_calls"), 0);
  if (call.find("id")) return add({"tool", call.at("index"), call.at("function").at("name")});
  add({"args", call.at("index"), call.at("function").at("arguments")});
}

int64_t count_code_points(std::string_view text) {
  return std::count_if(text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; });
}

size_t byte_offset(std::string_view text, int64_t code_points) {
  size_t at = 0;
  for (; at < text.size(); ++at) {
    if ((static_cast<unsigned char>(text[at]) & 0xC0) != 0x80 && code_points-- == 0) break;
  }
  return at;
}

}  // namespace

std::string run_stream(const Json& golden, const Tokenizer& tokenizer) {
  const Result<WireRequest> request = parse_wire_request(golden.at("wire").as_string(), golden.at("body").dump(), {});
  if (!request) return "request refused: " + request.error().message;
  const Json& expect = golden.at("expect");
  Replay replay(*request, tokenizer);
  const std::vector<Json>& records = golden.at("chunks").items();
  size_t pushed = 0;
  for (; pushed < records.size() && !replay.finished(); ++pushed) {
    if (const Status status = replay.push(records[pushed]); !status) {
      if (expect.at("error").is_string() && expect.at("error").as_string() == status.error().message) return {};
      return "stream error: " + status.error().message;
    }
  }
  if (expect.find("error")) return "no stream error";
  const int64_t stopped = expect.find("stopped_before_chunk") ? integer(expect.at("stopped_before_chunk")) : -1;
  if (stopped >= 0 && static_cast<size_t>(stopped) != pushed)
    return fmt::format("stopped before record {}, want {}", pushed, stopped);
  if (stopped < 0 && pushed != records.size()) return fmt::format("stopped before record {}", pushed);
  if (stopped < 0) replay.end();
  std::string what =
      difference("parsing", expect.at("parsing"), parsing_form(request->chat.parsing(), request->chat.conversation.thinking));
  if (what.empty()) what = difference("events", expect.at("events"), replay.lists());
  if (what.empty() && expect.find("response")) what = difference("response", expect.at("response"), replay.response());
  if (what.empty()) what = replay.bytes_difference();
  return what;
}

std::string run_chat_two_way(const Json& golden, const Tokenizer& tokenizer) {
  const Result<WireRequest> request = parse_wire_request("chat", golden.at("body").dump(), {});
  if (!request) return "request refused: " + request.error().message;
  const std::string& text = golden.at("text").as_string();
  for (const auto& [position, expect] : golden.at("expect_compact_per_split").members()) {
    const size_t cut = byte_offset(text, std::atoll(position.c_str()));
    const std::string halves[] = {text.substr(0, cut), text.substr(cut)};
    Replay replay(*request, tokenizer);
    Json records = Json::array();
    records.push_back(Json::object({{"kind", "ready"}}));
    for (const std::string& half : halves) {
      const int64_t num_tokens = std::max<int64_t>(1, count_code_points(half) / 4);
      records.push_back(Json::object({{"kind", "text"}, {"content", half}, {"tokens", num_tokens}}));
    }
    records.push_back(Json::object({{"kind", "finish"}, {"reason", "stop"}}));
    for (const Json& record : records.items()) {
      if (const Status status = replay.push(record); !status) return "stream error: " + status.error().message;
    }
    replay.end();
    Json compact = Json::array();
    for (const Json& list : replay.lists().items()) {
      Json short_list = Json::array();
      for (const Json& chunk : list.items()) append_compact(chunk, short_list);
      compact.push_back(std::move(short_list));
    }
    const std::string what = difference("split " + position, expect, compact);
    if (!what.empty()) return what;
  }
  return {};
}

}  // namespace deepinfer
