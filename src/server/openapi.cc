#include "server/openapi.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "base/json.h"
#include "server/routes.h"

namespace deepinfer {

namespace {

struct NamedSchema {
  std::string_view name, json;
};

// Requests list what is used; other fields are accepted and ignored, as clients of all kinds send them.
constexpr std::array kSchemas = std::to_array<NamedSchema>({
    {"Object", R"({"type":"object"})"},
    {"Error",
     R"({"type":"object","required":["error"],"properties":{"error":{"type":"object","required":["message","type","param","code"],
      "properties":{"message":{"type":"string"},"type":{"type":"string"},"param":{"type":["string","null"]},"code":{"type":["string","null"]}}}}})"},
    {"Health",
     R"({"type":"object","required":["status"],"properties":{"status":{"enum":["live","ready","loading","stalled","failing","draining"]},"reason":{"type":"string"}}})"},
    {"Version",
     R"({"type":"object","required":["version"],"properties":{"version":{"type":"string"},"name":{"type":"string"}}})"},
    {"CacheWhy",
     R"({"type":"object","required":["request_id","prompt_tokens","cached_tokens","loaded_tokens","replayed_tokens","reason"],"properties":{"request_id":{"type":"string"},
      "prompt_tokens":{"type":"integer"},"cached_tokens":{"type":"integer"},"loaded_tokens":{"type":"integer"},"replayed_tokens":{"type":"integer"},"reason":{"type":"string"},
      "first_different":{"type":"integer"},"before":{"type":"string"},"here":{"type":"string"},"there":{"type":"string"}}})"},
    {"Model",
     R"({"type":"object","required":["id","object"],"properties":{"id":{"type":"string"},"object":{"const":"model"},"created":{"type":"integer"},
      "owned_by":{"type":"string"},"name":{"type":"string"},"context_window":{"type":"integer"},"max_output_tokens":{"type":"integer"},
      "input_modalities":{"type":"array","items":{"type":"string"}},"output_modalities":{"type":"array","items":{"type":"string"}}}})"},
    {"ModelList",
     R"({"type":"object","required":["object","data"],"properties":{"object":{"const":"list"},"data":{"type":"array","items":{"$ref":"#/components/schemas/Model"}}}})"},
    {"Message",
     R"({"type":"object","required":["role"],"properties":{"role":{"enum":["system","developer","user","assistant","tool","latest_reminder"]},
      "content":{"anyOf":[{"type":"string"},{"type":"array","items":{"type":"object"}},{"type":"null"}]},"reasoning_content":{"type":["string","null"]},
      "tool_calls":{"type":["array","null"],"items":{"type":"object"}},"tool_call_id":{"type":"string"},"prefix":{"type":["boolean","null"]}}})"},
    {"ChatRequest", R"({"type":"object","required":["model","messages"],"properties":{"model":{"type":"string"},
      "messages":{"type":"array","minItems":1,"items":{"$ref":"#/components/schemas/Message"}},
      "thinking":{"type":["object","null"],"required":["type"],"properties":{"type":{"enum":["adaptive","enabled","disabled"]}}},
      "reasoning_effort":{"enum":["none","minimal","low","medium","high","xhigh","max",null]},
      "max_tokens":{"type":["integer","null"],"minimum":1},"max_completion_tokens":{"type":["integer","null"],"minimum":1},
      "temperature":{"type":["number","null"],"minimum":0,"maximum":2},"top_p":{"type":["number","null"],"exclusiveMinimum":0,"maximum":1},
      "frequency_penalty":{"type":["number","null"],"minimum":-2,"maximum":2},"presence_penalty":{"type":["number","null"],"minimum":-2,"maximum":2},
      "logit_bias":{"type":["object","null"],"additionalProperties":{"type":"number","minimum":-100,"maximum":100}},
      "n":{"type":["integer","null"],"minimum":1,"maximum":128},"seed":{"type":["integer","null"],"minimum":0},
      "stop":{"anyOf":[{"type":"string"},{"type":"array","items":{"type":"string"}},{"type":"null"}]},
      "stream":{"type":["boolean","null"]},"stream_options":{"type":["object","null"],"properties":{"include_usage":{"type":["boolean","null"]}}},
      "tools":{"type":["array","null"],"items":{"type":"object"}},"tool_choice":{"anyOf":[{"enum":["none","auto","required",null]},{"type":"object"}]},
      "response_format":{"type":["object","null"],"required":["type"],"properties":{"type":{"enum":["text","json_object","json_schema","regex"]}}},
      "logprobs":{"type":["boolean","null"]},"top_logprobs":{"type":["integer","null"],"minimum":0,"maximum":20}}})"},
    {"Usage",
     R"({"type":"object","required":["prompt_tokens","completion_tokens","total_tokens"],"properties":{"prompt_tokens":{"type":"integer","minimum":0},
      "completion_tokens":{"type":"integer","minimum":0},"total_tokens":{"type":"integer","minimum":0},"completion_tokens_details":{"type":"object","properties":{
      "reasoning_tokens":{"type":"integer","minimum":0},"accepted_prediction_tokens":{"type":"integer","minimum":0},"rejected_prediction_tokens":{"type":"integer","minimum":0}}}}})"},
    {"ChatCompletion",
     R"({"type":"object","required":["id","object","created","model","choices","usage"],"properties":{"id":{"type":"string"},
      "object":{"const":"chat.completion"},"created":{"type":"integer"},"model":{"type":"string"},"system_fingerprint":{"type":["string","null"]},
      "choices":{"type":"array","items":{"type":"object","required":["index","message","finish_reason"],"properties":{"index":{"type":"integer"},
      "message":{"type":"object"},"finish_reason":{"enum":["stop","length","tool_calls","content_filter"]}}}},"usage":{"$ref":"#/components/schemas/Usage"}}})"},
    {"CompletionRequest", R"({"type":"object","required":["model","prompt"],"properties":{"model":{"type":"string"},
      "prompt":{"anyOf":[{"type":"string"},{"type":"array","minItems":1,"items":{"type":"string"}},{"type":"array","minItems":1,"items":{"type":"integer","minimum":0}}]},
      "suffix":{"type":["string","null"]},"max_tokens":{"type":["integer","null"],"minimum":1},"temperature":{"type":["number","null"],"minimum":0,"maximum":2},
      "top_p":{"type":["number","null"],"exclusiveMinimum":0,"maximum":1},"n":{"type":["integer","null"],"minimum":1,"maximum":128},
      "echo":{"type":["boolean","null"]},"logprobs":{"type":["integer","null"],"minimum":0,"maximum":20},"seed":{"type":["integer","null"],"minimum":0},
      "stop":{"anyOf":[{"type":"string"},{"type":"array","items":{"type":"string"}},{"type":"null"}]},"stream":{"type":["boolean","null"]},
      "stream_options":{"type":["object","null"],"properties":{"include_usage":{"type":["boolean","null"]}}}}})"},
    {"Completion",
     R"({"type":"object","required":["id","object","created","model","choices","usage"],"properties":{"id":{"type":"string"},
      "object":{"const":"text_completion"},"created":{"type":"integer"},"model":{"type":"string"},"choices":{"type":"array","items":{"type":"object",
      "required":["index","text","finish_reason"]}},"usage":{"$ref":"#/components/schemas/Usage"}}})"},
    {"MessagesError",
     R"({"type":"object","required":["type","error"],"properties":{"type":{"const":"error"},"request_id":{"type":"string"},
      "error":{"type":"object","required":["type","message"],"properties":{"type":{"type":"string"},"message":{"type":"string"}}}}})"},
    {"MessagesRequest", R"({"type":"object","required":["model","messages"],"properties":{"model":{"type":"string"},
      "messages":{"type":"array","minItems":1,"items":{"type":"object","required":["role","content"],"properties":{"role":{"enum":["user","assistant","system"]},
      "content":{"anyOf":[{"type":"string"},{"type":"array","items":{"type":"object"}}]}}}},
      "system":{"anyOf":[{"type":"string"},{"type":"array","items":{"type":"object"}},{"type":"null"}]},"max_tokens":{"type":["integer","null"],"minimum":1},
      "thinking":{"type":["object","null"],"required":["type"],"properties":{"type":{"enum":["adaptive","enabled","disabled"]}}},
      "temperature":{"type":["number","null"],"minimum":0,"maximum":2},"top_p":{"type":["number","null"],"exclusiveMinimum":0,"maximum":1},
      "stop_sequences":{"type":["array","null"],"items":{"type":"string"}},"stream":{"type":["boolean","null"]},
      "tools":{"type":["array","null"],"items":{"type":"object"}},"tool_choice":{"type":["object","null"]},"metadata":{"type":["object","null"]}}})"},
    {"MessagesAnswer",
     R"({"type":"object","required":["id","type","role","model","content","stop_reason","stop_sequence","usage"],
      "properties":{"id":{"type":"string"},"type":{"const":"message"},"role":{"const":"assistant"},"model":{"type":"string"},
      "content":{"type":"array","items":{"type":"object","required":["type"]}},"stop_sequence":{"type":["string","null"]},
      "stop_reason":{"enum":["end_turn","max_tokens","stop_sequence","tool_use","refusal"]},"usage":{"type":"object","required":["input_tokens","output_tokens"]}}})"},
    {"TokenCount",
     R"({"type":"object","required":["input_tokens"],"properties":{"input_tokens":{"type":"integer","minimum":1}}})"},
    {"InputTokens",
     R"({"type":"object","required":["object","input_tokens"],"properties":{"object":{"const":"response.input_tokens"},"input_tokens":{"type":"integer","minimum":1}}})"},
    {"ResponsesRequest", R"({"type":"object","required":["model"],"properties":{"model":{"type":"string"},
      "input":{"anyOf":[{"type":"string"},{"type":"array","items":{"type":"object"}},{"type":"null"}]},"instructions":{"type":["string","null"]},
      "max_output_tokens":{"type":["integer","null"],"minimum":1},"temperature":{"type":["number","null"],"minimum":0,"maximum":2},
      "top_p":{"type":["number","null"],"exclusiveMinimum":0,"maximum":1},"reasoning":{"type":["object","null"]},"text":{"type":["object","null"]},
      "tools":{"type":["array","null"],"items":{"type":"object"}},"tool_choice":{"anyOf":[{"enum":["none","auto","required",null]},{"type":"object"}]},
      "top_logprobs":{"type":["integer","null"],"minimum":0,"maximum":20},"stream":{"type":["boolean","null"]},"store":{"type":["boolean","null"]},
      "background":{"type":["boolean","null"]},"previous_response_id":{"type":["string","null"]},"metadata":{"type":["object","null"]}}})"},
    {"Response",
     R"({"type":"object","required":["id","object","created_at","status","model","output"],"properties":{"id":{"type":"string"},
      "object":{"const":"response"},"created_at":{"type":"integer"},"status":{"enum":["queued","in_progress","completed","incomplete","failed","cancelled"]},
      "model":{"type":"string"},"output":{"type":"array","items":{"type":"object","required":["type"]}},"error":{"type":["object","null"]},
      "usage":{"type":["object","null"]}}})"},
    {"ResponseDeleted",
     R"({"type":"object","required":["id","deleted"],"properties":{"id":{"type":"string"},"object":{"const":"response.deleted"},"deleted":{"type":"boolean"}}})"},
    {"ItemList",
     R"({"type":"object","required":["object","data","has_more"],"properties":{"object":{"const":"list"},"data":{"type":"array","items":{"type":"object"}},
      "first_id":{"type":["string","null"]},"last_id":{"type":["string","null"]},"has_more":{"type":"boolean"}}})"},
    {"TokenizeRequest",
     R"({"type":"object","required":["prompt"],"properties":{"prompt":{"type":"string"},"add_special_tokens":{"type":"boolean"},"parse_special":{"type":"boolean"}}})"},
    {"Tokens",
     R"({"type":"object","required":["count","tokens"],"properties":{"count":{"type":"integer"},"max_model_len":{"type":"integer"},"tokens":{"type":"array","items":{"type":"integer"}}}})"},
    {"DetokenizeRequest",
     R"({"type":"object","required":["tokens"],"properties":{"tokens":{"type":"array","items":{"type":"integer","minimum":0}}}})"},
    {"Text", R"({"type":"object","required":["prompt"],"properties":{"prompt":{"type":"string"},"content":{"type":"string"}}})"},
    {"FileUpload",
     R"({"type":"object","required":["file","purpose"],"properties":{"file":{"type":"string","format":"binary"},"purpose":{"enum":["batch"]}}})"},
    {"File",
     R"({"type":"object","required":["id","object","bytes","created_at","filename","purpose"],"properties":{"id":{"type":"string"},"object":{"const":"file"},
      "bytes":{"type":"integer"},"created_at":{"type":"integer"},"filename":{"type":"string"},"purpose":{"type":"string"},"status":{"type":"string"}}})"},
    {"FileList",
     R"({"type":"object","required":["object","data"],"properties":{"object":{"const":"list"},"data":{"type":"array","items":{"$ref":"#/components/schemas/File"}}}})"},
    {"FileDeleted",
     R"({"type":"object","required":["id","deleted"],"properties":{"id":{"type":"string"},"object":{"const":"file"},"deleted":{"type":"boolean"}}})"},
    {"BatchRequest",
     R"({"type":"object","required":["endpoint","input_file_id"],"properties":{"endpoint":{"enum":["/v1/chat/completions"]},
      "input_file_id":{"type":"string"},"completion_window":{"type":"string"},"metadata":{"type":["object","null"]}}})"},
    {"Batch",
     R"({"type":"object","required":["id","object","endpoint","input_file_id","status","created_at","request_counts"],"properties":{"id":{"type":"string"},
      "object":{"const":"batch"},"status":{"enum":["validating","failed","in_progress","finalizing","completed","expired","cancelling","cancelled"]},
      "request_counts":{"type":"object"}}})"},
    {"BatchList",
     R"({"type":"object","required":["object","data"],"properties":{"object":{"const":"list"},"data":{"type":"array","items":{"$ref":"#/components/schemas/Batch"}}}})"},
});

