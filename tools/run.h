// halfbyte run: what its one-shot and interactive forms share.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/progress.h"
#include "halfbyte/chat.h"
#include "halfbyte/engine.h"
#include "length_options.h"
#include "model_options.h"
#include "policy_options.h"

namespace halfbyte::tools {

struct RunOptions {
  ModelOptions model;
  std::vector<std::string> prompt;
  std::string prompt_flag, system, max_tokens, think_budget;
  std::optional<double> temperature, top_p, min_p, repetition_penalty, frequency_penalty, presence_penalty;
  std::optional<int> top_k, logprobs;
  std::optional<uint64_t> seed;
  PolicyOptions policy;
  LengthOptions length;
  std::vector<std::string> stop;
  std::optional<bool> think;  // --think, --no-think; else the template's own default
  bool raw = false, json = false, verbose = false, quiet = false, entropy = false;
  std::string reasoning = "auto";  // show, hide, auto: on a terminal
};

// A model that is ready to answer, with the sampling that the flags and the model's maker ask for.
struct Chat {
  TextModel text;
  std::shared_ptr<Model> model;
  std::unique_ptr<Engine> engine;
  CompletionOptions completion;
  ChatRenderOptions render;
  std::string system;
  Place place;                // where it runs
  std::string policy_source;  // where a policy's numbers come from
};

// What run and trace share: the flags of the prompt and of the sampling, the model with its engine, and the prompt.
void add_prompt_flags(Flags& flags, RunOptions& options);
void add_sampling_flags(Flags& flags, RunOptions& options);
Status check_prompt_options(const RunOptions& options);
// The prompt of the command line or of a pipe; nothing: on a terminal.
Result<std::optional<std::string>> given_prompt(const RunOptions& options);
// The engine takes `batch` requests at once.
Result<Chat> open_chat(const RunOptions& options, int batch = 1);
// The same for the one prompt of the options: says where a first argument that is no model may be one.
Result<Chat> open_chat_of(const RunOptions& options);
// Whether text on stdin is worth a note: the prompt does not come from there.
bool warns_of_stdin(const RunOptions& options);
Result<Prompt> make_prompt(const Chat& chat, const RunOptions& options, const std::string& text);
// "temperature 0.6, top-p 0.95, seed 1" or the policy with its source.
std::string sampling_line(const Chat& chat);

// Prints an answer as it comes: reasoning in grey where it is shown; or each token in a colour of its entropy.
class AnswerPrinter {
 public:
  AnswerPrinter(bool show_reasoning, bool color) : show_reasoning_(show_reasoning), color_(color) {}
  // The text that comes next is of a token of this entropy, nats.
  void set_entropy(float entropy) { entropy_ = entropy; }
  // False when nobody reads any more.
  bool print(const OutputDelta& delta);
  // Ends the line and the colour.
  bool finish();

 private:
  bool style(bool reasoning);
  bool plain();
  bool show_reasoning_, color_;
  std::optional<float> entropy_;
  std::string_view style_;  // what the terminal was told last; "": nothing
  bool wrote_reasoning_ = false, wrote_answer_ = false, ends_line_ = true;
};

// "24 prompt tokens in 0.31 s (77.4/s), 120 tokens in 2.10 s (56.7/s), stop".
std::string rates_text(const Completion& completion);

// Says on a terminal that a long prompt is read; cleared when the answer begins.
class ReadingNotice {
 public:
  explicit ReadingNotice(const Prompt& prompt) : bar_("reading " + counted(prompt.tokens.size(), "token")) {
    if (prompt.tokens.size() >= 1024) bar_.show();
  }
  void finish() { bar_.finish(); }

 private:
  ProgressBar bar_;
};

// The prompt loop on a terminal (run_chat.cpp).
int run_interactive(Chat& chat, const RunOptions& options);

}  // namespace halfbyte::tools
