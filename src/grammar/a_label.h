// grammar/a_label.h - what may stand behind `xn--` in the label of a host name.
//
// An A-label spells a label of other scripts in ASCII: Punycode, RFC 3492, of a text that RFC 5890 to 5893 allow. Whether a text
// is one is decided by arithmetic on all its letters and by Unicode's tables, so no automaton has it: it is asked prefix by
// prefix. Written in lower case only, which is what converters write; names of hosts are equal in either case. Promise: a
// beginning that is allowed has an end; the search for it is bounded, and what it does not find is not allowed. Threads: pure.
//
//   a_label_ends("9n2bp8q")             // true: 실례
//   a_label_goes_on("9n2b", 59)         // true: something of at most 59 bytes in all begins so
#pragma once

#include <cstddef>
#include <string_view>

namespace deepinfer {

// `text`, without the `xn--` before it, is complete.
bool a_label_ends(std::string_view text);
// At most `most` bytes in all, `text` included, are an A-label. REQUIRES: most <= 59.
bool a_label_goes_on(std::string_view text, size_t most);
// Whatever begins with at most so many letters, digits and dashes goes on.
size_t a_label_free(size_t most);

}  // namespace deepinfer
