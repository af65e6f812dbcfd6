#include "tensor/dtype.h"

#include <array>

namespace halfbyte {
namespace {

// In the order of DType.
constexpr std::array<DTypeInfo, 15> kInfo = {{
    {"F32", 1, 4},
    {"F16", 1, 2},
    {"BF16", 1, 2},
    {"F64", 1, 8},
    {"F8_E4M3", 1, 1},
    {"F8_E5M2", 1, 1},
    {"U8", 1, 1},
    {"I8", 1, 1},
    {"I16", 1, 2},
    {"I32", 1, 4},
    {"I64", 1, 8},
    {"BOOL", 1, 1},
    {"Q4_0", 32, 18},
    {"Q4_1", 32, 20},
    {"Q8_0", 32, 34},
}};
static_assert(kInfo.size() == static_cast<size_t>(DType::kQ8_0) + 1);

}  // namespace

const DTypeInfo& dtype_info(DType type) {
  return kInfo[static_cast<size_t>(type)];
}

}  // namespace halfbyte
