#include "tensor/dtype.h"

#include <array>

namespace halfbyte {
namespace {

// In the order of DType.
constexpr std::array<DTypeInfo, 26> kInfo = {{
    {"F32", 1, 4},      {"F16", 1, 2},      {"BF16", 1, 2},     {"F64", 1, 8},        {"F8_E4M3", 1, 1},
    {"F8_E5M2", 1, 1},  {"U8", 1, 1},       {"I8", 1, 1},       {"I16", 1, 2},        {"I32", 1, 4},
    {"I64", 1, 8},      {"BOOL", 1, 1},     {"Q4_0", 32, 18},   {"Q4_1", 32, 20},     {"Q5_0", 32, 22},
    {"Q5_1", 32, 24},   {"Q8_0", 32, 34},   {"Q2_K", 256, 84},  {"Q3_K", 256, 110},   {"Q4_K", 256, 144},
    {"Q5_K", 256, 176}, {"Q6_K", 256, 210}, {"IQ4_NL", 32, 18}, {"IQ4_XS", 256, 136}, {"MXFP4", 32, 17},
    {"NVFP4", 64, 36},
}};
static_assert(kInfo.size() == static_cast<size_t>(DType::kGgufNVFP4) + 1);

}  // namespace

const DTypeInfo& dtype_info(DType type) {
  return kInfo[static_cast<size_t>(type)];
}

}  // namespace halfbyte
