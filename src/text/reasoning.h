// Tells a model's reasoning ("<think> ... </think>") from its answer in streamed text. However the text is cut, the
// result is the same.
//
//   start:  where the prompt leaves the model: templates of R1 end with "<think>\n", so the model never writes the
//           opening tag; Qwen3 with thinking off ends with a closed block.
//   before: white space, then the opening tag; anything else is answer from the first byte on, and tags in it are
//           plain text.
//   inside: up to the first closing tag. An opening tag that the model repeats at the start is dropped.
//   after:  all is answer.
//
// White space behind an opening or closing tag is dropped; what the reasoning ends with is kept.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace halfbyte {

struct ReasoningTags {
  std::string open = "<think>";
  std::string close = "</think>";
};

enum class ReasoningState : uint8_t {
  kBefore,       // the opening tag may come
  kInsideStart,  // behind the opening tag and white space
  kInside,
  kAfterStart,  // behind the closing tag and white space
  kAfter,       // answer
};

// Where the rendered prompt leaves the model, from the prompt's end: kBefore, kInsideStart or kAfter.
ReasoningState reasoning_start(std::string_view rendered_prompt, const ReasoningTags& tags = {});

// Thread-compatible.
class ReasoningSplitter {
 public:
  // The tags must not be empty.
  explicit ReasoningSplitter(ReasoningState start, ReasoningTags tags = {});

  // Appends what `text` adds to the reasoning and to the answer. Text that may be part of a tag waits.
  void push(std::string_view text, std::string& reasoning, std::string& answer);
  // No more text comes: lets out what waits.
  void flush(std::string& reasoning, std::string& answer);

  ReasoningState state() const { return state_; }
  // Whether the model is in its reasoning. A token belongs to the reasoning if this holds before or after its text.
  bool inside() const { return state_ == ReasoningState::kInsideStart || state_ == ReasoningState::kInside; }

 private:
  // Each consumes a part of held_ and may change the state; false when it needs more text.
  bool step(std::string& reasoning, std::string& answer);
  bool step_start(std::string& answer);
  bool step_inside(std::string& reasoning);

  ReasoningTags tags_;
  ReasoningState state_;
  std::string space_;  // white space before what may be the opening tag; answer if it is none
  std::string held_;   // what waits behind that
};

}  // namespace halfbyte
