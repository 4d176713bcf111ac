#include "lab/eval/runner.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <mutex>
#include <thread>

namespace deepinfer {
namespace {

double seconds_now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

bool ends_everything(ErrorCode code) { return code == ErrorCode::kPermission || code == ErrorCode::kNotFound; }
bool nobody_there(ErrorCode code) {
  return code == ErrorCode::kUnavailable || code == ErrorCode::kDeadline || code == ErrorCode::kIo || code == ErrorCode::kCorrupt;
}
bool is_refusal(ErrorCode code) { return code == ErrorCode::kUnsupported || code == ErrorCode::kInvalidArgument; }

Json header_of(const EvalSuite& suite, const EvalTarget& target, const EvalSettings& settings) {
  return Json::object({{"eval", 1},
                       {"suite", suite.name},
                       {"model", target.model()},
                       {"settings", Json::object({{"think", settings.think},
                                                  {"temperature", static_cast<double>(settings.temperature)},
                                                  {"max_tokens", settings.max_tokens ? settings.max_tokens : suite.max_tokens},
                                                  {"seed", settings.seed},
                                                  {"body", settings.body}})}});
}

class EvalRun {
 public:
  EvalRun(const EvalSuite& suite, const std::vector<EvalCase>& cases, EvalTarget& target, const EvalTools& tools,
          const EvalRunOptions& options, const std::atomic<bool>& interrupted)
      : suite_(suite), cases_(cases), target_(target), tools_(tools), options_(options), interrupted_(interrupted) {}

  Result<EvalReport> run();

 private:
  Status open_records();
  void work();
  // Nothing when the run was interrupted meanwhile.
  std::optional<EvalOutcome> ask(const EvalCase& item);
  void judge(const EvalCase& item, EvalOutcome& outcome);
  void take(const EvalCase& item, const EvalOutcome& outcome);
  void count(const EvalCase& item, const EvalOutcome& outcome);
  void stop(Error error);

  const EvalSuite& suite_;
  const std::vector<EvalCase>& cases_;
  EvalTarget& target_;
  const EvalTools& tools_;
  const EvalRunOptions& options_;
  const std::atomic<bool>& interrupted_;

