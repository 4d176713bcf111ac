// host/prefix_report.h - what the prefix cache did for a request, in words.
//
// Members: prompt_tokens, cached_tokens, loaded_tokens, replayed_tokens, reason, and where the prompt left what is cached
// first_different with the text before it, the prompt's from there on (here) and the cached one's (there), and, where it is one
// that usually breaks prefixes, a hint of its kind with advice; message, the index of the message it is in, where that is known.
// Promise: nothing in it names or shows another tenant's; as long as there is room, nothing in it depends on them. Threads: pure.
#pragma once

#include <cstdint>

#include "base/json.h"
#include "core/prefix_verdict.h"
#include "host/prefix_lint.h"
#include "recipe/prompt_map.h"
#include "text/tokenizer.h"

namespace deepinfer {

// Of a difference of a usual kind (host/prefix_lint.h).
std::optional<PrefixHint> prefix_hint(const PrefixVerdict& verdict, const Tokenizer& tokenizer);

Json prefix_report(const PrefixVerdict& verdict, int64_t prompt_tokens, const Tokenizer& tokenizer, const PromptMap& map);

}  // namespace deepinfer
