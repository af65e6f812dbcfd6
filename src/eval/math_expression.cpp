#include "eval/math_expression.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <string>

namespace halfbyte {
namespace {

using Value = std::complex<double>;

constexpr double kPi = 3.14159265358979323846;
constexpr int kMostDepth = 60;
constexpr uint32_t kPoints = 4;
constexpr double kInfinity = 1.234567e77;  // a value that nothing else has
constexpr std::array<std::string_view, 20> kFunctions{"arcsin", "arccos", "arctan", "sinh", "cosh",  "tanh", "sin",
                                                      "cos",    "tan",    "cot",    "sec",  "csc",   "log",  "lg",
                                                      "ln",     "exp",    "sqrt",   "abs",  "floor", "ceil"};

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}
bool is_letter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

// Between .4 and 2.4 or their negatives, by name and point.
double variable(std::string_view name, uint32_t point) {
  uint64_t hash = 1469598103934665603u + point * 7919u;
  for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211u;
  hash ^= hash >> 29;
  const double size = .4 + 2.0 * static_cast<double>(hash % 1'000'003) / 1'000'003.0;
  return point % 2 == 0 ? size : -size;
}

class Parser {
 public:
  Parser(std::string_view text, uint32_t point) : text_(text), point_(point) {}

  std::optional<Value> whole() {
    const auto value = sum();
    skip_space();
    if (!value || at_ != text_.size() || !std::isfinite(value->real()) || !std::isfinite(value->imag()))
      return std::nullopt;
    return value;
  }

 private:
  void skip_space() {
    while (at_ < text_.size() && text_[at_] == ' ') ++at_;
  }
  char peek() {
    skip_space();
    return at_ < text_.size() ? text_[at_] : '\0';
  }
  bool take(char c) {
    if (peek() != c) return false;
    ++at_;
    return true;
  }
  // A command such as "\frac", not followed by another letter.
  bool take_command(std::string_view name) {
    skip_space();
    if (at_ >= text_.size() || text_[at_] != '\\' || text_.substr(at_ + 1, name.size()) != name) return false;
    const size_t end = at_ + 1 + name.size();
    if (end < text_.size() && is_letter(text_[end])) return false;
    at_ = end;
    return true;
  }

  std::optional<Value> sum() {
    if (++depth_ > kMostDepth) return std::nullopt;
    auto value = product();
    while (value) {
      const char c = peek();
      if (c != '+' && c != '-') break;
      ++at_;
      const auto next = product();
      value = next ? std::optional(c == '+' ? *value + *next : *value - *next) : std::nullopt;
    }
    --depth_;
    return value;
  }

  bool factor_begins() {
    const char c = peek();
    if (is_digit(c) || is_letter(c) || c == '(' || c == '{' || c == '.') return true;
    return c == '\\' && text_.substr(at_, 2) != "\\}";
  }

  std::optional<Value> product() {
    auto value = signed_factor();
    while (value) {
      const char c = peek();
      if (c == '*' || c == '/') {
        ++at_;
        const auto next = signed_factor();
        if (!next || (c == '/' && *next == 0.0)) return std::nullopt;
        value = c == '*' ? *value * *next : *value / *next;
      } else if (factor_begins()) {
        const auto next = power();
        value = next ? std::optional(*value * *next) : std::nullopt;
      } else {
        break;
      }
    }
    return value;
  }

  std::optional<Value> signed_factor() {
    int signs = 0;
    for (; peek() == '-' || peek() == '+'; ++at_) signs += text_[at_] == '-';
    const auto value = power();
    return value && signs % 2 == 1 ? std::optional(-*value) : value;
  }

  std::optional<Value> power() {
    auto base = atom();
    while (base && take('!')) base = factorial(*base);
    if (!base || !take('^')) return base;
    const bool minus = take('-');
    const auto exponent = argument();
    if (!exponent) return std::nullopt;
    return raise(*base, minus ? -*exponent : *exponent);
  }

  static std::optional<Value> raise(Value base, Value exponent) {
    if (base == 0.0) return exponent.real() > 0 ? std::optional<Value>(0.0) : std::nullopt;
    // Whole exponents by multiplication, which is exact for whole numbers.
    const double n = exponent.real();
    if (exponent.imag() == 0 && n == std::nearbyint(n) && std::abs(n) <= 64) {
      Value out = 1;
      for (int i = 0; i < static_cast<int>(std::abs(n)); ++i) out *= base;
      return n < 0 ? 1.0 / out : out;
    }
    return std::pow(base, exponent);
  }

