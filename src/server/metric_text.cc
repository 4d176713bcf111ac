#include "server/metric_text.h"

#include <prometheus/metric_family.h>
#include <prometheus/text_serializer.h>

namespace deepinfer {

std::string metric_text(const std::vector<Figure>& figures) {
  std::vector<prometheus::MetricFamily> families;
  for (const Figure& figure : figures) {
    const auto type = figure.is_counter ? prometheus::MetricType::Counter : prometheus::MetricType::Gauge;
    if (families.empty() || families.back().name != figure.name) families.push_back({figure.name, figure.help, type, {}});
    prometheus::ClientMetric& metric = families.back().metric.emplace_back();
    if (*figure.label) metric.label = {{figure.label, figure.label_value}};
    (figure.is_counter ? metric.counter.value : metric.gauge.value) = figure.value;
  }
  return prometheus::TextSerializer().Serialize(families);
}

}  // namespace deepinfer
