// server/batch_service.h - /v1/files and /v1/batches: uploaded files of requests, answered in the background.
//
// A folder holds everything: files/ID (content) and files/ID.json, batches/ID.json. A batch runs as `deepinfer batch` does, one
// at a time, at a lower priority than requests that somebody waits for; after a restart it goes on where it stopped.
// Files and batches belong to the key that made them; others are told that they do not exist.
// Threads: handle() and resume() on the server's thread; stop() from any.
#pragma once

#include <atomic>
#include <condition_variable>
#include <map>
#include <mutex>
#include <string>
#include <thread>

#include "base/json.h"
#include "server/context.h"

namespace deepinfer {

class BatchService {
 public:
  BatchService(ServerContext& context, std::string folder);
  ~BatchService() { stop(); }
  // Every call does it, too; at the start it tells whether the folder can be used.
  Status make_folders();
  void handle(const CallPtr& call);
  // The model is there: run what waits, also from before a restart.
  void resume();
  void stop();

 private:
  struct Batch {
    Json object;  // as the wire shows it
    std::string owner, tenant;
    std::atomic<bool> cancelled{false};
  };
  void upload(const CallPtr& call);
  void list_files(Call& call);
  void get_file(Call& call);
  void delete_file(Call& call);
  void file_content(const CallPtr& call);
  void create(Call& call);
  void list_batches(Call& call);
  void get_batch(Call& call);
  void cancel(Call& call);

  std::string file_path(const std::string& id) const { return folder_ + "/files/" + id; }
  Result<Json> file_object(const std::string& id, const std::string& owner) const;
  Result<Json> store_file(std::string_view content, const std::string& name, const std::string& purpose,
                          const std::string& owner);
  std::string new_id(const char* kind);
  void load_batches();
  Status save(const Batch& batch);
  void run();
  void run_one(const std::string& id, Batch& batch);
  void finish(Batch& batch, const std::string& combined, const std::string& status);

  ServerContext& context_;
  const std::string folder_;
  const std::string id_prefix_;
  std::atomic<uint64_t> num_ids_{0};
  std::mutex mutex_;  // over batches_ and what is in them
  std::condition_variable ready_;
  std::map<std::string, Batch> batches_;
  std::atomic<bool> stopping_{false};
  std::thread thread_;
};

}  // namespace deepinfer
