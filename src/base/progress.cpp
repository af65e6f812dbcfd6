#include "base/progress.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "base/size_text.h"

namespace halfbyte {
namespace {

constexpr double kRedrawSeconds = 0.1;

bool can_rewrite_lines(std::FILE* stream) {
  const char* term = std::getenv("TERM");
  return ::isatty(::fileno(stream)) == 1 && term != nullptr && *term != '\0' && std::strcmp(term, "dumb") != 0;
}

int terminal_columns(std::FILE* stream) {
  winsize size{};
  if (::ioctl(::fileno(stream), TIOCGWINSZ, &size) == 0 && size.ws_col > 0) return size.ws_col;
  return 80;
}

// "0:07", "12:30", "1:02:03"
std::string duration_text(double seconds) {
  const auto total = static_cast<long>(std::min(seconds, 359999.0) + 0.5);
  char out[32];
  if (total >= 3600) {
    std::snprintf(out, sizeof(out), "%ld:%02ld:%02ld", total / 3600, total / 60 % 60, total % 60);
  } else {
    std::snprintf(out, sizeof(out), "%ld:%02ld", total / 60, total % 60);
  }
  return out;
}

}  // namespace

std::string progress_line(const std::string& label, uint64_t done_bytes, uint64_t total_bytes, double seconds,
                          int columns) {
  std::string line = label;
  char part[64];
  const auto done = static_cast<double>(done_bytes);
  const auto total = static_cast<double>(total_bytes);
  if (total_bytes > 0) {
    std::snprintf(part, sizeof(part), "  %3.0f%%  ", std::min(100.0, 100.0 * done / total));
    line += part + format_bytes(done_bytes) + " of " + format_bytes(total_bytes);
  } else {
    line += "  " + format_bytes(done_bytes);
  }
  if (seconds > 0 && done_bytes > 0) {
    const double rate = done / seconds;
    std::snprintf(part, sizeof(part), "  %.2f GB/s", rate / 1e9);
    line += part;
    if (done_bytes < total_bytes) line += "  ETA " + duration_text((total - done) / rate);
  }
  if (columns <= 0 || line.size() <= static_cast<size_t>(columns)) return line;
  // Where there is no room for both, how far it is says more than what it is.
  constexpr size_t kPercent = 6;  // "  100%"
  if (total_bytes > 0 && label.size() + kPercent > static_cast<size_t>(columns)) line.erase(0, label.size() + 2);
  line.resize(std::min(line.size(), static_cast<size_t>(columns)));
  return line;
}

std::string pieces_line(const std::string& label, uint64_t before, uint64_t done, uint64_t total, double seconds,
                        int columns) {
  std::string line = label + "  " + std::to_string(done) + " of " + std::to_string(total);
  if (done > before && done < total)
    line += "  ETA " + duration_text(seconds * static_cast<double>(total - done) / static_cast<double>(done - before));
  line.resize(std::min(line.size(), static_cast<size_t>(std::max(1, columns))));
  return line;
}

ProgressBar::ProgressBar(std::string label, std::FILE* stream)
    : ProgressBar(std::move(label), stream, can_rewrite_lines(stream)) {}

ProgressBar::ProgressBar(std::string label, std::FILE* stream, bool enabled)
    : label_(std::move(label)), stream_(stream), enabled_(enabled) {}

void ProgressBar::update(uint64_t done_bytes, uint64_t total_bytes) {
  if (!enabled_) return;
  if (!is_time(total_bytes > 0 && done_bytes >= total_bytes)) return;
  // The last column stays free, or some terminals wrap.
  draw(progress_line(label_, done_bytes, total_bytes, last_draw_, std::max(1, terminal_columns(stream_) - 1)));
}

void ProgressBar::show() {
  if (enabled_) draw(label_.substr(0, static_cast<size_t>(std::max(1, terminal_columns(stream_) - 1))));
}

bool ProgressBar::is_time(bool complete) {
  const double now = since_start_.seconds();
  if (last_draw_ >= 0 && now - last_draw_ < kRedrawSeconds && !complete) return false;
  last_draw_ = now;
  return true;
}

void ProgressBar::share(uint64_t done, uint64_t total) {
  if (!enabled_ || !is_time(done >= total)) return;
  const double percent = total == 0 ? 100.0 : 100.0 * static_cast<double>(done) / static_cast<double>(total);
  char part[16];
  std::snprintf(part, sizeof(part), "  %3.0f%%", std::min(100.0, percent));
  std::string line = label_ + part;
  const auto columns = static_cast<size_t>(std::max(1, terminal_columns(stream_) - 1));
  // Where there is no room for both, the share alone.
  if (line.size() > columns) line.erase(0, label_.size() + 2);
  draw(line);
}

void ProgressBar::step(uint64_t done, uint64_t total) {
  if (enabled_) draw(pieces_line(label_, done, done, total, 0, terminal_columns(stream_) - 1));
}

void ProgressBar::piece(uint64_t done, uint64_t total) {
  if (!enabled_) return;
  if (!before_) {
    before_ = done;
    first_piece_ = since_start_.seconds();
  }
  draw(
      pieces_line(label_, *before_, done, total, since_start_.seconds() - first_piece_, terminal_columns(stream_) - 1));
}

void ProgressBar::draw(const std::string& line) {
  drawn_ = true;
  // "\x1b[K" clears what a longer line left behind.
  std::fprintf(stream_, "\r%s\x1b[K", line.c_str());
  std::fflush(stream_);
}

void ProgressBar::finish() {
  if (!enabled_) return;
  enabled_ = false;
  if (!drawn_) return;
  std::fputs("\r\x1b[K", stream_);
  std::fflush(stream_);
}

}  // namespace halfbyte
