// Makes candidates of the kernels' configurations.
#pragma once

#include <algorithm>
#include <cstdio>
#include <memory>
#include <string>

#include "harness.h"
#include "linear_bulk.cuh"
#include "linear_groups.cuh"
#include "linear_half2.cuh"
#include "linear_registers.cuh"
#include "linear_ring.cuh"
#include "linear_stream.cuh"

namespace halfbyte::ladder {

// What a candidate that works on panels keeps of the prepared shape.
struct PanelState {
  Shape shape;
  Split split;
  uint32_t* log = nullptr;  // Part::kTimeline
};

// How the k steps of a run's part of a panel go to warp groups.
enum class GroupsBy { kRunIndex, kPieceIndex };

// A kernel that splits panels' k steps over thread blocks and writes [slot][M][rows]. launch(state, buffers, stream,
// programmatic).
template <class Kernel, class Launch>
Candidate panel_candidate(std::string name, int m, int k_warps, GroupsBy groups_by, WeightOrder order,
                          int blocks_per_sm, Kernel kernel, int threads, int shared_bytes, Launch launch) {
  auto state = std::make_shared<PanelState>();
  Candidate c;
  c.name = std::move(name);
  c.m = m;
  c.weight_order = order;
  c.x_order = XOrder::kChunk;
  c.code = WordCode::kMixed;
  c.split = [state] { return state->split; };
  c.shape = [state] { return state->shape; };
  c.prepare = [=](const Shape& shape) {
    const int runs = std::min(multiprocessors() * blocks_per_sm, shape.steps());
    state->shape = shape;
    state->split = Split::of(shape.steps(), runs);
    LADDER_CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared_bytes));
    int blocks = 0;
    LADDER_CHECK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, kernel, threads, shared_bytes));
    return blocks >= blocks_per_sm;
  };
  c.launch = [=](const Buffers& b, cudaStream_t stream, bool programmatic) { launch(*state, b, stream, programmatic); };
  c.piece_count = [state](int tile) {
    const int first = tile / kPanelTiles * state->shape.k_steps();
    return state->split.owner(first + state->shape.k_steps() - 1) - state->split.owner(first) + 1;
  };
  c.place = [=](int tile, int k) {
    const int first = tile / kPanelTiles * state->shape.k_steps();
    const int run = state->split.owner(first + k);
    const int begin = state->split.begin(run);
    const int start = groups_by == GroupsBy::kRunIndex ? begin : std::max(first, begin);
    return SumPlace{run - state->split.owner(first), (first + k - start) % k_warps};
  };
  c.read = [=](const float* partial, int piece, int row, int column) {
    return partial[(static_cast<size_t>(piece) * m + column) * state->shape.rows() + row];
  };
  return c;
}

inline uint32_t* timeline_log() {
  static uint32_t* log = nullptr;
  if (log == nullptr) {
    LADDER_CHECK(cudaMalloc(&log, size_t{4} << 20));
    LADDER_CHECK(cudaMemset(log, 0, size_t{4} << 20));
  }
  return log;
}

// Prints the cycle marks of some warps of the last launch.
template <int kWarps>
void print_timeline(std::initializer_list<int> blocks, std::initializer_list<int> warps) {
  std::vector<uint32_t> words(size_t{1} << 20);
  LADDER_CHECK(cudaMemcpy(words.data(), timeline_log(), words.size() * 4, cudaMemcpyDeviceToHost));
  for (const int block : blocks) {
    for (const int warp : warps) {
      const uint32_t* w = words.data() + (block * kWarps + warp) * 64;
      std::printf("    block %3d warp %2d:", block, warp);
      for (int i = 1; i < 24 && w[i] != 0; ++i) std::printf(" %u", w[i] - w[0]);
      std::printf("\n");
    }
  }
}

