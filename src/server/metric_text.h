// server/metric_text.h - figures in the text form of Prometheus, for those that have some besides the server's own.
//
// Threads: pure.
//
//   metric_text({{.name = "deepinfer_router_moved_total", .help = "...", .is_counter = true, .value = 3}})
#pragma once

#include <string>
#include <vector>

namespace deepinfer {

struct Figure {
  std::string name;
  const char* help = "";
  bool is_counter = false;  // else a gauge
  double value = 0;
  const char* label = "";  // its name; "" = none
  std::string label_value;
};

// Those of one name stand behind each other.
std::string metric_text(const std::vector<Figure>& figures);

}  // namespace deepinfer
