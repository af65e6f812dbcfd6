// halfbyte bench --roofline: how near each linear kernel comes to what this machine can do at most. For M rows of input a
// kernel reads each packed weight byte once and makes 2 M n k operations, so its roof is the lower of
//
//   memory   operations a weight byte * the read bandwidth, measured between the samples of the same run
//   compute  operations a second of the same kernel on weights that stay in the caches, its best over M
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/clock.h"
#include "base/cpu_features.h"
#include "base/cpu_topology.h"
#include "base/progress.h"
#include "base/rng.h"
#include "base/thread_pool.h"
#include "bench_support.h"
#include "command.h"
#include "json_text.h"
#include "kernels/registry.h"
#include "output_target.h"
#include "roofline_svg.h"

namespace halfbyte::tools {
namespace {

using Json = nlohmann::ordered_json;

// A linear of a 1.5B model's feed-forward layer; its copies take more memory than the caches hold.
constexpr int64_t kN = 8960, kK = 1536;
constexpr size_t kBytesInMemory = size_t{400} << 20;
// Small enough for a second-level cache in BF16.
constexpr int64_t kCachedN = 128, kCachedK = 1024;
constexpr int64_t kRows[] = {1, 2, 4, 8, 16};

struct Point {
  std::string kernel;
  int64_t rows = 0;
  double microseconds = 0, p10 = 0, p90 = 0;
  double operations_per_byte = 0;
  double gbps = 0;  // packed weight bytes a second
  double gops = 0;  // 10^9 operations a second
  double roof = 0;  // the same, at most
};

// Random codes; scales near one.
QuantLinear random_weight(WeightFormat format, int64_t n, int64_t k) {
  QuantLinear w;
  w.name = "roofline";
  w.format = format;
  w.n = n;
  w.k = k;
  w.codes = Buffer::allocate(static_cast<size_t>(n * code_bytes_per_row(format, k)));
  w.block_scales = Buffer::allocate(static_cast<size_t>(n * scale_bytes_per_row(format, k)));
  uint64_t state = philox_draw(/*seed=*/7, 0, static_cast<uint64_t>(n + k)) | 1;
  const auto next = [&] {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return static_cast<uint32_t>(state >> 32);
  };
  if (format == WeightFormat::kF32) {
    for (int64_t i = 0; i < n * k; ++i)
      w.codes.mutable_as<float>()[i] = static_cast<float>(static_cast<int32_t>(next())) * 0x1p-31f;
  } else if (format == WeightFormat::kBF16) {
    for (int64_t i = 0; i < n * k; ++i)
      w.codes.mutable_as<uint16_t>()[i] = static_cast<uint16_t>(0x3C00 + next() % 0x200);
  } else if (format == WeightFormat::kFP8) {
    for (std::byte& b : w.codes.mutable_bytes()) b = static_cast<std::byte>(next() % 0x78);
    std::fill_n(w.block_scales.mutable_as<float>(), n, 1.0f);
  } else {
    for (std::byte& b : w.codes.mutable_bytes()) b = static_cast<std::byte>(next());
    const uint32_t one = format == WeightFormat::kNVFP4 ? 0x30 : 120;
    for (std::byte& b : w.block_scales.mutable_bytes()) b = static_cast<std::byte>(one + next() % 8);
  }
  return w;
}

// One kernel over `copies` of one weight, each call on the next copy.
class Subject {
 public:
  Subject(const LinearKernel& kernel, int64_t n, int64_t k, int64_t copies, ThreadPool& pool)
      : kernel_(kernel), n_(n), k_(k), pool_(pool) {
    const QuantLinear w = random_weight(kernel.weights, n, k);
    for (int64_t c = 0; c < copies; ++c) {
      packed_.push_back(Buffer::allocate(kernel.packed_bytes(n, k)));
      pool.parallel_for(n, kernel.row_tile, [&](int64_t begin, int64_t end, int) {
        kernel.pack(w, begin, end, packed_.back().mutable_as<std::byte>());
      });
    }
    std::vector<float> x(static_cast<size_t>(kRows[4] * k));
    for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(static_cast<int>(i * 7919 % 2001) - 1000) * 1e-3f;
    activations_ = Buffer::allocate(kernel.activation_bytes(k) * static_cast<size_t>(kRows[4]));
    kernel.quantize(x.data(), kRows[4], k, /*alpha=*/0.0f, activations_.mutable_as<std::byte>());
    y_.resize(static_cast<size_t>(kRows[4] * n));
  }

