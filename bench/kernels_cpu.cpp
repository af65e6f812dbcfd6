// The CPU kernels against this machine's read bandwidth.
//
// Every sample of an operation is paired with a read of as many bytes by the same threads, so a disturbance hits both;
// the share is the median of the pairs' ratios. Weights rotate over more memory than the caches hold.
//
//   bench_kernels_cpu                                   decode of a 1.5B model, every kernel that runs here
//   bench_kernels_cpu --kernel linear_nvfp4_a16i16_avx2 --tokens 1,2,4,8 --threads 1,2 --json
//   bench_kernels_cpu --kernel a16t_amx --tokens 512            prompt rows: look at GFLOP/s
#include <fmt/format.h>
#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <vector>

#include "base/cpu_features.h"
#include "base/cpu_topology.h"
#include "base/percentile.h"
#include "base/thread_pool.h"
#include "kernels/read_bandwidth.h"
#include "kernels/registry.h"

namespace halfbyte {
namespace {

struct Shape {
  const char* name;
  int64_t n, k;
};
// Qwen2.5-1.5B: hidden 1536, intermediate 8960, keys and values 256 wide. One decoder layer's linears.
constexpr Shape kLayer[] = {{"q", 1536, 1536},    {"k", 256, 1536},   {"v", 256, 1536},    {"o", 1536, 1536},
                            {"gate", 8960, 1536}, {"up", 8960, 1536}, {"down", 1536, 8960}};

struct Options {
  std::string kernel;  // a name, or a part of one
  std::vector<int> threads;
  std::vector<int64_t> tokens = {1};
  double seconds = 2.0;  // a case
  int layers = 12;       // copies of the layer: about 25 MB each in NVFP4
  bool shapes = false;   // each linear by itself, too
  bool json = false;
};

double seconds_now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

QuantLinear random_weight(WeightFormat format, int64_t n, int64_t k, std::mt19937_64& rng) {
  QuantLinear w;
  w.name = "bench";
  w.format = format;
  w.n = n;
  w.k = k;
  w.codes = Buffer::allocate(static_cast<size_t>(n * code_bytes_per_row(format, k)));
  w.block_scales = Buffer::allocate(static_cast<size_t>(n * scale_bytes_per_row(format, k)));
  w.tensor_scale = format == WeightFormat::kNVFP4 ? 0.001f : 1.0f;
  if (format == WeightFormat::kF32 || format == WeightFormat::kBF16) {
    for (int64_t i = 0; i < n * k; ++i) {
      const float v = static_cast<float>(rng() % 2001) / 1000.0f - 1.0f;
      if (format == WeightFormat::kF32)
        w.codes.mutable_as<float>()[i] = v;
      else
        w.codes.mutable_as<uint16_t>()[i] = static_cast<uint16_t>(0x3C00 + rng() % 0x200);
    }
    return w;
  }
  for (std::byte& b : w.codes.mutable_bytes()) b = static_cast<std::byte>(rng());
  for (std::byte& b : w.block_scales.mutable_bytes()) {
    b = static_cast<std::byte>(format == WeightFormat::kNVFP4 ? 0x30 + rng() % 0x20 : 120 + rng() % 8);
  }
  return w;
}

// One linear in memory, as often as there are layers.
struct Linear {
  Shape shape;
  std::vector<Buffer> packed;
  Buffer activations;
  std::vector<float> x, y;
};

class Case {
 public:
  Case(const LinearKernel& kernel, std::span<const Shape> shapes, int layers, int64_t tokens, ThreadPool& pool)
      : kernel_(kernel), layers_(layers), tokens_(tokens), pool_(pool) {
    std::mt19937_64 rng(1);
    for (const Shape& s : shapes) {
      Linear l{s,
               {},
               Buffer::allocate(kernel.activation_bytes(s.k) * static_cast<size_t>(tokens)),
               std::vector<float>(static_cast<size_t>(tokens * s.k)),
               std::vector<float>(static_cast<size_t>(tokens * s.n))};
      for (float& v : l.x) v = static_cast<float>(rng() % 2001) / 1000.0f - 1.0f;
      const QuantLinear w = random_weight(kernel.weights, s.n, s.k, rng);
      const size_t bytes = kernel.packed_bytes(s.n, s.k);
      for (int i = 0; i < layers; ++i) {
        l.packed.push_back(Buffer::allocate(bytes));
        pool.parallel_for(s.n, kernel.row_tile, [&](int64_t begin, int64_t end, int) {
          kernel.pack(w, begin, end, l.packed.back().mutable_bytes().data());
        });
      }
      bytes_ += bytes;
      linears_.push_back(std::move(l));
    }
  }

