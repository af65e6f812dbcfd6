// Flags against reasoning that goes on for too long: the marker penalty and the stop of loops, which run, trace and eval share.
#pragma once

#include <optional>

#include "command.h"
#include "halfbyte/chat.h"

namespace halfbyte::tools {

struct LengthOptions {
  std::optional<double> marker_penalty;
  bool stop_on_loop = false;
};

void add_length_flags(Flags& flags, LengthOptions& options);

// The sampling with the marker penalty and this vocabulary's markers; invalid_argument when it has none.
Status set_marker_penalty(const LengthOptions& options, const Model& model, const TextModel& text,
                          SamplingParams& sampling);

}  // namespace halfbyte::tools
