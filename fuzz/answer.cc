// Text of a model: the same message however it is cut. The first byte chooses what the parser looks for, the second the cuts.
#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/utf8.h"
#include "recipe/parse.h"

namespace {

using namespace deepinfer;

std::vector<std::string> message_of(const ParseOptions& options, std::string_view text, size_t step) {
  OutputParser parser(options);
  std::vector<OutputDelta> deltas;
  for (size_t at = 0; at < text.size();) {
    size_t end = at;
    while (end < text.size() && end < at + step) next_code_point(text, end);
    parser.feed(text.substr(at, end - at), {}, deltas);
    at = end;
  }
  parser.end(deltas);
  std::vector<std::string> out{"", "", parser.stop_string()};
  for (const OutputDelta& delta : deltas) {
    switch (delta.kind) {
      case OutputDelta::Kind::kReasoning: out[0] += delta.text; break;
      case OutputDelta::Kind::kContent: out[1] += delta.text; break;
      case OutputDelta::Kind::kToolName: out.push_back(delta.text + "("); break;
      case OutputDelta::Kind::kToolArguments: out.back() += delta.text; break;
    }
  }
  return out;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 2) return 0;
  ParseOptions options;
  options.tool_calls = (data[0] & 1) != 0;
  options.starts_in_tool_calls = (data[0] & 3) == 3;
  options.start = static_cast<ParseStart>(data[0] >> 2 & 3);
  if (data[0] & 16) options.stop = {"END", "\n\n", "E"};
  const std::string text = to_valid_utf8({reinterpret_cast<const char*>(data) + 2, size - 2});
  const auto whole = message_of(options, text, text.size() + 1);
  DI_CHECK(message_of(options, text, 1 + data[1] % 16) == whole);
  return 0;
}