  // Bytes of weights of one sample.
  size_t bytes() const { return bytes_; }

  // All linears of one layer after one another, as a decode step runs them: rounding of the input, then the product.
  double sample() {
    const size_t layer = static_cast<size_t>(next_++ % layers_);
    const double start = seconds_now();
    for (Linear& l : linears_) {
      const size_t row = kernel_.activation_bytes(l.shape.k);
      pool_.parallel_for(tokens_, 1, [&](int64_t begin, int64_t end, int) {
        kernel_.quantize(l.x.data() + begin * l.shape.k, end - begin, l.shape.k, 0.0f,
                         l.activations.mutable_bytes().data() + static_cast<size_t>(begin) * row);
      });
      pool_.parallel_for(l.shape.n, kernel_.row_tile, [&](int64_t begin, int64_t end, int) {
        for (int64_t m = 0; m < tokens_; m += kernel_.max_rows) {
          kernel_.run({l.packed[layer].bytes().data(), 0.001f, nullptr, l.shape.n, l.shape.k,
                       l.activations.bytes().data() + static_cast<size_t>(m) * row,
                       std::min(kernel_.max_rows, tokens_ - m), begin, end, l.y.data() + m * l.shape.n, l.shape.n});
        }
      });
    }
    return seconds_now() - start;
  }

