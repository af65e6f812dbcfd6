// The CUDA decode linears against the device's read bandwidth, and against cuBLAS in BF16.
//
// Weights rotate through more memory than the L2 holds; calls run in a graph; every sample of an operation is paired with
// a plain read of the same bytes (by the fastest of several grids) in the same round, and ratios are medians of the pairs.
//
//   bench_kernels_cuda                                   the 12 shapes of the ReSET table, and gate and up stacked
//   bench_kernels_cuda --shapes 6144x4096 --tokens 1,8 --formats nvfp4 --kernels stages --json
//   bench_kernels_cuda --cublas /path/to/libcublas.so.12 --vllm /path/to/python
#include <fmt/format.h>
#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <charconv>
#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "base/percentile.h"
#include "cublas.h"
#include "halfbyte/version.h"
#include "kernels/cuda/cold_linear.h"
#include "vllm_times.h"

namespace halfbyte {
namespace {

using Json = nlohmann::ordered_json;
using cuda::TimedCalls;

struct Options {
  std::vector<std::string> shapes, formats = {"nvfp4", "mxfp4"};
  std::vector<int> tokens = {1, 2, 4, 8, 16};
  std::string kernels, cublas, vllm;
  int rounds = 11, calls = 48;
  bool no_cublas = false, programmatic = false, json = false;
};

struct Shape {
  std::string name;
  int n, k;
};
// The ReSET table's 12 shapes, then gate and up of each model stacked, as a decode step runs them.
const Shape kShapes[] = {{"8B qkv", 6144, 4096},      {"8B o", 4096, 4096},         {"8B gate", 12288, 4096},
                         {"8B down", 4096, 12288},    {"14B qkv", 7168, 5120},      {"14B o", 5120, 5120},
                         {"14B gate", 17408, 5120},   {"14B down", 5120, 17408},    {"32B qkv", 10240, 5120},
                         {"32B o", 5120, 8192},       {"32B gate", 25600, 5120},    {"32B down", 5120, 25600},
                         {"8B gate+up", 24576, 4096}, {"14B gate+up", 34816, 5120}, {"32B gate+up", 51200, 5120}};
constexpr size_t kPaperShapes = 12;

Result<std::vector<Shape>> shapes_of(const Options& options) {
  if (options.shapes.empty()) return std::vector<Shape>(std::begin(kShapes), std::end(kShapes));
  std::vector<Shape> out;
  for (const std::string& text : options.shapes) {
    Shape s{text, 0, 0};
    const char* end = text.data() + text.size();
    const auto n = std::from_chars(text.data(), end, s.n);
    const bool cut = n.ec == std::errc() && n.ptr != end && *n.ptr == 'x';
    if (!cut || std::from_chars(n.ptr + 1, end, s.k).ptr != end || s.n < 1 || s.k < 1 || s.k % 8 != 0)
      return invalid_argument("--shapes has '" + text +
                              "', expected NxK with a K that is a multiple of 8, e.g. 6144x4096");
    for (const Shape& known : kShapes)
      if (known.n == s.n && known.k == s.k) s.name = known.name;
    out.push_back(s);
  }
  return out;
}

// One operation on one shape, timed round by round.
struct Series {
  std::string kernel, format;
  int tokens;
  TimedCalls calls;
  std::vector<double> us, ratios;  // ratios: to the read of the format's bytes in the same round
};

struct Line {
  Shape shape;
  std::string kernel, format;
  int tokens;
  double us, us_p10, us_p90, read_us, ratio, gbps;
};

class ShapeBench {
 public:
  ShapeBench(const Options& options, const cuda::DeviceInfo& device, const Cublas* cublas, const Shape& shape)
      : options_(options), device_(device), cublas_(cublas), shape_(shape) {}

  Result<std::vector<Line>> run() {
    for (const std::string& format : options_.formats) {
      const auto f = format == "nvfp4" ? WeightFormat::kNVFP4 : WeightFormat::kMXFP4;
      HB_ASSIGN(cuda::ColdLinear linear, cuda::ColdLinear::make(f, shape_.n, shape_.k, device_.multiprocessors));
      linears_.push_back(std::move(linear));
    }
    HB_TRY(add_read());
    for (size_t i = 0; i < linears_.size(); ++i) HB_TRY(add_linears(i));
    if (cublas_ != nullptr) HB_TRY(add_cublas());
    for (int round = 0; round <= options_.rounds; ++round) {  // the first warms up
      HB_ASSIGN(const double read, read_->microseconds());
      if (round > 0) read_us_.push_back(read);
      for (Series& s : series_) {
        HB_ASSIGN(const double us, s.calls.microseconds());
        if (round == 0) continue;
        s.us.push_back(us);
        s.ratios.push_back(us / read);
      }
    }
    std::vector<Line> out;
    const auto fp4_bytes = static_cast<double>(linears_[0].view().bytes);
    for (const Series& s : series_) {
      const double us = percentile(s.us, 0.5);
      const double bytes = s.format == "bf16" ? 2.0 * shape_.n * shape_.k : fp4_bytes;
      out.push_back({shape_, s.kernel, s.format, s.tokens, us, percentile(s.us, 0.1), percentile(s.us, 0.9),
                     percentile(read_us_, 0.5), percentile(s.ratios, 0.5), bytes / us / 1e3});
    }
    return out;
  }

