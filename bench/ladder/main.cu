// ladder verify [FILTER] | ladder time [--rounds R] [--filter F] [--pdl] [--json FILE]: see README.md.
#include <dlfcn.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "add_slots.cuh"
#include "floor.cuh"
#include "harness.h"
#include "verify.h"

namespace halfbyte::ladder {

std::vector<Candidate>& registry() {
  static std::vector<Candidate> all;
  return all;
}

void check(cudaError_t status, const char* what, const char* file, int line) {
  if (status == cudaSuccess) return;
  std::fprintf(stderr, "%s:%d: %s: %s\n", file, line, what, cudaGetErrorString(status));
  std::exit(1);
}

int multiprocessors() {
  static const int count = [] {
    int n = 0;
    LADDER_CHECK(cudaDeviceGetAttribute(&n, cudaDevAttrMultiProcessorCount, 0));
    const char* forced = std::getenv("LADDER_SMS");
    return forced != nullptr && std::atoi(forced) > 0 ? std::atoi(forced) : n;
  }();
  return count;
}

namespace {

constexpr Shape kShapes[] = {{"8B qkv", 6144, 4096},      {"8B o", 4096, 4096},         {"8B gate", 12288, 4096},
                             {"8B down", 4096, 12288},    {"14B qkv", 7168, 5120},      {"14B o", 5120, 5120},
                             {"14B gate", 17408, 5120},   {"14B down", 5120, 17408},    {"32B qkv", 10240, 5120},
                             {"32B o", 5120, 8192},       {"32B gate", 25600, 5120},    {"32B down", 5120, 25600},
                             {"8B gate+up", 24576, 4096}, {"14B gate+up", 34816, 5120}, {"32B gate+up", 51200, 5120}};
constexpr int kPaperShapes = 12;
constexpr size_t kPoolBytes = size_t{1} << 30;  // weights are taken from it in turn: far more than the L2 holds

// cuBLAS by its own shared library, so that the ladder links without it.
struct Cublas {
  void* handle = nullptr;
  int (*gemm)(void*, int, int, int, int, int, const void*, const void*, int, int, const void*, int, int, const void*,
              void*, int, int, int, int) = nullptr;
  bool open(cudaStream_t stream) {
    void* lib = nullptr;
    for (const char* name : {std::getenv("LADDER_CUBLAS"), static_cast<char*>(nullptr)}) {
      if (name != nullptr && lib == nullptr) lib = dlopen(name, RTLD_NOW | RTLD_GLOBAL);
    }
    for (const char* name : {"libcublas.so.13", "libcublas.so.12", "/usr/local/cuda/lib64/libcublas.so"}) {
      if (lib == nullptr) lib = dlopen(name, RTLD_NOW | RTLD_GLOBAL);
    }
    if (lib == nullptr) return false;
    auto create = reinterpret_cast<int (*)(void**)>(dlsym(lib, "cublasCreate_v2"));
    auto set_stream = reinterpret_cast<int (*)(void*, cudaStream_t)>(dlsym(lib, "cublasSetStream_v2"));
    auto workspace = reinterpret_cast<int (*)(void*, void*, size_t)>(dlsym(lib, "cublasSetWorkspace_v2"));
    gemm = reinterpret_cast<decltype(gemm)>(dlsym(lib, "cublasGemmEx"));
    if (create == nullptr || gemm == nullptr || create(&handle) != 0) return false;
    set_stream(handle, stream);
    void* space = nullptr;
    LADDER_CHECK(cudaMalloc(&space, size_t{32} << 20));
    workspace(handle, space, size_t{32} << 20);
    return true;
  }
  int bf16(int n, int m, int k, const void* w, const void* x, void* y) {
    const float one = 1, zero = 0;
    constexpr int kBf16 = 14, kTranspose = 1, kPlain = 0, kCompute32F = 68;
    return gemm(handle, kTranspose, kPlain, n, m, k, &one, w, kBf16, k, x, kBf16, k, &zero, y, kBf16, n, kCompute32F,
                -1);
  }
};

struct Timer {
  cudaStream_t stream;
  cudaEvent_t start, stop;
  double microseconds(cudaGraphExec_t graph, int calls) {
    LADDER_CHECK(cudaEventRecord(start, stream));
    LADDER_CHECK(cudaGraphLaunch(graph, stream));
    LADDER_CHECK(cudaEventRecord(stop, stream));
    LADDER_CHECK(cudaStreamSynchronize(stream));
    float ms = 0;
    LADDER_CHECK(cudaEventElapsedTime(&ms, start, stop));
    return ms * 1000.0 / calls;
  }
};

template <class Call>
cudaGraphExec_t capture(cudaStream_t stream, int calls, Call call) {
  cudaGraph_t graph;
  cudaGraphExec_t exec;
  LADDER_CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
  for (int i = 0; i < calls; ++i) call(i);
  LADDER_CHECK(cudaStreamEndCapture(stream, &graph));
  LADDER_CHECK(cudaGraphInstantiate(&exec, graph, 0));
  LADDER_CHECK(cudaGraphDestroy(graph));
  return exec;
}

double median(std::vector<double> v) {
  std::sort(v.begin(), v.end());
  return v[v.size() / 2];
}

struct Row {
  std::string name;
  int m;
  cudaGraphExec_t graph;
  std::vector<double> us;
};

struct Options {
  int rounds = 15;
  std::string filter, shape_filter, json;
  bool pdl = false, cublas = true, verbose = false;
  int calls = 48;
};

// Weights, x^ and partial sums of `time`: every candidate and shape takes its weights from one pool in turn.
struct Memory {
  uint8_t *pool = nullptr, *x = nullptr;
  float* partial = nullptr;
  static constexpr size_t kXBytes = size_t{4} << 20, kPartialBytes = size_t{256} << 20;

