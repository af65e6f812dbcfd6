// The value of a LaTeX expression at a point.
#pragma once

#include <complex>
#include <cstdint>
#include <optional>
#include <string_view>

namespace halfbyte {

// Numbers, variables (each has a value of its own at a `point`), + - * / ^ ! and products without a sign, \frac, \sqrt, |x|,
// functions, \pi, e, i, \infty, mixed numbers (1\frac{4}{5}). None for anything else, for division by zero and overflow.
std::optional<std::complex<double>> evaluate_expression(std::string_view text, uint32_t point);

// Whether both are expressions of equal value at every point tried.
bool same_expression(std::string_view a, std::string_view b);
// The same for a = 0 and b = 0: whether one is a constant multiple of the other.
bool same_zeros(std::string_view a, std::string_view b);

}  // namespace halfbyte
