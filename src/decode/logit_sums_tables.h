// The forms that logit_sums.cpp is compiled into. Private to src/decode.
#pragma once

#include "decode/logit_sums.h"

namespace halfbyte {

extern const LogitFns kLogitFnsBaseline;
#if defined(__x86_64__)
extern const LogitFns kLogitFnsAvx2;
extern const LogitFns kLogitFnsAvx512;
#endif

}  // namespace halfbyte