 private:
  Result<TimedCalls> calls(const std::function<Status(int, cuda::Launch)>& call) const {
    // All copies: fewer would stay in the L2 from one graph to the next.
    return TimedCalls::make(std::max(options_.calls, linears_[0].copies()), options_.programmatic, call);
  }

  // The fastest of several grids, then held for this shape.
  Status add_read() {
    double best = 0;
    const cuda::ColdLinear& linear = linears_[0];
    for (const int each : {1, 2, 4, 8}) {
      for (const int threads : {256, 512, 1024}) {
        if (each * threads > 2048) continue;
        HB_ASSIGN(TimedCalls read, calls([&](int i, cuda::Launch launch) {
                    return cuda::read_by(linear.copy(i), linear.view().bytes, each * device_.multiprocessors, threads,
                                         launch);
                  }));
        std::vector<double> us;
        for (int i = 0; i < 4; ++i) {
          HB_ASSIGN(const double one, read.microseconds());
          if (i > 0) us.push_back(one);
        }
        const double middle = percentile(us, 0.5);
        if (best > 0 && middle >= best) continue;
        best = middle;
        read_.emplace(std::move(read));
      }
    }
    return {};
  }

  Status add_linears(size_t index) {
    const cuda::ColdLinear& linear = linears_[index];
    const cuda::LinearKernel kernel = cuda::active_kernels().linear;
    for (const int tokens : options_.tokens) {
      HB_ASSIGN(TimedCalls made,
                calls([&](int i, cuda::Launch launch) { return linear.run(i, tokens, kernel, launch); }));
      series_.push_back(
          {std::string(cuda::linear_kernel_name(kernel)), options_.formats[index], tokens, std::move(made), {}, {}});
    }
    return {};
  }

  Status add_cublas() {
    const auto n = static_cast<size_t>(shape_.n), k = static_cast<size_t>(shape_.k);
    const int copies = std::max(2, static_cast<int>(cuda::kColdBytes / (2 * n * k)) + 1);
    const auto most = static_cast<size_t>(*std::max_element(options_.tokens.begin(), options_.tokens.end()));
    HB_ASSIGN(bf16_, cuda::DeviceBuffer::make(2 * n * k * static_cast<size_t>(copies)));
    HB_ASSIGN(x_, cuda::DeviceBuffer::make(2 * k * most));
    HB_ASSIGN(y_, cuda::DeviceBuffer::make(2 * n * most));
    HB_TRY(cuda::fill_random_bf16(bf16_.as<void>(), n * k * static_cast<size_t>(copies), 0.02f, 3, {}));
    HB_TRY(cuda::fill_random_bf16(x_.as<void>(), k * most, 1.0f, 4, {}));
    HB_TRY(cuda::check(cudaDeviceSynchronize(), "BF16 weights"));
    for (const int tokens : options_.tokens) {
      const auto gemm = [&](int i, cudaStream_t stream) {
        const uint8_t* w = bf16_.as<uint8_t>() + static_cast<size_t>(i % copies) * 2 * n * k;
        return cublas_->gemm(shape_.n, tokens, shape_.k, w, x_.as<void>(), y_.as<void>(), stream);
      };
      HB_TRY(gemm(0, nullptr));  // chooses and loads its kernel before the capture
      HB_TRY(cuda::check(cudaDeviceSynchronize(), "cuBLAS"));
      HB_ASSIGN(TimedCalls made, calls([&](int i, cuda::Launch launch) { return gemm(i, launch.stream); }));
      series_.push_back({"cublas", "bf16", tokens, std::move(made), {}, {}});
    }
    return {};
  }

