// What a CPU step does beside its linears: attention by cache format, and the parts between, in the sizes of known models.
//
//   bench_attention_cpu                                 every kernel set and format that runs here
//   bench_attention_cpu --context 2048,16384 --kernels avx512 --formats bf16,nvfp4 --threads 1,2 --json
//
// decode   one token: a layer's attention over `context` positions, split by cuts as the engine does. The cache rotates over
//          more memory than the processor's caches hold; each sample is paired with a read of as many bytes
// prompt   512 tokens behind context - 512 others, a layer
// parts    norms, rope and append, SiLU of one token, all layers of a step, on one thread
#include <fmt/format.h>
#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cmath>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/cpu_features.h"
#include "base/cpu_topology.h"
#include "base/percentile.h"
#include "base/thread_pool.h"
#include "kernels/read_bandwidth.h"
#include "kernels/registry.h"
#include "tensor/buffer.h"

namespace halfbyte {
namespace {

using Json = nlohmann::ordered_json;

struct Shape {
  const char* name;
  int64_t layers, heads, kv_heads, head_dim, hidden, intermediate;
};
constexpr Shape kShapes[] = {{"smollm2-135m", 30, 9, 3, 64, 576, 1536},
                             {"qwen2.5-1.5b", 28, 12, 2, 128, 1536, 8960},
                             {"qwen3-8b", 36, 32, 8, 128, 4096, 12288}};
constexpr KvFormat kFormats[] = {KvFormat::kF32, KvFormat::kBF16, KvFormat::kFP8, KvFormat::kNVFP4, KvFormat::kE1M2};
constexpr int64_t kPageTokens = 32;

struct Options {
  std::vector<std::string> kernels, formats;
  std::vector<int64_t> context = {2048};
  std::vector<int> threads;
  std::string shape = "qwen2.5-1.5b";
  double seconds = 0.5;
  bool json = false;
};

double seconds_now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

std::vector<float> numbers(int64_t n) {
  std::vector<float> x(static_cast<size_t>(n));
  uint32_t state = 1;
  for (float& v : x) {
    state = state * 1664525u + 1013904223u;
    v = static_cast<float>(static_cast<int32_t>(state)) * 0x1p-31f;
  }
  return x;
}

// `copies` layers' caches of one sequence.
class Cache {
 public:
  Cache(const VectorKernels& kernels, const Shape& s, KvFormat format, int64_t positions, int64_t copies)
      : layout_{format, kPageTokens, s.head_dim}, part_(kv_part_bytes(layout_)) {
    const int64_t pages = (positions + kPageTokens - 1) / kPageTokens;
    const size_t page_bytes = 2 * part_ * static_cast<size_t>(s.kv_heads);
    const std::vector<float> rows = numbers(64 * s.head_dim);
    for (int64_t c = 0; c < copies; ++c) {
      buffers_.push_back(Buffer::allocate(page_bytes * static_cast<size_t>(pages)));
      std::byte* base = buffers_.back().mutable_bytes().data();
      pages_.emplace_back();
      for (int64_t p = 0; p < pages; ++p) pages_.back().push_back(base + static_cast<size_t>(p) * page_bytes);
      for (int64_t i = 0; i < positions * s.kv_heads; ++i) {
        const int64_t position = i / s.kv_heads;
        std::byte* keys = base + static_cast<size_t>(position / kPageTokens) * page_bytes +
                          static_cast<size_t>(i % s.kv_heads) * part_;
        const float* row = rows.data() + i % 63 * s.head_dim;
        kernels.store_kv(layout_, position % kPageTokens, row, 1.0f, row + s.head_dim, 1.0f, keys,
                         keys + static_cast<size_t>(s.kv_heads) * part_);
      }
    }
    kv_heads_ = s.kv_heads;
  }

  KvView view(int64_t copy) const { return {pages_[static_cast<size_t>(copy)].data(), layout_, kv_heads_}; }
  size_t bytes() const { return buffers_[0].size(); }

 private:
  KvLayout layout_;
  size_t part_;
  int64_t kv_heads_ = 0;
  std::vector<Buffer> buffers_;
  std::vector<std::vector<const std::byte*>> pages_;
};

class Attention {
 public:
  Attention(const VectorKernels& kernels, const Shape& s, ThreadPool& pool, int64_t context)
      : kernels_(kernels),
        s_(s),
        pool_(pool),
        context_(context),
        group_(s.heads / s.kv_heads),
        scratch_floats_(attention_scratch_floats(group_, s.head_dim)),
        q_(numbers(kPrompt * s.heads * s.head_dim)),
        out_(q_.size()),
        scratch_(static_cast<size_t>(scratch_floats_ * pool.threads())),
        partials_(static_cast<size_t>(attention_partial_floats(group_, s.head_dim) * s.kv_heads * cuts())) {}

