// What this CPU and its operating system can run. An instruction set counts only if the system also saves its
// registers.
#pragma once

#include <string>

namespace halfbyte {

struct CpuFeatures {
  bool avx2 = false;
  bool fma = false;
  bool f16c = false;
  bool avx_vnni = false;
  bool avx512f = false;
  bool avx512bw = false;
  bool avx512dq = false;
  bool avx512vl = false;
  bool avx512_vbmi = false;
  bool avx512_vnni = false;
  bool avx512_bf16 = false;
  bool avx512_fp16 = false;
  bool amx_tile = false;  // present; a process must still ask the kernel for the tile registers before it uses them
  bool amx_int8 = false;
  bool amx_bf16 = false;
};

// Read once, thread-safe. All false on other machines than x86-64.
const CpuFeatures& cpu_features();

// The names of what is there, e.g. "avx2 fma f16c"; "none" if nothing is.
std::string cpu_features_text(const CpuFeatures& features);

// "AMD EPYC 7B13", or "unknown".
std::string cpu_model_name();

}  // namespace halfbyte