  const Options& options_;
  const cuda::DeviceInfo& device_;
  const Cublas* cublas_;
  const Shape& shape_;
  std::vector<cuda::ColdLinear> linears_;
  std::optional<TimedCalls> read_;
  std::vector<double> read_us_;
  cuda::DeviceBuffer bf16_, x_, y_;
  std::vector<Series> series_;
};

const Line* find(const std::vector<Line>& lines, const Shape& shape, const std::string& format, int tokens) {
  for (const Line& l : lines)
    if (l.shape.n == shape.n && l.shape.k == shape.k && l.format == format && l.tokens == tokens) return &l;
  return nullptr;
}

// A row a shape and format: times over the read, M = 8 over M = 1, cuBLAS over M = 1, vLLM's kernels over M = 1.
std::string table_head(const Options& options, const std::vector<std::string>& others) {
  std::string out = fmt::format("{:<12} {:>13} {:<6} {:>8} {:>8}", "", "N x K", "", "read us", "us");
  for (const int m : options.tokens) out += fmt::format(" {:>6}", fmt::format("M={}", m));
  out += fmt::format(" {:>8} {:>9}", "M=8/M=1", "BF16/M=1");
  for (const std::string& name : others) out += fmt::format(" {:>12}", name + "/M=1");
  return out + "\n";
}

std::string table_row(const Options& options, const std::vector<Line>& lines, const Shape& shape,
                      const std::string& format, const std::vector<VllmTime>& vllm,
                      const std::vector<std::string>& others) {
  const Line* one = find(lines, shape, format, 1);
  const Line* any = find(lines, shape, format, options.tokens[0]);
  std::string out = fmt::format("{:<12} {:>13} {:<6} {:>8.2f} {:>8.2f}", shape.name,
                                fmt::format("{} x {}", shape.n, shape.k), format, any->read_us, any->us);
  for (const int m : options.tokens) out += fmt::format(" {:>6.3f}", find(lines, shape, format, m)->ratio);
  const auto over_one = [&](double us) { return one != nullptr && us > 0 ? fmt::format("{:.3f}", us / one->us) : "-"; };
  const Line* eight = find(lines, shape, format, 8);
  const Line* bf16 = find(lines, shape, "bf16", 1);
  out +=
      fmt::format(" {:>8} {:>9}", over_one(eight != nullptr ? eight->us : 0), over_one(bf16 != nullptr ? bf16->us : 0));
  for (const std::string& name : others) {
    double us = 0;
    for (const VllmTime& t : vllm)
      if (t.kernel == name && t.n == shape.n && t.k == shape.k && t.tokens == 1) us = t.us;
    out += fmt::format(" {:>12}", over_one(us));
  }
  return out + "\n";
}

Json to_json(const Line& l) {
  return {{"operation", "linear"},
          {"shape", l.shape.name},
          {"n", l.shape.n},
          {"k", l.shape.k},
          {"implementation", l.kernel},
          {"format", l.format},
          {"m", l.tokens},
          {"us", l.us},
          {"us_p10", l.us_p10},
          {"us_p90", l.us_p90},
          {"read_us", l.read_us},
          {"ratio", l.ratio},
          {"GBps", l.gbps}};
}

Status run(const Options& options) {
  HB_ASSIGN(const std::vector<Shape> shapes, shapes_of(options));
  for (const std::string& f : options.formats)
    if (f != "nvfp4" && f != "mxfp4") return invalid_argument("--formats has '" + f + "', expected nvfp4 or mxfp4");
  for (const int m : options.tokens)
    if (m < 1 || m > cuda::kMaxRows)
      return invalid_argument(fmt::format("--tokens has {}, expected 1 to {}", m, cuda::kMaxRows));
  HB_ASSIGN(const cuda::ForcedKernels forced, cuda::forced_kernels_named(options.kernels));
  cuda::force_kernels(forced);
  HB_ASSIGN(const cuda::DeviceInfo device, cuda::usable_device(0));
  std::vector<VllmTime> vllm;
  if (!options.vllm.empty()) {  // before the rest: a wrong path must not cost a run
    std::vector<std::pair<int, int>> sizes;
    for (const Shape& s : shapes) sizes.emplace_back(s.n, s.k);
    HB_ASSIGN(vllm, vllm_times(options.vllm, sizes, options.tokens, options.rounds, options.calls));
  }
  std::vector<std::string> others;
  for (const VllmTime& t : vllm)
    if (std::find(others.begin(), others.end(), t.kernel) == others.end()) others.push_back(t.kernel);
  std::optional<Cublas> cublas;
  std::string no_cublas = "left out (--no-cublas)";
  if (!options.no_cublas) {
    auto opened = Cublas::open(options.cublas);
    if (opened.ok()) {
      cublas.emplace(std::move(opened).value());
    } else if (!options.cublas.empty()) {
      return opened.status();
    } else {
      no_cublas = opened.status().message();
    }
  }
  Json machine = {
      {"device", device.name},
      {"driver", cuda::version_text(device.driver)},
      {"runtime", cuda::version_text(device.runtime)},
      {"multiprocessors", device.multiprocessors},
      {"commit", build_commit()},
      {"kernels", cuda::describe(device.kernels)},
      {"cublas",
       cublas ? fmt::format("{} ({})", std::filesystem::path(cublas->library()).filename().string(), cublas->version())
              : no_cublas},
      {"programmatic", options.programmatic},
      {"rounds", options.rounds},
      {"calls", options.calls}};
  if (!options.json) {
    fmt::print(
        "{}, driver {}, commit {}\n{}\ncuBLAS: {}\nus: of M={}; M=..: over the plain read of the same bytes\n\n{}",
        device.name, cuda::version_text(device.driver), build_commit(), cuda::describe(device.kernels),
        machine["cublas"].get<std::string>(), options.tokens[0], table_head(options, others));
  }
  std::vector<Line> lines;
  for (const Shape& shape : shapes) {
    HB_ASSIGN(const std::vector<Line> own, ShapeBench(options, device, cublas ? &*cublas : nullptr, shape).run());
    lines.insert(lines.end(), own.begin(), own.end());
    for (const std::string& format : options.formats)
      if (!options.json) fmt::print("{}", table_row(options, lines, shape, format, vllm, others));
    std::fflush(stdout);
  }
  const cuda::Clocks clocks = cuda::current_clocks(0);
  machine["sm_mhz"] = clocks.sm_mhz;
  machine["memory_mhz"] = clocks.memory_mhz;
  if (options.json) {
    Json cases = Json::array();
    for (const Line& l : lines) cases.push_back(to_json(l));
    for (const VllmTime& t : vllm)
      cases.push_back({{"operation", "linear"},
                       {"n", t.n},
                       {"k", t.k},
                       {"implementation", t.kernel},
                       {"format", "nvfp4"},
                       {"m", t.tokens},
                       {"us", t.us}});
    fmt::print("{}\n", Json{{"machine", machine}, {"cases", cases}}.dump(1));
  }
  return {};
}

}  // namespace
}  // namespace halfbyte

