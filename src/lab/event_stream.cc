#include "lab/event_stream.h"

#include <algorithm>

#include <fmt/format.h>

namespace deepinfer {

namespace {

// The next line without its end, which is taken off `left` as well.
std::string_view next_line(std::string_view& left) {
  const size_t end = std::min(left.find_first_of("\r\n"), left.size());
  const std::string_view line = left.substr(0, end);
  left.remove_prefix(std::min(end + (left.substr(end).starts_with("\r\n") ? 2 : 1), left.size()));
  return line;
}

bool is_count(const Json& json) {
  const auto value = json.is_number() ? json.to_int64("") : Result<int64_t>(invalid_argument(""));
  return value && *value >= 0;
}

bool is_place(const Json& json, size_t place) { return is_count(json) && *json.to_int64("") == static_cast<int64_t>(place); }

std::string unnamed(const std::vector<StreamEvent>& events) {
  if (events.empty()) return "no events";
  for (const StreamEvent& event : events) {
    if (!event.json.is_object()) return fmt::format("the data of an event '{}' is no object", event.name);
    if (event.json.at("type") != Json(event.name)) return fmt::format("an event '{}' has another type", event.name);
  }
  return "";
}

std::string problem_of_start(const Json& message) {
  const bool good = message.at("id").is_string() && message.at("role") == Json("assistant") && message.at("content").is_array() &&
                    message.at("model").is_string() && is_count(message.at("usage").at("input_tokens"));
  return good ? "" : "message_start has no complete message";
}

// The blocks of a Messages stream, one after the other.
class MessageBlocks {
 public:
  std::string take(const StreamEvent& event) {
    const Json& json = event.json;
    if (event.name == "content_block_start") {
      if (open_ || !is_place(json.at("index"), count_)) return "content_block_start has a wrong index";
      open_ = true;
      return json.at("content_block").at("type").is_string() ? "" : "content_block_start has no block";
    }
    const bool is_delta = event.name == "content_block_delta", is_stop = event.name == "content_block_stop";
    if (!is_delta && !is_stop) return "";
    if (!open_ || !is_place(json.at("index"), count_)) return event.name + " has a wrong index";
    if (is_delta && !json.at("delta").at("type").is_string()) return "content_block_delta has no delta";
    open_ = !is_stop;
    count_ += is_stop ? 1 : 0;
    return "";
  }
  bool is_open() const { return open_; }

 private:
  size_t count_ = 0;
  bool open_ = false;
};

// The items of a Responses stream.
class ResponseItems {
 public:
  std::string take(const StreamEvent& event) {
    const Json& json = event.json;
    if (const Json* number = json.find("sequence_number")) {
      const auto value = is_count(*number) ? number->to_int64("") : Result<int64_t>(int64_t{-1});
      if (*value <= last_number_) return event.name + ": sequence_number does not grow";
      last_number_ = *value;
    }
    if (event.name == "response.output_item.added") {
      if (!is_place(json.at("output_index"), ids_.size())) return event.name + " has a wrong output_index";
      if (!json.at("item").at("id").is_string()) return event.name + " has an item without id";
      ids_.push_back(json.at("item").at("id"));
      return "";
    }
    const bool is_done = event.name == "response.output_item.done", is_part = event.name.ends_with(".delta");
    if (!is_done && !is_part) return "";
    const Json& index = json.at("output_index");
    if (!is_count(index) || *index.to_int64("") >= static_cast<int64_t>(ids_.size()))
      return event.name + " has a wrong output_index";
    const Json& id = is_done ? json.at("item").at("id") : json.at("item_id");
    return id == ids_[static_cast<size_t>(*index.to_int64(""))] ? "" : event.name + " has the id of another item";
  }

 private:
  std::vector<Json> ids_;
  int64_t last_number_ = -1;
};

}  // namespace

std::vector<StreamEvent> read_events(std::string_view body) {
  std::vector<StreamEvent> events;
  StreamEvent event;
  bool has_data = false;
  while (!body.empty()) {
    const std::string_view line = next_line(body);
    if (line.empty()) {
      if (has_data) {
        if (auto json = Json::parse(event.data)) event.json = *std::move(json);
        events.push_back(std::move(event));
      }
      event = {};
      has_data = false;
      continue;
    }
    const size_t colon = std::min(line.find(':'), line.size());
    const std::string_view field = line.substr(0, colon);
    std::string_view value = line.substr(std::min(colon + 1, line.size()));
    if (value.starts_with(' ')) value.remove_prefix(1);
    if (field == "event") event.name = value;
    if (field != "data") continue;
    if (has_data) event.data += '\n';
    event.data += value;
    has_data = true;
  }
  return events;
}

std::string problem_of_messages(const std::vector<StreamEvent>& events) {
  if (std::string problem = unnamed(events); !problem.empty()) return problem;
  if (events.front().name != "message_start") return fmt::format("begins with {}", events.front().name);
  if (std::string problem = problem_of_start(events.front().json.at("message")); !problem.empty()) return problem;
  MessageBlocks blocks;
  bool has_end = false;
  for (const StreamEvent& event : events) {
    if (std::string problem = blocks.take(event); !problem.empty()) return problem;
    if (event.name != "message_delta") continue;
    has_end = event.json.at("delta").at("stop_reason").is_string() && is_count(event.json.at("usage").at("output_tokens"));
  }
  if (blocks.is_open()) return "a block is not stopped";
  if (!has_end) return "no message_delta with stop_reason and usage";
  return events.back().name == "message_stop" ? "" : fmt::format("ends with {}", events.back().name);
}

std::string problem_of_responses(const std::vector<StreamEvent>& events) {
  if (std::string problem = unnamed(events); !problem.empty()) return problem;
  if (events.front().name != "response.created") return fmt::format("begins with {}", events.front().name);
  if (!events.front().json.at("response").at("id").is_string()) return "response.created has no response";
  ResponseItems items;
  for (const StreamEvent& event : events) {
    if (std::string problem = items.take(event); !problem.empty()) return problem;
  }
  const std::string& last = events.back().name;
  for (const char* status : {"completed", "incomplete", "failed"}) {
    if (last != fmt::format("response.{}", status)) continue;
    const Json& response = events.back().json.at("response");
    return response.at("status") == Json(status) && response.at("output").is_array() ? "" : last + " has no such response";
  }
  return fmt::format("ends with {}", last);
}

}  // namespace deepinfer
