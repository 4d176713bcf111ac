#include "lab/doctor.h"

#include <fmt/format.h>

#include "lab/event_stream.h"
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
    chat_call();
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
    out.ca_file = options.ca_file;
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
                      choices[0].at("message").at("role") == Json("assistant") &&
                      choices[0].at("message").at("content").is_string() && choices[0].at("finish_reason").is_string();
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
    std::string type, problem;
    int finishes = 0, chunks = 0;
    bool done = false, has_usage = false;
  };
  Stream read_stream(const Result<HttpReply>& reply) {
    Stream stream;
    if (!reply) return stream.problem = reply.error().message, stream;
    stream.status = reply->status;
    stream.type = reply->headers.get("content-type");
    for (const StreamEvent& event : read_events(reply->body)) {
      if (event.data == "[DONE]") {
        stream.done = true;
        continue;
      }
      if (!event.json.is_object()) stream.problem = "an event is no JSON";
      ++stream.chunks;
      stream.has_usage |= event.json.at("usage").is_object();
      const Json& choices = event.json.at("choices");
      if (!choices.is_array() || choices.size() == 0) continue;
      if (!choices[0].at("delta").is_object()) stream.problem = "a chunk has no delta";
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
    retry_header();
    const auto reply = send("GET", "/v1/models");
    expect("works after refusals", reply && reply->status == 200, shown(reply));
  }

  // Clients obey it; without it they go by the status.
  void retry_header() {
    const auto reply = send("POST", "/v1/chat/completions", chat({{"temperature", 9}}));
    const std::string_view header = reply ? reply->headers.get("x-should-retry") : "";
    if (header.empty()) return row("x-should-retry", Verdict::kAbsent);
    expect("x-should-retry", header == "false", fmt::format("'{}' for a request that is wrong", header));
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

  void named_stream(const std::string& name, const std::string& path, const Json& body,
                    std::string (*problem_of)(const std::vector<StreamEvent>&)) {
    Json asked = body;
    asked.set("stream", true);
    const auto reply = send("POST", path, asked.dump());
    if (!reply || reply->status != 200) return row(name, Verdict::kFailed, shown(reply));
    const std::string problem = problem_of(read_events(reply->body));
    expect(name, problem.empty(), problem);
  }

  // Asks for a call; what a server that takes the request answers must be one. `find` gives its name, id and arguments.
  struct FoundCall {
    Json id, name, arguments;
  };
  void tool_call(const std::string& name, const std::string& path, Json body, Json tool, Json choice,
                 FoundCall (*find)(const Json& answer)) {
    body.set("tools", Json::array({std::move(tool)}));
    body.set("tool_choice", std::move(choice));
    const auto reply = send("POST", path, body.dump());
    if (!reply || reply->status != 200) return row(name, Verdict::kAbsent, shown(reply));
    const FoundCall call = find(json_of(reply));
    if (call.name.is_null() && call.id.is_null()) return row(name, Verdict::kAbsent, "the model called nothing");
    expect(name, call.id.is_string() && call.name == Json("get_weather") && call.arguments.is_object(), shown(reply));
  }
  static Json weather_schema() {
    const Json city = Json::object({{"type", "string"}, {"enum", Json::array({Json("Paris")})}});
    return Json::object({{"type", "object"},
                         {"properties", Json::object({{"city", city}})},
                         {"required", Json::array({"city"})},
                         {"additionalProperties", false}});
  }
  static Json weather_function() {
    return Json::object({{"name", "get_weather"}, {"description", "The weather of a city"}, {"parameters", weather_schema()}});
  }
  static Json parsed(const Json& text) {
    auto json = text.is_string() ? Json::parse(text.as_string()) : Result<Json>(Json());
    return json ? *json : Json();
  }

  void chat_call() {
    const auto body = Json::parse(chat({{"max_tokens", 200}, {"reasoning_effort", "none"}}));
    tool_call(
        "chat tool call", "/v1/chat/completions", *body, Json::object({{"type", "function"}, {"function", weather_function()}}),
        "required", [](const Json& answer) -> FoundCall {
          const Json& message = answer.at("choices").size() == 1 ? answer.at("choices")[0].at("message") : answer.at("none");
          if (message.at("tool_calls").size() == 0) return {};
          const Json& call = message.at("tool_calls")[0];
          return {call.at("id"), call.at("function").at("name"), parsed(call.at("function").at("arguments"))};
        });
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
    named_stream("Anthropic stream", "/v1/messages", body, problem_of_messages);
    messages_call(body);
    counted("Anthropic count_tokens", "/v1/messages/count_tokens", body);
    Json wrong = body;
    wrong.set("temperature", "hot");
    const auto refusal = send("POST", "/v1/messages", wrong.dump());
    const Json error = json_of(refusal);
    expect("Anthropic errors", refusal && refusal->status == 400 && error.at("error").at("message").is_string(), shown(refusal));
  }

  void messages_call(Json body) {
    body.set("max_tokens", 200);
    body.set("thinking", Json::object({{"type", "disabled"}}));
    Json tool = Json::object({{"name", "get_weather"}, {"input_schema", weather_schema()}});
    tool_call("Anthropic tool call", "/v1/messages", std::move(body), std::move(tool), Json::object({{"type", "any"}}),
              [](const Json& answer) -> FoundCall {
                for (const Json& block : answer.at("content").items()) {
                  if (block.at("type") == Json("tool_use")) return {block.at("id"), block.at("name"), block.at("input")};
                }
                return {};
              });
  }

  void response_call(Json body) {
    body.set("max_output_tokens", 200);
    body.set("reasoning", Json::object({{"effort", "none"}}));
    Json tool = weather_function();
    tool.set("type", "function");
    tool_call("Responses tool call", "/v1/responses", std::move(body), std::move(tool), "required",
              [](const Json& answer) -> FoundCall {
                for (const Json& item : answer.at("output").items()) {
                  if (item.at("type") == Json("function_call"))
                    return {item.at("call_id"), item.at("name"), parsed(item.at("arguments"))};
                }
                return {};
              });
  }

  void responses() {
    const Json body = Json::object({{"model", model_}, {"max_output_tokens", 24}, {"input", "Say hello."}});
    const auto reply = send("POST", "/v1/responses", body.dump());
    if (is_absent(reply)) return row("Responses", Verdict::kAbsent);
    const Json json = json_of(reply);
    const bool good = reply->status == 200 && json.at("object") == Json("response") && json.at("output").is_array() &&
                      json.at("status").is_string() && json.at("usage").at("total_tokens").is_number();
    if (!expect("Responses", good, shown(reply))) return;
    named_stream("Responses stream", "/v1/responses", body, problem_of_responses);
    response_call(body);
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

}  // namespace

std::vector<DoctorRow> check_server(const DoctorOptions& options) { return ServerChecks(options).run(); }

}  // namespace deepinfer
