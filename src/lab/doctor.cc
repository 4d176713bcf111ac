#include "lab/doctor.h"

#include <fmt/format.h>

#include "base/file.h"
#include "host/host.h"
#include "host/shipped_files.h"
#include "lab/figures.h"
#include "net/http_client.h"

namespace deepinfer {

namespace {

using Verdict = DoctorRow::Verdict;

// The checks of one server, in the order in which one builds on another.
class ServerChecks {
 public:
  explicit ServerChecks(const DoctorOptions& options) : options_(options), client_(client_options(options)) {}

  std::vector<DoctorRow> run() {
    if (!models()) return std::move(rows_);
    whole_answer();
    limited_answer();
    streamed_answer();
    streamed_usage();
    same_seed();
    refusals();
    completions();
    tokens();
    health();
    optional_route("metrics", "/metrics", "text/plain");
    optional_route("openapi", "/openapi.json", "application/json");
    messages();
    responses();
    return std::move(rows_);
  }

 private:
  static HttpClientOptions client_options(const DoctorOptions& options) {
    HttpClientOptions out;
    out.idle_timeout_us = static_cast<int64_t>(options.timeout_seconds * 1e6);
    return out;
  }

  Result<HttpReply> send(const std::string& method, const std::string& path, const std::string& body = "",
                         const std::string& type = "application/json") {
    HttpCall call;
    call.method = method;
    call.url = options_.url + path;
    if (method == "POST") call.headers.add("content-type", type);
    if (!options_.key.empty()) call.headers.add("authorization", "Bearer " + options_.key);
    call.body = body;
    return client_.send(call);
  }

  void row(const std::string& name, Verdict verdict, std::string detail = "") {
    rows_.push_back({name, verdict, std::move(detail)});
  }
  bool expect(const std::string& name, bool good, const std::string& detail) {
    row(name, good ? Verdict::kOk : Verdict::kFailed, good ? "" : detail);
    return good;
  }
  static std::string shown(const Result<HttpReply>& reply) {
    return reply ? fmt::format("status {}: {}", reply->status, reply->body.substr(0, 200)) : reply.error().message;
  }
  static Json json_of(const Result<HttpReply>& reply) {
    auto json = reply ? Json::parse(reply->body) : Result<Json>(Json());
    return json ? *json : Json();
  }

  bool models() {
    const auto reply = send("GET", "/v1/models");
    const Json json = json_of(reply);
    const Json& data = json.at("data");
    if (!expect("models", reply && reply->status == 200 && data.is_array() && data.size() > 0 && data[0].at("id").is_string(),
                shown(reply)))
      return false;
    model_ = options_.model.empty() ? data[0].at("id").as_string() : options_.model;
    rows_.back().detail = model_;
    return true;
  }

  std::string chat(std::vector<Json::Member> more = {}) const {
    Json message = Json::object({{"role", "user"}, {"content", "Say hello."}});
    Json body = Json::object({{"model", model_}, {"messages", Json::array({std::move(message)})}, {"max_tokens", 24}});
    for (auto& [key, value] : more) body.set(key, std::move(value));
    return body.dump();
  }

  void whole_answer() {
    const auto reply = send("POST", "/v1/chat/completions", chat());
    const Json json = json_of(reply);
    const Json& choices = json.at("choices");
    const bool good = reply && reply->status == 200 && choices.is_array() && choices.size() == 1 &&
                      choices[0].at("message").is_object() && choices[0].at("finish_reason").is_string();
    if (!expect("chat answer", good, shown(reply))) return;
    const Json& usage = json.at("usage");
    const auto prompt = usage.at("prompt_tokens").to_int64("prompt_tokens"),
               answer = usage.at("completion_tokens").to_int64("completion_tokens"),
               total = usage.at("total_tokens").to_int64("total_tokens");
    expect("usage adds up", prompt && answer && total && *prompt + *answer == *total && *prompt > 0, usage.dump());
    row("system fingerprint", json.at("system_fingerprint").is_string() ? Verdict::kOk : Verdict::kAbsent);
  }

  void limited_answer() {
    const auto reply = send("POST", "/v1/chat/completions", chat({{"max_tokens", 1}}));
    const Json json = json_of(reply);
    const auto tokens = json.at("usage").at("completion_tokens").to_int64("completion_tokens");
    expect("max_tokens is kept", reply && reply->status == 200 && tokens && *tokens <= 1, shown(reply));
  }

