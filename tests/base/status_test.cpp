#include "base/result.h"

#include <gtest/gtest.h>

#include <memory>

namespace halfbyte {
namespace {

Result<int> half(int x) {
  if (x % 2 != 0) return invalid_argument("odd");
  return x / 2;
}

Result<int> quarter(int x) {
  HB_ASSIGN(const int h, half(x));
  HB_ASSIGN(int q, half(h));
  return q;
}

Status check(int x) {
  HB_TRY(quarter(x).status());
  return {};
}

TEST(Status, PassesFailuresOn) {
  EXPECT_EQ(*quarter(8), 2);
  EXPECT_EQ(quarter(6).status().message(), "odd");
  EXPECT_TRUE(check(4).ok());
  EXPECT_EQ(check(2).code(), StatusCode::kInvalidArgument);
}

TEST(Status, ContextGoesInFront) {
  EXPECT_EQ(not_found("no tensor").with_context("a.gguf").message(), "a.gguf: no tensor");
  EXPECT_EQ(Status().with_context("x").message(), "");
}

TEST(Status, HoldsMoveOnlyValues) {
  Result<std::unique_ptr<int>> r(std::make_unique<int>(3));
  const std::unique_ptr<int> p = std::move(r).value();
  EXPECT_EQ(*p, 3);
}

TEST(Status, EveryCodeHasAName) {
  for (int c = 0; c <= static_cast<int>(StatusCode::kInternal); ++c) {
    EXPECT_STRNE(status_code_name(static_cast<StatusCode>(c)), "unknown");
  }
}

}  // namespace
}  // namespace halfbyte
