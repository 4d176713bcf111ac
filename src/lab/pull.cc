#include "lab/pull.h"

#include <sys/statvfs.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <deque>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <thread>

#include <fmt/format.h>

#include "base/json.h"
#include "lab/pull_files.h"
#include "net/http_client.h"

namespace deepinfer {

namespace {

constexpr int kMaxRedirects = 5;

struct Range {
  PartFile* file = nullptr;
  int64_t begin = 0, end = 0;
};

class Pull {
 public:
  Pull(const PullOptions& options, std::atomic<bool>& interrupted) : options_(options), interrupted_(interrupted) {}

  Result<PullReport> run() {
    DI_CHECK_OK(list_files());
    DI_CHECK_OK(open_files());
    DI_CHECK_OK(check_disk());
    DI_CHECK_OK(cut_ranges());
    fetch_all();
    report_.interrupted = interrupted_.load();
    if (!failure_) return failure_.error();
    return report_;
  }

 private:
  HttpClient new_client() const {
    HttpClientOptions options;
    options.idle_timeout_us = static_cast<int64_t>(options_.timeout_seconds * 1e6);
    options.proxy = options_.proxy;
    options.ca_file = options_.ca_file;
    return HttpClient(options);
  }

  // Follows redirects; the token goes to the hub alone.
  Result<HttpReply> get(HttpClient& client, std::string url, const HttpHeaders& headers,
                        const std::function<bool(std::string_view)>& sink) {
    const std::string home = url.substr(0, options_.endpoint.size());
    for (int hop = 0; hop <= kMaxRedirects; ++hop) {
      HttpCall call{.url = url, .headers = headers, .sink = sink};
      if (!options_.token.empty() && url.starts_with(home)) call.headers.add("authorization", "Bearer " + options_.token);
      DI_TRY(HttpReply reply, client.send(call));
      if (reply.status < 300 || reply.status >= 400 || reply.headers.get("location").empty()) return reply;
      DI_TRY(const Url base, parse_url(url));
      url = resolve_url(base, reply.headers.get("location"));
    }
    return corrupt(fmt::format("{}: more than {} redirects", url.substr(0, 200), kMaxRedirects));
  }

  Status list_files() {
    HttpClient client = new_client();
    const std::string url =
        fmt::format("{}/api/models/{}/revision/{}?blobs=true", options_.endpoint, options_.repo, options_.revision);
    Result<HttpReply> reply = get(client, url, {}, nullptr);
    for (int attempt = 0; attempt < options_.retries && (!reply || reply->status >= 500); ++attempt) {
      pause(attempt);
      reply = get(client, url, {}, nullptr);
    }
    if (!reply) return reply.error();
    if (reply->status == 404)
      return not_found(fmt::format("{} has no model {} at revision {}", options_.endpoint, options_.repo, options_.revision));
    if (reply->status == 401 || reply->status == 403)
      return Error{ErrorCode::kPermission,
                   fmt::format("{}: status {}: this model needs a token (--token-file)", url, reply->status)};
    if (reply->status != 200) return io_error(fmt::format("{}: status {}", url, reply->status));
    DI_TRY(const Json json, Json::parse(reply->body));
    DI_TRY(report_.commit, json.at("sha").to_string("sha"));
    DI_CHECK_OK(check_hub_name(report_.commit));
    if (!json.at("siblings").is_array()) return corrupt(fmt::format("{}: no list of files", url));
    for (const Json& item : json.at("siblings").items()) DI_CHECK_OK(add_file(item));
    return {};
  }

  Status add_file(const Json& item) {
    HubFile file;
    DI_TRY(file.name, item.at("rfilename").to_string("rfilename"));
    DI_CHECK_OK(check_hub_name(file.name));
    const Json& lfs = item.at("lfs");
    const auto size = (lfs.is_object() && !lfs.at("size").is_null() ? lfs : item).at("size").to_int64("size");
    if (!size || *size < 0) return corrupt(fmt::format("the hub gives no size of {}", file.name));
    file.size = *size;
    if (lfs.is_object() && lfs.at("sha256").is_string()) file.sha256 = lfs.at("sha256").as_string();
    if (file.sha256.empty() && item.at("blobId").is_string()) file.git_sha1 = item.at("blobId").as_string();
    ++report_.files;
    report_.bytes += file.size;
    files_.push_back(std::make_unique<PartFile>(options_.folder, std::move(file)));
    return {};
  }

  Status open_files() {
    for (const auto& file : files_) {
      if (file->is_complete()) {
        report_.resumed += file->file().size;
        continue;
      }
      DI_CHECK_OK(file->open());
      report_.resumed += file->bytes_done();
      open_.push_back(file.get());
    }
    return {};
  }

  Status cut_ranges() {
    for (PartFile* file : open_) {
      const auto missing = file->missing(options_.range_bytes);
      open_ranges_[file] = missing.size();
      for (const auto& [begin, end] : missing) queue_.push_back({file, begin, end});
      if (missing.empty()) DI_CHECK_OK(file->finish());
    }
    return {};
  }

  Status check_disk() const {
    struct statvfs info {};
    if (statvfs(options_.folder.c_str(), &info) != 0)
      return io_error(fmt::format("{}: {}", options_.folder, std::strerror(errno)));
    const double free = static_cast<double>(info.f_bavail) * static_cast<double>(info.f_frsize);
    const double needed = static_cast<double>(report_.bytes - report_.resumed);
    if (needed <= free) return {};
    return exhausted(
        fmt::format("{}: {:.2f} GB are missing and {:.2f} GB are free on that disk", options_.folder, needed / 1e9, free / 1e9));
  }

