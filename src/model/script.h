// model/script.h - the file behind `-m scripted:FILE`: replies, pace and faults (docs/formats/scripted.md).
//
// Promise: any bytes give a Script or a one-line error with file and line.
// Threads: a Script is a plain value.
//
//   DI_TRY(Script script, parse_script(text, "replies.jsonl", {.vocab = 5632, .tokenize = tokenize}));
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "core/types.h"

namespace deepinfer {

// What a script needs from whoever has a tokenizer. Without it a token is a byte and its id the byte's value.
struct ScriptTokens {
  int32_t vocab = 512;  // when the file does not say
  TokenId eos = 1;      // when the file does not say
  std::function<std::vector<TokenId>(std::string_view text)> tokenize;
  std::function<TokenId(uint8_t byte)> byte_token;
};

enum class ScriptFaultKind { kError, kNan, kStall };

struct ScriptFault {
  int64_t at = 0;  // step from 1, or token of the reply from 0
  ScriptFaultKind kind = ScriptFaultKind::kError;
  int64_t ms = 0;  // of a stall
};

struct ScriptReply {
  std::vector<TokenId> match;  // somewhere in the prompt; empty = any prompt
  std::vector<TokenId> ids;
  // Not a fixed text but logits drawn from a hash of everything before: `hash_tokens` tokens, then the end.
  int64_t hash_tokens = 0;
  uint64_t hash_seed = 0;
  int64_t delay_ms = 0;  // per token
  std::vector<ScriptFault> faults;

  int64_t size() const { return hash_tokens > 0 ? hash_tokens : static_cast<int64_t>(ids.size()); }
};

struct Script {
  std::string name;
  int32_t vocab = 0;
  TokenId eos = 0;
  int64_t context = 4096;
  int32_t window = 16;
  int32_t page_tokens = 64;
  int64_t delay_ms = 0;  // per step
  std::vector<ScriptFault> faults;
  std::vector<ScriptReply> replies;  // the first that matches answers
};

Result<Script> parse_script(std::string_view text, const std::string& path, const ScriptTokens& tokens = {});

}  // namespace deepinfer