Json reference(std::string_view name) { return Json::object({{"$ref", "#/components/schemas/" + std::string(name)}}); }

Json content_of(std::string_view media, std::string_view schema) {
  return Json::object({{std::string(media),
                        Json::object({{"schema", schema.empty() ? Json::object({{"type", "string"}}) : reference(schema)}})}});
}

Json answer(const char* description, std::string_view media, std::string_view schema) {
  return Json::object({{"description", description}, {"content", content_of(media, schema)}});
}

Json parameters_of(std::string_view path) {
  Json out = Json::array();
  for (size_t at = path.find('{'); at != std::string_view::npos; at = path.find('{', at + 1)) {
    out.push_back(Json::object({{"name", std::string(path.substr(at + 1, path.find('}', at) - at - 1))},
                                {"in", "path"},
                                {"required", true},
                                {"schema", Json::object({{"type", "string"}})}}));
  }
  return out;
}

bool is_answer(RouteId id) {
  return id == RouteId::kChat || id == RouteId::kCompletion || id == RouteId::kMessages || id == RouteId::kCountTokens ||
         id == RouteId::kCreateResponse || id == RouteId::kCountInput;
}

const char* error_schema(const Route& route) {
  if (route.id == RouteId::kReady) return "Health";
  return dialect_of(route.path) == Dialect::kAnthropic ? "MessagesError" : "Error";
}

