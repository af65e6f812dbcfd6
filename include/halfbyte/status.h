// Status and Result: how every function of Halfbyte reports failure.
//
// The library never prints, aborts or throws on bad input. A message says what was found, what was expected, in which
// file and tensor, and what the reader can do next; it is one line without a trailing full stop or newline.
#pragma once

#include <cassert>
#include <optional>
#include <string>
#include <utility>
#include <variant>

namespace halfbyte {

enum class StatusCode {
  kOk = 0,
  kInvalidArgument,    // a flag, request or call that can never work
  kNotFound,           // a file, folder, tensor or name that is not there
  kInvalidData,        // a file or text whose bytes break its format
  kUnsupported,        // well-formed, but outside what Halfbyte does
  kResourceExhausted,  // not enough memory, context, queue or budget
  kCancelled,          // stopped by the caller
  kInternal,           // a fault of Halfbyte itself
};

// The code's name as users see it, e.g. "invalid data".
const char* status_code_name(StatusCode code);

// Thread-compatible value type.
class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(StatusCode code, std::string message) : code_(code), message_(std::move(message)) {}

  bool ok() const { return code_ == StatusCode::kOk; }
  StatusCode code() const { return code_; }
  const std::string& message() const { return message_; }

  // Puts "context: " before the message, e.g. the name of the file being read.
  Status with_context(const std::string& context) && {
    if (!ok()) message_ = context + ": " + message_;
    return std::move(*this);
  }

 private:
  StatusCode code_ = StatusCode::kOk;
  std::string message_;
};

inline Status invalid_argument(std::string m) {
  return {StatusCode::kInvalidArgument, std::move(m)};
}
inline Status not_found(std::string m) {
  return {StatusCode::kNotFound, std::move(m)};
}
inline Status invalid_data(std::string m) {
  return {StatusCode::kInvalidData, std::move(m)};
}
inline Status unsupported(std::string m) {
  return {StatusCode::kUnsupported, std::move(m)};
}
inline Status resource_exhausted(std::string m) {
  return {StatusCode::kResourceExhausted, std::move(m)};
}
inline Status cancelled(std::string m) {
  return {StatusCode::kCancelled, std::move(m)};
}
inline Status internal_error(std::string m) {
  return {StatusCode::kInternal, std::move(m)};
}

// A value or the Status that says why there is none. Reading the wrong side is a programmer's error (asserted).
template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}        // NOLINT: implicit by design
  Result(Status status) : state_(std::in_place_index<1>, std::move(status)) {  // NOLINT: implicit by design
    assert(!std::get_if<1>(&state_)->ok() && "a Result needs a value or a failure");
  }

  bool ok() const { return state_.index() == 0; }
  explicit operator bool() const { return ok(); }

  T& value() & {
    assert(ok());
    return *std::get_if<0>(&state_);
  }
  const T& value() const& {
    assert(ok());
    return *std::get_if<0>(&state_);
  }
  T&& value() && { return std::move(value()); }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T&& operator*() && { return std::move(*this).value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }

  // The failure, or ok.
  Status status() const { return ok() ? Status() : *std::get_if<1>(&state_); }

 private:
  std::variant<T, Status> state_;
};

}  // namespace halfbyte
