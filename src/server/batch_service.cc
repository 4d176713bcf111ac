#include "server/batch_service.h"

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include <fmt/format.h>

#include "api/errors.h"
#include "api/json_body.h"
#include "api/list_page.h"
#include "api/multipart.h"
#include "base/file.h"
#include "base/scratch_folder.h"
#include "server/batch.h"

namespace deepinfer {

namespace {

namespace fs = std::filesystem;

constexpr const char* kEndpoint = "/v1/chat/completions";

bool is_id(const std::string& text) {
  return !text.empty() && text.size() < 100 &&
         std::all_of(text.begin(), text.end(), [](unsigned char c) { return std::isalnum(c) || c == '-' || c == '_'; });
}

bool is_over(const Json& batch) {
  const std::string& status = batch.at("status").as_string();
  return status == "completed" || status == "failed" || status == "cancelled";
}

// Newest first, as far as seconds tell.
void answer_list(Call& call, std::vector<Json> items, const ListLimits& limits) {
  const auto born = [](const Json& item) {
    const Result<int64_t> seconds = item.at("created_at").to_int64("");
    return seconds ? *seconds : 0;
  };
  std::stable_sort(items.begin(), items.end(), [&](const Json& a, const Json& b) { return born(a) < born(b); });
  const Result<Json> page = list_page(std::move(items), call.request().query, limits);
  page ? call.respond_json(200, *page) : call.fail(page.error());
}

Json without_owner(Json object) {
  std::erase_if(object.members(), [](const Json::Member& member) { return member.first == "owner" || member.first == "tenant"; });
  return object;
}

Error no_file(const std::string& id) { return not_found(fmt::format("No such File object: {}", id.substr(0, 100))); }

int64_t count_lines(const std::string& path) {
  std::ifstream in(path);
  std::string line;
  int64_t count = 0;
  while (std::getline(in, line)) count += line.empty() ? 0 : 1;
  return count;
}

}  // namespace

BatchService::BatchService(ServerContext& context, std::string folder)
    : context_(context), folder_(std::move(folder)), id_prefix_(context.id_prefix) {}

std::string BatchService::new_id(const char* kind) { return fmt::format("{}{}{:04x}", kind, id_prefix_, ++num_ids_); }

Status BatchService::make_folders() {
  if (folder_.empty()) return unsupported("this server keeps no files: start it with --data DIR");
  for (const char* name : {"/files", "/batches"}) {
    DI_CHECK_OK(make_writable_folder(folder_ + name));
    std::error_code ec;
    fs::permissions(folder_, fs::perms::owner_all, ec);
  }
  return {};
}

void BatchService::handle(const CallPtr& call) {
  if (const Status status = make_folders(); !status) return call->fail(status.error());
  for (const std::string& id : call->params) {
    if (!is_id(id)) return call->fail(no_file(id));
  }
  switch (call->route->id) {
    case RouteId::kUploadFile: return upload(call);
    case RouteId::kListFiles: return list_files(*call);
    case RouteId::kGetFile: return get_file(*call);
    case RouteId::kDeleteFile: return delete_file(*call);
    case RouteId::kFileContent: return file_content(call);
    case RouteId::kCreateBatch: return create(*call);
    case RouteId::kListBatches: return list_batches(*call);
    case RouteId::kGetBatch: return get_batch(*call);
    case RouteId::kCancelBatch: return cancel(*call);
    default: return call->fail(404, "there is nothing here");
  }
}

// ---- files --------------------------------------------------------------------------------------------------------

Result<Json> BatchService::file_object(const std::string& id, const std::string& owner) const {
  if (!is_id(id)) return no_file(id);
  const Result<std::string> text = read_file(file_path(id) + ".json");
  if (!text) return no_file(id);
  DI_TRY(Json object, Json::parse(*text));
  if (object.at("owner") != Json(owner)) return no_file(id);
  return without_owner(std::move(object));
}

Result<Json> BatchService::store_file(std::string_view content, const std::string& name, const std::string& purpose,
                                      const std::string& owner) {
  const std::string id = new_id("file-");
  Json object = Json::object({{"id", id},
                              {"object", "file"},
                              {"bytes", static_cast<int64_t>(content.size())},
                              {"created_at", now_seconds()},
                              {"filename", name},
                              {"purpose", purpose},
                              {"status", "processed"},
                              {"owner", owner}});
  DI_CHECK_OK(write_file(file_path(id), content));
  DI_CHECK_OK(write_file(file_path(id) + ".json", object.dump()));
  return without_owner(std::move(object));
}

void BatchService::upload(const CallPtr& call) {
  context_.workers.add([this, call] {
    const HttpRequest& request = call->request();
    auto result = std::make_shared<Result<Json>>([&]() -> Result<Json> {
      DI_TRY(const auto parts, parse_form(request.headers.get("content-type"), request.body));
      const FormPart* file = nullptr;
      std::string purpose;
      for (const FormPart& part : parts) {
        if (part.name == "file") file = &part;
        if (part.name == "purpose") purpose = part.content;
      }
      if (!file) return invalid_argument("the form needs a field 'file'");
      if (purpose != "batch") return invalid_argument("the form needs a field 'purpose' with the value batch");
      return store_file(file->content, file->filename.substr(0, 255), purpose, call->key);
    }());
    context_.http->post([call, result] { return *result ? call->respond_json(200, **result) : call->fail(result->error()); });
  });
}

void BatchService::list_files(Call& call) {
  std::vector<Json> items;
  const auto names = list_directory(folder_ + "/files");
  for (const std::string& name : names ? *names : std::vector<std::string>()) {
    if (!name.ends_with(".json")) continue;
    if (auto object = file_object(name.substr(0, name.size() - 5), call.key)) items.push_back(std::move(*object));
  }
  answer_list(call, std::move(items), {10'000, 10'000});
}

void BatchService::get_file(Call& call) {
  const Result<Json> object = file_object(call.params[0], call.key);
  return object ? call.respond_json(200, *object) : call.fail(object.error());
}

void BatchService::delete_file(Call& call) {
  const std::string id = call.params[0];
  if (const Result<Json> object = file_object(id, call.key); !object) return call.fail(object.error());
  {
    const std::lock_guard lock(mutex_);
    for (const auto& [name, batch] : batches_) {
      if (!is_over(batch.object) && batch.object.at("input_file_id") == Json(id))
        return call.fail(409, fmt::format("{} is read by {}; cancel that first", id, name));
    }
  }
  std::error_code ignored;
  fs::remove(file_path(id) + ".json", ignored);
  fs::remove(file_path(id), ignored);
  call.respond_json(200, Json::object({{"id", id}, {"object", "file"}, {"deleted", true}}));
}

void BatchService::file_content(const CallPtr& call) {
  if (const Result<Json> object = file_object(call->params[0], call->key); !object) return call->fail(object.error());
  context_.workers.add([this, call] {
    auto content = std::make_shared<Result<std::string>>(read_file(file_path(call->params[0])));
    context_.http->post([call, content] {
      return *content ? call->respond(200, "application/jsonl", std::move(**content)) : call->fail(content->error());
    });
  });
}

// ---- batches ------------------------------------------------------------------------------------------------------

Status BatchService::save(const Batch& batch) {
  Json object = batch.object;
  object.set("owner", batch.owner);
  object.set("tenant", batch.tenant);
  return write_file(folder_ + "/batches/" + batch.object.at("id").as_string() + ".json", object.dump());
}

void BatchService::create(Call& call) {
  const Result<Json> body = parse_json_body(call.request().body);
  if (!body) return call.fail(body.error());
  const Json &endpoint = body->at("endpoint"), &input = body->at("input_file_id"), &metadata = body->at("metadata");
  if (!endpoint.is_string() || endpoint.as_string() != kEndpoint)
    return call.fail(400, fmt::format("endpoint must be \"{}\"", kEndpoint));
  if (!input.is_string()) return call.fail(400, "input_file_id must be the id of an uploaded file");
  if (!metadata.is_null() && !metadata.is_object()) return call.fail(400, "metadata must be an object");
  if (const Result<Json> file = file_object(input.as_string(), call.key); !file) return call.fail(file.error());
  const std::string id = new_id("batch_");
  const int64_t now = now_seconds();
  Json object = Json::object({{"id", id},
                              {"object", "batch"},
                              {"endpoint", kEndpoint},
                              {"errors", Json()},
                              {"input_file_id", input},
                              {"completion_window", "24h"},
                              {"status", "validating"},
                              {"output_file_id", Json()},
                              {"error_file_id", Json()},
                              {"created_at", now},
                              {"in_progress_at", Json()},
                              {"expires_at", now + 86400},
                              {"finalizing_at", Json()},
                              {"completed_at", Json()},
                              {"failed_at", Json()},
                              {"expired_at", Json()},
                              {"cancelling_at", Json()},
                              {"cancelled_at", Json()},
                              {"request_counts", Json::object({{"total", 0}, {"completed", 0}, {"failed", 0}})},
                              {"metadata", metadata}});
  const std::lock_guard lock(mutex_);
  Batch& batch = batches_[id];
  batch.object = object;
  batch.owner = call.key;
  batch.tenant = call.tenant;
  if (const Status saved = save(batch); !saved) {
    batches_.erase(id);
    return call.fail(saved.error());
  }
  ready_.notify_all();
  call.respond_json(200, object);
}

void BatchService::list_batches(Call& call) {
  std::vector<Json> items;
  const std::lock_guard lock(mutex_);
  for (const auto& [id, batch] : batches_) {
    if (batch.owner == call.key) items.push_back(batch.object);
  }
  answer_list(call, std::move(items), {});
}

void BatchService::get_batch(Call& call) {
  const std::lock_guard lock(mutex_);
  const auto found = batches_.find(call.params[0]);
  if (found == batches_.end() || found->second.owner != call.key)
    return call.fail(404, "No batch found with id '" + call.params[0] + "'");
  call.respond_json(200, found->second.object);
}

void BatchService::cancel(Call& call) {
  const std::lock_guard lock(mutex_);
  const auto found = batches_.find(call.params[0]);
  if (found == batches_.end() || found->second.owner != call.key)
    return call.fail(404, "No batch found with id '" + call.params[0] + "'");
  Batch& batch = found->second;
  if (is_over(batch.object)) return call.fail(409, fmt::format("the batch is already {}", batch.object.at("status").as_string()));
  batch.cancelled = true;
  batch.object.set("status", "cancelling");
  batch.object.set("cancelling_at", now_seconds());
  if (const Status saved = save(batch); !saved) return call.fail(saved.error());
  ready_.notify_all();
  call.respond_json(200, batch.object);
}

// ---- running ------------------------------------------------------------------------------------------------------

void BatchService::load_batches() {
  const auto names = list_directory(folder_ + "/batches");
  for (const std::string& name : names ? *names : std::vector<std::string>()) {
    if (!name.ends_with(".json")) continue;
    const Result<std::string> text = read_file(folder_ + "/batches/" + name);
    Result<Json> object = text ? Json::parse(*text) : Result<Json>(text.error());
    if (!object || !object->at("id").is_string() || !object->at("status").is_string() || !object->at("input_file_id").is_string())
      continue;
    Batch& batch = batches_[object->at("id").as_string()];
    batch.owner = object->at("owner").is_string() ? object->at("owner").as_string() : "";
    batch.tenant = object->at("tenant").is_string() ? object->at("tenant").as_string() : batch.owner;
    batch.cancelled = object->at("status").as_string() == "cancelling";
    batch.object = without_owner(std::move(*object));
  }
}

void BatchService::resume() {
  if (folder_.empty() || thread_.joinable()) return;
  {
    const std::lock_guard lock(mutex_);
    if (is_directory(folder_ + "/batches")) load_batches();
  }
  thread_ = std::thread([this] { run(); });
}

void BatchService::stop() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    for (auto& [id, batch] : batches_) batch.cancelled = true;
  }
  ready_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void BatchService::run() {
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    const auto next =
        std::find_if(batches_.begin(), batches_.end(), [](const auto& entry) { return !is_over(entry.second.object); });
    if (next == batches_.end()) {
      ready_.wait(lock);
      continue;
    }
    lock.unlock();
    run_one(next->first, next->second);  // entries of a map stay where they are
    lock.lock();
  }
}