Json answers_of(const Route& route) {
  Json out = Json::object();
  Json good = answer("Done", route.answer_media, route.answer_schema);
  const bool answers = is_answer(route.id),
             streams = answers && route.id != RouteId::kCountTokens && route.id != RouteId::kCountInput;
  if (streams) good.find("content")->set("text/event-stream", Json::object({{"schema", Json::object({{"type", "string"}})}}));
  out.set("200", std::move(good));
  const auto error = [&](const char* status, const char* description) {
    out.set(status, answer(description, "application/json", error_schema(route)));
  };
  if (route.access == RouteAccess::kKey) error("401", "No valid key");
  if (route.media != RouteMedia::kNone) {
    error("400", "The request is wrong");
    error("413", "The body is too long");
    error("415", "Not this kind of body");
  }
  if (route.path.find('{') != std::string_view::npos) error("404", "There is no such thing");
  if (route.id == RouteId::kDeleteFile || route.id == RouteId::kCancelBatch) error("409", "Not in this state");
  if (route.id == RouteId::kCreateBatch) error("404", "There is no such file");
  if (answers) error("404", "There is no such model or earlier response");
  if (route.id == RouteId::kCancelResponse || route.id == RouteId::kInputItems || route.id == RouteId::kGetResponse)
    error("400", "Not like this");
  if (streams) error("429", "The queue is full");
  if (streams) error("504", "The answer took too long");
  if (route.needs_model || route.id == RouteId::kReady) error("503", "Not ready");
  return out;
}

