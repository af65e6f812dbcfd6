// The engine on a CUDA device: near the CPU's logits in every plan, the CPU's greedy tokens up to near ties, and a
// request's tokens whatever runs beside it. Skipped where no device can run the kernels.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <functional>
#include <map>

#include "base/rng.h"
#include "engine/cuda_memory.h"
#include "halfbyte/engine.h"
#include "kernels/cuda/ops.h"
#include "model/model_impl.h"
#include "support/cuda_device.h"
#include "support/cuda_model.h"

namespace halfbyte {
namespace {

using testing::cuda_model;

constexpr int32_t kVocab = testing::kCudaVocab;

std::unique_ptr<Engine> engine_of(const std::shared_ptr<const Model>& model, const std::string& device,
                                  int64_t kv_tokens = 4096, int max_batch = 20, bool run_ahead = true) {
  EngineOptions options;
  options.run_ahead = run_ahead;
  options.device = device;
  options.threads = 2;
  options.context = std::min<int64_t>(1024, kv_tokens);
  options.kv_tokens = kv_tokens;
  options.max_batch = max_batch;
  options.prefill_chunk = 64;
  auto engine = Engine::create(model, options);
  EXPECT_TRUE(engine.ok()) << engine.status().message();
  return engine.ok() ? std::move(engine).value() : nullptr;
}

std::vector<int32_t> prompt_of(uint64_t index, uint64_t length) {
  std::vector<int32_t> out;
  for (uint64_t i = 0; i < length; ++i)
    out.push_back(static_cast<int32_t>(philox_draw(11, static_cast<uint32_t>(index), i) % kVocab));
  return out;
}

struct Case {
  const char* model_type;
  const char* plan;
  double bound;  // of the relative error of logits: rounded inputs that fall on the other side of a border
};
class CudaEngine : public ::testing::TestWithParam<Case> {};

TEST_P(CudaEngine, ScoresNearTheCpu) {
  HB_NEED_CUDA();
  const auto model = cuda_model(GetParam().model_type, GetParam().plan);
  ASSERT_NE(model, nullptr);
  const auto cpu = engine_of(model, "cpu"), cuda = engine_of(model, "cuda");
  ASSERT_TRUE(cpu != nullptr && cuda != nullptr);
  ScoreOptions options;
  options.logits = true;
  const auto tokens = prompt_of(1, 80);
  const auto a = cpu->score(tokens, options), b = cuda->score(tokens, options);
  ASSERT_TRUE(a.ok() && b.ok()) << a.status().message() << b.status().message();
  double error = 0, norm = 0;
  for (size_t i = 0; i < a->logits.size(); ++i) {
    error += std::pow(static_cast<double>(a->logits[i] - b->logits[i]), 2);
    norm += std::pow(static_cast<double>(a->logits[i]), 2);
  }
  // The greedy token is the CPU's wherever its lead is beyond what the roundings move.
  const double spread = std::sqrt(norm / static_cast<double>(a->logits.size()));
  int compared = 0;
  for (size_t t = 0; t < a->argmax.size(); ++t) {
    std::vector<float> row(a->logits.begin() + static_cast<std::ptrdiff_t>(t) * kVocab,
                           a->logits.begin() + static_cast<std::ptrdiff_t>(t + 1) * kVocab);
    std::nth_element(row.begin(), row.begin() + 1, row.end(), std::greater<>());
    if (static_cast<double>(row[0] - row[1]) < 6 * GetParam().bound * spread) continue;
    EXPECT_EQ(a->argmax[t], b->argmax[t]) << "position " << t;
    ++compared;
  }
  if (GetParam().bound <= 0.01) {
    EXPECT_GT(compared, 25);
  }
  RecordProperty("relative_error", std::to_string(std::sqrt(error / norm)));
  EXPECT_LT(std::sqrt(error / norm), GetParam().bound) << GetParam().plan;
}

INSTANTIATE_TEST_SUITE_P(Plans, CudaEngine,
                         ::testing::Values(Case{"qwen3", "w4a16", 0.01}, Case{"qwen3", "w4a8", 0.05},
                                           Case{"qwen3", "w4a4", 0.15}, Case{"llama", "w4a16", 0.01},
                                           Case{"llama", "w4a16-mxfp4", 0.01}, Case{"llama", "w4a8-mxfp4", 0.05},
                                           Case{"llama", "w4a4-mxfp4", 0.25}, Case{"qwen2", "bf16", 0.01},
                                           Case{"qwen2", "w4a16", 0.01}));

struct Trace {
  std::vector<int32_t> tokens;
  std::vector<float> entropies;
  bool operator==(const Trace&) const = default;
};

GenerateRequest request_of(uint64_t index) {
  GenerateRequest r;
  r.prompt = prompt_of(index, 3 + philox_draw(3, 0, index) % 60);
  r.max_tokens = 24;
  r.sampling.temperature = index % 3 == 0 ? 0.0f : 0.8f;
  r.sampling.top_p = index % 4 == 1 ? 0.9f : 1.0f;
  r.sampling.top_k = index % 4 == 2 ? 20 : 0;
  r.sampling.logprobs = index % 8 == 3 ? 0 : -1;  // the host draws
  r.sampling.seed = 7 + index;
  r.sampling.entropy = true;
  return r;
}

// more_tokens: of each request, which the device draws then.
std::vector<Trace> generate(Engine& engine, const std::vector<uint64_t>& indices, int64_t more_tokens = 0) {
  std::map<uint64_t, size_t> place;
  std::vector<Trace> traces(indices.size());
  for (size_t i = 0; i < indices.size(); ++i) {
    GenerateRequest request = request_of(indices[i]);
    request.max_tokens += more_tokens;
    if (more_tokens > 0) request.sampling.logprobs = -1;
    const auto id = engine.submit(std::move(request));
    EXPECT_TRUE(id.ok()) << id.status().message();
    place[*id] = i;
  }
  while (engine.busy()) {
    const auto events = engine.step();
    EXPECT_TRUE(events.ok()) << events.status().message();
    if (!events.ok()) break;
    for (const TokenEvent& e : *events) {
      EXPECT_EQ(e.error, "");
      traces[place.at(e.request)].tokens.push_back(e.token);
      traces[place.at(e.request)].entropies.push_back(e.entropy);
    }
  }
  return traces;
}

// Alone, in batches of 2, 7 and 18, and through preemption: the same tokens and entropies, bit for bit.
TEST(CudaEngine, TokensDoNotDependOnCompany) {
  HB_NEED_CUDA();
  const auto model = cuda_model("qwen3", "w4a16");
  ASSERT_NE(model, nullptr);
  const auto engine = engine_of(model, "cuda");
  ASSERT_NE(engine, nullptr);
  std::vector<Trace> alone;
  for (uint64_t i = 0; i < 18; ++i) alone.push_back(generate(*engine, {i})[0]);
  for (const uint64_t count : {2u, 7u, 18u}) {
    std::vector<uint64_t> indices;
    for (uint64_t i = 0; i < count; ++i) indices.push_back(i);
    const auto together = generate(*engine, indices);
    for (uint64_t i = 0; i < count; ++i) EXPECT_EQ(together[i], alone[i]) << "request " << i << " of " << count;
  }
  const auto tight = engine_of(model, "cuda", 256);
  ASSERT_NE(tight, nullptr);
  const auto preempted = generate(*tight, {0, 1, 2, 3, 4, 5, 6, 7});
  EXPECT_GT(tight->metrics().preemptions, 0u) << "the test wants a cache that is too small";
  for (size_t i = 0; i < preempted.size(); ++i) EXPECT_EQ(preempted[i], alone[i]) << "request " << i;
}

// Steps that must have run ahead: `most`, and fewer where rows with top-k or top-p are the host's.
uint64_t least_ahead(uint64_t most, uint64_t without_clusters) {
  return cuda::active_kernels().clusters ? most : without_clusters;
}

// Passes of several groups of 16: the same bits as alone.
TEST(CudaEngine, TokensDoNotDependOnManyOthers) {
  HB_NEED_CUDA();
  const auto model = cuda_model("llama", "w4a16");
  ASSERT_NE(model, nullptr);
  const auto engine = engine_of(model, "cuda", 64 * 192, 64);
  ASSERT_NE(engine, nullptr);
  std::vector<uint64_t> indices;
  for (uint64_t i = 0; i < 61; ++i) indices.push_back(i);
  const auto together = generate(*engine, indices, 60);
  EXPECT_GE(engine->metrics().steps_ahead, least_ahead(11, 0));
  for (const uint64_t i : {0u, 3u, 15u, 16u, 31u, 32u, 47u, 48u, 60u})
    EXPECT_EQ(together[i], generate(*engine, {i}, 60)[0]) << "request " << i;
}

// What a device gives an engine at its start is what was reckoned, and serving takes no more of it than graphs do.
TEST(CudaEngine, TakesItsMemoryAtTheStart) {
  HB_NEED_CUDA();
  const auto model = cuda_model("llama", "w4a16");
  ASSERT_NE(model, nullptr);
  // What a first engine leaves behind (code of kernels) is there before anything is counted.
  generate(*engine_of(model, "cuda"), {0, 1, 2});
  const auto before = cuda_memory();
  ASSERT_TRUE(before.ok()) << before.status().message();
  const auto engine = engine_of(model, "cuda", 64 * 1024, 64);
  ASSERT_NE(engine, nullptr);
  const uint64_t taken = before->free_bytes - cuda_memory()->free_bytes;
  const CudaModelShape shape = cuda_model_shape(model->config(), model->plan(), model->impl().weights, before->wgmma);
  const RunnerFootprint f = cuda_runner_footprint(shape, {64, 64, 64 * 1024 / 32, 32});
  const uint64_t reckoned = f.total() + cuda_weight_bytes(shape, before->multiprocessors);
  RecordProperty("taken", std::to_string(taken));
  RecordProperty("reckoned", std::to_string(reckoned));
  EXPECT_LE(taken, reckoned + (uint64_t{16} << 20)) << "buffers of their own, rounded up";
  EXPECT_GE(taken + (uint64_t{4} << 20), reckoned) << "weights among it";
  std::vector<uint64_t> indices;
  for (uint64_t i = 0; i < 64; ++i) indices.push_back(i);
  for (const size_t count : {64u, 33u, 17u, 5u, 2u, 1u})
    generate(*engine, {indices.begin(), indices.begin() + static_cast<std::ptrdiff_t>(count)});
  ASSERT_TRUE(engine->score(prompt_of(1, 80)).ok());
  const uint64_t served = before->free_bytes - cuda_memory()->free_bytes;
  RecordProperty("served", std::to_string(served));
  EXPECT_LE(served, taken + (uint64_t{384} << 20));
}

// Nor do scores depend on how many rows a prompt's pass has.
TEST(CudaEngine, ScoresDoNotDependOnTheChunk) {
  HB_NEED_CUDA();
  for (const char* plan : {"w4a16", "w4a4", "bf16"}) {
    const auto model = cuda_model("llama", plan);
    ASSERT_NE(model, nullptr);
    std::vector<std::vector<float>> entropies;
    for (const int64_t chunk : {512, 100, 16, 1}) {
      EngineOptions options;
      options.device = "cuda";
      options.context = options.kv_tokens = 1024;
      options.prefill_chunk = chunk;
      const auto engine = Engine::create(model, options);
      ASSERT_TRUE(engine.ok()) << engine.status().message();
      const auto scores = (*engine)->score(prompt_of(5, 300));
      ASSERT_TRUE(scores.ok()) << scores.status().message();
      entropies.push_back(scores->entropies);
      EXPECT_EQ(entropies.back(), entropies.front()) << plan << ", " << chunk << " rows";
    }
  }
}

// Where a token is drawn changes nothing.
TEST(CudaEngine, HostAndDeviceDrawTheSame) {
  HB_NEED_CUDA();
  const auto model = cuda_model("llama", "w4a16");
  ASSERT_NE(model, nullptr);
  const auto engine = engine_of(model, "cuda");
  ASSERT_NE(engine, nullptr);
  for (uint64_t i = 0; i < 12; ++i) {
    std::vector<int32_t> tokens[2];
    for (const int logprobs : {-1, 0}) {
      GenerateRequest request = request_of(i);
      request.max_tokens = 100;
      request.sampling.logprobs = logprobs;
      ASSERT_TRUE(engine->submit(std::move(request)).ok());
      while (engine->busy()) {
        const auto events = engine->step();
        ASSERT_TRUE(events.ok());
        for (const TokenEvent& e : *events) tokens[logprobs + 1].push_back(e.token);
      }
    }
    EXPECT_EQ(tokens[0], tokens[1]) << "request " << i;
  }
}

// One thing that happens between two steps, drawn from (seed, step): requests come, are cancelled and are given tokens, all
// rules among them; a sequence is scored.
class Script {
 public:
  Script(Engine& engine, uint64_t seed) : engine_(engine), seed_(seed) {
    StepClasses classes(kVocab);
    for (size_t i = 0; i < classes.size(); ++i) classes[i] = i % 5 == 0 ? 2 : i % 3 == 0 ? 1 : 0;
    classes_ = std::make_shared<const StepClasses>(std::move(classes));
  }

