#include "line_editor.h"

#include <histedit.h>
#include <poll.h>
#include <unistd.h>

#include <clocale>
#include <cstdio>

#include "base/utf8.h"
#include "command.h"

namespace halfbyte::tools {
namespace {

// How long an interrupt may go unseen: it may be delivered to another thread, which wakes no read here.
constexpr int kPollMilliseconds = 50;
constexpr int kHistoryLines = 1000;

// One byte; 0 at the end of the input, -1 when interrupted.
int read_byte(char& byte) {
  while (true) {
    if (interrupted()) return -1;
    pollfd stdin_ready{STDIN_FILENO, POLLIN, 0};
    const int ready = poll(&stdin_ready, 1, kPollMilliseconds);
    if (ready <= 0) continue;  // time is up, or a signal came: look at the flag
    const ssize_t n = read(STDIN_FILENO, &byte, 1);
    if (n >= 0) return static_cast<int>(n);
  }
}

// libedit's own would try an interrupted read again and so lose the first Ctrl-C.
int read_character(EditLine*, wchar_t* out) {
  std::string bytes;
  while (bytes.size() < 4) {
    char byte = 0;
    const int n = read_byte(byte);
    if (n <= 0) return n;
    bytes += byte;
    const Utf8Char c = next_code_point(bytes, 0);
    if (c.valid || incomplete_utf8_suffix(bytes) == 0) {
      *out = static_cast<wchar_t>(c.code_point);
      return 1;
    }
  }
  *out = static_cast<wchar_t>(0xFFFD);
  return 1;
}

const char* g_prompt = "";
char* prompt_of(EditLine*) {
  return const_cast<char*>(g_prompt);
}

}  // namespace

struct LineEditor::Impl {
  EditLine* editor = nullptr;
  History* history = nullptr;
};

LineEditor::LineEditor() : impl_(std::make_unique<Impl>()) {
  std::setlocale(LC_CTYPE, "C.UTF-8");
  impl_->editor = el_init("halfbyte", stdin, stdout, stderr);
  impl_->history = history_init();
  HistEvent event;
  history(impl_->history, &event, H_SETSIZE, kHistoryLines);
  el_set(impl_->editor, EL_PROMPT, prompt_of);
  el_set(impl_->editor, EL_EDITOR, "emacs");
  el_set(impl_->editor, EL_SIGNAL, 0);
  el_set(impl_->editor, EL_HIST, history, impl_->history);
  el_set(impl_->editor, EL_GETCFN, read_character);
  el_source(impl_->editor, nullptr);  // the person's own ~/.editrc
}

LineEditor::~LineEditor() {
  history_end(impl_->history);
  el_end(impl_->editor);
}

Line LineEditor::read(const char* prompt) {
  clear_interrupt();
  g_prompt = prompt;
  el_set(impl_->editor, EL_PREP_TERM,
         1);  // before the prompt: a Ctrl-D typed at its sight is not the line discipline's
  int count = 0;
  const char* line = el_gets(impl_->editor, &count);
  if (interrupted()) {
    el_reset(impl_->editor);
    return {Line::kInterrupted, ""};
  }
  if (line == nullptr || count <= 0) return {Line::kEnd, ""};
  std::string text(line, static_cast<size_t>(count));
  while (!text.empty() && (text.back() == '\n' || text.back() == '\r')) text.pop_back();
  return {Line::kText, text};
}

void LineEditor::remember(const std::string& line) {
  HistEvent event;
  history(impl_->history, &event, H_ENTER, line.c_str());
}

}  // namespace halfbyte::tools
