#include "cluster/worker_port.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "base/clock.h"
#include "host/constraint_source.h"
#include "host/constraints.h"
#include "server/metric_text.h"
#include "server/workers.h"

namespace deepinfer {
namespace {

constexpr int64_t kLoadUs = 100'000;
constexpr int64_t kLongestUs = int64_t{1} << 50;  // of a deadline

class HubWorkerPort final : public WorkerPort {
 public:
  explicit HubWorkerPort(const WorkerPortOptions& options) : options_(options) {}
  ~HubWorkerPort() override { withdraw(); }

  Status start() {
    FrameHubOptions pages = options_.hub;
    pages.port = options_.page_port;
    if (options_.role != WorkerRole::kEncode) {
      DI_TRY(exchange_, PageExchange::open({.hub = pages}));
    }
    // Its thread may have a peer before the hub is known here: that one waits in greet().
    const std::lock_guard lock(mutex_);
    DI_TRY(hub_, FrameHub::open(options_.hub,
                                {.opened = [this](LinkId link) { greet(link); },
                                 .frame = [this](LinkId link, uint8_t type, std::string_view bytes) { take(link, type, bytes); },
                                 .closed = [this](LinkId link, const Error&) { forget(link); }}));
    report_later();
    return {};
  }

  uint16_t port() const override { return hub_->port(); }

  void serve(Host& host) override {
    if (exchange_) {
      const Engine::TransferSizes sizes = host.engine().transfer_sizes();
      exchange_->serve({host.facts().fingerprint, sizes.page, sizes.state, sizes.whole});
    }
    const std::lock_guard lock(mutex_);
    host_ = &host;
    for (auto& [link, router] : routers_) say_hello(link, router);
  }

  void withdraw() override {
    draining_ = true;
    helpers_.stop();  // pictures and constraints in work still need the host
    std::vector<std::pair<Host*, RequestId>> running;
    {
      const std::lock_guard lock(mutex_);
      for (auto& [link, router] : routers_) {
        for (const auto& [number, id] : router.running) running.emplace_back(host_, id);
      }
      host_ = nullptr;
    }
    for (const auto& [host, id] : running) {
      if (host) host->service().cancel(id);
    }
  }

  void note_pages(std::span<const PageChange> changes) override {
    const std::lock_guard lock(mutex_);
    BlocksMessage message;
    for (const PageChange& change : changes) {
      (change.stored ? message.stored : message.removed).push_back(change.key);
      if (change.stored) {
        pages_.insert(change.key);
      } else {
        pages_.erase(change.key);
      }
    }
    for (auto& [link, router] : routers_) {
      if (!router.greeted) continue;
      message.sequence = router.next_blocks++;
      hub_->send(link, BlocksMessage::kType, write_message(message));
    }
  }

  std::string transport() const override {
    const std::string lane = exchange_ ? exchange_->lane() : hub_->lane();
    if (lane.empty()) return "";
    return lane == "UCX" ? "pages and pictures go by UCX to whoever has it, else by TCP"
                         : "pages and pictures go by TCP: " + lane;
  }

  void drain() override { draining_ = true; }

  std::string metrics() const override {
    return metrics_text(exchange_ ? exchange_->stats() : PageExchangeStats()) +
           metric_text({{.name = "deepinfer_worker_pictures_total",
                         .help = "Pictures encoded for routers",
                         .is_counter = true,
                         .value = static_cast<double>(pictures_.load())}});
  }

  size_t num_running() const override {
    const std::lock_guard lock(mutex_);
    size_t count = 0;
    for (const auto& [link, router] : routers_) count += router.running.size() + router.compiling.size();
    return count + static_cast<size_t>(encoding_.load());
  }

 private:
  // Of a request: by its router, before or while it runs.
  struct Said {
    bool cancelled = false;
    std::optional<int64_t> finish;
  };
  struct Router {
    bool greeted = false;
    uint64_t next_blocks = 0, next_load = 0;
    std::map<uint64_t, RequestId> running;  // by its number
    std::map<uint64_t, Said> compiling;
  };

  void greet(LinkId link) {
    const std::lock_guard lock(mutex_);
    say_hello(link, routers_[link]);
  }

  // Once there is somebody to speak for.
  void say_hello(LinkId link, Router& router) {
    if (!host_ || std::exchange(router.greeted, true)) return;
    const HelloMessage hello{
        .facts = host_->facts(), .role = options_.role, .page_port = exchange_ ? exchange_->port() : uint16_t{0}};
    hub_->send(link, HelloMessage::kType, write_message(hello));
    BlocksMessage all{.sequence = router.next_blocks++, .stored = {pages_.begin(), pages_.end()}};
    hub_->send(link, BlocksMessage::kType, write_message(all));
    report(link, router);
  }

  void report_later() {
    hub_->after(kLoadUs, [this] {
      {
        const std::lock_guard lock(mutex_);
        for (auto& [link, router] : routers_) {
          if (router.greeted && host_) {
            report(link, router);
          } else {
            hub_->send(link, LoadMessage::kType, write_message(LoadMessage{.sequence = router.next_load++, .reason = "loading"}));
          }
        }
      }
      report_later();
    });
  }