template <class Config>
Candidate ring_candidate(std::string name, int blocks_per_sm) {
  auto launch = [](const PanelState& s, const Buffers& b, cudaStream_t stream, bool programmatic) {
    launch_kernel(linear_ring<Config>, s.split.runs, Config::kThreads, Config::kSharedBytes, stream, programmatic,
                  b.weights, b.x, b.partial, s.split, s.shape.k_steps(), s.shape.rows());
  };
  return panel_candidate(std::move(name), Config::kTokens, Config::kKWarps, GroupsBy::kPieceIndex,
                         Config::kMemory == Memory::kInterleaved ? WeightOrder::kInterleaved : WeightOrder::kPanel,
                         blocks_per_sm, linear_ring<Config>, Config::kThreads, Config::kSharedBytes, launch);
}

template <class Config>
Candidate stream_candidate(std::string name, int blocks_per_sm) {
  auto launch = [](const PanelState& s, const Buffers& b, cudaStream_t stream, bool programmatic) {
    launch_kernel(linear_stream<Config>, s.split.runs, Config::kThreads, Config::kSharedBytes, stream, programmatic,
                  b.weights, b.x, b.partial, s.split, s.shape.k_steps(), s.shape.rows(), s.log);
  };
  return panel_candidate(std::move(name), Config::kTokens, Config::kKWarps, GroupsBy::kRunIndex,
                         WeightOrder::kInterleaved, blocks_per_sm, linear_stream<Config>, Config::kThreads,
                         Config::kSharedBytes, launch);
}

template <class Config>
Candidate bulk_candidate(std::string name, int blocks_per_sm) {
  auto launch = [](const PanelState& s, const Buffers& b, cudaStream_t stream, bool programmatic) {
    const BulkArgs args{
        b.weights,    b.x,  b.partial, s.split, s.shape.k_steps(), s.shape.rows(), FastDivision::by(s.shape.k_steps()),
        programmatic, s.log};
    launch_kernel(linear_bulk<Config>, s.split.runs, Config::kThreads, Config::kSharedBytes, stream, programmatic,
                  args);
  };
  return panel_candidate(std::move(name), Config::kTokens, Config::kKWarps, GroupsBy::kRunIndex,
                         WeightOrder::kInterleaved, blocks_per_sm, linear_bulk<Config>, Config::kThreads,
                         Config::kSharedBytes, launch);
}

// Where a finishing kernel writes y in the buffer of partial sums: behind 60 slots.
template <class Float>
Float* finished(Float* partial, const Shape& shape, int m) {
  return partial + static_cast<size_t>(60) * shape.rows() * m;
}

inline uint32_t* arrival_counters() {
  static uint32_t* counters = nullptr;
  if (counters == nullptr) {
    LADDER_CHECK(cudaMalloc(&counters, size_t{64} << 10));
    LADDER_CHECK(cudaMemset(counters, 0, size_t{64} << 10));
  }
  return counters;
}

template <class Config>
Candidate groups_candidate(std::string name, int blocks_per_sm) {
  auto launch = [](const PanelState& s, const Buffers& b, cudaStream_t stream, bool programmatic) {
    GroupsArgs args{b.weights,
                    b.x,
                    b.partial,
                    s.split,
                    s.shape.k_steps(),
                    s.shape.rows(),
                    FastDivision::by(s.shape.k_steps()),
                    programmatic,
                    nullptr,
                    nullptr,
                    Config::kPart == Part::kTimeline ? timeline_log() : nullptr};
    if constexpr (Config::kFinish) {
      args.y = finished(b.partial, s.shape, Config::kTokens);
      args.arrived = arrival_counters();
    }
    launch_kernel(linear_groups<Config>, s.split.runs, Config::kThreads, Config::kSharedBytes, stream, programmatic,
                  args);
  };
  Candidate c =
      panel_candidate(std::move(name), Config::kTokens, Config::kKWarps, GroupsBy::kRunIndex, WeightOrder::kInterleaved,
                      blocks_per_sm, linear_groups<Config>, Config::kThreads, Config::kSharedBytes, launch);
  c.programmatic = true;
  if (Config::kFinish) {
    arrival_counters();  // not for the first time inside a capture
    const auto shape = c.shape;
    c.piece_count = [](int) { return 1; };
    c.read = [shape](const float* partial, int, int row, int column) {
      return finished(partial, shape(), Config::kTokens)[static_cast<size_t>(column) * shape().rows() + row];
    };
  }
  if (Config::kPart == Part::kTimeline) {
    c.timeline = [] {
      print_timeline<Config::kWarps>({0, 1, 60, 131}, {0, Config::kProducerWarps, Config::kWarps - 1});
    };
  }
  return c;
}

