// server/batch_output.h - the result file of a batch: appended line by line, resumable.
//
// Promise: that of RecordFile (base/record_file.h).
// Threads: one.
//
//   DI_TRY(BatchOutput out, BatchOutput::open("out.jsonl"));
//   if (!out.is_done(line_number, custom_id)) DI_CHECK_OK(out.append(record));
#pragma once

#include <optional>
#include <set>
#include <string>
#include <string_view>

#include "base/json.h"
#include "base/record_file.h"
#include "base/result.h"

namespace deepinfer {

class BatchOutput {
 public:
  // Keeps the records of an existing file. An Error when the file holds something else.
  static Result<BatchOutput> open(const std::string& path);

  // A record of this input line is there: by its custom_id, or by its number when the line had none.
  bool is_done(int64_t line, std::string_view custom_id) const;
  int64_t num_done() const { return static_cast<int64_t>(ids_.size() + lines_.size()); }
  Status append(const Json& record);
  // Waits until everything appended is on the disk.
  Status sync() { return file_->sync(); }

 private:
  BatchOutput() = default;
  Status note(const std::string& path, const Json& record, int64_t line);

  std::optional<RecordFile> file_;
  std::set<std::string, std::less<>> ids_;
  std::set<int64_t> lines_;
};

}  // namespace deepinfer