  void report(LinkId link, Router& router) {
    const Engine* const engine = host_->is_local() ? &std::as_const(*host_).engine() : nullptr;
    const EngineStats stats = engine ? engine->stats() : EngineStats();
    const EngineProgress progress = engine ? engine->progress() : EngineProgress();
    const StepTimes& prompts = stats.times[static_cast<size_t>(StepKind::kPrefill)];
    const Status ready = draining_ ? Status(Error{ErrorCode::kUnavailable, "draining"}) : options_.readiness();
    const StepTimes& decoded = stats.times[static_cast<size_t>(StepKind::kDecode)];
    const LoadMessage load{.sequence = router.next_load++,
                           .running = stats.running + encoding_,
                           .waiting = stats.waiting,
                           .pages = stats.pages,
                           .free_pages = stats.free_pages,
                           .cached_pages = stats.cached_pages,
                           .step_age_us = progress.inside > 0 ? progress.since_us : 0,
                           .prefill_rows = prompts.rows,
                           .prefill_us = prompts.us,
                           .decode_rows = decoded.rows,
                           .decode_us = decoded.us,
                           .ready = static_cast<bool>(ready),
                           .reason = ready ? "" : ready.error().message};
    hub_->send(link, LoadMessage::kType, write_message(load));
  }

  void forget(LinkId link) {
    std::map<uint64_t, RequestId> left;
    Host* host = nullptr;
    {
      const std::lock_guard lock(mutex_);
      const auto found = routers_.find(link);
      if (found == routers_.end()) return;
      left.swap(found->second.running);
      routers_.erase(found);
      host = host_;
    }
    for (const auto& [number, id] : left) {
      if (host) host->service().cancel(id);
    }
  }

  void take(LinkId link, uint8_t type, std::string_view bytes) {
    const Status understood = dispatch(link, type, bytes);
    if (!understood) hub_->close(link, understood.error());
  }

  Status dispatch(LinkId link, uint8_t type, std::string_view bytes) {
    switch (type) {
      case SubmitMessage::kType: {
        DI_TRY(SubmitMessage message, read_message<SubmitMessage>(bytes));
        return submit(link, std::move(message));
      }
      case CancelMessage::kType: {
        DI_TRY(const CancelMessage message, read_message<CancelMessage>(bytes));
        say(link, message.number, {.cancelled = true});
        return {};
      }
      case FinishMessage::kType: {
        DI_TRY(const FinishMessage message, read_message<FinishMessage>(bytes));
        say(link, message.number, {.finish = message.last_index});
        return {};
      }
      case EncodeMessage::kType: {
        DI_TRY(EncodeMessage message, read_message<EncodeMessage>(bytes));
        return encode(link, std::move(message));
      }
      default: return corrupt("no such message");
    }
  }

  void say(LinkId link, uint64_t number, const Said& said) {
    const std::lock_guard lock(mutex_);
    const auto router = routers_.find(link);
    if (router == routers_.end() || !host_) return;
    if (const auto found = router->second.running.find(number); found != router->second.running.end()) {
      if (said.cancelled) host_->service().cancel(found->second);
      if (said.finish) host_->service().finish(found->second, *said.finish);
    } else if (const auto soon = router->second.compiling.find(number); soon != router->second.compiling.end()) {
      soon->second.cancelled |= said.cancelled;
      if (said.finish) soon->second.finish = said.finish;
    }
  }

  // A constraint is compiled beside the hub's thread; what is said of the request meanwhile holds once it is submitted.
  Status submit(LinkId link, SubmitMessage message) {
    int64_t& deadline_us = message.request.deadline_us;
    if (deadline_us > 0) deadline_us = clock_.now_us() + std::min(deadline_us, kLongestUs);
    const bool compiles = !message.request.constraint.source.empty();
    if (options_.role == WorkerRole::kEncode)
      return refuse(link, message.number, {ErrorCode::kUnavailable, "it encodes pictures only"}), Status();
    const bool leaves = draining_;
    {
      const std::lock_guard lock(mutex_);
      Router& router = routers_[link];
      if (router.running.contains(message.number) || router.compiling.contains(message.number))
        return corrupt(fmt::format("request {} was submitted before", message.number));
      if (compiles && !leaves) router.compiling[message.number] = {};
    }
    if (leaves) return refuse(link, message.number, {ErrorCode::kUnavailable, "the worker is going"}), Status();
    if (!compiles) return submit_now(link, std::move(message)), Status();
    helpers_.add([this, link, message = std::make_shared<SubmitMessage>(std::move(message))] {
      const Status compiled = compile(message->request.constraint);
      if (compiled) return submit_now(link, std::move(*message));
      {
        const std::lock_guard lock(mutex_);
        if (const auto router = routers_.find(link); router != routers_.end()) router->second.compiling.erase(message->number);
      }
      refuse(link, message->number, compiled.error());
    });
    return {};
  }

