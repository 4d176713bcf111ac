#include "host/draft_calibration.h"

#include <fmt/format.h>

#include <filesystem>

#include "base/file.h"
#include "base/json.h"

namespace deepinfer {

Temperatures read_calibration(const std::string& path, const std::string& key) {
  const auto text = read_file(path);
  const auto json = text ? Json::parse(*text) : Result<Json>(text.error());
  if (!json || !json->is_object() || !(json->at("key") == Json(key))) return kNoTemperatures;
  const double least = double{grid_temperature(0)}, most = double{grid_temperature(kTemperatureGrid - 1)};
  const Json& list = json->at("temperatures");
  Temperatures temperatures = kNoTemperatures;
  if (list.size() != temperatures.size()) return kNoTemperatures;
  for (size_t i = 0; i < temperatures.size(); ++i) {
    const Result<double> value = list[i].to_double("temperatures");
    if (!value || !(*value >= least && *value <= most)) return kNoTemperatures;
    temperatures[i] = static_cast<float>(*value);
  }
  return temperatures;
}

Status write_calibration(const std::string& path, const std::string& key, const Temperatures& temperatures) {
  std::error_code ignored;
  std::filesystem::create_directories(std::filesystem::path(path).parent_path(), ignored);
  Json list = Json::array();
  for (const float value : temperatures) list.push_back(Json::number(fmt::format("{}", value)));
  return write_file(path, Json::object({{"key", key}, {"temperatures", std::move(list)}}).dump());
}

}  // namespace deepinfer
