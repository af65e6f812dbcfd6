#include "base/size_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

namespace halfbyte {
namespace {

TEST(ParseSize, Units) {
  const struct {
    const char* text;
    int64_t value;
  } cases[] = {{"0", 0},           {"4096", 4096},        {" 7 ", 7},
               {"1k", 1000},       {"1K", 1024},          {"32K", 32768},
               {"1kB", 1000},      {"1KB", 1000},         {"1KiB", 1024},
               {"1Ki", 1024},      {"4GiB", 4LL << 30},   {"4 GiB", 4LL << 30},
               {"4G", 4LL << 30},  {"4g", 4000000000},    {"4GB", 4000000000},
               {"2m", 2000000},    {"2M", 2 << 20},       {"1.5K", 1536},
               {"0.5MiB", 524288}, {"1.25k", 1250},       {"12B", 12},
               {"1T", 1LL << 40},  {"1t", 1000000000000}, {".5K", 512},
               {"8gib", 8LL << 30}};
  for (const auto& c : cases) {
    const auto got = parse_size(c.text, "--context");
    ASSERT_TRUE(got.ok()) << c.text << ": " << got.status().message();
    EXPECT_EQ(*got, c.value) << c.text;
  }
}

TEST(ParseSize, LargestValue) {
  EXPECT_EQ(*parse_size("9223372036854775807", "x"), std::numeric_limits<int64_t>::max());
  EXPECT_FALSE(parse_size("9223372036854775808", "x").ok());
  EXPECT_EQ(*parse_size("8388607T", "x"), 8388607LL << 40);
  EXPECT_FALSE(parse_size("8388608T", "x").ok());
  EXPECT_FALSE(parse_size(std::string(1000, '9'), "x").ok());
}

TEST(ParseSize, Refuses) {
  for (const char* bad : {"",
                          " ",
                          "-1",
                          "+1",
                          "abc",
                          "K",
                          "1X",
                          "1KK",
                          "1Kib2",
                          "1..5K",
                          "1.5",
                          "1.0001K",
                          "0x10",
                          "1e3",
                          ".",
                          "5.",
                          "1 2",
                          "1,5K",
                          "0.00000000000001K",
                          "NaN",
                          "1KiBB",
                          "1k\n2"}) {
    const auto got = parse_size(bad, "--context");
    EXPECT_FALSE(got.ok()) << bad;
    EXPECT_EQ(got.status().code(), StatusCode::kInvalidArgument);
    EXPECT_THAT(got.status().message(), ::testing::StartsWith("--context: "));
    EXPECT_THAT(got.status().message(), ::testing::HasSubstr("4GiB"));
  }
}

TEST(FormatBytes, ThreeDigits) {
  EXPECT_EQ(format_bytes(0), "0 B");
  EXPECT_EQ(format_bytes(1023), "1023 B");
  EXPECT_EQ(format_bytes(1024), "1.00 KiB");
  EXPECT_EQ(format_bytes(98362432), "93.8 MiB");
  EXPECT_EQ(format_bytes(4ULL << 30), "4.00 GiB");
  EXPECT_EQ(format_bytes(1047552), "1023 KiB");
  EXPECT_EQ(format_bytes(1048167), "1.00 MiB") << "1023.6 KiB would print as 1024";
  EXPECT_EQ(format_bytes(999 * 1024), "999 KiB");
  EXPECT_EQ(format_bytes(std::numeric_limits<uint64_t>::max()), "16.0 EiB");
}

TEST(FormatBytes, ReadsBackWithinItsDigits) {
  for (uint64_t b = 1; b < (uint64_t{1} << 50); b = b * 3 + 1) {
    const std::string text = format_bytes(b);
    const size_t space = text.find(' ');
    const double number = std::stod(text.substr(0, space));
    const double unit = static_cast<double>(*parse_size("1" + text.substr(space + 1), "x"));
    EXPECT_NEAR(number * unit, static_cast<double>(b), 0.006 * static_cast<double>(b)) << text;
  }
}

}  // namespace
}  // namespace halfbyte
