// api/foreign_fields.h - fields of vLLM, SGLang and llama.cpp beside those of the wires, in profile `open`.
//
// People bring their request bodies along. What means the same here is honoured, what would change the answer and has no
// meaning here is refused with the form that does; everything else unknown stays ignored, as everywhere.
// Threads: pure.
//
//   DI_TRY(const ForeignFields extra, read_foreign_fields(body));
#pragma once

#include <optional>

#include "base/json.h"
#include "base/result.h"

namespace deepinfer {

struct ForeignFields {
  int32_t top_k = 0;  // 0 = all
  float min_p = 0, repetition_penalty = 1;
  std::optional<bool> thinking;  // enable_thinking, chat_template_kwargs
};

Result<ForeignFields> read_foreign_fields(const Json& body);

}  // namespace deepinfer
