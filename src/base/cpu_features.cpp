#include "base/cpu_features.h"

#include <cstdint>
#include <cstring>

#if defined(__x86_64__)
#include <cpuid.h>
#endif
#if defined(__x86_64__) && defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace halfbyte {
namespace {

#if defined(__x86_64__)

struct Cpuid {
  uint32_t eax = 0, ebx = 0, ecx = 0, edx = 0;
};

// Zeros for a leaf that the CPU does not have.
Cpuid cpuid(uint32_t leaf, uint32_t subleaf) {
  Cpuid r;
  __get_cpuid_count(leaf, subleaf, &r.eax, &r.ebx, &r.ecx, &r.edx);
  return r;
}

// XCR0: the register states that the operating system saves. Only with OSXSAVE.
uint64_t saved_states() {
  uint32_t low, high;
  __asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return uint64_t{high} << 32 | low;
}

// Bit numbers: Intel SDM volume 2A, CPUID; volume 1, 13.1 for XCR0.
CpuFeatures read_features() {
  const auto bit = [](uint32_t word, int n) { return (word >> n & 1) != 0; };
  CpuFeatures f;
  const Cpuid l1 = cpuid(1, 0);
  if (!bit(l1.ecx, 27)) return f;  // no OSXSAVE: not even AVX
  const uint64_t saved = saved_states();
  const bool ymm = (saved & 0x6) == 0x6, zmm = (saved & 0xE6) == 0xE6, tiles = (saved & 0x60000) == 0x60000;
  const Cpuid l7 = cpuid(7, 0), l71 = cpuid(7, 1);
  f.fma = ymm && bit(l1.ecx, 12);
  f.f16c = ymm && bit(l1.ecx, 29);
  f.avx2 = ymm && bit(l7.ebx, 5);
  f.avx_vnni = ymm && bit(l71.eax, 4);
  f.avx512f = zmm && bit(l7.ebx, 16);
  f.avx512dq = zmm && bit(l7.ebx, 17);
  f.avx512bw = zmm && bit(l7.ebx, 30);
  f.avx512vl = zmm && bit(l7.ebx, 31);
  f.avx512_vbmi = zmm && bit(l7.ecx, 1);
  f.avx512_vnni = zmm && bit(l7.ecx, 11);
  f.avx512_bf16 = zmm && bit(l71.eax, 5);
  f.avx512_fp16 = zmm && bit(l7.edx, 23);
  f.amx_bf16 = tiles && bit(l7.edx, 22);
  f.amx_tile = tiles && bit(l7.edx, 24);
  f.amx_int8 = tiles && bit(l7.edx, 25);
  return f;
}

#else

CpuFeatures read_features() {
  return {};
}

#endif

#if defined(__x86_64__) && defined(__linux__)

// arch_prctl(2): ARCH_REQ_XCOMP_PERM for state component 18, the tile data.
bool ask_for_tiles() {
  constexpr long kRequestPermission = 0x1023, kTileData = 18;
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}

#else

bool ask_for_tiles() {
  return false;
}

#endif

}  // namespace

const CpuFeatures& cpu_features() {
  static const CpuFeatures features = read_features();
  return features;
}

bool amx_permitted() {
  static const bool permitted = cpu_features().amx_tile && ask_for_tiles();
  return permitted;
}

std::string cpu_features_text(const CpuFeatures& f) {
  const struct {
    bool there;
    const char* name;
  } list[] = {{f.avx2, "avx2"},
              {f.fma, "fma"},
              {f.f16c, "f16c"},
              {f.avx_vnni, "avx_vnni"},
              {f.avx512f, "avx512f"},
              {f.avx512bw, "avx512bw"},
              {f.avx512dq, "avx512dq"},
              {f.avx512vl, "avx512vl"},
              {f.avx512_vbmi, "avx512_vbmi"},
              {f.avx512_vnni, "avx512_vnni"},
              {f.avx512_bf16, "avx512_bf16"},
              {f.avx512_fp16, "avx512_fp16"},
              {f.amx_tile, "amx_tile"},
              {f.amx_int8, "amx_int8"},
              {f.amx_bf16, "amx_bf16"}};
  std::string out;
  for (const auto& item : list) {
    if (item.there) out += (out.empty() ? "" : " ") + std::string(item.name);
  }
  return out.empty() ? "none" : out;
}

std::string cpu_model_name() {
#if defined(__x86_64__)
  char brand[49] = {};
  for (uint32_t i = 0; i < 3; ++i) {
    const Cpuid r = cpuid(0x80000002u + i, 0);
    std::memcpy(brand + i * 16, &r, 16);
  }
  const std::string_view name(brand);
  const size_t first = name.find_first_not_of(' ');
  if (first != std::string_view::npos) return std::string(name.substr(first, name.find_last_not_of(' ') - first + 1));
#endif
  return "unknown";
}

}  // namespace halfbyte
