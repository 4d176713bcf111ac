#include "lab/bench_hand_over.h"

#include <algorithm>
#include <cstring>
#include <future>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "cluster/page_exchange.h"
#include "net/frame_hub.h"
#include "net/side_lane.h"

namespace deepinfer {
namespace {

constexpr size_t kPages = 512, kPageBytes = 56'960, kStateBytes = 1'363'968, kChunk = 16,
                 kBytes = kPages * kPageBytes + kStateBytes;
constexpr int kTurns = 15;
FrameHubOptions options_of(FrameLanes lane) { return {.address = "127.0.0.1", .lane = lane}; }

using Memory = std::vector<uint8_t>;

// Two hubs, one of which puts what comes where it belongs.
class Frames {
 public:
  explicit Frames(Memory& to) : to_(to) {}

  Status start(FrameLanes lane) {
    DI_TRY(receiver_, FrameHub::open(options_of(lane), {.opened = [](LinkId) {},
                                                        .frame = [this](LinkId, uint8_t, std::string_view bytes) { take(bytes); },
                                                        .closed = [](LinkId, const Error&) {}}));
    DI_TRY(sender_, FrameHub::open({.lane = lane}, {.opened = [](LinkId) {},
                                                    .frame = [](LinkId, uint8_t, std::string_view) {},
                                                    .closed = [](LinkId, const Error&) {}}));
    link_ = sender_->connect("127.0.0.1", receiver_->port());
    return {};
  }
  void copy(const Memory& from) {
    done_ = std::promise<void>();
    come_ = 0;
    for (size_t at = 0; at < kBytes; at += kChunk * kPageBytes) {
      const size_t count = std::min(kChunk * kPageBytes, kBytes - at);
      sender_->send(link_, 1, {reinterpret_cast<const char*>(from.data() + at), count});
    }
    done_.get_future().wait();
  }

 private:
  void take(std::string_view bytes) {
    std::memcpy(to_.data() + come_, bytes.data(), bytes.size());
    come_ += bytes.size();
    if (come_ == kBytes) done_.set_value();
  }
  Memory& to_;
  size_t come_ = 0;
  std::promise<void> done_;
  std::unique_ptr<FrameHub> receiver_, sender_;
  LinkId link_ = 0;
};

Status hand_over(PageExchange& sender, PageExchange& receiver, uint64_t number, const Memory& from, Memory& to) {
  const auto sink = sender.send({"127.0.0.1", receiver.port(), number, 0, kPages});
  const auto load = receiver.expect(number);
  std::vector<PageKey> keys(kPages);
  for (size_t i = 0; i < kPages; ++i) {
    keys[i] = {number, i};
    std::memcpy(sink->page(i, keys[i]), from.data() + i * kPageBytes, kPageBytes);
    if ((i + 1) % kChunk == 0) sink->written(i + 1);
  }
  std::memcpy(sink->state(), from.data() + kPages * kPageBytes, kStateBytes);
  sink->close(64, {}, true);
  while (!load->is_over()) std::this_thread::sleep_for(std::chrono::microseconds(100));
  if (load->ready(keys) != kPages || !load->snapshot) return internal_error("a hand-over within one machine did not come whole");
  for (size_t i = 0; i < kPages; ++i) std::memcpy(to.data() + i * kPageBytes, load->page(i), kPageBytes);
  std::memcpy(to.data() + kPages * kPageBytes, load->snapshot.get(), kStateBytes);
  return {};
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

// Rows for one transport, called `name`.
Status bench_over(FrameLanes lane, const std::string& name, FigureReport& report) {
  Memory from(kBytes), to(kBytes), there(kBytes);
  for (size_t i = 0; i < kBytes; ++i) from[i] = static_cast<uint8_t>(i * 2654435761u >> 24);
  Frames frames(to);
  DI_CHECK_OK(frames.start(lane));
  DI_TRY(const auto sender, PageExchange::open({.hub = options_of(lane)}));
  DI_TRY(const auto receiver, PageExchange::open({.hub = options_of(lane)}));
  for (PageExchange* side : {sender.get(), receiver.get()}) side->serve({"bench", kPageBytes, kStateBytes, 0});
  const SteadyClock clock;
  std::vector<double> plain_ms, handed_ms;
  for (int turn = 0; turn <= kTurns; ++turn) {
    const int64_t begin_us = clock.now_us();
    frames.copy(from);
    const int64_t middle_us = clock.now_us();
    DI_CHECK_OK(hand_over(*sender, *receiver, static_cast<uint64_t>(turn) + 1, from, there));
    if (turn == 0) continue;  // connections are made
    plain_ms.push_back(static_cast<double>(middle_us - begin_us) * 1e-3);
    handed_ms.push_back(static_cast<double>(clock.now_us() - middle_us) * 1e-3);
  }
  if (to != from || there != from) return internal_error("bytes of a hand-over differ");
  const double plain = median(plain_ms), handed = median(handed_ms);
  report.add({.name = name, .value = handed, .unit = "ms", .baseline = "frames", .ratio = handed / plain});
  report.add({.name = name + "/frames", .value = plain, .unit = "ms"});
  return {};
}

}  // namespace

Status bench_hand_over(FigureReport& report) {
  DI_CHECK_OK(bench_over(FrameLanes::kNone, "router/hand_over", report));
  if (!side_lane_version()) return {};
  return bench_over(FrameLanes::kAlways, "router/hand_over/ucx", report);
}

}  // namespace deepinfer