  void act(uint64_t step) {
    if (live_.size() < 6 && draw(step, 0) % 4 == 0) submit(step);
    if (live_.empty()) return;
    const uint64_t victim = live_[draw(step, 1) % live_.size()];
    switch (draw(step, 2) % 40) {
      case 0: engine_.cancel(victim); break;
      case 1: EXPECT_TRUE(engine_.force(victim, {5, static_cast<int32_t>(draw(step, 3) % kVocab), 7}).ok()); break;
      case 2: static_cast<void>(engine_.score(prompt_of(step, 20))); break;  // may find no pages
      default: break;
    }
  }
  void saw(const TokenEvent& e) {
    if (e.finish != FinishReason::kNone) std::erase(live_, e.request);
  }

 private:
  uint64_t draw(uint64_t step, uint32_t what) const { return philox_draw(seed_, what, step) >> 8; }

  void submit(uint64_t step) {
    GenerateRequest r = request_of(step);
    r.prompt.resize(std::min<size_t>(r.prompt.size(), 40));
    r.max_tokens = 1 + static_cast<int64_t>(draw(step, 4) % 90);
    if (draw(step, 5) % 3 == 0) {
      r.sampling.policy.rule = static_cast<TemperatureRule>(1 + draw(step, 6) % 5);
      r.sampling.policy.window = 1 + static_cast<int>(draw(step, 7) % 9);
      r.sampling.policy.include_current = draw(step, 8) % 2 == 0;
      r.sampling.policy.tau0 = 6.0;
      r.step_classes = classes_;
    }
    const uint64_t stops = draw(step, 9) % 3 == 0 ? 8 : draw(step, 9) % 3 == 1 ? 30 : 0;  // the device's rule holds 8
    for (uint64_t i = 0; i < stops; ++i) r.stop_tokens.push_back(static_cast<int32_t>((step * 31 + i * 29) % kVocab));
    if (draw(step, 10) % 2 != 0) r.sampling.logprobs = -1;
    const auto id = engine_.submit(std::move(r));
    ASSERT_TRUE(id.ok()) << id.status().message();
    live_.push_back(*id);
  }