  double decode(const KvView& kv) {
    const double start = seconds_now();
    const int64_t partial = attention_partial_floats(group_, s_.head_dim);
    pool_.parallel_for(s_.kv_heads * cuts(), 1, [&](int64_t begin, int64_t end, int thread) {
      for (int64_t j = begin; j < end; ++j)
        kernels_.attention.cut(kv, rows(j / cuts(), context_ - 1, 1), j % cuts(), scratch(thread),
                               partials_.data() + j * partial);
    });
    pool_.parallel_for(s_.kv_heads, 1, [&](int64_t begin, int64_t end, int) {
      for (int64_t h = begin; h < end; ++h)
        kernels_.attention.merge(partials_.data() + h * cuts() * partial, cuts(), group_, s_.head_dim,
                                 out_.data() + h * group_ * s_.head_dim);
    });
    return seconds_now() - start;
  }

  double prompt(const KvView& kv) {
    const double start = seconds_now();
    const AttentionKernels& attention = kernels_.prompt_attention;
    const int64_t most = attention.max_rows(group_), blocks = (kPrompt + most - 1) / most;
    pool_.parallel_for(s_.kv_heads * blocks, 1, [&](int64_t begin, int64_t end, int thread) {
      for (int64_t j = begin; j < end; ++j) {
        const int64_t first = j % blocks * most;
        AttentionRows r = rows(j / blocks, context_ - kPrompt + first, std::min(most, kPrompt - first));
        r.q += first * r.stride;
        r.out += first * r.stride;
        attention.rows(kv, r, scratch(thread));
      }
    });
    return seconds_now() - start;
  }

  static constexpr int64_t kPrompt = 512;
  // Multiply-adds of a layer's prompt.
  double prompt_work() const {
    const double seen = static_cast<double>(kPrompt) * (static_cast<double>(context_) - (kPrompt - 1) / 2.0);
    return 2.0 * seen * static_cast<double>(s_.heads * s_.head_dim);
  }

 private:
  int64_t cuts() const { return (context_ + kAttentionCut - 1) / kAttentionCut; }
  float* scratch(int thread) { return scratch_.data() + thread * scratch_floats_; }
  AttentionRows rows(int64_t head, int64_t position, int64_t count) {
    const int64_t at = head * group_ * s_.head_dim;
    return {q_.data() + at,
            out_.data() + at,
            s_.heads * s_.head_dim,
            position,
            count,
            head,
            group_,
            1.0f / std::sqrt(static_cast<float>(s_.head_dim))};
  }

