#include "server/batch_output.h"

#include <fmt/format.h>

namespace deepinfer {

Result<BatchOutput> BatchOutput::open(const std::string& path) {
  BatchOutput out;
  DI_TRY(RecordFile file, RecordFile::open(path, [&](const Json& record, int64_t line) -> Status {
           if (!record.find("custom_id") || !record.find("error")) {
             return invalid_argument(fmt::format("{}: line {} is no batch result; choose another output file", path, line));
           }
           return out.note(path, record, line);
         }));
  out.file_.emplace(std::move(file));
  return out;
}

Status BatchOutput::note(const std::string& path, const Json& record, int64_t line) {
  if (const Json& id = record.at("custom_id"); id.is_string()) {
    ids_.insert(id.as_string());
    return {};
  }
  const Result<int64_t> input_line = record.at("error").at("line").to_int64("line");
  if (!input_line) return invalid_argument(fmt::format("{}: line {} has neither custom_id nor error.line", path, line));
  lines_.insert(*input_line);
  return {};
}

bool BatchOutput::is_done(int64_t line, std::string_view custom_id) const {
  return custom_id.empty() ? lines_.contains(line) : ids_.contains(custom_id);
}

Status BatchOutput::append(const Json& record) {
  DI_CHECK_OK(file_->append(record));
  return note(file_->path(), record, 0);
}

}  // namespace deepinfer