  Engine& engine_;
  uint64_t seed_;
  std::vector<uint64_t> live_;
  std::shared_ptr<const StepClasses> classes_;
};

std::string text_of(const TokenEvent& e) {
  char line[160];
  std::snprintf(line, sizeof(line), "request %llu position %lld token %d entropy %.9g T %.9g step %.17g %s %s",
                static_cast<unsigned long long>(e.request), static_cast<long long>(e.position), e.token,
                static_cast<double>(e.entropy), static_cast<double>(e.temperature),
                e.choice ? e.choice->step_mean : -1.0, finish_reason_name(e.finish), e.error.c_str());
  return line;
}

// Running ahead changes nothing: event for event the same, whatever happens between the steps, in a cache that is too small.
TEST(CudaEngine, RunningAheadChangesNoToken) {
  HB_NEED_CUDA();
  const auto model = cuda_model("llama", "w4a16");
  ASSERT_NE(model, nullptr);
  uint64_t stopped = 0, unused = 0, preempted = 0;
  for (const uint64_t seed : {1u, 2u, 3u}) {
    const auto ahead = engine_of(model, "cuda", 160 + 32 * static_cast<int64_t>(seed), 20, true);
    const auto waiting = engine_of(model, "cuda", 160 + 32 * static_cast<int64_t>(seed), 20, false);
    ASSERT_TRUE(ahead != nullptr && waiting != nullptr);
    Script one(*ahead, seed), two(*waiting, seed);
    for (uint64_t step = 0; step < 700; ++step) {
      one.act(step);
      two.act(step);
      const auto a = ahead->step(), b = waiting->step();
      ASSERT_TRUE(a.ok() && b.ok());
      ASSERT_EQ(a->size(), b->size()) << "step " << step;
      for (size_t i = 0; i < a->size(); ++i) {
        ASSERT_EQ(text_of((*a)[i]), text_of((*b)[i])) << "seed " << seed << ", step " << step;
        one.saw((*a)[i]);
        two.saw((*b)[i]);
        const TokenEvent& e = (*a)[i];
        if (e.choice) {
          EXPECT_EQ(e.temperature, e.choice->temperature) << "the device's state is another";
        }
        stopped += e.finish == FinishReason::kStop ? 1u : 0u;
      }
    }
    EXPECT_GT(ahead->metrics().steps_ahead, least_ahead(150, 20));
    EXPECT_EQ(waiting->metrics().steps_ahead, 0u);
    unused += ahead->metrics().steps_ahead_unused;
    preempted += ahead->metrics().preemptions;
  }
  EXPECT_GT(unused, 5u);
  EXPECT_GT(stopped, 5u);
  EXPECT_GT(preempted, 5u);
}

// 900 tokens in a row without waiting for the device to have nothing left, and nearly all of them begun a step early.
TEST(CudaEngine, DecodesWithoutWaitingForTheDevice) {
  HB_NEED_CUDA();
  const auto model = cuda_model("qwen3", "w4a16");
  ASSERT_NE(model, nullptr);
  const auto engine = engine_of(model, "cuda");
  ASSERT_NE(engine, nullptr);
  GenerateRequest r = request_of(2);
  r.max_tokens = 900;
  if (!cuda::active_kernels().clusters) r.sampling.top_k = 0;
  r.sampling.policy.rule = TemperatureRule::kReset;
  StepClasses classes(kVocab, 0);
  for (size_t i = 0; i < classes.size(); i += 9) classes[i] = 2;
  r.step_classes = std::make_shared<const StepClasses>(std::move(classes));
  ASSERT_TRUE(engine->submit(std::move(r)).ok());
  ASSERT_TRUE(engine->step().ok());  // the prompt
  const uint64_t waits = engine->metrics().device_waits;
  while (engine->busy()) ASSERT_TRUE(engine->step().ok());
  const EngineMetrics m = engine->metrics();
  EXPECT_EQ(m.generated_tokens, 900u);
  EXPECT_EQ(m.device_waits, waits);
  EXPECT_GE(m.steps_ahead, 890u);
  EXPECT_EQ(m.steps_ahead_unused, 0u);
}

TEST(CudaEngine, RefusesWhatItDoesNotHave) {
  HB_NEED_CUDA();
  EngineOptions options;
  options.device = "cuda";
  const auto kv = Engine::create(cuda_model("qwen3", "w4a16,kv=f32"), options);
  ASSERT_FALSE(kv.ok());
  EXPECT_NE(kv.status().message().find("KV cache in f32"), std::string::npos) << kv.status().message();
  const auto f32 = Engine::create(cuda_model("qwen3", "f32,kv=bf16"), options);
  ASSERT_FALSE(f32.ok());
  EXPECT_NE(f32.status().message().find("choose another plan"), std::string::npos) << f32.status().message();
}

}  // namespace
}  // namespace halfbyte