  void allocate() {
    LADDER_CHECK(cudaMalloc(&pool, kPoolBytes));
    LADDER_CHECK(cudaMalloc(&x, kXBytes));
    LADDER_CHECK(cudaMalloc(&partial, kPartialBytes));
    std::vector<uint8_t> random(size_t{32} << 20);
    uint32_t state = 1;
    for (size_t i = 0; i < random.size(); i += 4) {
      state = state * 1664525u + 1013904223u;
      const uint32_t v = state ^ (state >> 15);
      std::memcpy(random.data() + i, &v, 4);
    }
    for (size_t o = 0; o < kPoolBytes; o += random.size())
      LADDER_CHECK(cudaMemcpy(pool + o, random.data(), random.size(), cudaMemcpyHostToDevice));
    // Halves in [1, 2): any order of x^ reads sensible values.
    for (size_t i = 0; i < kXBytes; i += 2) {
      const uint16_t h = 0x3C00 | (random[i] << 2);
      std::memcpy(random.data() + i, &h, 2);
    }
    LADDER_CHECK(cudaMemcpy(x, random.data(), kXBytes, cudaMemcpyHostToDevice));
  }
};

// All that is timed of one shape, in rounds that take every row in turn.
class ShapeTimes {
 public:
  ShapeTimes(const Options& options, Timer& timer, const Memory& memory, const Shape& shape)
      : options_(options), timer_(timer), memory_(memory), shape_(shape) {}
  ~ShapeTimes() {
    for (Row& row : rows_) LADDER_CHECK(cudaGraphExecDestroy(row.graph));
  }
  ShapeTimes(const ShapeTimes&) = delete;
  ShapeTimes& operator=(const ShapeTimes&) = delete;

  // The floor's grid: the best of several, then held for this shape.
  void add_read() {
    double best = 1e30;
    for (const int per_sm : {1, 2, 4, 8}) {
      for (const int threads : {256, 512, 1024}) {
        if (per_sm * threads > 2048) continue;
        const int grid = per_sm * multiprocessors();
        auto graph = capture(timer_.stream, options_.calls, [&](int i) { read(i, grid, threads, false); });
        timer_.microseconds(graph, options_.calls);
        std::vector<double> us;
        for (int r = 0; r < 5; ++r) us.push_back(timer_.microseconds(graph, options_.calls));
        LADDER_CHECK(cudaGraphExecDestroy(graph));
        if (median(us) < best) best = median(us), grid_ = grid, threads_ = threads;
      }
    }
    add("read", 0, [&](int i) { read(i, grid_, threads_, false); });
    if (options_.pdl) add("read-pdl", 0, [&](int i) { read(i, grid_, threads_, true); });
  }