  // It stays while helpers run: withdraw() waits for them first.
  Host* host_now() const {
    const std::lock_guard lock(mutex_);
    return host_;
  }

  Status compile(AnswerConstraint& constraint) {
    Host* const host = host_now();
    if (!host) return Error{ErrorCode::kUnavailable, "the worker is going"};
    DI_TRY(const ConstraintSource source, read_constraint_source(constraint.source));
    DI_TRY(constraint.grammar, host->constraints().of_source(source));
    return {};
  }

  void submit_now(LinkId link, SubmitMessage message) {
    const uint64_t number = message.number;
    // The engine's thread may tell of the request before submit() is back: events wait for the lock.
    const std::lock_guard lock(mutex_);
    const auto router = routers_.find(link);
    if (router == routers_.end()) return;
    const Said said = std::exchange(router->second.compiling[number], {});
    router->second.compiling.erase(number);
    if (!host_ || draining_) return refuse(link, number, {ErrorCode::kUnavailable, "the worker is going"});
    PageTransfer transfer = transfer_of(message);
    const auto id = host_->engine().submit(
        std::move(message.request), [this, link, number](const Event& event) { tell(link, number, event); }, std::move(transfer));
    if (!id) return refuse(link, number, id.error());
    router->second.running[number] = *id;
    if (said.cancelled) host_->service().cancel(*id);
    if (said.finish) host_->service().finish(*id, *said.finish);
  }

  PageTransfer transfer_of(const SubmitMessage& message) const {
    if (message.hand_over == 0) return {};
    if (message.to_host.empty()) return {.in = exchange_->expect(message.hand_over), .out = nullptr};
    const Request& request = message.request;
    const size_t tokens = request.prompt.size() + request.answered.size();
    if (tokens > static_cast<size_t>(host_->facts().context)) return {};  // which the engine will say
    const size_t end = tokens / static_cast<size_t>(host_->facts().page_tokens);
    const size_t first = std::min(end, static_cast<size_t>(std::max<int64_t>(0, message.first_page)));
    return {.in = nullptr, .out = exchange_->send({message.to_host, message.to_port, message.hand_over, first, end})};
  }

  Status encode(LinkId link, EncodeMessage message) {
    const int64_t bytes = int64_t{message.width} * message.height * 3;
    if (message.width <= 0 || message.height <= 0 || bytes != static_cast<int64_t>(message.pixels.size()))
      return corrupt("a picture whose pixels do not fit its size");
    if (draining_) return refuse(link, message.number, {ErrorCode::kUnavailable, "the worker is going"}), Status();
    ++encoding_;
    helpers_.add([this, link, message = std::move(message)] {
      encode_now(link, message);
      --encoding_;
    });
    return {};
  }

  void encode_now(LinkId link, const EncodeMessage& message) {
    Host* const host = host_now();
    if (!host) return refuse(link, message.number, {ErrorCode::kUnavailable, "the worker is going"});
    PreparedImage image;
    image.pixels = std::make_shared<RgbImage>(RgbImage{message.width, message.height, message.pixels});
    image.tokens = message.tokens;
    image.content_hash = message.content_hash;
    auto rows = host->image_encoder().encode_picture(image);
    if (!rows) return refuse(link, message.number, rows.error());
    ++pictures_;
    hub_->send(link, EncodedMessage::kType, write_message(EncodedMessage{message.number, *std::move(rows)}));
  }

  void refuse(LinkId link, uint64_t number, const Error& why) {
    hub_->send(link, RefusedMessage::kType, write_message(RefusedMessage{number, why.code, why.message}));
  }

  void tell(LinkId link, uint64_t number, const Event& event) {
    if (event.finish != FinishReason::kNone) {
      const std::lock_guard lock(mutex_);
      if (const auto router = routers_.find(link); router != routers_.end()) router->second.running.erase(number);
    }
    hub_->send(link, EventMessage::kType, write_message(EventMessage{number, event}));
  }

  const WorkerPortOptions options_;
  const SteadyClock clock_;
  mutable std::mutex mutex_;
  std::atomic<bool> draining_{false};
  std::atomic<int32_t> encoding_{0};
  std::atomic<int64_t> pictures_{0};
  Host* host_ = nullptr;
  std::unordered_map<LinkId, Router> routers_;
  std::unordered_set<PageKey, PageKeyHash> pages_;
  std::unique_ptr<PageExchange> exchange_;
  std::unique_ptr<FrameHub> hub_;
  Workers helpers_{kPicturesAtOnce};  // last: its threads go first, then the hub's
};

}  // namespace

Result<std::unique_ptr<WorkerPort>> WorkerPort::open(const WorkerPortOptions& options) {
  auto port = std::make_unique<HubWorkerPort>(options);
  DI_CHECK_OK(port->start());
  return std::unique_ptr<WorkerPort>(std::move(port));
}

}  // namespace deepinfer