void BatchService::run_one(const std::string& id, Batch& batch) {
  std::string input;
  {
    const std::lock_guard lock(mutex_);
    input = file_path(batch.object.at("input_file_id").as_string());
    if (!batch.cancelled) {
      batch.object.set("status", "in_progress");
      if (batch.object.at("in_progress_at").is_null()) batch.object.set("in_progress_at", now_seconds());
      batch.object.set("request_counts", Json::object({{"total", count_lines(input)}, {"completed", 0}, {"failed", 0}}));
      (void)save(batch);
    }
  }
  BatchOptions options;
  options.input = input;
  options.output = folder_ + "/batches/" + id + ".jsonl";
  options.created = now_seconds();
  options.models = context_.api.models;
  options.priority = -1;
  options.tenant = batch.tenant;
  options.max_in_flight = static_cast<size_t>(std::max(1, context_.host->facts().max_batch));
  const auto report = run_batch(*context_.host, options, batch.cancelled);
  const std::lock_guard lock(mutex_);
  if (stopping_) return;  // goes on after the restart
  if (!report) {
    batch.object.set("status", "failed");
    batch.object.set("failed_at", now_seconds());
    batch.object.set("errors", Json::object({{"object", "list"},
                                             {"data", Json::array({Json::object({{"code", error_code_name(report.error().code)},
                                                                                 {"message", report.error().message}})})}}));
    (void)save(batch);
    return;
  }
  finish(batch, options.output, batch.cancelled ? "cancelled" : "completed");
}

