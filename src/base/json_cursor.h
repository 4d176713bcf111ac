// base/json_cursor.h - reads one big JSON text from front to back without building it.
//
// For files of many megabytes with a known shape (a tokenizer of 129k entries), where a Json tree would cost most of the
// time. The caller says what it expects; the first thing that is not there becomes the error and every later call fails.
// Promise: any bytes give a value or an Error with line and column; strings are checked UTF-8; never throws.
// Threads: one cursor belongs to one thread; the text must outlive it.
//
//   JsonCursor in(text);
//   for (in.open_object(); in.next_member(key);) {
//     if (key == "size") in.read_int64(size); else in.skip_value(raw);
//   }
//   in.finish();
//   if (in.failed()) return in.error();
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"

namespace deepinfer {

class JsonCursor {
 public:
  explicit JsonCursor(std::string_view text) : text_(text) {}

  // What the next value is: '{', '[', '"', 'n' (number), or the first letter of true, false, null as 't', 'f', '0'; 0 = none.
  char peek();
  bool open_object();
  // Moves to the next member and reads its key; false at the end of the object or after a failure.
  bool next_member(std::string& key);
  bool next_raw_member(std::string_view& key, std::string& storage);  // like read_raw_string
  bool open_array();
  // True when another item follows (read it now).
  bool next_item();
  bool read_string(std::string& out);
  // The same without a copy: `out` lies in the text, or in `storage` when the string has escapes. For callers who look at
  // every byte anyway: UTF-8 is not checked.
  bool read_raw_string(std::string_view& out, std::string& storage);
  bool read_int64(int64_t& out);
  // Steps over a value of any kind and gives its text, which is balanced but not otherwise checked (Json::parse does that).
  bool skip_value(std::string_view& raw);
  // Only white space may follow.
  bool finish();

  // Makes `reason` the error at this place, unless there is one already; always false.
  bool fail(std::string reason);
  bool failed() const { return failed_; }
  Error error() const;

 private:
  void skip_space();
  bool expect(char wanted);
  bool member_follows();
  bool skip_string();
  size_t plain_end(size_t at, bool& wide) const;
  bool open_string(std::string_view& out, std::string& storage, bool& wide);
  bool read_escaped(std::string& out, size_t from);

  std::string_view text_;
  size_t at_ = 0;
  bool first_ = false;  // the container was just opened
  bool failed_ = false;
  size_t failed_at_ = 0;
  std::string reason_;
};

}  // namespace deepinfer
