#include "base/log.h"

#include <gtest/gtest.h>

#include <string>
#include <thread>
#include <vector>

namespace halfbyte {
namespace {

TEST(Log, SilentUntilASinkIsSet) {
  EXPECT_FALSE(log_enabled(LogLevel::kWarning));
  ::testing::internal::CaptureStderr();
  ::testing::internal::CaptureStdout();
  log(LogLevel::kWarning, "nobody asked");
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "");
  EXPECT_EQ(::testing::internal::GetCapturedStdout(), "");
}

TEST(Log, LevelsAndSilencingAgain) {
  std::vector<std::string> lines;
  const auto sink = [&](LogLevel level, std::string_view line) {
    lines.push_back(std::string(log_level_name(level)) + ": " + std::string(line));
  };
  set_log_sink(sink);
  log(LogLevel::kDebug, "d");
  log(LogLevel::kInfo, "i");
  log(LogLevel::kWarning, "w");
  set_log_sink(sink, LogLevel::kDebug);
  EXPECT_TRUE(log_enabled(LogLevel::kDebug));
  log(LogLevel::kDebug, "d");
  set_log_sink({});
  EXPECT_FALSE(log_enabled(LogLevel::kWarning));
  log(LogLevel::kWarning, "w");
  EXPECT_EQ(lines, (std::vector<std::string>{"info: i", "warning: w", "debug: d"}));
}

TEST(Log, OneLineAtATimeFromManyThreads) {
  int64_t count = 0;  // plain: two sinks at once would be a data race
  set_log_sink([&](LogLevel, std::string_view) { ++count; });
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([] {
      for (int i = 0; i < 1000; ++i) log(LogLevel::kInfo, "x");
    });
  }
  for (auto& t : threads) t.join();
  set_log_sink({});
  EXPECT_EQ(count, 4000);
}

TEST(Log, ParsesLevelNames) {
  EXPECT_EQ(parse_log_level("debug"), LogLevel::kDebug);
  EXPECT_EQ(parse_log_level("warning"), LogLevel::kWarning);
  EXPECT_FALSE(parse_log_level("loud").has_value());
}

}  // namespace
}  // namespace halfbyte
