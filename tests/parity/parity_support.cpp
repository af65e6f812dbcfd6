#include "parity/parity_support.h"

#include <map>
#include <stdexcept>

namespace halfbyte::testing {

std::unique_ptr<Engine> open_engine(const std::string& path, const std::string& plan, const std::string& kernels,
                                    const EngineOptions& options) {
  LoadOptions load;
  load.plan = value_or_throw(parse_plan(plan));
  load.kernels = kernels;
  const std::shared_ptr<Model> model = value_or_throw(Model::load(path, load));
  if (model->summary().kernels != kernels) {
    throw std::runtime_error("asked for kernels " + kernels + ", the model says " + model->summary().kernels);
  }
  return value_or_throw(Engine::create(model, options));
}

std::vector<std::vector<int32_t>> greedy(Engine& engine, const std::vector<std::vector<int32_t>>& prompts,
                                         int64_t max_tokens, int32_t stop) {
  std::vector<std::vector<int32_t>> out(prompts.size());
  std::map<uint64_t, size_t> index;
  for (size_t i = 0; i < prompts.size(); ++i) {
    GenerateRequest request;
    request.prompt = prompts[i];
    request.max_tokens = max_tokens;
    request.sampling.temperature = 0;
    if (stop >= 0) request.stop_tokens = {stop};
    index[value_or_throw(engine.submit(std::move(request)))] = i;
  }
  while (engine.busy()) {
    for (const TokenEvent& event : value_or_throw(engine.step())) {
      if (event.finish == FinishReason::kError) throw std::runtime_error(event.error);
      if (event.token >= 0) out[index.at(event.request)].push_back(event.token);
    }
  }
  return out;
}

}  // namespace halfbyte::testing
