#include "lab/bench_cache.h"

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <thread>

#include <fmt/format.h>

#include "base/clock.h"
#include "kvcache/tiers/page_locations.h"
#include "kvcache/tiers/store_tier.h"

namespace deepinfer {
namespace {

constexpr size_t kPrefixPages = 1000, kReadPages = 512;
constexpr int64_t kRawBlock = 1 << 20;

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

PageKey key_of(uint64_t number) {
  const TokenId ids[] = {static_cast<TokenId>(number), static_cast<TokenId>(number >> 31)};
  std::vector<PageKey> keys;
  extend_page_keys({}, ids, {}, 2, keys);
  return keys[0];
}

class CacheBench {
 public:
  CacheBench(Host& host, const BenchCacheOptions& options, FigureReport& report)
      : host_(host),
        options_(options),
        report_(report),
        layout_(host.model().layout()),
        folder_(fmt::format("{}/bench-{}", options.folder, ::getpid())) {}
  ~CacheBench() {
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
  }

  Status run() {
    lookup();
    DI_CHECK_OK(disk_.make_folders(folder_));
    for (int32_t i = 0; i < options_.repeats; ++i) DI_CHECK_OK(raw());
    for (int32_t i = 0; i < options_.repeats; ++i) DI_CHECK_OK(write(i));
    DI_CHECK_OK(read());
    return decode();
  }

 private:
  double seconds_since(int64_t begin_us) const {
    return static_cast<double>(std::max<int64_t>(1, clock_.now_us() - begin_us)) / 1e6;
  }

  void lookup() {
    PageLocations table;
    for (int64_t i = 0; i < options_.indexed; ++i) {
      table.insert(key_of(static_cast<uint64_t>(i)), {0, static_cast<uint32_t>(i + 1)}, [](uint32_t) { return true; });
    }
    std::vector<double> us;
    for (uint64_t round = 0; round < 200; ++round) {
      std::vector<PageKey> keys;
      for (uint64_t i = 0; i < kPrefixPages; ++i)
        keys.push_back(key_of((round * 48'611 + i * 7'919) % static_cast<uint64_t>(options_.indexed)));
      const int64_t begin = clock_.now_us();
      size_t found = 0;
      for (size_t i = 0; i < keys.size(); ++i) {
        if (i + 8 < keys.size()) table.prefetch(keys[i + 8]);
        found += table.find(keys[i]) != nullptr;
      }
      DI_CHECK(found == keys.size());
      us.push_back(seconds_since(begin) * 1e6);
    }
    report_.add({.name = "cache/lookup", .value = median(us), .unit = "us"});
  }

  // What the disk does with the same bytes when nothing is done with them.
  Status raw() {
    const int64_t blocks = options_.pages * layout_.page_bytes / kRawBlock;
    BlockBuffer buffer(kRawBlock);
    std::fill(buffer.bytes().begin(), buffer.bytes().end(), uint8_t{7});
    const std::string path = folder_ + "/raw";
    DI_TRY(auto file, disk_.create(path));
    int64_t begin = clock_.now_us();
    for (int64_t i = 0; i < blocks; ++i) DI_CHECK_OK(file->write(i * kRawBlock, buffer.bytes()));
    raw_write_.push_back(static_cast<double>(blocks * kRawBlock) / seconds_since(begin));
    begin = clock_.now_us();
    for (int64_t i = 0; i < blocks; ++i) DI_CHECK_OK(file->read(i * kRawBlock, buffer.bytes()));
    raw_read_.push_back(static_cast<double>(blocks * kRawBlock) / seconds_since(begin));
    return disk_.remove(path);
  }

  StoreTierOptions tier_options(int32_t number) {
    StoreTierOptions out;
    out.disk = &disk_, out.date = &date_;
    out.folder = fmt::format("{}/{}", folder_, number);
    out.fingerprint = "bench";
    out.deadline.base_us = 60'000'000;
    return out;
  }

  void name_page(uint64_t number, StagingRing::Slot& slot) const {
    slot.key = key_of(number + 1), slot.parent = key_of(number), slot.tenant = 0, slot.ticket = 0;
    std::fill(slot.tokens.begin(), slot.tokens.end(), static_cast<TokenId>(number));
    std::fill(slot.payload.begin(), slot.payload.end(), static_cast<uint8_t>(number));
  }