  void add_cublas(Cublas& cublas) {
    const size_t bytes = static_cast<size_t>(shape_.n) * shape_.k * 2;
    const int copies = static_cast<int>(kPoolBytes / bytes);
    add("cublas-bf16", 1, [&](int i) {
      if (cublas.bf16(shape_.n, 1, shape_.k, memory_.pool + (i % copies) * bytes, memory_.x, memory_.partial) != 0)
        std::printf("cublas failed\n");
    });
  }

  void add_candidate(Candidate& c) {
    const size_t bytes = c.split ? shape_.padded_bytes(c.split().runs) : shape_.bytes();
    const int places = static_cast<int>(kPoolBytes / bytes);
    const bool programmatic = options_.pdl;
    const auto launch = [&](int i) {
      c.launch(
          {memory_.pool + (i % places) * bytes, memory_.x, memory_.partial, reinterpret_cast<const float*>(memory_.x)},
          timer_.stream, programmatic);
    };
    add(c.name, c.m, launch);
    if (c.name.find("10-evict") != 0) return;
    float* y = memory_.partial + Memory::kPartialBytes / 8;
    add(c.name + " + slots", c.m, [&](int i) {
      launch(i);
      launch_kernel(add_slots, dim3(shape_.rows() / kPanelRows, c.m), kPanelRows, 0, timer_.stream, programmatic,
                    memory_.partial, y, c.split(), shape_.k_steps(), shape_.rows(), 1.0f);
    });
  }

  void run() {
    for (Row& row : rows_) {  // warm up
      if (options_.verbose) std::printf("run %s M=%d\n", row.name.c_str(), row.m);
      timer_.microseconds(row.graph, options_.calls);
    }
    for (int r = 0; r < options_.rounds; ++r) {
      for (Row& row : rows_) row.us.push_back(timer_.microseconds(row.graph, options_.calls));
    }
  }

  // Prints a line a row and gives (name, ratio to the read) to `taken`.
  template <class Take>
  void report(std::FILE* json, Take taken) const {
    std::printf("%-12s %6dx%-6d read %.2f us (%d x %d)\n", shape_.name, shape_.n, shape_.k, median(rows_[0].us), grid_,
                threads_);
    for (size_t i = 1; i < rows_.size(); ++i) {
      std::vector<double> ratio;
      for (int r = 0; r < options_.rounds; ++r) ratio.push_back(rows_[i].us[r] / rows_[0].us[r]);
      const double middle = median(ratio);
      std::printf("  %-26s M=%-2d %7.2f us  %.3f [%.3f, %.3f]\n", rows_[i].name.c_str(), rows_[i].m,
                  median(rows_[i].us), middle, *std::min_element(ratio.begin(), ratio.end()),
                  *std::max_element(ratio.begin(), ratio.end()));
      if (json != nullptr) {
        std::fprintf(json,
                     "{\"shape\":\"%s\",\"n\":%d,\"k\":%d,\"name\":\"%s\",\"m\":%d,\"us\":%.4f,\"read_us\":%.4f,"
                     "\"ratio\":%.4f}\n",
                     shape_.name, shape_.n, shape_.k, rows_[i].name.c_str(), rows_[i].m, median(rows_[i].us),
                     median(rows_[0].us), middle);
      }
      taken(rows_[i].name + " M=" + std::to_string(rows_[i].m), middle);
    }
  }

  // Where a candidate's cycles go, for those that log them.
  void print_timeline(Candidate& c) {
    std::printf("  %s, cycles since the block's start: sync, then (arrived, done) a step, stored\n", c.name.c_str());
    const size_t bytes = shape_.padded_bytes(c.split().runs);
    auto graph = capture(timer_.stream, options_.calls, [&](int i) {
      c.launch({memory_.pool + (i % (kPoolBytes / bytes)) * bytes, memory_.x, memory_.partial}, timer_.stream, false);
    });
    timer_.microseconds(graph, 8);
    c.timeline();
    LADDER_CHECK(cudaGraphExecDestroy(graph));
  }

 private:
  template <class Call>
  void add(std::string name, int m, Call call) {
    rows_.push_back({std::move(name), m, capture(timer_.stream, options_.calls, call), {}});
  }
  void read(int i, int grid, int threads, bool programmatic) const {
    const int copies = static_cast<int>(kPoolBytes / shape_.bytes());
    launch_kernel(read_registers, grid, threads, 0, timer_.stream, programmatic,
                  reinterpret_cast<const uint4*>(memory_.pool + (i % copies) * shape_.bytes()), shape_.bytes() / 16,
                  reinterpret_cast<uint32_t*>(memory_.partial));
  }

