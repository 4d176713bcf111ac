// lab/line_editor.h - one line from a person at a terminal: editing, history, Ctrl-C clears the line.
//
// Promise: history is written after every line, so a killed chat keeps it; without a history file it lives in memory.
// Threads: one thread. REQUIRES: stdin and stdout are a terminal, a UTF-8 locale is set.
//
//   LineEditor editor("> ", history_file);
//   while (auto line = editor.read(interrupted)) ...   // nullopt: Ctrl-D, or Ctrl-C twice
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <string>

namespace deepinfer {

class LineEditor {
 public:
  LineEditor(std::string prompt, std::string history_file);
  ~LineEditor();
  LineEditor(const LineEditor&) = delete;
  LineEditor& operator=(const LineEditor&) = delete;

  // `interrupted` is set by the signal handler of Ctrl-C; it is cleared here.
  std::optional<std::string> read(std::atomic<bool>& interrupted);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace deepinfer