  Status write(int32_t number) {
    DI_TRY(auto tier, StoreTier::open(tier_options(number), layout_, layout_.ring_bytes, true));
    const int64_t begin = clock_.now_us();
    for (uint64_t page = 0; page < static_cast<uint64_t>(options_.pages);) {
      StagingRing::Slot* slot = tier->stage(RecordKind::kPage);
      if (!slot) {
        std::this_thread::sleep_for(std::chrono::microseconds(200));
        continue;
      }
      name_page(page++, *slot);
      if (page % 16 == 0) tier->settle(1, true);
    }
    tier->settle(1, true);
    while (tier->stats().segments.written_records < options_.pages) std::this_thread::sleep_for(std::chrono::microseconds(200));
    written_.push_back(static_cast<double>(options_.pages * layout_.page_bytes) / seconds_since(begin));
    return {};
  }

  Status read() {
    DI_TRY(auto tier, StoreTier::open(tier_options(0), layout_, layout_.ring_bytes, true));
    std::vector<double> rates, ready_ms;
    const size_t rounds = static_cast<size_t>(options_.pages) / kReadPages;
    for (size_t round = 0; round < rounds; ++round) {
      auto load = std::make_shared<StoreLoad>();
      load->first = round * kReadPages, load->pages = kReadPages;
      for (uint64_t page = load->first; page <= load->first + kReadPages; ++page) load->keys.push_back(key_of(page));
      for (uint64_t page = load->first; page < load->first + kReadPages; ++page)
        load->tokens.insert(load->tokens.end(), static_cast<size_t>(layout_.page_tokens), static_cast<TokenId>(page));
      const int64_t begin = clock_.now_us();
      load = tier->load(std::move(load));
      while (!tier->is_over(*load)) std::this_thread::sleep_for(std::chrono::microseconds(100));
      const double seconds = seconds_since(begin);
      if (load->ready() != kReadPages) return internal_error("the store did not give back what the bench wrote");
      rates.push_back(static_cast<double>(kReadPages * static_cast<size_t>(layout_.page_bytes)) / seconds);
      ready_ms.push_back(seconds * 1e3);
      tier->retire(std::move(load), 0);
      tier->settle(1, true);
    }
    const double raw_read = median(raw_read_), bytes = static_cast<double>(kReadPages * static_cast<size_t>(layout_.page_bytes));
    report_.add({.name = "cache/write", .value = median(written_) / 1e6, .unit = "MB/s", .limit = median(raw_write_) / 1e6});
    report_.add({.name = "cache/read", .value = median(rates) / 1e6, .unit = "MB/s", .limit = raw_read / 1e6});
    report_.add({.name = "cache/ready", .value = median(ready_ms), .unit = "ms", .limit = 1.25 * bytes / raw_read * 1e3 + 5});
    return {};
  }

  // Tokens a second of 8 answers that fill pages.
  Result<double> decode_once(const StoreTierOptions& store) {
    EngineOptions options{
        .context = 1024,
        .speculation = {.mode = SpeculationMode::kOff},
    };
    options.store = store;
    int32_t tokens = 0;  // before the engine, whose end may tell of more
    DI_TRY(auto engine, Engine::create(host_.device(), host_.model(), options));
    constexpr int32_t kStreams = 8, kTokens = 256;
    for (int32_t i = 0; i < kStreams; ++i) {
      Request request;
      for (int32_t at = 0; at < 16; ++at) request.prompt.push_back(3 + (at * 7'919 + i * 104'729) % 2'000);
      request.sampling.temperature = 0;
      request.max_tokens = kTokens;
      DI_TRY(const RequestId id,
             engine->submit(std::move(request), [&](const Event& event) { tokens += event.token.has_value(); }));
      static_cast<void>(id);
    }
    const int64_t begin = clock_.now_us();
    while (engine->step()) {
    }
    return static_cast<double>(tokens) / seconds_since(begin);
  }

  Status decode() {
    std::vector<double> with, ratios;
    for (int32_t i = 0; i < options_.repeats; ++i) {
      DI_TRY(const double plain, decode_once({}));
      DI_TRY(const double stored, decode_once(tier_options(1'000 + i)));
      with.push_back(stored);
      ratios.push_back(stored / plain);
    }
    report_.add({.name = "cache/decode",
                 .value = median(with),
                 .unit = "tokens/s",
                 .baseline = "without a store",
                 .ratio = median(ratios)});
    return {};
  }

  Host& host_;
  const BenchCacheOptions options_;
  FigureReport& report_;
  const KvLayout layout_;
  const std::string folder_;
  PosixDisk disk_;
  DateClock date_;
  SteadyClock clock_;
  std::vector<double> raw_write_, raw_read_, written_;
};

}  // namespace

Status bench_cache(Host& host, const BenchCacheOptions& options, FigureReport& report) {
  return CacheBench(host, options, report).run();
}

}  // namespace deepinfer