 private:
  const LinearKernel& kernel_;
  int layers_;
  int64_t tokens_;
  ThreadPool& pool_;
  std::vector<Linear> linears_;
  size_t bytes_ = 0;
  int next_ = 0;
};

struct Line {
  std::string operation, shape, kernel;
  int threads;
  int64_t tokens;
  double us, us_p10, us_p90, gbps, gflops, read_gbps, share, against_ref;
};

// `reference_us`: the median of the scalar reference for the same shape, 0 where it was not run.
Line measure(Case& c, ReadProbe& probe, double seconds) {
  std::vector<double> times, reads, shares;
  c.sample();
  for (double start = seconds_now(); times.size() < 5 || seconds_now() - start < seconds;) {
    const double read = probe.read(c.bytes()), time = c.sample();
    times.push_back(time);
    reads.push_back(read);
    shares.push_back(read / time);
  }
  const auto bytes = static_cast<double>(c.bytes());
  Line line{};
  line.us = percentile(times, 0.5) * 1e6;
  line.us_p10 = percentile(times, 0.1) * 1e6;
  line.us_p90 = percentile(times, 0.9) * 1e6;
  line.gbps = bytes / percentile(times, 0.5) / 1e9;
  line.read_gbps = bytes / percentile(reads, 0.5) / 1e9;
  line.share = percentile(shares, 0.5);
  return line;
}

void print(const Line& l) {
  fmt::print(
      "{:<14} {:<12} {:<28} {}t M={:<3} {:>9.1f} us [{:>9.1f} {:>9.1f}] {:>7.1f} GFLOP/s {:>7.2f} GB/s  read {:>6.2f}  "
      "share {:>5.1f}%",
      l.operation, l.shape, l.kernel, l.threads, l.tokens, l.us, l.us_p10, l.us_p90, l.gflops, l.gbps, l.read_gbps,
      100 * l.share);
  if (l.against_ref > 0) fmt::print("  {:>6.1f}x ref", l.against_ref);
  fmt::print("\n");
  std::fflush(stdout);
}

nlohmann::ordered_json to_json(const Line& l) {
  return {{"operation", l.operation}, {"shape", l.shape},   {"implementation", l.kernel}, {"threads", l.threads},
          {"tokens", l.tokens},       {"us", l.us},         {"us_p10", l.us_p10},         {"us_p90", l.us_p90},
          {"GBps", l.gbps},           {"GFLOPs", l.gflops}, {"read_GBps", l.read_gbps},   {"share_of_read", l.share},
          {"x_ref", l.against_ref}};
}

// The scalar reference is slow: a small part of the layer, once a kernel, scaled by bytes.
double reference_us_per_byte(const LinearKernel& kernel, ThreadPool& pool) {
  const std::string name = std::string(kernel.name.substr(0, kernel.name.rfind('_'))) + "_ref";
  const LinearKernel* ref = find_linear_kernel_named(name);
  if (ref == nullptr) return 0;
  constexpr Shape kSmall[] = {{"k", 256, 1536}};
  Case c(*ref, kSmall, 1, 1, pool);
  double best = 1e30;
  for (int i = 0; i < 3; ++i) best = std::min(best, c.sample());
  return best * 1e6 / (256.0 * 1536.0);  // us a weight
}

int run(const Options& options) {
  std::vector<Line> lines;
  nlohmann::ordered_json machine = {{"cpu", cpu_model_name()}, {"features", cpu_features_text(cpu_features())}};
  for (const int threads : options.threads) {
    ThreadPool pool(threads);
    ReadProbe probe(pool, size_t{512} << 20);
    machine["read_pattern_" + std::to_string(threads)] = probe.pattern();
    if (!options.json) fmt::print("{} threads: reads with {}\n", threads, probe.pattern());
    std::map<std::string, double> reference;
    for (const LinearKernel& kernel : all_linear_kernels()) {
      if (kernel.isa == Isa::kRef || !isa_runs_here(kernel.isa)) continue;
      if (kernel.name.find(options.kernel) == std::string_view::npos) continue;
      const double ref_us = reference_us_per_byte(kernel, pool);
      double weights = 0;
      for (const Shape& s : kLayer) weights += static_cast<double>(s.n * s.k);
      const int copies = std::max(2, kernel.weights == WeightFormat::kF32    ? options.layers / 6
                                     : kernel.weights == WeightFormat::kBF16 ? options.layers / 3
                                                                             : options.layers);
      for (const int64_t tokens : options.tokens) {
        const auto add = [&](std::span<const Shape> shapes, std::string operation, std::string shape, int count,
                             double n) {
          Case c(kernel, shapes, count, tokens, pool);
          Line line = measure(c, probe, options.seconds);
          line.operation = std::move(operation);
          line.shape = std::move(shape);
          line.kernel = kernel.name;
          line.threads = threads;
          line.tokens = tokens;
          line.gflops = 2e-3 * n * static_cast<double>(tokens) / line.us;
          line.against_ref = tokens == 1 ? ref_us * n / line.us : 0;
          if (!options.json) print(line);
          lines.push_back(line);
        };
        add(kLayer, "layer", "1.5B", copies, weights);
        if (!options.shapes) continue;
        for (const Shape& s : {kLayer[0], kLayer[1], kLayer[4], kLayer[6]}) {
          const auto bytes = static_cast<double>(kernel.packed_bytes(s.n, s.k));
          const Shape one[] = {s};
          add(one, "linear", fmt::format("{}x{}", s.n, s.k), static_cast<int>(300e6 / bytes) + 1,
              static_cast<double>(s.n * s.k));
        }
      }
    }
  }
  if (options.json) {
    nlohmann::ordered_json cases = nlohmann::ordered_json::array();
    for (const Line& l : lines) cases.push_back(to_json(l));
    fmt::print("{}\n", nlohmann::ordered_json{{"machine", machine}, {"cases", cases}}.dump(2));
  }
  return lines.empty() ? 2 : 0;
}

}  // namespace
}  // namespace halfbyte

int main(int argc, char** argv) {
  halfbyte::Options options;
  CLI::App app("CPU kernels against the machine's read bandwidth");
  app.add_option("--kernel", options.kernel, "part of the kernel names to run, e.g. nvfp4_a16");
  app.add_option("--threads", options.threads, "thread counts, e.g. 1,2")->delimiter(',');
  app.add_option("--tokens", options.tokens, "activation rows, e.g. 1,2,4,8")->delimiter(',');
  app.add_option("--seconds", options.seconds, "time a case")->capture_default_str();
  app.add_option("--layers", options.layers, "copies of the layer in memory")->capture_default_str();
  app.add_flag("--shapes", options.shapes, "each linear by itself, too");
  app.add_flag("--json", options.json, "one JSON object");
  CLI11_PARSE(app, argc, argv);
  if (options.threads.empty()) options.threads = {halfbyte::default_thread_count()};
  return halfbyte::run(options);
}
