// Whether a generation has fallen into a loop: the same 20 tokens in a row four times within 1,024 tokens (the rule of
// arXiv 2606.02011).
#pragma once

#include <cstdint>
#include <span>

namespace halfbyte {

struct LoopRule {
  int ngram = 20;
  int times = 4;
  int window = 1024;  // from the first token of the first one to the last token of the last
};

// Whether the last of the tokens closes a loop. Asked after each token, it is true first for the prefix for which has_loop()
// is. Reads back over one window, and keeps and allocates nothing.
bool ends_in_loop(std::span<const int32_t> tokens, const LoopRule& rule = {});

bool has_loop(std::span<const int32_t> tokens, const LoopRule& rule = {});

}  // namespace halfbyte
