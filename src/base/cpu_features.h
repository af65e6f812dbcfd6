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
  bool amx_tile = false;  // present; amx_permitted() asks for the right to use it
  bool amx_int8 = false;
  bool amx_bf16 = false;
};

// Read once, thread-safe. All false on other machines than x86-64.
const CpuFeatures& cpu_features();

// Asks the operating system for the tile registers, once a process, and says whether threads may use them (Linux 5.16 and
// later; a thread's register state grows by 8 KiB when it first does). Without it the first tile instruction is a SIGILL.
bool amx_permitted();

// The names of what is there, e.g. "avx2 fma f16c"; "none" if nothing is.
std::string cpu_features_text(const CpuFeatures& features);

// "AMD EPYC 7B13", or "unknown".
std::string cpu_model_name();

}  // namespace halfbyte