  struct Stream {
    int status = 0;
    std::string type, text, problem;
    int finishes = 0, chunks = 0;
    bool done = false, has_usage = false;
  };
  Stream read_stream(const Result<HttpReply>& reply) {
    Stream stream;
    if (!reply) return stream.problem = reply.error().message, stream;
    stream.status = reply->status;
    stream.type = reply->headers.get("content-type");
    std::string_view left = reply->body;
    while (!left.empty()) {
      const size_t end = std::min(left.find("\n\n"), left.size());
      const std::string_view event = left.substr(0, end);
      left.remove_prefix(std::min(end + 2, left.size()));
      if (!event.starts_with("data: ")) continue;
      if (event == "data: [DONE]") {
        stream.done = true;
        continue;
      }
      const Result<Json> json = Json::parse(event.substr(6));
      if (!json) return stream.problem = "an event is no JSON", stream;
      ++stream.chunks;
      stream.has_usage |= json->at("usage").is_object();
      const Json& choices = json->at("choices");
      if (!choices.is_array() || choices.size() == 0) continue;
      const Json& content = choices[0].at("delta").at("content");
      if (content.is_string()) stream.text += content.as_string();
      if (choices[0].at("finish_reason").is_string()) ++stream.finishes;
    }
    return stream;
  }

  void streamed_answer() {
    const Stream stream = read_stream(send("POST", "/v1/chat/completions", chat({{"stream", true}})));
    expect(
        "streamed answer", stream.status == 200 && stream.problem.empty() && stream.finishes == 1 && stream.chunks > 1,
        fmt::format("status {}, {} chunks, {} finish reasons {}", stream.status, stream.chunks, stream.finishes, stream.problem));
    expect("stream is text/event-stream", stream.type.starts_with("text/event-stream"), stream.type);
    expect("stream ends with [DONE]", stream.done, "no [DONE]");
  }

  void streamed_usage() {
    const std::string body = chat({{"stream", true}, {"stream_options", Json::object({{"include_usage", true}})}});
    const Stream stream = read_stream(send("POST", "/v1/chat/completions", body));
    expect("usage in a stream", stream.has_usage, "no chunk with usage");
  }

  void same_seed() {
    const std::string body = chat({{"seed", 11}, {"temperature", 1}});
    const Json one = json_of(send("POST", "/v1/chat/completions", body)),
               two = json_of(send("POST", "/v1/chat/completions", body));
    expect("same seed, same answer",
           one.at("choices").size() == 1 && one.at("choices")[0].at("message") == two.at("choices")[0].at("message"),
           "two answers of one seed differ");
  }

  void refused(const std::string& name, const Result<HttpReply>& reply, std::initializer_list<int> statuses) {
    bool good = false;
    for (const int status : statuses) good |= reply && reply->status == status;
    const Json body = json_of(reply);
    const Json& error = body.at("error");
    expect(name, good && error.is_object() && error.at("message").is_string(), shown(reply));
  }

  void refusals() {
    refused("no JSON is refused", send("POST", "/v1/chat/completions", "{"), {400, 422});
    refused("wrong types are refused", send("POST", "/v1/chat/completions", chat({{"temperature", "hot"}})), {400, 422});
    refused("an unknown model is refused", send("POST", "/v1/chat/completions", chat({{"model", "no-such-model-here"}})),
            {400, 404});
    refused("an unknown route is refused", send("GET", "/v1/no-such-route"), {404});
    const auto reply = send("GET", "/v1/models");
    expect("works after refusals", reply && reply->status == 200, shown(reply));
  }

  void completions() {
    const auto reply =
        send("POST", "/v1/completions", Json::object({{"model", model_}, {"prompt", "Hello"}, {"max_tokens", 4}}).dump());
    if (reply && (reply->status == 404 || reply->status == 405)) return row("completions", Verdict::kAbsent);
    const Json json = json_of(reply);
    expect("completions",
           reply && reply->status == 200 && json.at("choices").size() == 1 && json.at("choices")[0].at("text").is_string(),
           shown(reply));
  }

