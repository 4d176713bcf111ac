// lab/golden_tokenize.h - the tokenizer's golden cases: JSON Lines with `op` encode, encode_content or decode.
//
// encode (added tokens on) and encode_content (off) compare `ids` with those of `text`. decode compares the bytes of `ids`
// with `bytes_hex`, the text with `text` and `text_skip_special`, and the streamed text with the whole one.
// Promise: an Error only for lines that are no such case; a case that differs is counted and named.
// Threads: one.
#pragma once

#include <string_view>

#include "base/result.h"
#include "lab/golden_counts.h"
#include "text/tokenizer.h"

namespace deepinfer {

Result<GoldenCounts> run_tokenize_cases(std::string_view lines, const Tokenizer& tokenizer);

}  // namespace deepinfer
