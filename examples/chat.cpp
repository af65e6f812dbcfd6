// Asks a model one question and prints the answer as it comes.
//   example_chat MODEL "QUESTION"
#include <cstdio>
#include <string>

#include "halfbyte/chat.h"

using namespace halfbyte;

namespace {

// docs/library.md: begin
Status ask(const std::string& path, const std::string& question) {
  const auto model = Model::load(path);  // packs the weights for this CPU
  if (!model.ok()) return model.status();
  const auto engine = Engine::create(*model);  // the KV cache and the scheduler
  if (!engine.ok()) return engine.status();
  const auto text = open_text_model(path);  // the tokenizer and the chat template
  if (!text.ok()) return text.status();

  const auto prompt = chat_prompt(*text, {{.role = "user", .content = question}});
  if (!prompt.ok()) return prompt.status();
  CompletionOptions options;
  options.sampling = default_sampling(**model);
  options.max_tokens = 2000;
  const auto answer = complete(**engine, *text, *prompt, options, [](const OutputDelta& delta) {
    std::fputs(delta.answer.c_str(), stdout);
    return std::fflush(stdout) == 0;  // false would stop the generation
  });
  if (!answer.ok()) return answer.status();
  std::printf("\n[%zu tokens, %lld of them reasoning; %s]\n", answer->token_ids.size(),
              static_cast<long long>(answer->reasoning_tokens), finish_reason_name(answer->finish));
  return {};
}
// docs/library.md: end

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fprintf(stderr, "usage: example_chat MODEL QUESTION\n");
    return 2;
  }
  const Status status = ask(argv[1], argv[2]);
  if (!status.ok()) std::fprintf(stderr, "error: %s\n", status.message().c_str());
  return status.ok() ? 0 : 1;
}