  void fetch_all() {
    std::vector<std::thread> threads;
    const size_t wanted = std::min<size_t>(static_cast<size_t>(options_.connections), queue_.size());
    for (size_t i = 0; i < wanted; ++i) threads.emplace_back([this] { work(); });
    for (std::thread& thread : threads) thread.join();
  }

  void work() {
    HttpClient client = new_client();
    for (;;) {
      Range range;
      {
        const std::lock_guard lock(mutex_);
        if (!failure_ || interrupted_ || queue_.empty()) return;
        range = queue_.front();
        queue_.pop_front();
      }
      const Status status = fetch(client, range);
      const std::lock_guard lock(mutex_);
      if (status && !interrupted_ && --open_ranges_[range.file] == 0) {
        const Status finished = range.file->finish();
        if (!finished && failure_) failure_ = finished;
      }
      if (!status && failure_) failure_ = status;
    }
  }

  // One range to its end, over as many connections as it takes.
  Status fetch(HttpClient& client, Range range) {
    int idle_tries = 0;
    const int64_t first = range.begin;
    Status status;
    while (range.begin < range.end && !interrupted_) {
      const int64_t before = range.begin;
      bool is_final = false;
      status = fetch_some(client, range, is_final);
      if (is_final) break;
      idle_tries = range.begin > before ? 0 : idle_tries + 1;
      if (!status && idle_tries > options_.retries) break;
      if (!status) pause(idle_tries);
      if (range.begin == range.end) status = {};
    }
    const std::lock_guard lock(mutex_);
    const Status noted = range.file->note_done(first, range.begin);
    return status ? noted : status;
  }

  // Moves range.begin forward as bytes come. `is_final`: trying again is of no use.
  Status fetch_some(HttpClient& client, Range& range, bool& is_final) {
    const HubFile& file = range.file->file();
    const std::string url = fmt::format("{}/{}/resolve/{}/{}", options_.endpoint, options_.repo, report_.commit, file.name);
    const HttpHeaders headers = {{"range", fmt::format("bytes={}-{}", range.begin, range.end - 1)}};
    Status written;
    bool too_long = false;
    const int64_t wanted = range.begin;
    const auto sink = [&](std::string_view bytes) {
      if (range.begin + static_cast<int64_t>(bytes.size()) > range.end) return too_long = true, false;
      written = range.file->write(range.begin, bytes);
      if (!written || interrupted_) return false;
      range.begin += static_cast<int64_t>(bytes.size());
      note_progress(static_cast<int64_t>(bytes.size()));
      return true;
    };
    const Result<HttpReply> reply = get(client, url, headers, sink);
    const auto give_up = [&](Error error) { return is_final = true, Status(std::move(error)); };
    if (!written) return give_up(written.error());
    if (!reply) return reply.error();
    if (reply->status == 206) {
      const std::string wanted_range = fmt::format("bytes {}-{}/{}", wanted, range.end - 1, file.size);
      if (const std::string_view got = reply->headers.get("content-range"); got != wanted_range || too_long)
        return give_up(corrupt(fmt::format("{}: asked for '{}', the hub sent '{}'", file.name, wanted_range, got)));
    } else if (reply->status == 200) {
      if (too_long || wanted != 0 || range.end != file.size)
        return give_up(
            corrupt(fmt::format("{}: the hub does not send ranges, or the file is not {} bytes long", file.name, file.size)));
    } else if (reply->status >= 500 || reply->status == 429 || reply->status == 408) {
      return io_error(fmt::format("{}: status {}", file.name, reply->status));
    } else {
      return give_up(io_error(fmt::format("{}: status {}", file.name, reply->status)));
    }
    if (range.begin < range.end && !interrupted_)
      return give_up(corrupt(fmt::format("{}: the hub sent {} bytes of {}", file.name, range.begin, file.size)));
    return {};
  }

  void note_progress(int64_t bytes) {
    const std::lock_guard lock(progress_mutex_);
    report_.fetched += bytes;
    if (options_.progress) options_.progress(report_.resumed + report_.fetched, report_.bytes);
  }

  void pause(int attempt) {
    const int ms = std::min(8000, 100 << std::min(attempt, 6));
    for (int slept = 0; slept < ms && !interrupted_; slept += 50) std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }

  const PullOptions& options_;
  std::atomic<bool>& interrupted_;
  PullReport report_;
  std::vector<std::unique_ptr<PartFile>> files_;
  std::vector<PartFile*> open_;  // of them, those that are not complete
  std::mutex mutex_;             // over the queue, the files' lists and the failure
  std::deque<Range> queue_;
  std::map<PartFile*, size_t> open_ranges_;
  Status failure_;
  std::mutex progress_mutex_;
};

}  // namespace

Result<PullReport> pull(const PullOptions& options, std::atomic<bool>& interrupted) {
  std::error_code ec;
  std::filesystem::create_directories(options.folder, ec);
  if (ec) return io_error(fmt::format("{}: {}", options.folder, ec.message()));
  return Pull(options, interrupted).run();
}

}  // namespace deepinfer
