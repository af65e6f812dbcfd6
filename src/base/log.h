// Notes about what the library does, for whoever asks: silent until a sink is set. Failures are Status values, never
// log lines.
#pragma once

#include <functional>
#include <optional>
#include <string_view>

namespace halfbyte {

enum class LogLevel { kDebug, kInfo, kWarning };

const char* log_level_name(LogLevel level);  // "debug", "info", "warning"
// The level of that name, or nothing.
std::optional<LogLevel> parse_log_level(std::string_view name);

// Gets one line without a newline. Calls come from any thread, one at a time. It must not log.
using LogSink = std::function<void(LogLevel level, std::string_view line)>;

// Thread-safe. From now on lines of `minimum` and above go to `sink`; an empty sink silences the library again. On
// return the old sink is no longer running.
void set_log_sink(LogSink sink, LogLevel minimum = LogLevel::kInfo);

// Whether a line of this level would be seen: ask before building a costly one. Thread-safe.
bool log_enabled(LogLevel level);
// Thread-safe.
void log(LogLevel level, std::string_view line);

}  // namespace halfbyte