  static std::optional<Value> factorial(Value v) {
    const double n = v.real();
    if (v.imag() != 0 || n < 0 || n > 150 || n != std::nearbyint(n)) return std::nullopt;
    double out = 1;
    for (int i = 2; i <= static_cast<int>(n); ++i) out *= i;
    return out;
  }

  // What \frac, ^ and functions take: a group, or one digit, letter or command.
  std::optional<Value> argument() {
    if (peek() == '{' || peek() == '\\') return atom();
    if (is_digit(peek())) return static_cast<double>(text_[at_++] - '0');
    return atom();
  }

  std::optional<Value> group(char close) {
    const auto value = sum();
    return value && take(close) ? value : std::nullopt;
  }

  std::optional<Value> atom() {
    const char c = peek();
    if (is_digit(c) || c == '.') return number();
    if (c == '\\') return command();
    if (is_letter(c)) return word();
    if (c != '(' && c != '{' && c != '|') return std::nullopt;
    ++at_;
    if (c != '|') return group(c == '(' ? ')' : '}');
    const auto inside = group('|');
    return inside ? std::optional<Value>(std::abs(*inside)) : std::nullopt;
  }

  std::optional<Value> number() {
    const size_t begin = at_;
    while (at_ < text_.size() && is_digit(text_[at_])) ++at_;
    const bool whole = at_ >= text_.size() || text_[at_] != '.';
    if (!whole) {
      ++at_;
      while (at_ < text_.size() && is_digit(text_[at_])) ++at_;
    }
    const std::string digits(text_.substr(begin, at_ - begin));
    if (digits == "." || digits.size() > 300) return std::nullopt;
    const Value value = std::strtod(digits.c_str(), nullptr);
    // 1\frac{4}{5} is a mixed number.
    const size_t before = at_;
    if (whole && take_command("frac")) {
      const size_t arguments = at_;
      const auto top = argument(), bottom = argument();
      if (top && bottom && *bottom != 0.0 && numbers_only(text_.substr(arguments, at_ - arguments)))
        return value + *top / *bottom;
      at_ = before;
    }
    return value;
  }

  static bool numbers_only(std::string_view text) {
    return text.find_first_not_of("0123456789{} ") == std::string_view::npos;
  }

  std::optional<Value> command() {
    if (take_command("frac")) {
      const auto top = argument(), bottom = argument();
      return top && bottom && *bottom != 0.0 ? std::optional(*top / *bottom) : std::nullopt;
    }
    if (take_command("sqrt")) return root();
    if (take_command("pi")) return kPi;
    if (take_command("infty")) return kInfinity;
    for (const std::string_view name : kFunctions)
      if (take_command(name)) return function(name);
    const size_t begin = at_++;
    while (at_ < text_.size() && is_letter(text_[at_])) ++at_;
    const std::string_view name = text_.substr(begin, at_ - begin);
    constexpr std::string_view kGreek =
        " \\alpha \\beta \\gamma \\delta \\epsilon \\theta \\lambda \\mu \\phi \\omega \\sigma \\rho \\tau ";
    if (name.size() < 2 || kGreek.find(" " + std::string(name) + " ") == std::string_view::npos) return std::nullopt;
    return variable(name, point_);
  }

  std::optional<Value> root() {
    double degree = 2;
    if (take('[')) {
      const auto n = sum();
      if (!n || !take(']') || n->real() == 0) return std::nullopt;
      degree = n->real();
    }
    const auto inside = argument();
    if (!inside) return std::nullopt;
    if (degree == 2) return std::sqrt(*inside);
    if (inside->imag() == 0 && inside->real() < 0 && degree == std::nearbyint(degree) && std::fmod(degree, 2) == 1)
      return -std::pow(-inside->real(), 1 / degree);  // the real root, as schools have it
    return std::pow(*inside, 1 / degree);
  }

