// text/room.h - text and token ids: what a checkpoint's tokenizer.json says, and nothing about models or prompts.
//
// Tokenizer encodes and decodes whole texts, Detokenizer streams ids as text, TokenMap folds tokens for Engram. Unicode
// data comes from utf8proc. Everything is const after construction and free of global state.
#pragma once

#include "text/detokenizer.h"
#include "text/token_map.h"
#include "text/tokenizer.h"
