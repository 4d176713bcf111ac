// text/tokenizer_file.h - reads a tokenizer.json into plain tables and refuses whatever V4.1's tokenizer is not.
//
// Inside the room only: tokenizer.cc makes a Tokenizer of it.
// Promise: any bytes give tables that hold together (every id has one token, every merge names known ones) or an Error.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "core/types.h"
#include "text/bpe.h"
#include "text/token_index.h"

namespace deepinfer {

struct AddedToken {
  TokenId id = 0;
  std::string text;
  bool special = false;
  bool normalized = false;  // cut out in a second pass, after the others
};

struct TokenizerFile {
  TokenBytes bytes;                 // of every id: what it adds to a decoded text
  TokenIndex index;                 // over the byte-level tokens of the vocabulary
  std::vector<uint8_t> byte_level;  // by id: in the vocabulary and spelled in the byte alphabet
  HugeVector<BpeMerge> merges;
  std::vector<AddedToken> added;  // by id
  bool ignore_merges = false;
};

Result<TokenizerFile> read_tokenizer_file(std::string_view json);

}  // namespace deepinfer
