#include "base/log.h"

#include <atomic>
#include <mutex>
#include <utility>

namespace halfbyte {
namespace {

constexpr int kSilent = 1 << 10;

struct LogState {
  std::atomic<int> minimum{kSilent};  // read without the lock, so that a silent library pays one load
  std::mutex mutex;                   // guards sink and its calls
  LogSink sink;
};

LogState& state() {
  static LogState instance;
  return instance;
}

}  // namespace

const char* log_level_name(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug: return "debug";
    case LogLevel::kInfo: return "info";
    case LogLevel::kWarning: return "warning";
  }
  return "unknown";
}

std::optional<LogLevel> parse_log_level(std::string_view name) {
  for (LogLevel level : {LogLevel::kDebug, LogLevel::kInfo, LogLevel::kWarning}) {
    if (name == log_level_name(level)) return level;
  }
  return std::nullopt;
}

void set_log_sink(LogSink sink, LogLevel minimum) {
  LogState& s = state();
  const std::lock_guard lock(s.mutex);
  s.minimum.store(sink ? static_cast<int>(minimum) : kSilent, std::memory_order_relaxed);
  s.sink = std::move(sink);
}

bool log_enabled(LogLevel level) {
  return static_cast<int>(level) >= state().minimum.load(std::memory_order_relaxed);
}

void log(LogLevel level, std::string_view line) {
  if (!log_enabled(level)) return;
  LogState& s = state();
  const std::lock_guard lock(s.mutex);
  if (s.sink && static_cast<int>(level) >= s.minimum.load(std::memory_order_relaxed)) s.sink(level, line);
}

}  // namespace halfbyte
