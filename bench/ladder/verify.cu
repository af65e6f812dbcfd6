#include "verify.h"

#include <cuda_fp16.h>

#include <array>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <map>
#include <random>
#include <thread>

#include "ptx.cuh"

namespace halfbyte::ladder {
namespace {

constexpr float kE2m1[16] = {0, .5f, 1, 1.5f, 2, 3, 4, 6, -0.f, -.5f, -1, -1.5f, -2, -3, -4, -6};

float e4m3(uint8_t code) {
  const int e = code >> 3, m = code & 7;
  return e == 0 ? std::ldexp(static_cast<float>(m), -9) : std::ldexp(1.f + static_cast<float>(m) / 8, e - 7);
}

struct Problem {
  Shape shape;
  std::vector<uint8_t> codes = {};   // [rows][k padded]
  std::vector<uint8_t> scales = {};  // [rows][blocks padded], E4M3
  std::vector<float> x = {};         // [16 columns][k padded], FP16 values
  bool exact;                        // activations are E2M1 x E4M3: every block's dot is exact
  std::vector<float> x_codes = {};   // of an exact problem: x = code * scale of its block
  std::vector<float> x_scales = {};  // [16 columns][blocks padded]
  int k() const { return shape.k_steps() * kStepK; }
};

Problem make_problem(const Shape& shape, bool exact, uint32_t seed) {
  Problem p{.shape = shape, .exact = exact};
  std::mt19937 rng(seed);
  const int k = p.k();
  p.codes.resize(static_cast<size_t>(shape.rows()) * k);
  p.scales.resize(p.codes.size() / kBlock);
  for (auto& c : p.codes) c = rng() & 15;
  for (auto& s : p.scales) {
    const uint32_t r = rng() % 64;
    s = static_cast<uint8_t>(r == 0   ? 0
                             : r == 1 ? 1 + rng() % 7
                             : r == 2 ? 0x7E
                                      : 0x20 + rng() % 0x58);  // zero, subnormal, 448, ordinary
  }
  p.x.resize(static_cast<size_t>(16) * k);
  std::normal_distribution<float> normal;
  p.x_codes.resize(p.x.size());
  p.x_scales.resize(p.x.size() / kBlock);
  for (int c = 0; c < 16; ++c) {
    for (int b = 0; b < k / kBlock; ++b) {
      const float scale = e4m3(static_cast<uint8_t>(1 + rng() % 0x70));
      p.x_scales[static_cast<size_t>(c) * (k / kBlock) + b] = scale;
      for (int i = 0; i < kBlock; ++i) {
        const float code = b * kBlock + i < shape.k ? kE2m1[rng() & 15] : 0.f;
        p.x_codes[static_cast<size_t>(c) * k + b * kBlock + i] = code;
        const float wide = normal(rng) * std::ldexp(1.f, static_cast<int>(rng() % 12) - 3);
        const float v = exact ? code * scale : __half2float(__float2half(wide));
        p.x[static_cast<size_t>(c) * k + b * kBlock + i] = b * kBlock + i < shape.k ? v : 0.f;
      }
    }
  }
  for (int r = 0; r < shape.rows(); ++r) {  // padding has zero codes
    for (int i = 0; i < k; ++i) {
      if (r >= shape.n || i >= shape.k) p.codes[static_cast<size_t>(r) * k + i] = 0;
    }
  }
  return p;
}

// encode_word by bytes of the codes.
uint32_t encode_fast(uint32_t codes, WordCode code) {
  static const auto tables = [] {
    std::vector<uint32_t> t(2 * 4 * 256);
    for (int c = 0; c < 2; ++c) {
      for (int i = 0; i < 4; ++i) {
        for (uint32_t b = 0; b < 256; ++b)
          t[(c * 4 + i) * 256 + b] = encode_word(b << (8 * i), c == 0 ? WordCode::kShifted : WordCode::kMixed);
      }
    }
    return t;
  }();
  const uint32_t* t = tables.data() + (code == WordCode::kShifted ? 0 : 1024);
  return t[codes & 255] ^ t[256 + ((codes >> 8) & 255)] ^ t[512 + ((codes >> 16) & 255)] ^ t[768 + (codes >> 24)];
}

std::vector<uint8_t> pack_weights(const Problem& p, const Candidate& c) {
  const WeightOrder order = c.weight_order;
  const WordCode code = c.code;
  const Split split =
      order == WeightOrder::kInterleaved || order == WeightOrder::kHalf2 ? c.split() : Split::of(p.shape.steps(), 1);
  const int k = p.k(), k_steps = p.shape.k_steps(), tiles = p.shape.rows() / kTileRows;
  std::vector<uint8_t> out(order == WeightOrder::kInterleaved || order == WeightOrder::kHalf2
                               ? p.shape.padded_bytes(split.runs)
                               : p.shape.bytes());
  for (int tile = 0; tile < tiles; ++tile) {
    for (int s = 0; s < k_steps; ++s) {
      size_t panel_step = static_cast<size_t>(tile / kPanelTiles) * k_steps + s;
      if (order == WeightOrder::kInterleaved || order == WeightOrder::kHalf2) {
        const int run = split.owner(static_cast<int>(panel_step));
        panel_step = (panel_step - split.begin(run)) * split.runs + run;
      }
      const size_t index = order == WeightOrder::kTile ? static_cast<size_t>(tile) * k_steps + s
                                                       : panel_step * kPanelTiles + tile % kPanelTiles;
      uint8_t* step = out.data() + index * kStepBytes;
      auto scale_code = [&](int row, int block) {
        return p.scales[static_cast<size_t>(tile * 16 + row) * (k / kBlock) + s * 8 + block];
      };
      auto element = [&](int row, int kk) -> uint32_t {
        return scale_code(row, kk / kBlock) == 0 ? 0u
                                                 : p.codes[static_cast<size_t>(tile * 16 + row) * k + s * kStepK + kk];
      };
      if (order == WeightOrder::kHalf2) {
        for (int lane = 0; lane < 32; ++lane) {
          for (int r = 0; r < 4; ++r) {
            const int row = (lane >> 3) * 4 + r, block = lane & 7;
            for (int h = 0; h < 2; ++h) {
              uint32_t codes = 0;
              for (int e = 0; e < 8; ++e) codes |= element(row, block * kBlock + h * 8 + e) << (4 * e);
              const uint32_t w = encode_fast(codes, code);
              std::memcpy(step + (r / 2) * 512 + lane * 16 + (r % 2) * 8 + h * 4, &w, 4);
            }
            step[kCodeBytes + lane * 4 + r] = scale_byte(scale_code(row, block));
          }
        }
        continue;
      }
      for (int lane = 0; lane < 32; ++lane) {
        const int g = lane >> 2, t = lane & 3;
        for (int j = 0; j < 8; ++j) {
          uint32_t codes = 0;
          for (int e = 0; e < 2; ++e) {
            const int kk = j * 16 + t * 2 + e;
            const uint32_t four[4] = {element(g, kk), element(g + 8, kk), element(g, kk + 8), element(g + 8, kk + 8)};
            for (int i = 0; i < 4; ++i) codes |= four[i] << (4 * (i + 4 * e));
          }
          const uint32_t w = encode_fast(codes, code);
          std::memcpy(step + (j / 4) * 512 + lane * 16 + (j % 4) * 4, &w, 4);
        }
      }
      for (int row = 0; row < 16; ++row) {
        for (int b = 0; b < 8; ++b) {
          step[kCodeBytes + (row & 7) * 16 + (b / 2) * 4 + (b % 2) + (row < 8 ? 0 : 2)] =
              scale_byte(scale_code(row, b));
        }
      }
    }
  }
  return out;
}

// first: column of the problem that becomes column 0.
std::vector<uint8_t> pack_x(const Problem& p, XOrder order, int m, int first) {
  const int k = p.k(), k_steps = p.shape.k_steps();
  auto value = [&](int column, int kk) {
    return __float2half(p.x[static_cast<size_t>((first + column) % 16) * k + kk]);
  };
  std::vector<uint8_t> out;
  if (order == XOrder::kChunk) {
    out.assign(static_cast<size_t>(k_steps) * x_chunk_bytes(m), 0);
    for (int kk = 0; kk < k; ++kk) {
      for (int c = 0; c < m; ++c) {
        const half v = value(c, kk);
        std::memcpy(out.data() + static_cast<size_t>(kk / kStepK) * x_chunk_bytes(m) + x_offset(m, c, kk % kStepK), &v,
                    2);
      }
    }
    return out;
  }
  out.resize(static_cast<size_t>(k) * m * 2);
  if (order == XOrder::kHalf2) {
    half* codes = reinterpret_cast<half*>(out.data());
    for (int b = 0; b < k / kBlock; ++b) {
      for (int c = 0; c < m; ++c) {
        for (int e = 0; e < 16; ++e) {
          const int kk = (e / 8) * 8 + (e % 8) / 2 + (e % 2) * 4;
          codes[((static_cast<size_t>(b / 8) * m + c) * 2 + e / 8) * 64 + (b % 8) * 8 + e % 8] =
              __float2half(p.x_codes[static_cast<size_t>((first + c) % 16) * k + b * kBlock + kk]);
        }
      }
    }
    return out;
  }
  const int per_tile = 8 / m;
  half* h = reinterpret_cast<half*>(out.data());
  for (int s = 0; s < k_steps; ++s) {
    for (int lane = 0; lane < 32; ++lane) {
      for (int group = 0; group < m; ++group) {
        for (int r = 0; r < 4; ++r) {
          const int g = lane >> 2, t = lane & 3;
          const int kk = s * kStepK + (group * per_tile + g / m) * 16 + (r / 2) * 8 + t * 2 + (r & 1);
          h[((static_cast<size_t>(s) * 32 + lane) * m + group) * 4 + r] = value(g % m, kk);
        }
      }
    }
  }
  return out;
}

struct Reference {
  double value;
  float ordered;  // the candidate's order of sums, FP32; exact problems must equal it bit for bit
};

Reference reference(const Problem& p, const Candidate& c, int row, int column) {
  const int k = p.k();
  const int tile = row / kTileRows;
  std::map<std::pair<int, int>, std::array<float, 8>> lanes;
  double total = 0;
  for (int s = 0; s < p.shape.k_steps(); ++s) {
    const SumPlace at = c.place(tile, s);
    auto& acc = lanes[{at.piece, at.lane}];
    for (int b = 0; b < 8; ++b) {
      double dot = 0;
      const size_t base = static_cast<size_t>(s) * kStepK + b * kBlock;
      for (int i = 0; i < kBlock; ++i) {
        dot += static_cast<double>(kE2m1[p.codes[static_cast<size_t>(row) * k + base + i]]) *
               p.x[static_cast<size_t>(column) * k + base + i];
      }
      const float scale = e4m3(p.scales[static_cast<size_t>(row) * (k / kBlock) + base / kBlock]);
      total += dot * scale;
      acc[b] = std::fmaf(static_cast<float>(dot), scale, acc[b]);
    }
  }
  std::map<int, float> pieces;
  for (const auto& [at, a] : lanes) {
    const float joined = ((a[0] + a[1]) + (a[2] + a[3])) + ((a[4] + a[5]) + (a[6] + a[7]));
    auto [it, fresh] = pieces.try_emplace(at.first, joined);
    if (!fresh) it->second += joined;
  }
  float sum = 0;
  bool begun = false;
  for (const auto& [piece, v] : pieces) {
    sum = begun ? sum + v : v;
    begun = true;
  }
  return {total, sum};
}

// The packed weights of a problem, kept for the candidates that share them.
const std::vector<uint8_t>& packed(const Problem& p, const Candidate& c) {
  static std::map<std::array<int, 6>, std::vector<uint8_t>> kept;
  const int runs =
      c.weight_order == WeightOrder::kInterleaved || c.weight_order == WeightOrder::kHalf2 ? c.split().runs : 0;
  const std::array<int, 6> key = {
      p.shape.n, p.shape.k, p.exact, static_cast<int>(c.weight_order), static_cast<int>(c.code), runs};
  auto [it, fresh] = kept.try_emplace(key);
  if (fresh) it->second = pack_weights(p, c);
  return it->second;
}

// Stands for the kernel that makes x^: lets the next one start at once, takes its time, then writes.
__global__ void slow_copy(const uint4* from, uint4* to, size_t count) {
  ptx::griddepcontrol_launch_dependents();
  const long long start = clock64();
  while (clock64() - start < 40000) {
  }
  for (size_t i = threadIdx.x; i < count; i += blockDim.x) to[i] = from[i];
}

// programmatic: x^ arrives late, from a kernel that has already let this one start.
std::vector<float> run(const Candidate& c, const Problem& p, int first_column, bool programmatic = false) {
  const auto& w = packed(p, c);
  const auto x = pack_x(p, c.x_order, c.m, first_column);
  uint8_t *dw = nullptr, *dx = nullptr;
  float* partial = nullptr;
  const size_t floats = static_cast<size_t>(64) * p.shape.rows() * c.m;
  LADDER_CHECK(cudaMalloc(&dw, w.size()));
  LADDER_CHECK(cudaMalloc(&dx, x.size()));
  LADDER_CHECK(cudaMalloc(&partial, floats * 4));
  LADDER_CHECK(cudaMemcpy(dw, w.data(), w.size(), cudaMemcpyHostToDevice));
  LADDER_CHECK(cudaMemcpy(dx, x.data(), x.size(), cudaMemcpyHostToDevice));
  LADDER_CHECK(cudaMemset(partial, 0xFF, floats * 4));  // NaN: an unwritten output shows
  float* x_scale = nullptr;
  if (c.x_order == XOrder::kHalf2) {
    const int blocks = p.k() / kBlock;
    std::vector<float> scales(static_cast<size_t>(blocks) * c.m);
    for (int b = 0; b < blocks; ++b) {
      for (int column = 0; column < c.m; ++column) {
        scales[(static_cast<size_t>(b / 8) * c.m + column) * 8 + b % 8] =
            p.x_scales[static_cast<size_t>((first_column + column) % 16) * blocks + b];
      }
    }
    LADDER_CHECK(cudaMalloc(&x_scale, scales.size() * 4));
    LADDER_CHECK(cudaMemcpy(x_scale, scales.data(), scales.size() * 4, cudaMemcpyHostToDevice));
  }
  cudaStream_t stream;
  LADDER_CHECK(cudaStreamCreate(&stream));
  uint8_t* staged = nullptr;
  if (programmatic) {
    LADDER_CHECK(cudaMalloc(&staged, x.size()));
    LADDER_CHECK(cudaMemcpy(staged, x.data(), x.size(), cudaMemcpyHostToDevice));
    LADDER_CHECK(cudaMemset(dx, 0xFF, x.size()));
    slow_copy<<<1, 512, 0, stream>>>(reinterpret_cast<const uint4*>(staged), reinterpret_cast<uint4*>(dx),
                                     x.size() / 16);
  }
  c.launch({dw, dx, partial, x_scale}, stream, programmatic);
  LADDER_CHECK(cudaDeviceSynchronize());
  LADDER_CHECK(cudaFree(staged));
  LADDER_CHECK(cudaStreamDestroy(stream));
  std::vector<float> host(floats), y(static_cast<size_t>(p.shape.n) * c.m);
  LADDER_CHECK(cudaMemcpy(host.data(), partial, floats * 4, cudaMemcpyDeviceToHost));
  LADDER_CHECK(cudaFree(dw));
  LADDER_CHECK(cudaFree(dx));
  LADDER_CHECK(cudaFree(partial));
  LADDER_CHECK(cudaFree(x_scale));
  for (int row = 0; row < p.shape.n; ++row) {
    for (int column = 0; column < c.m; ++column) {
      float sum = 0;
      for (int piece = 0; piece < c.piece_count(row / kTileRows); ++piece) {
        const float v = c.read(host.data(), piece, row, column);
        sum = piece == 0 ? v : sum + v;
      }
      y[static_cast<size_t>(row) * c.m + column] = sum;
    }
  }
  return y;
}

}  // namespace

int verify_all(const std::string& filter, bool quick) {
  static constexpr Shape kShapes[] = {
      {"256x1280", 256, 1280}, {"576x576", 576, 576}, {"640x80", 640, 80}, {"12288x4096", 12288, 4096}};
  int failures = 0;
  for (const Shape& shape : kShapes) {
    if (quick && shape.n > 1000) continue;
    const int stride = shape.n > 1000 ? 61 : 1;  // rows checked
    for (const bool exact : {true, false}) {
      const Problem p = make_problem(shape, exact, 7 + shape.n);
      std::map<std::string, std::vector<uint32_t>>
          first_bits;  // family -> bits of problem columns 0 by row, from its first M
      for (Candidate& c : registry()) {
        if (c.name.find(filter) == std::string::npos || c.name.find("copy") != std::string::npos) continue;
        if (c.x_order == XOrder::kHalf2 && !exact) continue;  // made for FP4 activations
        if (!c.prepare(shape)) {
          std::printf("verify %-22s M=%-2d %-10s not runnable\n", c.name.c_str(), c.m, shape.name);
          continue;
        }
        const auto y = run(c, p, 0);
        const auto again = run(c, p, 0, c.programmatic);
        const auto moved = run(c, p, 3);  // column 3 of the problem is column 0 here: other neighbours, other place
        double error = 0, norm = 0;
        int unequal = 0, unstable = 0, displaced = 0, unlike = 0;
        std::vector<Reference> refs(static_cast<size_t>(shape.n) * c.m);
        std::vector<std::thread> pool;
        for (int w = 0; w < 14; ++w) {
          pool.emplace_back([&, w] {
            for (int row = w * stride; row < shape.n; row += 14 * stride) {
              for (int column = 0; column < c.m; ++column)
                refs[static_cast<size_t>(row) * c.m + column] = reference(p, c, row, column);
            }
          });
        }
        for (auto& t : pool) t.join();
        std::vector<uint32_t> bits(shape.n);
        for (int row = 0; row < shape.n; row += stride) {
          for (int column = 0; column < c.m; ++column) {
            const size_t i = static_cast<size_t>(row) * c.m + column;
            const Reference& r = refs[i];
            error += (r.value - y[i]) * (r.value - y[i]);
            norm += r.value * r.value;
            if (exact && std::memcmp(&r.ordered, &y[i], 4) != 0 && unequal++ == 0) {
              std::printf("  first unequal: row %d column %d got %.9g expected %.9g (double %.9g)\n", row, column, y[i],
                          r.ordered, r.value);
            }
            unstable += std::memcmp(&again[i], &y[i], 4) != 0;
            if (column >= 3) displaced += std::memcmp(&y[i], &moved[i - 3], 4) != 0;
          }
          std::memcpy(&bits[row], &y[static_cast<size_t>(row) * c.m], 4);
        }
        const std::string family = c.name.substr(0, c.name.find(' '));
        auto [it, fresh] = first_bits.try_emplace(family, bits);
        if (!fresh) {
          for (int row = 0; row < shape.n; row += stride) unlike += it->second[row] != bits[row];
        }
        const double relative = std::sqrt(error / norm);
        const bool ok = relative < 1e-6 && unequal == 0 && unstable == 0 && displaced == 0 && unlike == 0;
        failures += !ok;
        std::printf(
            "verify %-22s M=%-2d %-10s %s rel %.1e, unlike host order %d, unstable %d, by column %d, by M %d: %s\n",
            c.name.c_str(), c.m, shape.name, exact ? "A4 " : "A16", relative, unequal, unstable, displaced, unlike,
            ok ? "ok" : "FAILED");
      }
    }
  }
  std::printf("verify: %d failures\n", failures);
  return failures;
}

}  // namespace halfbyte::ladder
