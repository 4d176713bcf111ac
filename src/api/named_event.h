// api/named_event.h - a server-sent event with a name, as the Messages and Responses wires write them.
//
// Threads: pure functions.
#pragma once

#include <string>

#include "base/json.h"

namespace deepinfer {

struct NamedEvent {
  std::string name;
  Json data;
};

inline void append_sse_event(const NamedEvent& event, std::string& out) {
  out += "event: ";
  out += event.name;
  out += "\ndata: ";
  out += event.data.dump();
  out += "\n\n";
}

}  // namespace deepinfer