  const Options& options_;
  Timer& timer_;
  const Memory& memory_;
  const Shape& shape_;
  std::vector<Row> rows_;
  int grid_ = 0, threads_ = 0;
};

int time_all(const Options& options) {
  cudaDeviceProp device;
  LADDER_CHECK(cudaGetDeviceProperties(&device, 0));
  int driver = 0;
  LADDER_CHECK(cudaDriverGetVersion(&driver));
  std::printf("# %s, %d SMs, driver %d, rounds %d, calls a graph %d, pdl %d\n", device.name, device.multiProcessorCount,
              driver, options.rounds, options.calls, options.pdl);
  Timer timer;
  LADDER_CHECK(cudaStreamCreate(&timer.stream));
  LADDER_CHECK(cudaEventCreate(&timer.start));
  LADDER_CHECK(cudaEventCreate(&timer.stop));
  Memory memory;
  memory.allocate();
  Cublas cublas;
  const bool have_cublas = options.cublas && cublas.open(timer.stream);
  std::FILE* json = options.json.empty() ? nullptr : std::fopen(options.json.c_str(), "w");

  std::vector<std::pair<std::string, std::vector<double>>> ratios;  // over the paper's shapes
  for (size_t s = 0; s < std::size(kShapes); ++s) {
    const Shape& shape = kShapes[s];
    if (std::string(shape.name).find(options.shape_filter) == std::string::npos) continue;
    ShapeTimes times(options, timer, memory, shape);
    times.add_read();
    if (have_cublas) times.add_cublas(cublas);
    for (Candidate& c : registry()) {
      if (c.name.find(options.filter) != std::string::npos && c.prepare(shape)) times.add_candidate(c);
    }
    times.run();
    times.report(json, [&](const std::string& key, double ratio) {
      if (s >= kPaperShapes) return;
      auto it = std::find_if(ratios.begin(), ratios.end(), [&](const auto& e) { return e.first == key; });
      if (it == ratios.end()) it = ratios.insert(ratios.end(), {key, {}});
      it->second.push_back(ratio);
    });
    for (Candidate& c : registry()) {
      if (c.name.find("timeline") != std::string::npos && c.timeline != nullptr && c.prepare(shape))
        times.print_timeline(c);
    }
  }
  std::printf("# over the 12 shapes: median, worst ratio to the read\n");
  for (auto& [name, v] : ratios)
    std::printf("%-34s %.3f %.3f (%zu shapes)\n", name.c_str(), median(v), *std::max_element(v.begin(), v.end()),
                v.size());
  if (json != nullptr) std::fclose(json);
  return 0;
}

struct Model {
  const char* name;
  int layers;
  Shape linears[4];
};
constexpr Model kModels[] = {
    {"Qwen3-8B", 36, {{"qkv", 6144, 4096}, {"o", 4096, 4096}, {"gate+up", 24576, 4096}, {"down", 4096, 12288}}},
    {"Qwen3-14B", 40, {{"qkv", 7168, 5120}, {"o", 5120, 5120}, {"gate+up", 34816, 5120}, {"down", 5120, 17408}}},
    {"Qwen3-32B", 64, {{"qkv", 10240, 5120}, {"o", 5120, 8192}, {"gate+up", 51200, 5120}, {"down", 5120, 25600}}}};

// A decode step's linears one after another (no attention, norms or head), as one graph, with and without programmatic
// launches.
int chain_all(const Options& options) {
  Timer timer;
  LADDER_CHECK(cudaStreamCreate(&timer.stream));
  LADDER_CHECK(cudaEventCreate(&timer.start));
  LADDER_CHECK(cudaEventCreate(&timer.stop));
  uint8_t *pool = nullptr, *x = nullptr;
  float* partial = nullptr;
  constexpr size_t kChainPool = size_t{4} << 30;
  LADDER_CHECK(cudaMalloc(&pool, kChainPool));
  LADDER_CHECK(cudaMalloc(&x, size_t{4} << 20));
  LADDER_CHECK(cudaMalloc(&partial, size_t{256} << 20));
  std::vector<uint8_t> random(size_t{64} << 20);
  uint32_t state = 1;
  for (size_t i = 0; i < random.size(); i += 4) {
    state = state * 1664525u + 1013904223u;
    const uint32_t v = state ^ (state >> 15);
    std::memcpy(random.data() + i, &v, 4);
  }
  for (size_t o = 0; o < kChainPool; o += random.size())
    LADDER_CHECK(cudaMemcpy(pool + o, random.data(), random.size(), cudaMemcpyHostToDevice));
  for (size_t i = 0; i < (size_t{4} << 20); i += 2) {
    const uint16_t h = 0x3C00 | (random[i] << 2);
    std::memcpy(random.data() + i, &h, 2);
  }
  LADDER_CHECK(cudaMemcpy(x, random.data(), size_t{4} << 20, cudaMemcpyHostToDevice));
  for (const Model& model : kModels) {
    double bytes = 0;
    for (const Shape& s : model.linears) bytes += static_cast<double>(s.bytes()) * model.layers;
    std::printf("%s: %.3f GB, at 4.55 TB/s %.3f ms\n", model.name, bytes / 1e9, bytes / 4.55e9);
    for (const bool programmatic : {false, true}) {
      auto measure = [&](const char* name, int m, auto call) {
        const auto graph = capture(timer.stream, 1, [&](int) {
          size_t at = 0;
          for (int layer = 0; layer < model.layers; ++layer) {
            for (const Shape& s : model.linears) {
              const size_t size = s.padded_bytes(4 * multiprocessors());
              if (at + size > kChainPool) at = 0;
              call(s, pool + at);
              at += size;
            }
          }
        });
        timer.microseconds(graph, 1);
        std::vector<double> us;
        for (int r = 0; r < options.rounds; ++r) us.push_back(timer.microseconds(graph, 1));
        LADDER_CHECK(cudaGraphExecDestroy(graph));
        std::sort(us.begin(), us.end());
        std::printf("  %-30s M=%-2d %s %.3f ms [%.3f, %.3f], %.0f GB/s\n", name, m,
                    programmatic ? "graph+pdl" : "graph    ", us[us.size() / 2] / 1e3, us.front() / 1e3,
                    us.back() / 1e3, bytes / us[us.size() / 2] / 1e3);
      };
      measure("read", 0, [&](const Shape& s, const uint8_t* w) {
        launch_kernel(read_registers, 4 * multiprocessors(), 512, 0, timer.stream, programmatic,
                      reinterpret_cast<const uint4*>(w), s.bytes() / 16, reinterpret_cast<uint32_t*>(partial));
      });
      for (Candidate& c : registry()) {
        if (c.name.find(options.filter) == std::string::npos || c.weight_order != WeightOrder::kInterleaved ||
            c.name.find("timeline") == 0)
          continue;
        measure(c.name.c_str(), c.m, [&](const Shape& s, const uint8_t* w) {
          c.prepare(s);
          c.launch({w, x, partial}, timer.stream, programmatic);
        });
      }
    }
  }
  return 0;
}

}  // namespace

void register_candidates();

}  // namespace halfbyte::ladder

