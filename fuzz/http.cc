// Bytes of a connection, cut anywhere: a request or a fault, memory bounded, no request out of thin air.
#include "net/request_reader.h"

#include <algorithm>
#include <cstdint>
#include <string>

#include "base/result.h"
#include "net/compression.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace deepinfer;
  if (size == 0) return 0;
  const size_t piece = data[0] + size_t{1};
  std::string_view left(reinterpret_cast<const char*>(data) + 1, size - 1);
  HttpLimits limits;
  limits.header_bytes = 4096;
  limits.body_bytes = 4096;
  RequestReader reader(limits);
  std::string in;
  for (int turns = 0; turns < 100'000; ++turns) {
    in.erase(0, reader.feed(in));
    if (reader.state() == RequestReader::State::kHead) continue;
    if (reader.state() == RequestReader::State::kFailed) {
      DI_CHECK(reader.fault().status >= 400 && reader.fault().status < 600);
      return 0;
    }
    if (reader.state() == RequestReader::State::kDone) {
      const HttpRequest request = reader.take();
      DI_CHECK(request.body.size() <= limits.body_bytes && !request.method.empty());
      (void)decoded_body(request.headers.get("content-encoding"), request.body, 65536);
      reader = RequestReader(limits);
      continue;
    }
    if (left.empty()) return 0;
    const size_t take = std::min(piece, left.size());
    in += left.substr(0, take);
    left.remove_prefix(take);
    if (in.size() > 2 * limits.header_bytes) return 0;  // the connection ends here
  }
  return 0;
}
