// host/prefix_report.h - what the prefix cache did for a request, in words.
//
// Members: prompt_tokens, cached_tokens, loaded_tokens, replayed_tokens, reason, and where the prompt left what is cached
// first_different with the text before it, the prompt's from there on (here) and the cached one's (there). Promise: nothing in it
// names or shows another tenant's; as long as there is room, nothing in it depends on them. Threads: pure.
#pragma once

#include <cstdint>

#include "base/json.h"
#include "core/prefix_verdict.h"
#include "text/tokenizer.h"

namespace deepinfer {

Json prefix_report(const PrefixVerdict& verdict, int64_t prompt_tokens, const Tokenizer& tokenizer);

}  // namespace deepinfer