Json operation_of(const Route& route) {
  Json out = Json::object({{"summary", std::string(route.summary)}, {"responses", answers_of(route)}});
  if (Json parameters = parameters_of(route.path); parameters.size() > 0) out.set("parameters", std::move(parameters));
  if (!route.request_schema.empty()) {
    const char* media = route.media == RouteMedia::kForm ? "multipart/form-data" : "application/json";
    out.set("requestBody", Json::object({{"required", true}, {"content", content_of(media, route.request_schema)}}));
  }
  if (route.access == RouteAccess::kOpen) out.set("security", Json::array());
  return out;
}

}  // namespace

std::string openapi_text(const std::string& version) {
  Json paths = Json::object(), schemas = Json::object();
  for (const Route& route : all_routes()) {
    const std::string path(route.path);
    if (!paths.find(path)) paths.set(path, Json::object());
    std::string method(route.method);
    std::transform(method.begin(), method.end(), method.begin(),
                   [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    paths.find(path)->set(method, operation_of(route));
  }
  for (const NamedSchema& schema : kSchemas) {
    if (auto json = Json::parse(schema.json)) schemas.set(std::string(schema.name), std::move(*json));
  }
  const Json bearer = Json::object({{"type", "http"}, {"scheme", "bearer"}});
  return Json::object({{"openapi", "3.1.0"},
                       {"info", Json::object({{"title", "deepinfer"}, {"version", version}})},
                       {"security", Json::array({Json::object({{"key", Json::array()}})})},
                       {"paths", std::move(paths)},
                       {"components",
                        Json::object({{"schemas", std::move(schemas)}, {"securitySchemes", Json::object({{"key", bearer}})}})}})
      .dump();
}

}  // namespace deepinfer
