#include "server/access_log.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <ctime>
#include <utility>

#include <fmt/format.h>

#include "base/json.h"

namespace deepinfer {

namespace {

constexpr size_t kFlushBytes = 64 << 10;

std::string time_text() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  const std::time_t seconds = std::chrono::duration_cast<std::chrono::seconds>(now).count();
  const auto millis = std::chrono::duration_cast<std::chrono::milliseconds>(now).count() % 1000;
  std::tm parts{};
  gmtime_r(&seconds, &parts);
  char text[32];
  std::strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%S", &parts);
  return fmt::format("{}.{:03}Z", text, millis);
}

void add_text(std::string& out, const char* name, const std::string& value) {
  if (value.empty()) return;
  out += fmt::format(",\"{}\":", name);
  append_json_string(out, value);
}

void add_report(std::string& out, const RequestReport& report) {
  if (const auto& prefix = report.prefix) {
    fmt::format_to(std::back_inserter(out), ",\"cached_tokens\":{},\"replayed_tokens\":{},\"cache_miss\":\"{}\"",
                   prefix->cached_tokens, prefix->replayed_tokens, miss_reason_name(operator_reason(*prefix)));
    if (prefix->first_different >= 0) fmt::format_to(std::back_inserter(out), ",\"first_different\":{}", prefix->first_different);
  }
  const RequestTrace& trace = report.trace;
  const auto ms = [](int64_t us) { return static_cast<double>(us) / 1e3; };
  fmt::format_to(std::back_inserter(out), ",\"waiting_ms\":{:.3f},\"prefill_ms\":{:.3f},\"decode_ms\":{:.3f}",
                 ms(trace.waiting_us), ms(trace.prefill_us), ms(trace.decode_us));
  fmt::format_to(std::back_inserter(out), ",\"prefill_steps\":{},\"decode_steps\":{},\"preempted\":{}", trace.prefill_steps,
                 trace.decode_steps, trace.preempted);
}

}  // namespace

Result<AccessLog> AccessLog::open(const std::string& path) {
  AccessLog log;
  if (path.empty() || path == "off") return log;
  if (path == "-") {
    log.fd_ = STDERR_FILENO;
    return log;
  }
  log.fd_ = ::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0640);
  if (log.fd_ < 0) return io_error(fmt::format("--access-log {}: {}", path, std::strerror(errno)));
  log.owned_ = true;
  return log;
}

AccessLog::AccessLog(AccessLog&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)), owned_(other.owned_), buffer_(std::move(other.buffer_)) {}

AccessLog& AccessLog::operator=(AccessLog&& other) noexcept {
  std::swap(fd_, other.fd_);
  std::swap(owned_, other.owned_);
  std::swap(buffer_, other.buffer_);
  return *this;
}

AccessLog::~AccessLog() {
  flush();
  if (owned_ && fd_ >= 0) close(fd_);
}

void AccessLog::add(const AccessLine& line) {
  if (!enabled()) return;
  buffer_ += fmt::format("{{\"time\":\"{}\"", time_text());
  add_text(buffer_, "request_id", line.request_id);
  add_text(buffer_, "key", line.key);
  add_text(buffer_, "remote", line.remote);
  add_text(buffer_, "method", line.method);
  add_text(buffer_, "path", line.path.substr(0, 512));
  fmt::format_to(std::back_inserter(buffer_), ",\"status\":{}", line.status);
  add_text(buffer_, "outcome", line.outcome);
  fmt::format_to(std::back_inserter(buffer_), ",\"duration_ms\":{:.3f}", static_cast<double>(line.duration_us) / 1e3);
  if (line.first_byte_us > 0)
    fmt::format_to(std::back_inserter(buffer_), ",\"first_byte_ms\":{:.3f}", static_cast<double>(line.first_byte_us) / 1e3);
  fmt::format_to(std::back_inserter(buffer_), ",\"bytes_in\":{},\"bytes_out\":{}", line.bytes_in, line.bytes_out);
  if (line.prompt_tokens >= 0)
    fmt::format_to(std::back_inserter(buffer_), ",\"prompt_tokens\":{},\"completion_tokens\":{}", line.prompt_tokens,
                   line.completion_tokens);
  add_text(buffer_, "finish", line.finish);
  if (line.report) add_report(buffer_, *line.report);
  add_text(buffer_, "cache_hint", line.cache_hint);
  buffer_ += "}\n";
  if (buffer_.size() > kFlushBytes) flush();
}

// A log that cannot be written (full disk, closed pipe) must not stop the service: the lines are lost.
void AccessLog::flush() {
  std::string_view left = buffer_;
  while (!left.empty() && fd_ >= 0) {
    const ssize_t written = write(fd_, left.data(), left.size());
    if (written <= 0) break;
    left.remove_prefix(static_cast<size_t>(written));
  }
  buffer_.clear();
}

}  // namespace deepinfer