int main(int argc, char** argv) {
  using namespace halfbyte::ladder;
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  const std::string command = argc > 1 ? argv[1] : "";
  Options options;
  bool quick = false;
  for (int i = 2; i < argc; ++i) {
    const std::string a = argv[i];
    auto next = [&] { return i + 1 < argc ? std::string(argv[++i]) : std::string(); };
    if (a == "--rounds") options.rounds = std::atoi(next().c_str());
    if (a == "--calls") options.calls = std::atoi(next().c_str());
    if (a == "--filter") options.filter = next();
    if (a == "--shape") options.shape_filter = next();
    if (a == "--json") options.json = next();
    if (a == "--pdl") options.pdl = true;
    if (a == "--no-cublas") options.cublas = false;
    if (a == "--verbose") options.verbose = true;
    if (a == "--quick") quick = true;
  }
  register_candidates();
  if (command == "verify") return verify_all(options.filter, quick) == 0 ? 0 : 1;
  if (command == "time") return time_all(options);
  if (command == "chain") return chain_all(options);
  std::fprintf(stderr,
               "usage: ladder verify [--quick] [--filter F] | ladder time [--rounds R] [--calls C] [--filter F] "
               "[--shape S] [--pdl] [--no-cublas] [--json FILE]\n");
  return 2;
}
