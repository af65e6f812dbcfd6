// The text that a command is asked for: what a prompt on stdin, or in the place of the model, means.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"

namespace halfbyte::tools {

// stdin to its end. More than 16 MiB is refused: no model's context holds that, and a stream without end would take all memory.
Result<std::string> read_stdin_text();

// Says once, in a note, that a pipe or a file on stdin has text, for a command that got its text otherwise. Looks when it is
// made and when it goes, so make it before the work. Never waits: what comes later than the command ends is not seen.
class UnreadStdin {
 public:
  // `what`: "prompt". Without `watch` it does nothing.
  UnreadStdin(std::string_view what, bool watch);
  ~UnreadStdin() { look(); }
  UnreadStdin(const UnreadStdin&) = delete;
  UnreadStdin& operator=(const UnreadStdin&) = delete;

 private:
  void look();
  std::string_view what_;
  bool watch_;
};

// The status, and where `model` can be neither a model nor the name of one, that the first argument is the MODEL and that
// `flag` ("--prompt") gives a text without one.
Status explain_missing_model(const std::string& model, std::string_view flag, Status status);

}  // namespace halfbyte::tools