  void tokens() {
    const std::string text = "Hello, world! 你好";
    const auto reply =
        send("POST", "/tokenize", Json::object({{"model", model_}, {"prompt", text}, {"add_special_tokens", false}}).dump());
    if (!reply || reply->status != 200) return row("tokenize", Verdict::kAbsent);
    const auto back =
        send("POST", "/detokenize", Json::object({{"model", model_}, {"tokens", json_of(reply).at("tokens")}}).dump());
    expect("tokenize and back", back && json_of(back).at("prompt") == Json(text), shown(back));
  }

  void health() {
    for (const char* path : {"/health", "/health/live", "/health/ready"}) {
      const auto reply = send("GET", path);
      const bool absent = reply && reply->status == 404;
      row(fmt::format("GET {}", path),
          absent                          ? Verdict::kAbsent
          : reply && reply->status == 200 ? Verdict::kOk
                                          : Verdict::kFailed,
          absent                          ? ""
          : reply && reply->status == 200 ? ""
                                          : shown(reply));
    }
  }

  void optional_route(const std::string& name, const std::string& path, const std::string& type) {
    const auto reply = send("GET", path);
    if (!reply || reply->status == 404 || reply->status == 401 || reply->status == 403) return row(name, Verdict::kAbsent);
    expect(name, reply->status == 200 && reply->headers.get("content-type").starts_with(type), shown(reply));
  }

  static bool is_absent(const Result<HttpReply>& reply) { return !reply || reply->status == 404 || reply->status == 405; }

  // The events of a stream whose events have names; "" = a name that is not the event's type, or no JSON.
  static std::vector<std::string> named_events(const Result<HttpReply>& reply) {
    std::vector<std::string> names;
    std::string_view left = reply ? std::string_view(reply->body) : std::string_view();
    while (!left.empty()) {
      const size_t end = std::min(left.find("\n\n"), left.size());
      const std::string_view event = left.substr(0, end);
      left.remove_prefix(std::min(end + 2, left.size()));
      const size_t line = event.find("\ndata: ");
      if (event.empty() || event.starts_with(':')) continue;
      const std::string_view name = event.starts_with("event: ") ? event.substr(7, line - 7) : "";
      const Result<Json> json = line == event.npos ? Result<Json>(Json()) : Json::parse(event.substr(line + 7));
      const bool good = json && json->at("type") == Json(std::string(name));
      names.emplace_back(good ? name : "");
    }
    return names;
  }

  // A stream of the wire begins and ends as its clients insist on.
  void named_stream(const std::string& name, const std::string& path, const Json& body, const std::string& first,
                    const std::string& last) {
    Json asked = body;
    asked.set("stream", true);
    const auto reply = send("POST", path, asked.dump());
    const std::vector<std::string> names = named_events(reply);
    bool good = reply && reply->status == 200 && names.size() > 2 && names.front() == first && names.back().starts_with(last);
    for (const std::string& one : names) good &= !one.empty();
    expect(name, good,
           names.empty() ? shown(reply)
                         : fmt::format("{} events, first '{}', last '{}'", names.size(), names.front(), names.back()));
  }

  void counted(const std::string& name, const std::string& path, const Json& body) {
    const auto reply = send("POST", path, body.dump());
    if (is_absent(reply)) return row(name, Verdict::kAbsent);
    const auto tokens = json_of(reply).at("input_tokens").to_int64("input_tokens");
    expect(name, reply->status == 200 && tokens && *tokens > 0, shown(reply));
  }

  void messages() {
    const Json message = Json::object({{"role", "user"}, {"content", "Say hello."}});
    const Json body = Json::object({{"model", model_}, {"max_tokens", 24}, {"messages", Json::array({message})}});
    const auto reply = send("POST", "/v1/messages", body.dump());
    if (is_absent(reply)) return row("Anthropic messages", Verdict::kAbsent);
    const Json json = json_of(reply);
    const bool good = reply->status == 200 && json.at("content").is_array() && json.at("stop_reason").is_string() &&
                      json.at("usage").at("output_tokens").is_number();
    if (!expect("Anthropic messages", good, shown(reply))) return;
    named_stream("Anthropic stream", "/v1/messages", body, "message_start", "message_stop");
    counted("Anthropic count_tokens", "/v1/messages/count_tokens", body);
    Json wrong = body;
    wrong.set("temperature", "hot");
    const auto refusal = send("POST", "/v1/messages", wrong.dump());
    const Json error = json_of(refusal);
    expect("Anthropic errors", refusal && refusal->status == 400 && error.at("error").at("message").is_string(), shown(refusal));
  }

