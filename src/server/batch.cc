#include "server/batch.h"

#include <fmt/format.h>

#include <chrono>
#include <deque>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>

#include "api/chat/request.h"
#include "api/chat/response.h"
#include "api/errors.h"
#include "host/ask.h"
#include "server/batch_output.h"
#include "server/chat_options.h"

namespace deepinfer {

namespace {

constexpr const char* kUrl = "/v1/chat/completions";
constexpr size_t kMaxLineBytes = size_t{64} << 20;
// Answers that wait for an earlier, longer one: bounds memory, and what an interruption throws away.
constexpr size_t kWindow = 1024;
constexpr auto kPatience = std::chrono::milliseconds(50);

// One line of the input from reading to its record.
struct Job {
  int64_t line = 0;
  std::string custom_id;
  std::optional<ChatRequest> request;  // until the engine took it
  AskOptions options;
  std::unique_ptr<Ask> ask;
  std::optional<ChatAnswerWriter> writer;
  std::optional<Json> record;  // complete when set
  bool answered = false;
};

Json line_error(const Job& job, const char* code, const std::string& message) {
  return Json::object({{"id", fmt::format("batch_req_{}", job.line)},
                       {"custom_id", job.custom_id.empty() ? Json() : Json(job.custom_id)},
                       {"response", Json()},
                       {"error", Json::object({{"code", code}, {"message", message}, {"line", job.line}})}});
}

Json response_record(const Job& job, int status, Json body) {
  const std::string id = fmt::format("batch_req_{}", job.line);
  return Json::object({{"id", id},
                       {"custom_id", job.custom_id},
                       {"response", Json::object({{"status_code", status}, {"request_id", id}, {"body", std::move(body)}})},
                       {"error", Json()}});
}

// Of a job whose record is an error.
std::string message_of(const Job& job) {
  const Json& error = job.record->at("error");
  if (!error.is_null()) return error.at("message").as_string();
  const Json& body = job.record->at("response").at("body");
  return fmt::format("line {}: {}", job.line, body.at("error").at("message").as_string());
}

Json refused(const Job& job, const Error& error) { return response_record(job, wire_status(error.code).http, error_body(error)); }

Status check_envelope(const Json& line) {
  const Json &method = line.at("method"), &url = line.at("url");
  if (!method.is_string() || method.as_string() != "POST") return invalid_argument("method must be \"POST\"");
  if (!url.is_string() || url.as_string() != kUrl) return invalid_argument(fmt::format("url must be \"{}\"", kUrl));
  if (!line.at("body").is_object()) return invalid_argument("body must be an object");
  return {};
}

class BatchRun {
 public:
  BatchRun(Host& host, const BatchOptions& options, BatchOutput output, std::atomic<bool>& interrupted)
      : host_(host), options_(options), output_(std::move(output)), interrupted_(interrupted) {}

  Result<BatchReport> run();

 private:
  void read_line(std::string text);
  // Fills the job's request or its record.
  void check(Job& job, const Json& line);
  // False when the engine's queue is full: try again after the next event.
  bool submit(Job& job);
  void submit_waiting();
  void take(const Event& event);
  Status write_ready();
  void stop_early();
  bool has_room() const { return jobs_.size() < kWindow && (jobs_.empty() || !jobs_.back()->request); }

