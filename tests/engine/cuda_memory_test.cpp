// What a model takes of a device's memory, from its shape. Needs no CUDA.
#include "engine/cuda_memory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "engine/checks.h"
#include "model/synthetic.h"

namespace halfbyte {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

ModelConfig config_of(const std::string& shape) {
  const auto source = synthetic_source(shape);
  EXPECT_TRUE(source.ok()) << source.status().message();
  auto config = make_model_config(source->config, source->generation);
  EXPECT_TRUE(config.ok()) << config.status().message();
  return *config;
}

CudaModelShape shape_of(const std::string& shape, const std::string& plan = "w4a16", bool wgmma = true) {
  return uniform_cuda_shape(config_of(shape), *parse_plan(plan), wgmma);
}

RunnerLimits limits_of(int64_t max_batch, int64_t prefill_chunk = 512, int64_t pages = 128) {
  RunnerLimits out;
  out.max_batch = max_batch;
  out.prefill_chunk = prefill_chunk;
  out.pages = pages;
  out.page_tokens = 32;
  return out;
}

uint64_t work_of(const CudaModelShape& shape, const RunnerLimits& limits) {
  return cuda_runner_footprint(shape, limits).work;
}

CudaWorkLayout layout_of(const CudaModelShape& shape, const RunnerLimits& limits) {
  return lay_out_cuda_work(shape, cuda_pass_limits(shape.config, limits));
}

std::vector<WorkPiece> pieces_of(const CudaInputPieces& in) {
  return {in.fp4, in.bf16, in.scales};
}

std::vector<WorkPiece> inputs_of(const CudaGroupPieces& g) {
  std::vector<WorkPiece> out;
  for (const CudaInputPieces* in : {&g.attention, &g.o, &g.mlp, &g.down, &g.head})
    for (const WorkPiece& piece : pieces_of(*in)) out.push_back(piece);
  return out;
}

// Every pass that may come finds memory: no request is the first to need a shape of its own.
TEST(CudaMemory, EveryPassHasItsPlaceFromTheStart) {
  const CudaModelShape shape = shape_of("tiny");
  for (int batch = 1; batch <= 70; ++batch) {
    const CudaWorkLayout layout = layout_of(shape, limits_of(batch));
    const int most = std::min(batch, kMaxPassRows);
    for (int rows = 1; rows <= most; ++rows)
      for (int first = 0, group = 0; first < rows; first += cuda::kMaxRows, ++group)
        EXPECT_TRUE(layout.groups.contains({cuda::padded_rows(std::min(cuda::kMaxRows, rows - first)), group}))
            << rows << " rows of " << batch << ", group " << group;
    // Scores, and the draws of prompts.
    for (int rows = 1; rows <= cuda::kMaxRows; ++rows)
      EXPECT_TRUE(layout.groups.contains({cuda::padded_rows(rows), 0}));
    const auto held = static_cast<size_t>((most + cuda::kMaxRows - 1) / cuda::kMaxRows * cuda::kMaxRows);
    EXPECT_EQ(layout.plain.bytes, held * static_cast<size_t>(shape.config.vocab) * sizeof(float));
  }
  EXPECT_EQ(layout_of(shape, limits_of(1)).groups.size(), 5u);
  EXPECT_EQ(layout_of(shape, limits_of(20)).groups.size(), 5u + 3u) << "1, 2 and 4 rows behind the first 16";
  EXPECT_EQ(layout_of(shape, limits_of(64)).groups.size(), 20u);
}

// What may be in use at one time lies in places of its own, each inside the allocation and large enough.
TEST(CudaMemory, PiecesDoNotMeet) {
  for (const char* plan : {"w4a16", "w4a4-mxfp4", "bf16"}) {
    const CudaModelShape shape = shape_of("qwen3-0.6b", plan);
    const CudaWorkLayout layout = layout_of(shape, limits_of(40));
    std::vector<WorkPiece> pieces{layout.tables, layout.residual, layout.plain, layout.classes};
    for (const auto& [key, group] : layout.groups) {
      for (const WorkPiece& piece : inputs_of(group)) pieces.push_back(piece);
      const auto& [rows, number] = key;
      EXPECT_GE(group.partial.bytes, cuda::slot_floats(shape.layers[0].gate_up, rows) * sizeof(float));
      EXPECT_GE(group.logits_partial.bytes, cuda::slot_floats(shape.head, rows) * sizeof(float));
      const WorkPiece& x = shape.layers[0].down.fp4 ? group.down.fp4 : group.down.bf16;
      EXPECT_EQ(x.bytes, cuda::x_bytes(shape.layers[0].down, rows));
      if (rows > 1) continue;  // those of a group are shared by its numbers of rows
      for (const WorkPiece& piece : {group.partial, group.parts, group.stats}) pieces.push_back(piece);
      if (number == 0) pieces.push_back(group.logits_partial);
    }
    const CudaPromptPieces& p = layout.prompt;
    for (const CudaInputPieces* in : {&p.attention, &p.o, &p.mlp, &p.down})
      for (const WorkPiece& piece : pieces_of(*in)) pieces.push_back(piece);
    for (const WorkPiece& piece : {p.tokens, p.positions, p.tables, p.residual, p.queries, p.attended, p.y})
      pieces.push_back(piece);
    std::ranges::sort(pieces, {}, &WorkPiece::offset);
    size_t end = 0;
    for (const WorkPiece& piece : pieces) {
      if (piece.bytes == 0) continue;
      EXPECT_GE(piece.offset, end);
      EXPECT_EQ(piece.offset % 256, 0u);
      end = piece.offset + piece.bytes;
    }
    EXPECT_LE(end, layout.bytes);
    EXPECT_LT(layout.bytes, end + 256);
  }
}

TEST(CudaMemory, WorkSpaceFollowsTheShape) {
  const CudaModelShape small = shape_of("smollm2-135m"), large = shape_of("qwen3-32b", "w4a16");
  EXPECT_LT(work_of(small, limits_of(1)), uint64_t{100} << 20) << "a small model leaves its memory to the cache";
  EXPECT_LT(work_of(small, limits_of(1)), work_of(small, limits_of(64)));
  EXPECT_LT(work_of(large, limits_of(64)), work_of(large, limits_of(64, 4096)));
  EXPECT_EQ(work_of(large, limits_of(64, 4096)), work_of(large, limits_of(64, 65536))) << "passes of up to 4,096 rows";
  EXPECT_EQ(work_of(large, limits_of(64)), work_of(large, limits_of(4096))) << "and of up to 64";
  // Where SiLU runs in the product of gate and up, that product is never written.
  const uint64_t fused = work_of(large, limits_of(1, 4096));
  EXPECT_GT(work_of(shape_of("qwen3-32b", "w4a16", /*wgmma=*/false), limits_of(1, 4096)),
            fused + (uint64_t{500} << 20));
  EXPECT_GT(work_of(shape_of("qwen3-32b", "w4a4"), limits_of(1, 4096)), fused + (uint64_t{500} << 20));
  // An FP4 head has eight slots an output, a BF16 one a single one.
  EXPECT_GT(work_of(shape_of("qwen3-32b", "w4a16,head.weights=nvfp4"), limits_of(1)), work_of(large, limits_of(1)));
}

// The table of docs/cuda.md, in MB.
TEST(CudaMemory, IsWhatTheDocumentSays) {
  std::ifstream file(HALFBYTE_SOURCE_DIR "/docs/cuda.md");
  const std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  for (const auto& [name, shape] :
       {std::pair("SmolLM2-135M", shape_of("smollm2-135m")), std::pair("Qwen3-8B", shape_of("qwen3-8b")),
        std::pair("Qwen3-32B", shape_of("qwen3-32b")), std::pair("Qwen3-32B, `w4a4`", shape_of("qwen3-32b", "w4a4"))}) {
    std::string row = std::string("| ") + name;
    for (const auto& [batch, chunk] : {std::pair(1, 512), std::pair(64, 512), std::pair(64, 4096)}) {
      const uint64_t bytes = work_of(shape, limits_of(batch, chunk, shape.config.context / 32));
      row += " | " + std::to_string((bytes + 500'000) / 1'000'000);
    }
    EXPECT_THAT(text, HasSubstr(row + " |\n"));
  }
}

TEST(CudaMemory, HugeShapesAreCounted) {
  CudaModelShape huge = shape_of("qwen3-32b", "w4a4");
  huge.config.hidden = 1 << 15;
  huge.config.vocab = 1 << 20;
  huge.head = {true, 1 << 20, 1 << 15};
  for (CudaModelShape::Layer& l : huge.layers) l.gate_up = {true, 1 << 19, 1 << 15};
  const RunnerFootprint f = cuda_runner_footprint(huge, limits_of(64, 4096, int64_t{1} << 20));
  EXPECT_GT(f.work, uint64_t{4096} * (1 << 19) * sizeof(float)) << "beyond 2^32, and not cut off";
  EXPECT_EQ(f.kv, (uint64_t{1} << 20) * 32 * 64 * 2 * 8 * 128 * 2);
}

CudaMemory memory_of(uint64_t free_bytes) {
  return {"a device", free_bytes, uint64_t{80} << 30, 132, true};
}

TEST(CudaMemory, WeightsAreCountedAsTheyArePacked) {
  // 8.2 G weights: 6.9 G in linears at 9 bits, head and embedding at 16.
  const CudaModelShape shape = shape_of("qwen3-8b");
  const uint64_t bytes = cuda_weight_bytes(shape, 132);
  const ModelConfig& c = shape.config;
  const int64_t linears = c.layers * (c.hidden * (2 * c.q_width() + 2 * c.kv_width()) + 3 * c.hidden * c.intermediate);
  const auto exact = static_cast<uint64_t>(linears * 9 / 16 + 2 * c.vocab * c.hidden * 2);
  EXPECT_GT(bytes, exact);
  EXPECT_LT(bytes, exact + exact / 20) << "each linear in whole 2 MiB, with a thread block's share padded";
}

TEST(CudaMemory, WhatIsLeftIsTheCaches) {
  const CudaModelShape shape = shape_of("smollm2-135m");
  const uint64_t weights = cuda_weight_bytes(shape, 132), free = uint64_t{4} << 30;
  const auto left = cuda_memory_beside_weights(memory_of(free), shape);
  ASSERT_TRUE(left.ok()) << left.status().message();
  EXPECT_LT(*left, free - weights);
  EXPECT_GT(*left, free - weights - (uint64_t{512} << 20)) << "a small fixed share for graphs and kernels, no more";
  const Status none = cuda_memory_beside_weights(memory_of(weights), shape).status();
  EXPECT_EQ(none.code(), StatusCode::kResourceExhausted);
  EXPECT_THAT(none.message(), StartsWith("the model's weights take "));
  EXPECT_THAT(none.message(), HasSubstr("the CUDA device a device has "));
  EXPECT_THAT(none.message(), HasSubstr("choose a smaller model"));
}

// The engine's own reckoning with a device's memory: a cache that fits, or both numbers before anything is loaded.
TEST(CudaMemory, MemoryRunsOutAtTheStart) {
  const CudaModelShape shape = shape_of("qwen3-0.6b");
  const FootprintOf footprint = [&](const RunnerLimits& limits) { return cuda_runner_footprint(shape, limits); };
  const auto resolve = [&](const EngineOptions& options, uint64_t available) {
    return resolve_options(shape.config, options, available, footprint);
  };
  const auto whole = resolve({}, UINT64_MAX);
  ASSERT_TRUE(whole.ok());
  EXPECT_EQ(whole->options.context, shape.config.context);
  const auto part = resolve({}, whole->footprint.work + whole->footprint.kv / 4);
  ASSERT_TRUE(part.ok()) << part.status().message();
  EXPECT_LT(part->options.context, shape.config.context / 4);
  EXPECT_GT(part->options.context, shape.config.context / 6);
  EXPECT_LE(part->footprint.total(), whole->footprint.work + whole->footprint.kv / 4);
  // More rows at once, or longer chunks, take from the cache and not from luck.
  const EngineOptions more{.max_batch = 64, .prefill_chunk = 4096};
  EXPECT_LT(resolve(more, whole->footprint.total() / 4)->options.context,
            resolve({}, whole->footprint.total() / 4)->options.context);
  const Status short_of = resolve({.context = 4096}, uint64_t{64} << 20).status();
  EXPECT_EQ(short_of.code(), StatusCode::kResourceExhausted);
  EXPECT_THAT(short_of.message(), HasSubstr("and work space "));
}

// Refused rather than cut down: what is asked for is what runs.
TEST(CudaMemory, LongerChunksThanAPassTakesAreRefused) {
  const CudaModelShape shape = shape_of("qwen3-0.6b");
  const FootprintOf footprint = [&](const RunnerLimits& limits) { return cuda_runner_footprint(shape, limits); };
  const auto resolve = [&](const std::string& device, int64_t chunk) {
    return resolve_options(shape.config, {.prefill_chunk = chunk, .device = device}, UINT64_MAX, footprint).status();
  };
  EXPECT_TRUE(resolve("cuda", kMostPromptRows).ok());
  EXPECT_TRUE(resolve("cpu", kMostPromptRows + 1).ok());
  const Status refused = resolve("cuda", kMostPromptRows + 1);
  EXPECT_EQ(refused.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(refused.message(), HasSubstr("prefill_chunk is 4097, expected 1 to 4096"));
  EXPECT_THAT(refused.message(), HasSubstr("on a CUDA device"));
}

}  // namespace
}  // namespace halfbyte
