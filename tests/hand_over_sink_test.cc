// Where pages go while a prompt is computed. Apart from hand_over_test.cc, which takes too long under a sanitizer.
#include <gtest/gtest.h>

#include "tests/store_lives.h"

namespace deepinfer {
namespace {

// Pages go here, into memory that a sanitizer watches.
class OwnSink final : public PageSink {
 public:
  explicit OwnSink(const Engine::TransferSizes& sizes) : sizes_(sizes) {}
  uint8_t* page(size_t, const PageKey&) override { return fresh(sizes_.page); }
  void written(size_t) override {}
  uint8_t* state() override { return fresh(sizes_.state); }
  uint8_t* whole_state() override { return fresh(sizes_.whole); }
  void close(Position, const WholeState&, bool) override {}

 private:
  uint8_t* fresh(size_t bytes) { return memory_.emplace_back(std::make_unique<uint8_t[]>(bytes)).get(); }
  const Engine::TransferSizes sizes_;
  std::vector<std::unique_ptr<uint8_t[]>> memory_;
};

// A device may still be writing to a sink whose prompt is given up.
TEST(HandOverSink, StaysUntilTheDeviceHasDone) {
  for (const int32_t steps : {1, 2}) {
    Life life("delayed", {.context = 1024, .pages = 64, .snapshot_bytes = 64 << 20});
    Engine& engine = life.engine();
    std::mt19937 random(11);
    const auto id = engine.submit(request_of(random_tokens(random, 400), 20), [](const Event&) {},
                                  {.in = nullptr, .out = std::make_shared<OwnSink>(engine.transfer_sizes())});
    for (int32_t i = 0; i < steps; ++i) engine.step();
    engine.cancel(*id);
    run_until_idle(engine);
  }
}

}  // namespace
}  // namespace deepinfer
