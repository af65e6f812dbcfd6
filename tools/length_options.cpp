#include "length_options.h"

#include "decode/marker_penalty.h"

namespace halfbyte::tools {

void add_length_flags(Flags& flags, LengthOptions& o) {
  flags
      .option(
          "--marker-penalty", o.marker_penalty,
          "Taken from the logits of words that reopen what is settled (wait, but, alternatively, ...), e.g. 1; 0: off "
          "(the default)")
      ->check(CLI::Range(0.0, 100.0));
  flags.flag("--stop-on-loop", o.stop_on_loop,
             "End an answer in which the same 20 tokens come four times within 1,024");
}

Status set_marker_penalty(const LengthOptions& options, const Model& model, const TextModel& text,
                          SamplingParams& sampling) {
  sampling.marker_penalty = static_cast<float>(options.marker_penalty.value_or(0));
  if (!has_marker_penalty(sampling)) return {};
  sampling.marker_tokens = marker_tokens(model, text);
  if (sampling.marker_tokens.empty())
    return invalid_argument("--marker-penalty: no marker word is a token of this model's vocabulary; leave it out");
  return {};
}

}  // namespace halfbyte::tools
