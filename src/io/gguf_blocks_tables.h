// The forms that gguf_blocks.cpp is compiled into. Private to src/io.
#pragma once

#include "io/gguf_blocks.h"

namespace halfbyte {

extern const BlockDecoders kBlockDecodersBaseline;
#if defined(__x86_64__)
extern const BlockDecoders kBlockDecodersAvx2;
#endif

}  // namespace halfbyte
