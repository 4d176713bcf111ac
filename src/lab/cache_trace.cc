#include "lab/cache_trace.h"

#include <algorithm>
#include <array>
#include <limits>
#include <set>
#include <unordered_map>
#include <utility>

#include <fmt/format.h>

#include "host/compressed_file.h"
#include "kvcache/prefix_index.h"
#include "sim/trace.h"

namespace deepinfer {
namespace {

constexpr std::array<int32_t, 6> kShares = {1, 5, 10, 25, 50, 100};

}  // namespace

Result<CacheTrace> read_cache_trace(const std::string& path) {
  DI_TRY(const std::string text, read_maybe_compressed(path));
  DI_TRY(const std::vector<TraceRequest> requests, parse_trace(text, path));
  CacheTrace trace;
  std::unordered_map<uint32_t, int32_t> numbers;
  for (const TraceRequest& request : requests) {
    auto& prompt = trace.prompts.emplace_back();
    for (const uint32_t block : request.blocks)
      prompt.push_back(numbers.try_emplace(block, static_cast<int32_t>(numbers.size())).first->second);
    trace.blocks += static_cast<int64_t>(prompt.size());
  }
  trace.distinct = static_cast<int32_t>(numbers.size());
  if (trace.distinct == 0) return invalid_argument(fmt::format("{} has no blocks", path));
  return trace;
}

// A block is a page of one token, its number.
int64_t replay_trace(const CacheTrace& trace, int32_t room, EvictionPolicy policy) {
  PagePool pool(room, policy);
  SnapshotShelf shelf(1, 1, room);
  PrefixIndex index(pool, shelf, 1);
  const PageKey root = root_key("trace", false, "");
  PrefixMatch found;
  std::vector<PageKey> keys;
  int64_t hits = 0;
  for (const auto& prompt : trace.prompts) {
    // One that has no room at all is served from its beginning only.
    const auto tokens = std::span<const TokenId>(prompt).first(std::min(prompt.size(), static_cast<size_t>(room)));
    keys.clear();
    extend_page_keys(root, tokens, {}, 1, keys);
    index.match(root, keys, tokens, found);
    hits += static_cast<int64_t>(found.pages.size());
    PageLease lease = pool.share(found.pages);
    const uint32_t number = index.begin(found.pages, keys.size());
    const auto fresh = static_cast<int64_t>(keys.size() - found.pages.size());
    DI_CHECK(index.make_room(fresh));
    auto more = pool.lease(fresh);
    DI_CHECK(more.ok());
    lease.append(*std::move(more));
    for (size_t i = found.pages.size(); i < keys.size(); ++i)
      index.publish(root, keys, i, tokens, i == 0 ? -1 : lease.pages()[i - 1], lease.pages()[i], number);
  }
  return hits;
}

// Belady: of all that are there the block whose next use is farthest goes.
int64_t replay_best(const CacheTrace& trace, int32_t room) {
  constexpr int64_t kNever = std::numeric_limits<int64_t>::max();
  std::vector<int64_t> next(static_cast<size_t>(trace.blocks), kNever), seen(static_cast<size_t>(trace.distinct), kNever);
  int64_t at = trace.blocks;
  for (auto prompt = trace.prompts.rbegin(); prompt != trace.prompts.rend(); ++prompt) {
    for (auto block = prompt->rbegin(); block != prompt->rend(); ++block)
      next[static_cast<size_t>(--at)] = std::exchange(seen[static_cast<size_t>(*block)], at);
  }
  std::vector<int64_t> due(static_cast<size_t>(trace.distinct), -1);  // -1: not there
  std::set<std::pair<int64_t, int32_t>> there;
  int64_t hits = 0;
  at = 0;
  for (const auto& prompt : trace.prompts) {
    for (const int32_t block : prompt) {
      int64_t& when = due[static_cast<size_t>(block)];
      if (when >= 0) {
        ++hits;
        there.erase({when, block});
      } else if (static_cast<int32_t>(there.size()) == room) {
        due[static_cast<size_t>(std::prev(there.end())->second)] = -1;
        there.erase(std::prev(there.end()));
      }
      when = next[static_cast<size_t>(at++)];
      there.insert({when, block});
    }
  }
  return hits;
}

Status bench_cache_trace(const std::string& path, FigureReport& report) {
  DI_TRY(const CacheTrace trace, read_cache_trace(path));
  for (const int32_t share : kShares) {
    const auto room = static_cast<int32_t>(std::max<int64_t>(1, int64_t{trace.distinct} * share / 100));
    const auto percent = [&](int64_t hits) { return 100.0 * static_cast<double>(hits) / static_cast<double>(trace.blocks); };
    const double lru = percent(replay_trace(trace, room, EvictionPolicy::kLru));
    const double ours = percent(replay_trace(trace, room, EvictionPolicy::kUses));
    const double best = percent(replay_best(trace, room));
    report.add({.name = fmt::format("cache/trace/{}/lru", share), .value = lru, .unit = "%", .limit = best});
    report.add({.name = fmt::format("cache/trace/{}/default", share),
                .value = ours,
                .unit = "%",
                .limit = best,
                .baseline = "lru",
                .ratio = ours / lru});
    report.add({.name = fmt::format("cache/trace/{}/best", share), .value = best, .unit = "%"});
  }
  return {};
}

}  // namespace deepinfer
