// Progress of long work on a terminal: one line that is rewritten in place. Nothing at all when the stream is no
// terminal, so that logs and pipes stay clean.
#pragma once

#include <cstdint>
#include <cstdio>
#include <optional>
#include <string>

#include "base/clock.h"

namespace halfbyte {

// "loading model  47%  44.1 MiB of 93.8 MiB  1.21 GB/s  ETA 0:03", cut to `columns` characters. The rate is in 10^9
// bytes a second. Without a total (0) there is neither percent nor ETA; too narrow for label and percent: no label.
std::string progress_line(const std::string& label, uint64_t done_bytes, uint64_t total_bytes, double seconds,
                          int columns);

// "answering  7 of 200  ETA 0:12": of pieces that take about as long as each other, `before` of which were done when the
// `seconds` began. Without one done since then there is no ETA.
std::string pieces_line(const std::string& label, uint64_t before, uint64_t done, uint64_t total, double seconds,
                        int columns);

// Thread-compatible.
class ProgressBar {
 public:
  // Writes to `stream` if that is a terminal that can rewrite a line (TERM is set and not "dumb").
  explicit ProgressBar(std::string label, std::FILE* stream = stderr);
  // For tests and for tools with --quiet: says outright whether to write.
  ProgressBar(std::string label, std::FILE* stream, bool enabled);
  ~ProgressBar() { finish(); }
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;

  // Redraws at most ten times a second.
  void update(uint64_t done_bytes, uint64_t total_bytes);
  // Work that is counted: "measuring  3 of 5". Always redraws.
  void step(uint64_t done, uint64_t total);
  // The same with the time left, by that since the first call, which says what was there before. Always redraws.
  void piece(uint64_t done, uint64_t total);
  // Work in a unit that says nothing to a person: "writing out  47%". Redraws at most ten times a second.
  void share(uint64_t done, uint64_t total);
  // Work that says nothing until it is done: the label alone.
  void show();
  // Clears the line. Later updates are ignored.
  void finish();

 private:
  bool is_time(bool complete);
  void draw(const std::string& line);

  std::string label_;
  std::FILE* stream_;
  bool enabled_;
  bool drawn_ = false;
  Stopwatch since_start_;
  double last_draw_ = -1;
  std::optional<uint64_t> before_;  // pieces at the first call
  double first_piece_ = 0;          // when that was
};

}  // namespace halfbyte
