// A line from a person at a terminal, with editing and history.
#pragma once

#include <memory>
#include <string>

namespace halfbyte::tools {

struct Line {
  enum Kind { kText, kInterrupted, kEnd } kind = kEnd;  // kInterrupted: Ctrl-C, kEnd: Ctrl-D
  std::string text;                                     // without the newline
};

// One at a time. Sets the character type of the locale to UTF-8, which the editor needs.
class LineEditor {
 public:
  LineEditor();
  ~LineEditor();
  LineEditor(const LineEditor&) = delete;
  LineEditor& operator=(const LineEditor&) = delete;

  Line read(const char* prompt);
  void remember(const std::string& line);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace halfbyte::tools