  std::optional<Value> function(std::string_view name) {
    if (name == "sqrt") return root();
    std::optional<Value> exponent = Value(1);
    double base = 0;
    if (take('^')) exponent = argument();
    if (name == "log" && take('_')) {
      const auto b = argument();
      if (!b || b->real() <= 0 || b->real() == 1) return std::nullopt;
      base = b->real();
    }
    // "\sin 2x" is the sine of the whole product; "\sin (x) y" is not.
    const auto inside = peek() == '(' || peek() == '{' ? atom() : function_product();
    if (!inside || !exponent) return std::nullopt;
    const auto value = apply(name, *inside, base);
    return value ? raise(*value, *exponent) : std::nullopt;
  }

  std::optional<Value> function_product() {
    auto value = power();
    while (value && (is_digit(peek()) || is_letter(peek()))) {
      const auto next = power();
      value = next ? std::optional(*value * *next) : std::nullopt;
    }
    return value;
  }

  static std::optional<Value> apply(std::string_view name, Value x, double base) {
    if (name == "sin") return std::sin(x);
    if (name == "cos") return std::cos(x);
    if (name == "tan") return std::tan(x);
    if (name == "cot") return 1.0 / std::tan(x);
    if (name == "sec") return 1.0 / std::cos(x);
    if (name == "csc") return 1.0 / std::sin(x);
    if (name == "arcsin") return std::asin(x);
    if (name == "arccos") return std::acos(x);
    if (name == "arctan") return std::atan(x);
    if (name == "sinh") return std::sinh(x);
    if (name == "cosh") return std::cosh(x);
    if (name == "tanh") return std::tanh(x);
    if (name == "exp") return std::exp(x);
    if (name == "abs") return std::abs(x);
    if (name == "floor") return std::floor(x.real());
    if (name == "ceil") return std::ceil(x.real());
    if (x == 0.0) return std::nullopt;
    if (name == "lg") return std::log10(x);
    return base > 0 ? std::log(x) / std::log(base) : std::log(x);  // log without a base: natural on both sides
  }

  std::optional<Value> word() {
    for (const std::string_view name : kFunctions) {
      if (text_.substr(at_, name.size()) != name) continue;
      at_ += name.size();
      return function(name);
    }
    if (text_.substr(at_, 2) == "pi") {
      at_ += 2;
      return kPi;
    }
    const size_t begin = at_++;
    if (at_ < text_.size() && text_[at_] == '_') {  // x_1, x_{12}
      ++at_;
      if (at_ < text_.size() && text_[at_] == '{') {
        at_ = std::min(text_.find('}', at_), text_.size() - 1) + 1;
      } else if (at_ < text_.size()) {
        ++at_;
      }
    }
    const std::string_view name = text_.substr(begin, at_ - begin);
    if (name == "i") return Value(0, 1);
    if (name == "e") return std::exp(1.0);
    return variable(name, point_);
  }

  std::string_view text_;
  uint32_t point_;
  size_t at_ = 0;
  int depth_ = 0;
};

bool close_to(Value a, Value b) {
  return std::abs(a - b) <= 1e-10 * std::max({1e-6, std::abs(a), std::abs(b)});
}

}  // namespace

std::optional<Value> evaluate_expression(std::string_view text, uint32_t point) {
  if (text.size() > 2000) return std::nullopt;
  return Parser(text, point).whole();
}

bool same_expression(std::string_view a, std::string_view b) {
  int seen = 0;
  for (uint32_t point = 0; point < kPoints; ++point) {
    const auto x = evaluate_expression(a, point), y = evaluate_expression(b, point);
    if (x.has_value() != y.has_value()) return false;
    if (!x) continue;
    if (!close_to(*x, *y)) return false;
    ++seen;
  }
  return seen > 0;
}

bool same_zeros(std::string_view a, std::string_view b) {
  std::optional<Value> factor;
  int seen = 0;
  for (uint32_t point = 0; point < kPoints; ++point) {
    const auto x = evaluate_expression(a, point), y = evaluate_expression(b, point);
    if (!x || !y || std::abs(*x) < 1e-9 || std::abs(*y) < 1e-9) continue;
    const Value ratio = *x / *y;
    if (factor && !close_to(*factor, ratio)) return false;
    factor = ratio;
    ++seen;
  }
  return seen >= 2;
}

}  // namespace halfbyte