template <class Config>
Candidate half2_candidate(std::string name) {
  auto launch = [](const PanelState& s, const Buffers& b, cudaStream_t stream, bool programmatic) {
    const Half2Args args{b.weights,      b.x,
                         b.x_scale,      b.partial,
                         s.split,        s.shape.k_steps(),
                         s.shape.rows(), FastDivision::by(s.shape.k_steps())};
    launch_kernel(linear_half2<Config>, dim3(s.split.runs, Config::kTokens / Config::kColumns), Config::kThreads,
                  Config::kSharedBytes, stream, programmatic, args);
  };
  Candidate c =
      panel_candidate(std::move(name), Config::kTokens, Config::kKWarps, GroupsBy::kRunIndex, WeightOrder::kHalf2, 1,
                      linear_half2<Config>, Config::kThreads, Config::kSharedBytes, launch);
  c.x_order = XOrder::kHalf2;
  return c;
}

template <class Config>
Candidate registers_candidate(std::string name, int blocks_per_sm) {
  struct State {
    Shape shape;
    Split split;
    size_t shared;
  };
  auto state = std::make_shared<State>();
  Candidate c;
  c.name = std::move(name);
  c.m = Config::kTokens;
  c.weight_order = WeightOrder::kTile;
  c.x_order = XOrder::kFragment;
  c.code = Config::kCode;
  c.prepare = [state, blocks_per_sm](const Shape& shape) {
    if (shape.k_steps() < Config::kWarps &&
        shape.steps() * kPanelTiles / (multiprocessors() * blocks_per_sm) > Config::kWarps) {
      return false;  // a warp's next step would lie more than one row tile on
    }
    const int total = shape.steps() * kPanelTiles;
    const int runs = std::min(multiprocessors() * blocks_per_sm, total / Config::kWarps);
    const int tiles = total / runs / shape.k_steps() + 3;
    *state = {shape, Split::of(total, runs), static_cast<size_t>(tiles) * Config::kWarps * Config::kOutputs * 4};
    if (state->shared > 200 * 1024) return false;
    LADDER_CHECK(cudaFuncSetAttribute(linear_registers<Config>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                      static_cast<int>(state->shared)));
    int blocks = 0;
    LADDER_CHECK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, linear_registers<Config>, Config::kWarps * 32,
                                                               state->shared));
    return blocks >= blocks_per_sm;
  };
  c.launch = [state](const Buffers& b, cudaStream_t stream, bool programmatic) {
    float* second = b.partial + static_cast<size_t>(state->shape.rows()) * Config::kTokens;
    launch_kernel(linear_registers<Config>, state->split.runs, Config::kWarps * 32, state->shared, stream, programmatic,
                  b.weights, reinterpret_cast<const uint4*>(b.x), b.partial, second, state->split,
                  state->shape.k_steps());
  };
  c.piece_count = [state](int tile) {
    const int first = tile * state->shape.k_steps();
    return state->split.owner(first + state->shape.k_steps() - 1) == state->split.owner(first) ? 1 : 2;
  };
  c.place = [state](int tile, int k) {
    const int first = tile * state->shape.k_steps();
    const int run = state->split.owner(first + k);
    return SumPlace{run - state->split.owner(first), (first + k - state->split.begin(run)) % Config::kWarps};
  };
  c.read = [state](const float* partial, int piece, int row, int column) {
    // The first array holds the part that begins the tile, the second the part that ends it.
    return partial[(static_cast<size_t>(piece) * state->shape.rows() + row) * Config::kTokens + column];
  };
  return c;
}

}  // namespace halfbyte::ladder
