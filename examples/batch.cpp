// Answers several questions at once: the engine puts the requests into one batch and gives their tokens step by step.
//   example_batch MODEL "QUESTION" ...
#include <cstdio>
#include <map>
#include <string>
#include <vector>

#include "halfbyte/chat.h"

using namespace halfbyte;

namespace {

// docs/library.md: begin
Status answer_all(Engine& engine, const TextModel& text, const std::vector<std::string>& questions) {
  std::map<uint64_t, std::vector<int32_t>> answers;  // by request
  for (const std::string& question : questions) {
    const auto prompt = chat_prompt(text, {{.role = "user", .content = question}});
    if (!prompt.ok()) return prompt.status();
    GenerateRequest request;
    request.prompt = prompt->tokens;
    request.max_tokens = 200;
    request.stop_tokens = stop_tokens(engine.model(), text);
    request.sampling.temperature = 0;  // the most likely token each time
    const auto id = engine.submit(std::move(request));
    if (!id.ok()) return id.status();
    answers[*id];
  }
  while (engine.busy()) {
    const auto events = engine.step();  // one pass of the model for everything that runs
    if (!events.ok()) return events.status();
    for (const TokenEvent& event : *events) {
      if (event.finish == FinishReason::kError) return {StatusCode::kInternal, event.error};
      if (event.token >= 0) answers[event.request].push_back(event.token);
    }
  }
  for (const auto& [request, tokens] : answers) std::printf("%s\n", decode(text, tokens).c_str());
  return {};
}
// docs/library.md: end

Status run(const std::string& path, const std::vector<std::string>& questions) {
  LoadOptions load;
  load.plan = *plan_preset("w4a16");  // or "bf16", "w4a8", "w4a4", ...
  const auto model = Model::load(path, load);
  if (!model.ok()) return model.status();
  EngineOptions options;
  options.max_batch = 8;
  options.context = 1024;
  options.kv_tokens = 8 * 1024;
  const auto engine = Engine::create(*model, options);
  if (!engine.ok()) return engine.status();
  const auto text = open_text_model(path);
  if (!text.ok()) return text.status();
  return answer_all(**engine, *text, questions);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) {
    std::fprintf(stderr, "usage: example_batch MODEL QUESTION ...\n");
    return 2;
  }
  const Status status = run(argv[1], {argv + 2, argv + argc});
  if (!status.ok()) std::fprintf(stderr, "error: %s\n", status.message().c_str());
  return status.ok() ? 0 : 1;
}
