#include "text/output_text.h"

#include <utility>

namespace halfbyte {

OutputText::OutputText(std::shared_ptr<const Tokenizer> tokenizer, const OutputTextOptions& options)
    : detokenizer_(std::move(tokenizer), options.skip_special),
      splitter_(options.reasoning.value_or(ReasoningState::kAfter), options.tags) {
  if (options.stops) stops_.emplace(options.stops, options.include_stop);
}

bool OutputText::push(int32_t token, OutputDelta& delta) {
  if (stop_found()) return true;
  const bool inside = splitter_.inside();
  characters_.clear();
  detokenizer_.push(token, characters_);
  bool stopped = false;
  if (stops_) {
    certain_.clear();
    stopped = stops_->push(characters_, certain_);
    characters_.swap(certain_);
  }
  splitter_.push(characters_, delta.reasoning, delta.answer);
  if (inside || splitter_.inside()) ++reasoning_tokens_;
  return stopped;
}

void OutputText::flush(OutputDelta& delta) {
  characters_.clear();
  if (!stop_found()) {
    detokenizer_.flush(characters_);
    if (stops_) {
      certain_.clear();
      if (!stops_->push(characters_, certain_)) stops_->flush(certain_);
      characters_.swap(certain_);
    }
  }
  splitter_.push(characters_, delta.reasoning, delta.answer);
  splitter_.flush(delta.reasoning, delta.answer);
}

std::optional<size_t> OutputText::stop_found() const {
  return stops_ ? stops_->found() : std::nullopt;
}

}  // namespace halfbyte
