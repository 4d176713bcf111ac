// lab/event_stream.h - streams of the wires as their clients read them: events out of bytes, and what is wrong with them.
//
// Promise: any bytes; line ends of all three kinds, `data:` with and without a blank behind it, comments and events of several
// data lines are read as the standard says, an event that no empty line ends is none. The problem_ functions give "" or the
// first thing a client would stumble over.
// Threads: pure functions.
//
//   const std::string problem = problem_of_messages(read_events(reply.body));
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"

namespace deepinfer {

struct StreamEvent {
  std::string name, data;
  Json json;  // null when `data` is none
};
std::vector<StreamEvent> read_events(std::string_view body);

// What the SDKs of OpenAI and Anthropic need. Both begin with named events whose name is their type.
std::string problem_of_messages(const std::vector<StreamEvent>& events);
std::string problem_of_responses(const std::vector<StreamEvent>& events);

}  // namespace deepinfer