  std::vector<const EvalCase*> todo_;
  std::atomic<size_t> next_{0};
  std::atomic<bool> stopping_{false};  // by the user, or by stop()
  std::mutex mutex_;                   // guards what follows
  std::optional<EvalRecords> records_;
  EvalReport report_;
  int64_t done_ = 0;
  int32_t unanswered_in_a_row_ = 0;
};

Status EvalRun::open_records() {
  for (const EvalCase& item : cases_) report_.of(item.kind);
  if (!options_.output.empty()) {
    DI_TRY(EvalRecords records, EvalRecords::open(options_.output, header_of(suite_, target_, options_.settings), cases_));
    records_.emplace(std::move(records));
  }
  for (const EvalCase& item : cases_) {
    if (records_) {
      if (const auto known = records_->known().find(item.id); known != records_->known().end()) {
        report_.of(item.kind).add({.right = known->second ? 1 : 0, .judged = 1});
        ++report_.kept;
        continue;
      }
    }
    todo_.push_back(&item);
  }
  done_ = report_.kept;
  return {};
}

std::optional<EvalOutcome> EvalRun::ask(const EvalCase& item) {
  EvalOutcome outcome;
  const double begin = seconds_now();
  Result<EvalAnswer> answer = target_.ask(item.request, stopping_);
  outcome.seconds = seconds_now() - begin;
  if (!answer && answer.error().code == ErrorCode::kCancelled) return std::nullopt;
  if (!answer) {
    outcome.error = answer.error();
    outcome.left_out = item.has_image && is_refusal(answer.error().code);
    return outcome;
  }
  outcome.answer = std::move(*answer);
  judge(item, outcome);
  if (outcome.error && outcome.error->code == ErrorCode::kCancelled) return std::nullopt;
  return outcome;
}

void EvalRun::judge(const EvalCase& item, EvalOutcome& outcome) {
  if (!outcome.answer.ended) {
    outcome.verdict = EvalVerdict{false, fmt::format("no end within {} tokens", outcome.answer.completion_tokens)};
    return;
  }
  Result<EvalVerdict> verdict = suite_.judge(item, outcome.answer, tools_);
  if (verdict) {
    outcome.verdict = std::move(*verdict);
  } else {
    outcome.error = verdict.error();
  }
}

void EvalRun::stop(Error error) {
  if (!report_.stopped) report_.stopped = std::move(error);
  stopping_ = true;
}

void EvalRun::count(const EvalCase& item, const EvalOutcome& outcome) {
  EvalCount& count = report_.of(item.kind);
  report_.prompt_tokens += outcome.answer.prompt_tokens;
  report_.completion_tokens += outcome.answer.completion_tokens;
  if (outcome.verdict) {
    ++count.judged;
    count.right += outcome.verdict->right ? 1 : 0;
    unanswered_in_a_row_ = 0;
  } else if (outcome.left_out) {
    ++count.left_out;
    report_.left_out_reason = outcome.error->message;
  } else {
    ++count.errors;
    report_.error_example = fmt::format("{}: {}", item.id, outcome.error->message);
    unanswered_in_a_row_ = nobody_there(outcome.error->code) ? unanswered_in_a_row_ + 1 : 0;
  }
}

void EvalRun::take(const EvalCase& item, const EvalOutcome& outcome) {
  const std::lock_guard lock(mutex_);
  count(item, outcome);
  ++done_;
  if (records_) {
    if (const Status written = records_->append(item, outcome); !written) return stop(written.error());
  }
  if (options_.progress) {
    const EvalCount all = report_.all();
    options_.progress({.done = done_, .total = report_.cases, .right = all.right, .judged = all.judged});
  }
  if (!outcome.error) return;
  if (ends_everything(outcome.error->code)) return stop(*outcome.error);
  // A round in which nobody got an answer: going on would only turn the rest into errors.
  if (unanswered_in_a_row_ >= std::max(3, options_.concurrency)) {
    stop(Error{ErrorCode::kUnavailable, fmt::format("{} cases in a row without an answer, stopped; the last: {}",
                                                    unanswered_in_a_row_, outcome.error->message)});
  }
}

void EvalRun::work() {
  while (!stopping_.load()) {
    const size_t index = next_++;
    if (index >= todo_.size()) return;
    if (const std::optional<EvalOutcome> outcome = ask(*todo_[index])) take(*todo_[index], *outcome);
  }
}

Result<EvalReport> EvalRun::run() {
  report_.suite = suite_.name;
  report_.cases = static_cast<int64_t>(cases_.size());
  DI_CHECK_OK(open_records());
  const double begin = seconds_now();
  std::atomic<size_t> working{std::min(todo_.size(), static_cast<size_t>(std::max(1, options_.concurrency)))};
  std::vector<std::thread> workers;
  for (size_t i = working.load(); i > 0; --i) {
    workers.emplace_back([&] {
      work();
      --working;
    });
  }
  while (working.load() > 0) {
    if (interrupted_.load()) stopping_ = true;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  for (std::thread& worker : workers) worker.join();
  report_.seconds = seconds_now() - begin;
  report_.interrupted = interrupted_.load();
  if (records_) DI_CHECK_OK(records_->sync());
  return std::move(report_);
}

}  // namespace

Result<EvalReport> run_eval(const EvalSuite& suite, const std::vector<EvalCase>& cases, EvalTarget& target,
                            const EvalTools& tools, const EvalRunOptions& options, const std::atomic<bool>& interrupted) {
  return EvalRun(suite, cases, target, tools, options, interrupted).run();
}

}  // namespace deepinfer