  Host& host_;
  const BatchOptions& options_;
  BatchOutput output_;
  std::atomic<bool>& interrupted_;
  EventQueue queue_;
  std::deque<std::unique_ptr<Job>> jobs_;  // in input order, first = next to be written
  std::map<RequestId, Job*> by_request_;
  std::set<std::string> seen_;
  int64_t line_ = 0;
  BatchReport report_;
};

void BatchRun::read_line(std::string text) {
  ++line_;
  while (!text.empty() && (text.back() == '\r' || text.back() == ' ')) text.pop_back();
  if (text.empty()) return;
  auto job = std::make_unique<Job>();
  job->line = line_;
  const Result<Json> line = text.size() > kMaxLineBytes ? Result<Json>(too_large("longer than 64 MB")) : Json::parse(text);
  if (!line) {
    job->record = line_error(*job, "invalid_json", fmt::format("line {}: {}", line_, line.error().message));
  } else if (const Json& id = line->at("custom_id"); !id.is_string() || id.as_string().empty()) {
    job->record =
        line_error(*job, "invalid_custom_id", fmt::format("line {}: custom_id must be a string that is not empty", line_));
  } else if (!seen_.insert(id.as_string()).second) {
    job->record = line_error(*job, "repeated_custom_id", fmt::format("line {}: custom_id {} was used before", line_, id.dump()));
  } else {
    job->custom_id = id.as_string();
  }
  if (output_.is_done(line_, job->custom_id)) {
    ++report_.kept;
    return;
  }
  if (!job->record) check(*job, *line);
  jobs_.push_back(std::move(job));
}

void BatchRun::check(Job& job, const Json& line) {
  if (const Status status = check_envelope(line); !status) {
    job.record = line_error(job, "invalid_request", fmt::format("line {}: {}", job.line, status.error().message));
    return;
  }
  const Json& body = line.at("body");
  ApiOptions api;
  api.profile = Profile::kOpen;
  api.models = options_.models;
  if (api.models.empty() && body.at("model").is_string()) api.models = {body.at("model").as_string()};
  Result<ChatRequest> request = parse_chat_request(body.dump(), api);
  Status built = request ? Status() : Status(request.error());
  if (built && request->num_answers > 1) built = unsupported("n > 1 is not built yet in batches; send the request several times");
  if (!built) {
    job.record = refused(job, built.error());
    return;
  }
  job.options = chat_ask_options(*request);
  job.options.priority = options_.priority;
  job.options.tenant = options_.tenant;
  job.request = std::move(*request);
}

bool BatchRun::submit(Job& job) {
  if (options_.max_in_flight > 0 && by_request_.size() >= options_.max_in_flight) return false;
  auto ask = Ask::start(host_, job.request->conversation, job.options, queue_);
  if (!ask && ask.error().code == ErrorCode::kExhausted) return false;
  if (ask) {
    job.ask = std::move(*ask);
    by_request_[job.ask->id()] = &job;
    ChatAnswerInfo info;
    info.id = fmt::format("chatcmpl-{}", job.line);
    info.model = job.request->model;
    info.created = options_.created;
    info.thinking = job.request->conversation.thinking;
    info.continues_content = job.request->parsing().start == ParseStart::kContentContinued;
    info.call_suffix = [line = job.line](int index) { return tool_call_suffix(static_cast<uint64_t>(line), index); };
    job.writer.emplace(std::move(info));
  } else {
    job.record = refused(job, ask.error());
  }
  job.request.reset();
  return true;
}

void BatchRun::submit_waiting() {
  // Only the last job can wait: no line is read while one does.
  if (!jobs_.empty() && jobs_.back()->request && !interrupted_.load()) submit(*jobs_.back());
}

void BatchRun::take(const Event& event) {
  const auto found = by_request_.find(event.request);
  if (found == by_request_.end()) return;
  Job& job = *found->second;
  std::vector<OutputEvent> pieces;
  const Result<bool> done = job.ask->take(event, pieces);
  for (const OutputEvent& piece : pieces) job.writer->event(piece, job.ask->stream());
  if (done && !*done) return;
  by_request_.erase(found);
  if (!done) {
    job.record = refused(job, done.error());
  } else if (!job.ask->report().cancelled) {
    job.record = response_record(job, 200, job.writer->response(job.ask->stream()));
    job.answered = true;
    report_.prompt_tokens += job.ask->report().usage.prompt_tokens;
    report_.completion_tokens += job.ask->report().usage.completion_tokens;
  }
}

Status BatchRun::write_ready() {
  while (!jobs_.empty() && jobs_.front()->record) {
    DI_CHECK_OK(output_.append(*jobs_.front()->record));
    if (!jobs_.front()->answered && report_.first_error.empty()) report_.first_error = message_of(*jobs_.front());
    ++(jobs_.front()->answered ? report_.answered : report_.failed);
    jobs_.pop_front();
  }
  return {};
}

void BatchRun::stop_early() {
  for (const auto& [id, job] : by_request_) job->ask->cancel();
  while (!by_request_.empty()) take(queue_.pop());
}

Result<BatchReport> BatchRun::run() {
  std::ifstream in(options_.input, std::ios::binary);
  if (!in) return not_found(fmt::format("{}: cannot be opened", options_.input));
  std::error_code ignored;
  const int64_t total = static_cast<int64_t>(std::filesystem::file_size(options_.input, ignored));
  int64_t bytes = 0;
  bool more = true;
  Status written;
  while (written && !interrupted_.load() && (more || !jobs_.empty())) {
    std::string text;
    while (more && has_room() && !interrupted_.load()) {
      more = static_cast<bool>(std::getline(in, text));
      if (!more) break;
      bytes += static_cast<int64_t>(text.size()) + 1;
      read_line(std::move(text));
      submit_waiting();
      if (options_.progress) options_.progress(std::min(bytes, total), total);
    }
    if (!by_request_.empty() || (!jobs_.empty() && jobs_.back()->request)) {
      if (const std::optional<Event> event = queue_.pop_for(kPatience)) take(*event);
      submit_waiting();
    }
    written = write_ready();
  }
  report_.interrupted = interrupted_.load();
  stop_early();
  if (written) written = write_ready();
  if (written) written = output_.sync();
  if (!written) return written.error();
  return report_;
}

}  // namespace

Result<BatchReport> run_batch(Host& host, const BatchOptions& options, std::atomic<bool>& interrupted) {
  std::error_code ignored;
  if (std::filesystem::equivalent(options.input, options.output, ignored)) {
    return invalid_argument(fmt::format("{}: input and output are the same file", options.input));
  }
  if (!std::filesystem::exists(options.input, ignored)) return not_found(fmt::format("{}: no such file", options.input));
  DI_TRY(BatchOutput output, BatchOutput::open(options.output));
  return BatchRun(host, options, std::move(output), interrupted).run();
}

}  // namespace deepinfer
