#include <array>

#include "decode/logit_sums_tables.h"

namespace halfbyte {

std::span<const LogitFns* const> logit_fns_here() {
#if defined(__x86_64__)
  static constexpr std::array<const LogitFns*, 2> kForms{&kLogitFnsBaseline, &kLogitFnsAvx2};
  static const size_t count = __builtin_cpu_supports("avx2") ? 2 : 1;
#else
  static constexpr std::array<const LogitFns*, 1> kForms{&kLogitFnsBaseline};
  static constexpr size_t count = 1;
#endif
  return {kForms.data(), count};
}

}  // namespace halfbyte