  // Seconds of one pass over a weight with `rows` rows of input.
  double run(int64_t rows) {
    const std::byte* packed = packed_[next_++ % packed_.size()].as<std::byte>();
    const Stopwatch clock;
    pool_.parallel_for(n_, kernel_.row_tile, [&](int64_t begin, int64_t end, int) {
      for (int64_t r = 0; r < rows; r += kernel_.max_rows) {
        const auto at = static_cast<size_t>(r);
        kernel_.run({packed, /*tensor_scale=*/1.0f, /*bias=*/nullptr, n_, k_,
                     activations_.as<std::byte>() + at * kernel_.activation_bytes(k_),
                     std::min(kernel_.max_rows, rows - r), begin, end, y_.data() + r * n_, n_});
      }
    });
    return clock.seconds();
  }

  double bytes() const { return static_cast<double>(packed_[0].size()); }

 private:
  const LinearKernel& kernel_;
  const int64_t n_, k_;
  ThreadPool& pool_;
  std::vector<Buffer> packed_;
  Buffer activations_;
  std::vector<float> y_;
  size_t next_ = 0;
};

double operations(int64_t rows, int64_t n, int64_t k) {
  return 2.0 * static_cast<double>(rows) * static_cast<double>(n) * static_cast<double>(k);
}

// Best operations a second from the caches over all M.
Result<double> compute_peak(const LinearKernel& kernel, int repeat, ThreadPool& pool) {
  const int64_t n = kCachedN * pool.threads();
  Subject cached(kernel, n, kCachedK, /*copies=*/1, pool);
  double best = 0;
  for (const int64_t rows : kRows) {
    std::vector<double> seconds;
    for (int i = 0; i < 20 * repeat; ++i) seconds.push_back(cached.run(rows));
    best = std::max(best, operations(rows, n, kCachedK) / percentile(seconds, 0.25) / 1e9);
    if (interrupted()) return cancelled("interrupted");
  }
  return best;
}

struct Family {
  const LinearKernel* kernel;
  double peak_gops = 0;
  std::vector<Point> points;
};

Status measure(Family& family, int repeat, ReadSpeed& read, ThreadPool& pool) {
  const LinearKernel& kernel = *family.kernel;
  HB_ASSIGN(family.peak_gops, compute_peak(kernel, repeat, pool));
  const size_t bytes = kernel.packed_bytes(kN, kK);
  Subject subject(kernel, kN, kK, static_cast<int64_t>(kBytesInMemory / bytes) + 1, pool);
  for (const int64_t rows : kRows) {
    std::vector<double> seconds;
    subject.run(rows);
    for (int i = 0; i < 4 * repeat; ++i) {
      seconds.push_back(subject.run(rows));
      if (interrupted()) return cancelled("interrupted");
    }
    read.measure();
    Point p;
    p.kernel = kernel.name;
    p.rows = rows;
    p.microseconds = percentile(seconds, 0.5) * 1e6;
    p.p10 = percentile(seconds, 0.1) * 1e6;
    p.p90 = percentile(seconds, 0.9) * 1e6;
    p.operations_per_byte = operations(rows, kN, kK) / subject.bytes();
    p.gbps = subject.bytes() / p.microseconds * 1e-3;
    p.gops = operations(rows, kN, kK) / p.microseconds * 1e-3;
    family.points.push_back(std::move(p));
  }
  return {};
}

std::string table(const std::vector<Family>& families, double read_gbps, int threads) {
  std::string out = fmt::format(
      "{}, {}, reads {:.2f} GB/s\nlinear of {} x {}, weights in memory; roof = the lower of bandwidth and the "
      "kernel's "
      "own peak in the caches\n\n{:<30} {:>3} {:>9} {:>9} {:>9} {:>7} {:>8} {:>9} {:>8}\n",
      cpu_model_name(), counted(threads, "thread"), read_gbps, kN, kK, "kernel", "M", "us", "p10", "p90", "GB/s",
      "of read", "GOP/s", "of roof");
  for (const Family& f : families)
    for (const Point& p : f.points)
      out += fmt::format("{:<30} {:>3} {:>9.1f} {:>9.1f} {:>9.1f} {:>7.2f} {:>7.1f}% {:>9.1f} {:>7.1f}%\n", p.kernel,
                         p.rows, p.microseconds, p.p10, p.p90, p.gbps, 100 * p.gbps / read_gbps, p.gops,
                         100 * p.gops / p.roof);
  return out;
}

std::string json(const std::vector<Family>& families, double read_gbps, int threads) {
  Json out{{"machine", {{"cpu", cpu_model_name()}, {"threads", threads}, {"read_GBps", read_gbps}}},
           {"shape", {kN, kK}},
           {"kernels", Json::array()}};
  for (const Family& f : families) {
    Json points = Json::array();
    for (const Point& p : f.points)
      points.push_back({{"rows", p.rows},
                        {"us", p.microseconds},
                        {"p10", p.p10},
                        {"p90", p.p90},
                        {"ops_per_byte", p.operations_per_byte},
                        {"GBps", p.gbps},
                        {"GOPps", p.gops},
                        {"share_of_roof", p.gops / p.roof}});
    out["kernels"].push_back({{"name", f.kernel->name}, {"peak_GOPps", f.peak_gops}, {"points", std::move(points)}});
  }
  return json_text(out);
}

// One kernel a format and mode, of the chosen instruction set or the next lower one that has it.
Result<std::vector<Family>> families_of(Isa isa) {
  std::vector<Family> out;
  for (const auto& [weights, activations] :
       {std::pair{WeightFormat::kNVFP4, ActivationMode::kA16}, std::pair{WeightFormat::kNVFP4, ActivationMode::kA8},
        std::pair{WeightFormat::kNVFP4, ActivationMode::kA4}, std::pair{WeightFormat::kMXFP4, ActivationMode::kA16},
        std::pair{WeightFormat::kMXFP4, ActivationMode::kA4}, std::pair{WeightFormat::kFP8, ActivationMode::kA16},
        std::pair{WeightFormat::kBF16, ActivationMode::kA16}}) {
    HB_ASSIGN(const LinearKernel* kernel, find_linear_kernel(weights, activations, isa));
    out.push_back({kernel, 0, {}});
  }
  return out;
}

RooflinePicture picture_of(const std::vector<Family>& families, double read_gbps, int threads) {
  RooflinePicture picture;
  picture.title = fmt::format("{}, {}, reads {:.1f} GB/s", cpu_model_name(), counted(threads, "thread"), read_gbps);
  picture.read_gbps = read_gbps;
  for (const Family& f : families) {
    RooflineSeries series{std::string(f.kernel->name), f.peak_gops, {}};
    for (const Point& p : f.points) series.points.push_back({p.operations_per_byte, p.gops, fmt::format("{}", p.rows)});
    picture.series.push_back(std::move(series));
  }
  return picture;
}

Result<std::string> measure_all(const RooflineOptions& options) {
  std::unique_ptr<OutputTarget> svg;
  if (!options.svg.empty()) {
    HB_ASSIGN(svg, OutputTarget::open(options.svg, "--svg"));
  }
  HB_ASSIGN(const Isa isa, choose_isa(options.kernels));
  HB_ASSIGN(std::vector<Family> families, families_of(isa));
  const int threads = options.threads > 0 ? options.threads : default_thread_count();
  ThreadPool pool(threads);
  ProgressBar bar("measuring, kernel");
  ReadSpeed read(pool);
  read.measure();
  for (size_t i = 0; i < families.size(); ++i) {
    bar.step(i + 1, families.size());
    HB_TRY(measure(families[i], options.repeat, read, pool));
  }
  bar.finish();
  for (Family& f : families)
    for (Point& p : f.points) p.roof = std::min(f.peak_gops, read.gbps() * p.operations_per_byte);
  if (svg) HB_TRY(svg->write(roofline_svg(picture_of(families, read.gbps(), threads))));
  return options.json ? json(families, read.gbps(), threads) : table(families, read.gbps(), threads);
}

}  // namespace

int run_roofline(const RooflineOptions& options) {
  const Result<std::string> text = measure_all(options);
  if (!text.ok()) return fail(text.status());
  return write_out(*text) ? kDone : fail_output();
}

}  // namespace halfbyte::tools
