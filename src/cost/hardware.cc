#include "cost/hardware.h"

#include <fmt/format.h>

#include <cmath>

#include "base/json.h"
#include "base/nearest.h"

namespace deepinfer {
namespace {

constexpr double kGiga = 1e9, kTera = 1e12;

std::vector<Hardware> make_cards() {
  // 16-byte loads read 4.63 TB/s over 8 GiB; 4.25 (copying) is what short kernels come to.
  const Hardware h200{.name = "h200",
                      .source =
                          "one H200 (driver 580, CUDA 13.0, 2026-11-29): copy 4.25 TB/s, fp8 1,502, bf16 797 TFLOP/s; "
                          "links assumed: 0.8 x NVLink, one 400 Gb/s port a GPU",
                      .reached_source =
                          "the best public kernel for each product on one H200, added up: 42 % of the limit at 128 "
                          "rows, where memory binds, 53 % at 256, where products do",
                      .memory_bytes = 141 * kGiga,
                      .read = 4.25 * kTera,
                      .fp4 = 1502 * kTera,
                      .fp8 = 1502 * kTera,
                      .wide = 797 * kTera,
                      .node = 8,
                      .node_send = 360 * kGiga,
                      .send = 50 * kGiga,
                      .reached_read = 0.42,
                      .reached_products = 0.53};
  // Of their data sheets what the H200 reached of its own.
  constexpr double kRead = 0.885, kFp8 = 0.759, kWide = 0.806;
  Hardware b200 = h200;
  b200.name = "b200";
  b200.source = "data sheet (8 TB/s, 4,500 and 2,250 TFLOP/s dense) x what an H200 reached of its own; not measured";
  b200.reached_source = "as on an H200; not measured";
  b200.memory_bytes = 180 * kGiga;
  b200.read = 8 * kTera * kRead;
  b200.fp4 = b200.fp8 = 4500 * kTera * kFp8;
  b200.wide = 2250 * kTera * kWide;
  b200.node_send = 720 * kGiga;
  Hardware gb200 = b200;
  gb200.name = "gb200";
  gb200.source = "data sheet (8 TB/s, 5,000 and 2,500 TFLOP/s dense, 72 GPUs on NVLink) x what an H200 reached; not measured";
  gb200.memory_bytes = 186 * kGiga;
  gb200.fp4 = gb200.fp8 = 5000 * kTera * kFp8;
  gb200.wide = 2500 * kTera * kWide;
  gb200.node = 72;
  return {h200, b200, gb200};
}

}  // namespace

Hardware as_reached(Hardware hardware) {
  hardware.read *= hardware.reached_read;
  for (double* rate : {&hardware.fp4, &hardware.fp8, &hardware.wide}) *rate *= hardware.reached_products;
  return hardware;
}

const std::vector<Hardware>& known_cards() {
  static const std::vector<Hardware> cards = make_cards();
  return cards;
}

const Hardware* find_card(std::string_view name) {
  for (const Hardware& card : known_cards()) {
    if (card.name == name) return &card;
  }
  return nullptr;
}

Result<Hardware> parse_hardware(std::string_view text, std::string_view file) {
  Result<Json> parsed = Json::parse(text);
  if (!parsed) return invalid_argument(fmt::format("{}: {}", file, parsed.error().message));
  if (!parsed->is_object()) return invalid_argument(fmt::format("{}: a description of hardware is one JSON object", file));
  Hardware out{.name = "hardware", .source = std::string(file), .reached_source = std::string(file)};
  double node = 1;
  struct Key {
    std::string name;
    double* to;
    double unit;
    bool needed = false;
    double most = 1e9;
  };
  const std::vector<Key> keys = {{"memory_gb", &out.memory_bytes, kGiga, true},
                                 {"read_gb_s", &out.read, kGiga, true},
                                 {"fp4_tflops", &out.fp4, kTera},
                                 {"fp8_tflops", &out.fp8, kTera, true},
                                 {"wide_tflops", &out.wide, kTera, true},
                                 {"devices_per_machine", &node, 1, false, 4096},
                                 {"machine_link_gb_s", &out.node_send, kGiga},
                                 {"network_gb_s", &out.send, kGiga},
                                 {"reached_read", &out.reached_read, 1, false, 1},
                                 {"reached_products", &out.reached_products, 1, false, 1}};
  std::vector<std::string> names = {"name"};
  for (const Key& key : keys) names.push_back(key.name);
  for (const auto& [name, value] : parsed->members()) {
    if (name == "name") {
      if (!value.is_string()) return invalid_argument(fmt::format("{}: name must be text", file));
      out.name = value.as_string();
      continue;
    }
    bool known = false;
    for (const Key& key : keys) {
      if (key.name != name) continue;
      DI_TRY(const double number, value.to_double(fmt::format("{}: {}", file, name)));
      if (!(number > 0)) return invalid_argument(fmt::format("{}: {} must be above 0", file, name));
      if (number > key.most) return invalid_argument(fmt::format("{}: {} must be at most {:.0f}", file, name, key.most));
      if (key.to == &node && number != std::floor(number))
        return invalid_argument(fmt::format("{}: {} must be a whole number", file, name));
      *key.to = number * key.unit;
      known = true;
    }
    if (!known) return invalid_argument(fmt::format("{}: unknown key '{}'{}", file, name, did_you_mean(name, names)));
  }
  for (const Key& key : keys) {
    if (key.needed && *key.to == 0) return invalid_argument(fmt::format("{}: {} is missing", file, key.name));
  }
  if (out.fp4 == 0) out.fp4 = out.fp8;
  out.node = static_cast<int32_t>(node);
  return out;
}

}  // namespace deepinfer
