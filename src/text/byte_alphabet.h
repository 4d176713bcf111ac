// text/byte_alphabet.h - the printable stand-ins by which a byte-level vocabulary spells bytes (GPT-2's alphabet).
//
// Printable Latin-1 stands for itself; the other 68 bytes take U+0100, U+0101, ... in byte order, so a space reads "Ġ".
#pragma once

#include <string>
#include <string_view>

namespace deepinfer {

// Appends the bytes that `spelling` stands for. False, with `out` as it was, when a character is not in the alphabet.
bool append_spelled_bytes(std::string& out, std::string_view spelling);
std::string spell_bytes(std::string_view bytes);

}  // namespace deepinfer