namespace {

// The program's exit code where it ends here: after --help, or with 2 as for any other wrong argument.
std::optional<int> parse(CLI::App& app, int argc, char** argv) {
  try {
    app.parse(argc, argv);
    return std::nullopt;
  } catch (const CLI::ParseError& e) {
    if (e.get_exit_code() == 0) return app.exit(e);
    fmt::print(stderr, "bench_kernels_cuda: {}; --help lists the options\n", e.what());
    return 2;
  }
}

}  // namespace

int main(int argc, char** argv) {
  halfbyte::Options options;
  CLI::App app("CUDA decode linears against the device's read bandwidth and cuBLAS in BF16");
  const CLI::Validator something(
      [](const std::string& text) { return text.empty() ? std::string("is empty") : std::string(); }, "");
  app.add_option("--shapes", options.shapes,
                 "NxK, e.g. 6144x4096,4096x12288 (default: the ReSET table's and three more)")
      ->delimiter(',')
      ->check(something);
  app.add_option("--tokens", options.tokens, "activation rows, 1 to 16, e.g. 1,8")->delimiter(',')->check(something);
  app.add_option("--formats", options.formats, "nvfp4, mxfp4")->delimiter(',')->check(something);
  app.add_option("--kernels", options.kernels, "force ring, stages or portable (default: what the device gets)")
      ->check(something);
  app.add_option("--rounds", options.rounds, "samples of each operation")
      ->capture_default_str()
      ->check(CLI::Range(1, 1000));
  app.add_option("--calls", options.calls,
                 "calls in a graph; small linears take more, so that their weights leave the L2")
      ->capture_default_str()
      ->check(CLI::Range(1, 1000));
  app.add_flag("--programmatic", options.programmatic,
               "launch as a decode step does: a call may begin before the last ends");
  app.add_option("--cublas", options.cublas, "cuBLAS to compare with (default: the toolkit's, if there)")
      ->check(something);
  app.add_flag("--no-cublas", options.no_cublas, "without cuBLAS");
  app.add_option("--vllm", options.vllm,
                 "a Python with vLLM: its Marlin NVFP4 kernel beside ours (bench/vllm_linears.py)")
      ->check(something);
  app.add_flag("--json", options.json, "one JSON object");
  if (const std::optional<int> code = parse(app, argc, argv)) return *code;
  const halfbyte::Status done = halfbyte::run(options);
  if (done.ok()) return 0;
  fmt::print(stderr, "bench_kernels_cuda: {}\n", done.message());
  return 2;
}