// Splits the records into answers and errors, as the wire has them.
void BatchService::finish(Batch& batch, const std::string& combined, const std::string& status) {
  std::ifstream in(combined);
  std::string line, good, bad;
  int64_t num_good = 0, num_bad = 0;
  while (std::getline(in, line)) {
    const Result<Json> record = Json::parse(line);
    const bool answered = record && record->at("response").is_object() && record->at("response").at("status_code") == Json(200);
    (answered ? good : bad) += line + "\n";
    ++(answered ? num_good : num_bad);
  }
  const std::string name = batch.object.at("id").as_string();
  for (const auto& [content, field, suffix] :
       {std::tuple(&good, "output_file_id", "_output.jsonl"), std::tuple(&bad, "error_file_id", "_error.jsonl")}) {
    if (content->empty()) continue;
    if (const Result<Json> file = store_file(*content, name + suffix, "batch_output", batch.owner))
      batch.object.set(field, file->at("id"));
  }
  const int64_t total = *batch.object.at("request_counts").at("total").to_int64("total");
  batch.object.set("request_counts",
                   Json::object({{"total", std::max(total, num_good + num_bad)}, {"completed", num_good}, {"failed", num_bad}}));
  batch.object.set("status", status);
  batch.object.set("finalizing_at", now_seconds());
  batch.object.set(status + "_at", now_seconds());
  if (!save(batch)) return;
  std::error_code ignored;
  fs::remove(combined, ignored);
}

}  // namespace deepinfer
