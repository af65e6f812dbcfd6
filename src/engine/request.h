// A request as the engine carries it from submit to its last event.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "decode/penalties.h"
#include "decode/reset.h"
#include "engine/block_manager.h"
#include "halfbyte/generate.h"

namespace halfbyte {

struct Request {
  uint64_t id = 0;
  GenerateRequest ask;          // the prompt has moved to `tokens`
  std::vector<int32_t> tokens;  // prompt, then what was generated
  int64_t prompt_tokens = 0;
  int64_t limit = 0;                       // the request ends when `tokens` is this long
  int64_t computed = 0;                    // positions whose keys and values exist
  BlockTable pages;                        // holds at least `computed` positions; empty while waiting
  std::optional<TokenHistory> history;     // when a penalty needs it
  std::optional<TemperatureState> policy;  // when one chooses the temperature
  std::unique_ptr<std::byte[]> saved_kv;   // bytes of a preempted request's pages, in order
  std::string failure;                     // set by the runner: ends the request, and only this one
  std::deque<int32_t> forced;              // the next tokens, in place of drawn ones

  bool in_prompt() const { return computed < prompt_tokens; }
  int64_t length() const { return static_cast<int64_t>(tokens.size()); }
};

}  // namespace halfbyte
