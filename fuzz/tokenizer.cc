// A tokenizer.json from anywhere: a tokenizer that encodes any text, or an error.
#include "text/tokenizer.h"

#include <cstdint>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace deepinfer;
  const auto tokenizer = Tokenizer::parse({reinterpret_cast<const char*>(data), size});
  if (!tokenizer) return 0;
  for (const std::string_view text : {"Hello, world! 123", "\xff\xfe", "<think>"}) {
    for (const TokenId id : tokenizer->encode_content(text)) DI_CHECK(tokenizer->contains(id));
    for (const TokenId id : tokenizer->encode(text)) DI_CHECK(tokenizer->contains(id));
  }
  return 0;
}