  void responses() {
    const Json body = Json::object({{"model", model_}, {"max_output_tokens", 24}, {"input", "Say hello."}});
    const auto reply = send("POST", "/v1/responses", body.dump());
    if (is_absent(reply)) return row("Responses", Verdict::kAbsent);
    const Json json = json_of(reply);
    const bool good = reply->status == 200 && json.at("object") == Json("response") && json.at("output").is_array() &&
                      json.at("status").is_string() && json.at("usage").at("total_tokens").is_number();
    if (!expect("Responses", good, shown(reply))) return;
    // Completed, or incomplete at the limit of tokens.
    named_stream("Responses stream", "/v1/responses", body, "response.created", "response.");
    counted("Responses input_tokens", "/v1/responses/input_tokens", body);
    kept_response(json.at("id"));
  }

  void kept_response(const Json& id) {
    const std::string path = "/v1/responses/" + (id.is_string() ? id.as_string() : "none");
    const auto reply = send("GET", path);
    if (is_absent(reply)) return row("Responses are kept", Verdict::kAbsent);
    expect("Responses are kept", reply->status == 200 && json_of(reply).at("id") == id, shown(reply));
    const auto deleted = send("DELETE", path), gone = send("GET", path);
    expect("Responses are deleted", deleted && deleted->status == 200 && gone && gone->status == 404, shown(gone));
  }

  const DoctorOptions& options_;
  HttpClient client_;
  std::string model_;
  std::vector<DoctorRow> rows_;
};

const char* verdict_name(Verdict verdict) {
  switch (verdict) {
    case Verdict::kOk: return "ok";
    case Verdict::kFailed: return "failed";
    case Verdict::kAbsent: return "absent";
  }
  return "";
}

}  // namespace

std::vector<DoctorRow> check_server(const DoctorOptions& options) { return ServerChecks(options).run(); }

std::vector<DoctorRow> check_machine() {
  std::vector<DoctorRow> rows;
  const Json machine = machine_description();
  rows.push_back({"processor", Verdict::kOk, machine.at("cpu").is_string() ? machine.at("cpu").as_string() : ""});
  rows.push_back({"processors", Verdict::kOk, machine.at("processors").dump()});
  const auto memory = machine.at("memory_bytes").to_int64("memory_bytes");
  const double gigabytes = memory ? static_cast<double>(*memory) / (1 << 30) : 0;
  rows.push_back({"memory", gigabytes >= 1 ? Verdict::kOk : Verdict::kFailed, fmt::format("{:.1f} GB", gigabytes)});
  const std::string shipped = find_shipped("models/tiny-v41");
  rows.push_back(
      {"shipped model", shipped.empty() ? Verdict::kFailed : Verdict::kOk, shipped.empty() ? "not beside the program" : ""});
  if (shipped.empty()) return rows;
  const auto host = Host::open({}, {.max_batch = 1});
  rows.push_back(
      {"shipped model opens", host ? Verdict::kOk : Verdict::kFailed, host ? (*host)->model().name() : host.error().message});
  return rows;
}

std::string doctor_table(const std::vector<DoctorRow>& rows) {
  std::string out;
  for (const DoctorRow& row : rows) out += fmt::format("{:<30} {:<7} {}\n", row.name, verdict_name(row.verdict), row.detail);
  return out;
}

Json doctor_json(const std::vector<DoctorRow>& rows) {
  Json list = Json::array();
  for (const DoctorRow& row : rows)
    list.push_back(Json::object({{"name", row.name}, {"result", verdict_name(row.verdict)}, {"detail", row.detail}}));
  return Json::object({{"command", "doctor"}, {"rows", std::move(list)}});
}

bool any_failed(const std::vector<DoctorRow>& rows) {
  for (const DoctorRow& row : rows) {
    if (row.verdict == Verdict::kFailed) return true;
  }
  return false;
}

}  // namespace deepinfer