  const VectorKernels& kernels_;
  const Shape& s_;
  ThreadPool& pool_;
  int64_t context_, group_, scratch_floats_;
  std::vector<float> q_, out_, scratch_, partials_;
};

template <class Sample>
std::vector<double> repeat(double seconds, Sample&& sample) {
  std::vector<double> times;
  sample();
  for (const double start = seconds_now(); times.size() < 3 || seconds_now() - start < seconds;)
    times.push_back(sample());
  return times;
}

void attention_cases(const Options& o, const Shape& s, const VectorKernels& kernels, KvFormat format, int64_t context,
                     int threads, Json& cases) {
  ThreadPool pool(threads);
  Attention attention(kernels, s, pool, context);
  const Cache one(kernels, s, format, context, 1);
  const auto copies = static_cast<int64_t>((size_t{64} << 20) / one.bytes() + 2);
  const Cache cache(kernels, s, format, context, copies);
  ReadProbe probe(pool, size_t{256} << 20);
  int64_t next = 0;
  std::vector<double> shares;
  const std::vector<double> decode = repeat(o.seconds, [&] {
    const double read = probe.read(cache.bytes()), time = attention.decode(cache.view(next++ % copies));
    shares.push_back(read / time);
    return time;
  });
  const double us = median(decode) * 1e6, share = median(shares);
  cases.push_back({{"operation", "decode"},
                   {"shape", s.name},
                   {"kernels", isa_name(kernels.isa)},
                   {"kv", kv_format_name(format)},
                   {"context", context},
                   {"threads", threads},
                   {"us", us},
                   {"GBps", static_cast<double>(cache.bytes()) / us / 1e3},
                   {"share_of_read", share}});
  if (context >= Attention::kPrompt) {
    const double prompt = median(repeat(o.seconds, [&] { return attention.prompt(cache.view(0)); }));
    cases.push_back({{"operation", "prompt"},
                     {"shape", s.name},
                     {"kernels", isa_name(kernels.isa)},
                     {"kv", kv_format_name(format)},
                     {"context", context},
                     {"threads", threads},
                     {"us", prompt * 1e6},
                     {"GFMAps", attention.prompt_work() / prompt / 1e9}});
  }
}

void part_cases(const Options& o, const Shape& s, const VectorKernels& kernels, Json& cases) {
  const int64_t q = s.heads * s.head_dim, kv = s.kv_heads * s.head_dim;
  std::vector<float> x = numbers(s.intermediate + q + kv), y(x.size()), weight = numbers(s.intermediate),
                     angle = weight;
  const auto add = [&](const char* name, auto&& body) {
    const double time = median(repeat(o.seconds / 4, [&] {
      const double start = seconds_now();
      for (int64_t layer = 0; layer < s.layers; ++layer) body();
      return seconds_now() - start;
    }));
    cases.push_back({{"operation", name}, {"shape", s.name}, {"kernels", isa_name(kernels.isa)}, {"us", time * 1e6}});
  };
  add("norms", [&] {
    for (int i = 0; i < 2; ++i) kernels.rmsnorm(x.data(), weight.data(), 1e-6f, 1, s.hidden, y.data());
  });
  add("rope", [&] { kernels.rope(x.data(), angle.data(), angle.data(), s.heads + s.kv_heads, s.head_dim); });
  add("silu", [&] { kernels.silu_mul(x.data(), weight.data(), s.intermediate, y.data()); });
  for (const KvFormat format : kFormats) {
    const KvLayout layout{format, kPageTokens, s.head_dim};
    std::vector<std::byte> keys(kv_part_bytes(layout)), values(keys.size());
    add((std::string("append ") + kv_format_name(format)).c_str(), [&] {
      for (int64_t h = 0; h < s.kv_heads; ++h)
        kernels.store_kv(layout, h, x.data(), 1.0f, x.data() + s.head_dim, 1.0f, keys.data(), values.data());
    });
  }
}

bool wanted(const std::vector<std::string>& names, const char* name) {
  return names.empty() || std::find(names.begin(), names.end(), name) != names.end();
}

int run(const Options& o) {
  const auto* shape =
      std::find_if(std::begin(kShapes), std::end(kShapes), [&](const Shape& s) { return o.shape == s.name; });
  if (shape == std::end(kShapes)) {
    fmt::print(stderr, "unknown shape {}, expected smollm2-135m, qwen2.5-1.5b or qwen3-8b\n", o.shape);
    return 2;
  }
  Json cases = Json::array();
  for (const Isa isa : {Isa::kAvx2, Isa::kAvx512, Isa::kAmx}) {
    if (!isa_runs_here(isa) || !wanted(o.kernels, isa_name(isa))) continue;
    const VectorKernels& kernels = vector_kernels(isa);
    const size_t before = cases.size();
    for (const int threads : o.threads)
      for (const int64_t context : o.context)
        for (const KvFormat format : kFormats)
          if (wanted(o.formats, kv_format_name(format)))
            attention_cases(o, *shape, kernels, format, context, threads, cases);
    part_cases(o, *shape, kernels, cases);
    if (o.json) continue;
    for (size_t i = before; i < cases.size(); ++i) fmt::print("{}\n", cases[i].dump());
  }
  if (o.json) fmt::print("{}\n", Json{{"machine", {{"cpu", cpu_model_name()}}}, {"cases", cases}}.dump(1));
  return cases.empty() ? 2 : 0;
}

}  // namespace
}  // namespace halfbyte

int main(int argc, char** argv) {
  halfbyte::Options options;
  CLI::App app("Attention and the parts between the linears");
  app.add_option("--kernels", options.kernels, "avx2, avx512, amx")->delimiter(',');
  app.add_option("--formats", options.formats, "of the cache, e.g. bf16,fp8")->delimiter(',');
  app.add_option("--context", options.context, "positions, e.g. 2048,16384")->delimiter(',');
  app.add_option("--threads", options.threads, "thread counts, e.g. 1,2")->delimiter(',');
  app.add_option("--shape", options.shape, "a model's sizes")->capture_default_str();
  app.add_option("--seconds", options.seconds, "time a case")->capture_default_str();
  app.add_flag("--json", options.json, "one JSON object");
  CLI11_PARSE(app, argc, argv);
  if (options.threads.empty()) options.threads = {halfbyte::default_thread_count()};
  return halfbyte::run(options);
}
