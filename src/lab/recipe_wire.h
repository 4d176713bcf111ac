// lab/recipe_wire.h - the wires of the recipe behind one door, for goldens and benches.
//
// Threads: pure functions; a writer belongs to one answer.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "api/chat/request.h"
#include "api/responses/request.h"
#include "base/json.h"
#include "base/result.h"
#include "recipe/output_stream.h"

namespace deepinfer {

struct WireRequest {
  std::string wire;  // chat, messages, responses
  ChatRequest chat;
  std::optional<ResponsesRequest> responses;
};

bool is_wire(std::string_view name);
// REQUIRES: is_wire(wire).
Result<WireRequest> parse_wire_request(std::string_view wire, std::string_view body, const ApiOptions& options);

// Writes events in the form of the goldens: chunk objects (chat) or [name, object] pairs. Ids and times are the goldens'.
class WireWriter {
 public:
  virtual ~WireWriter() = default;
  virtual void write(const OutputEvent& event, const OutputStream& stream, Json& list) = 0;
  // The same event as the bytes of a stream, by the writer's fast path.
  virtual void append(const OutputEvent& event, const OutputStream& stream, std::string& out) = 0;
  virtual Json response(const OutputStream& stream) const = 0;
};
std::unique_ptr<WireWriter> make_wire_writer(const WireRequest& request);

// What append() is to write for an item of write()'s list.
std::string wire_bytes(const Json& item);

}  // namespace deepinfer
