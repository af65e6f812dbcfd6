// Checks on failures: code, that the message is one clean line, and what it must say.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <initializer_list>
#include <string>

#include "halfbyte/status.h"

namespace halfbyte::testing {

// A refusal as docs ask for: one printable line without a trailing full stop, holding every one of `parts`.
inline void expect_failure(const Status& status, StatusCode code, std::initializer_list<std::string> parts) {
  ASSERT_FALSE(status.ok()) << "accepted, expected a refusal";
  const std::string& message = status.message();
  EXPECT_STREQ(status_code_name(status.code()), status_code_name(code)) << message;
  for (const std::string& part : parts) EXPECT_THAT(message, ::testing::HasSubstr(part));
  for (const char c : message) {
    EXPECT_FALSE(static_cast<unsigned char>(c) < 0x20 || c == 0x7F) << "control character in: " << message;
  }
  EXPECT_FALSE(message.empty() || message.back() == '.') << message;
}

template <class T>
void expect_failure(const Result<T>& result, StatusCode code, std::initializer_list<std::string> parts) {
  expect_failure(result.status(), code, parts);
}

}  // namespace halfbyte::testing

// The value of a Result, or the test ends with its message.
#define HB_ASSERT_OK(lhs, expr)                                                                        \
  auto HB_CONCAT(hb_test_, __LINE__) = (expr);                                                         \
  ASSERT_TRUE(HB_CONCAT(hb_test_, __LINE__).ok()) << HB_CONCAT(hb_test_, __LINE__).status().message(); \
  lhs = std::move(HB_CONCAT(hb_test_, __LINE__)).value()
