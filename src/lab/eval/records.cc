#include "lab/eval/records.h"

#include <fmt/format.h>

namespace deepinfer {
namespace {

// The first member in which two headers differ: "temperature 0.7, now 0".
std::optional<std::string> difference(const Json& before, const Json& now, const std::string& name) {
  if (before == now) return std::nullopt;
  if (before.is_object() && now.is_object()) {
    for (const auto& [key, value] : now.members()) {
      if (const auto found = difference(before.at(key), value, key)) return found;
    }
  }
  return fmt::format("{} {}, now {}", name, before.dump(), now.dump());
}

Status check_header(const Json& record, const Json& header, const std::string& path) {
  if (!record.find("eval"))
    return invalid_argument(fmt::format("{}: is no records file of eval; choose another one with -o", path));
  if (const auto found = difference(record, header, "header")) {
    return invalid_argument(fmt::format("{}: was made with {}; choose another file with -o, or the same settings", path, *found));
  }
  return {};
}

}  // namespace

std::string case_digest(const EvalCase& item) {
  // FNV-1a: tells changed texts apart, guards against nobody.
  uint64_t hash = 0xCBF29CE484222325u;
  for (const char c : item.request.dump() + item.check.dump()) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001B3u;
  return fmt::format("{:016x}", hash);
}

Result<EvalRecords> EvalRecords::open(const std::string& path, const Json& header, const std::vector<EvalCase>& cases) {
  EvalRecords out;
  std::map<std::string, const EvalCase*> by_id;
  for (const EvalCase& item : cases) by_id[item.id] = &item;
  DI_TRY(RecordFile file, RecordFile::open(path, [&](const Json& record, int64_t line) -> Status {
           if (line == 1) return check_header(record, header, path);
           const Json& id = record.at("id");
           if (!id.is_string() || !record.find("right")) {
             return invalid_argument(fmt::format("{}:{}: is no record of eval; choose another file with -o", path, line));
           }
           const auto found = by_id.find(id.as_string());
           if (found == by_id.end() || !record.at("right").is_bool()) return {};
           if (record.at("case") != Json(case_digest(*found->second))) {
             return invalid_argument(fmt::format("{}:{}: case \"{}\" was another question then; choose another file with -o",
                                                 path, line, id.as_string()));
           }
           out.known_[id.as_string()] = record.at("right").as_bool();
           return {};
         }));
  out.file_.emplace(std::move(file));
  if (out.file_->is_empty()) DI_CHECK_OK(out.file_->append(header));
  return out;
}

Status EvalRecords::append(const EvalCase& item, const EvalOutcome& outcome) {
  const EvalAnswer& answer = outcome.answer;
  Json record = Json::object({{"id", item.id}, {"kind", item.kind}, {"case", case_digest(item)}});
  record.set("right", outcome.verdict ? Json(outcome.verdict->right) : Json());
  record.set("why", outcome.verdict ? outcome.verdict->why : "");
  record.set("answer", answer.content);
  record.set("reasoning", answer.reasoning);
  record.set("tool_calls", answer.tool_calls);
  record.set("ended", answer.ended);
  record.set("prompt_tokens", answer.prompt_tokens);
  record.set("completion_tokens", answer.completion_tokens);
  record.set("seconds", Json::number(fmt::format("{:.3f}", outcome.seconds)));
  record.set("left_out", outcome.left_out);
  record.set("error", outcome.error
                          ? Json::object({{"code", error_code_name(outcome.error->code)}, {"message", outcome.error->message}})
                          : Json());
  return file_->append(record);
}

}  // namespace deepinfer
