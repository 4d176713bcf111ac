#include "lab/line_editor.h"

#include <histedit.h>
#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <utility>

#include "base/utf8.h"

namespace deepinfer {

namespace {

constexpr int kHistoryLines = 1000;
constexpr int kPatienceMs = 50;
constexpr char kCtrlD = 4;

}  // namespace

struct LineEditor::State {
  std::string prompt, history_file;
  EditLine* editor = nullptr;
  History* history = nullptr;
  std::atomic<bool>* interrupted = nullptr;
  std::string pending;              // bytes of an unfinished UTF-8 sequence
  bool typed = false;               // something was typed on the current line
  bool interrupted_before = false;  // and nothing was typed since

  static State& of(EditLine* editor) {
    void* data = nullptr;
    el_get(editor, EL_CLIENTDATA, &data);
    return *static_cast<State*>(data);
  }
  static int read_character(EditLine* editor, wchar_t* out);
  static char* prompt_text(EditLine* editor) { return of(editor).prompt.data(); }
};

// The editor's own reader would wait on after a signal, and the signal may reach another thread; this one looks at the flag
// now and then, so that Ctrl-C takes effect at once.
int LineEditor::State::read_character(EditLine* editor, wchar_t* out) {
  State& state = of(editor);
  while (true) {
    if (state.interrupted->load()) return -1;
    pollfd input = {STDIN_FILENO, POLLIN, 0};
    if (poll(&input, 1, kPatienceMs) <= 0) continue;
    char byte = 0;
    const ssize_t got = ::read(STDIN_FILENO, &byte, 1);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return static_cast<int>(got);
    // Ctrl-D typed while the terminal was not yet the editor's arrives as a zero byte.
    if (byte == 0) byte = kCtrlD;
    state.pending += byte;
    if (incomplete_utf8_suffix(state.pending) == state.pending.size()) continue;
    size_t at = 0;
    *out = static_cast<wchar_t>(next_code_point(state.pending, at));
    state.pending.clear();
    state.typed = true;
    state.interrupted_before = false;
    return 1;
  }
}

LineEditor::LineEditor(std::string prompt, std::string history_file) : state_(std::make_unique<State>()) {
  state_->prompt = std::move(prompt);
  state_->history_file = std::move(history_file);
  state_->editor = el_init("deepinfer", stdin, stdout, stderr);
  state_->history = history_init();
  HistEvent event;
  history(state_->history, &event, H_SETSIZE, kHistoryLines);
  history(state_->history, &event, H_SETUNIQUE, 1);
  EditLine* editor = state_->editor;
  el_set(editor, EL_CLIENTDATA, state_.get());
  el_set(editor, EL_PROMPT, State::prompt_text);
  el_set(editor, EL_EDITOR, "emacs");
  el_set(editor, EL_SIGNAL, 0);
  el_set(editor, EL_HIST, history, state_->history);
  el_set(editor, EL_GETCFN, State::read_character);
  el_set(editor, EL_BIND, "^R", "em-inc-search-prev", nullptr);
  if (!state_->history_file.empty()) {
    std::error_code error;
    std::filesystem::create_directories(std::filesystem::path(state_->history_file).parent_path(), error);
    history(state_->history, &event, H_LOAD, state_->history_file.c_str());
  }
}

LineEditor::~LineEditor() {
  el_end(state_->editor);
  history_end(state_->history);
}

std::optional<std::string> LineEditor::read(std::atomic<bool>& interrupted) {
  state_->interrupted = &interrupted;
  interrupted = false;
  state_->typed = false;
  state_->pending.clear();
  while (true) {
    int count = 0;
    const char* text = el_gets(state_->editor, &count);
    if (interrupted.exchange(false)) {
      el_reset(state_->editor);
      std::fputs("\n", stdout);
      std::fflush(stdout);
      const bool again = !std::exchange(state_->typed, false) && std::exchange(state_->interrupted_before, true);
      if (again) return std::nullopt;
      continue;
    }
    if (!text || count <= 0) return std::nullopt;
    std::string line(text, static_cast<size_t>(count));
    while (!line.empty() && (line.back() == '\n' || line.back() == '\r')) line.pop_back();
    if (line.find_first_not_of(" \t") != std::string::npos) {
      HistEvent event;
      history(state_->history, &event, H_ENTER, line.c_str());
      if (!state_->history_file.empty()) history(state_->history, &event, H_SAVE, state_->history_file.c_str());
    }
    return line;
  }
}

}  // namespace deepinfer
