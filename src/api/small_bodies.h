// api/small_bodies.h - the small JSON bodies of a server: models, tokenize, detokenize.
//
// Threads: pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "core/types.h"

namespace deepinfer {

struct ModelCard {
  std::string id;
  std::string name;  // of the model behind it
  int64_t created = 0;
  int64_t context = 0;
  bool reads_images = false;
};
// What the clients of all wires look for, in one object.
Json model_json(const ModelCard& card);
Json model_list(const std::vector<ModelCard>& cards);

// {"prompt": TEXT, "add_special_tokens": bool}; "content" and "text" are accepted in place of "prompt". The text of a user:
// spellings of control tokens in it are text, unless "parse_special" is true.
struct TokenizeRequest {
  std::string text;
  bool add_special_tokens = true;
  bool parse_special = false;
};
Result<TokenizeRequest> parse_tokenize_request(std::string_view body);
Json tokenize_json(const std::vector<TokenId>& ids, int64_t context);

// {"tokens": [ids]}
Result<std::vector<TokenId>> parse_detokenize_request(std::string_view body, int32_t vocab);
Json detokenize_json(const std::string& text);

}  // namespace deepinfer
