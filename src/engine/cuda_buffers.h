// Memory of a pass that its parts (cuda_pass.cpp, cuda_layers.cpp, cuda_prompt.cpp) share the shape of; private to them.
#pragma once

#include <cstddef>
#include <vector>

#include "engine/cuda_pass.h"

namespace halfbyte {

// What changes from pass to pass, in one copy.
struct CudaInputs {
  int32_t tokens[kMaxPassRows];
  int32_t positions[kMaxPassRows];  // -1: no row
  int32_t picks[kMaxPassRows];      // row of the group, or of a prompt's pass; -1: none
  cuda::DrawRule rules[kMaxPassRows];
};

// The host's side of what travels. A flight has its own copy of what it sends, so that the host may write the next one; a
// drawn token lies at its row and its position mod kDrawnPlaces, so that two passes in a row never meet.
inline constexpr int kDrawnPlaces = 4;
struct CudaPass::Pinned {
  CudaInputs inputs[kFlights];
  int32_t new_pages[kFlights][kMaxPassRows];
  cuda::Drawn drawn[kDrawnPlaces][kMaxPassRows];
};

// The rounded input of one kind of linear, in both forms that a plan may mix, and the scales of its rows.
struct CudaInputBuffers {
  DeviceSpan fp4, bf16, scales;

  CudaInputBuffers() = default;
  CudaInputBuffers(const cuda::DeviceBuffer& work, const CudaInputPieces& pieces)
      : fp4(work, pieces.fp4), bf16(work, pieces.bf16), scales(work, pieces.scales) {}
  void* of(const CudaLinear& l) const { return l.storage.view.fp4 ? fp4.as<void>() : bf16.as<void>(); }
  // Whether there is room for x^ of so many bytes and the scales of as many rows.
  bool hold(const CudaLinear& l, size_t x_bytes, int rows) const {
    return (l.storage.view.fp4 ? fp4 : bf16).holds<std::byte>(x_bytes) && scales.holds<float>(rows);
  }
  // padded_prompt: of a prompt's pass, 0 for decode.
  cuda::RowOutput out(const CudaLinear& l, int padded_prompt = 0) const {
    return {l.mode, l.static_alpha, of(l), scales.as<float>(),
            padded_prompt == 0 ? 0 : cuda::prompt_layout_rows(l.storage.view, padded_prompt)};
  }
};

// Of one padded number of rows: x^ layouts depend on it.
struct CudaPass::Buffers {
  int rows = 0;
  CudaInputBuffers attention, o, mlp, down, head;
  DeviceSpan partial;         // slots of whichever linear ran last
  DeviceSpan logits_partial;  // slots of the head
  DeviceSpan parts, stats;    // attention

  // The result of a linear whose input was in `input`.
  cuda::SlotView result(const CudaInputBuffers& input, const CudaLinear& l) const {
    return cuda::slots_of(l.storage.view, rows, partial.as<float>(), input.scales.as<float>());
  }
};

// Of prompt passes.
struct CudaPass::PromptBuffers {
  int rows = 0;    // of the last pass
  int padded = 0;  // padded_prompt_rows of it
  CudaInputBuffers attention, o, mlp, down;
  DeviceSpan tokens, positions;  // [prompt_rows] int32
  DeviceSpan tables;             // [sequences][table_stride]
  DeviceSpan residual;           // [prompt_rows][hidden]
  DeviceSpan queries;            // prompt_query_floats for prompt_rows
  DeviceSpan attended;           // [prompt_rows][q_width], where attention does not round its result itself
  DeviceSpan y;                  // result of whichever linear ran last
  std::vector<int32_t> host_tokens, host_positions, host_tables;

  PromptBuffers(const cuda::DeviceBuffer& work, const CudaPromptPieces& p)
      : attention(work, p.attention),
        o(work, p.o),
        mlp(work, p.mlp),
        down(work, p.down),
        tokens(work, p.tokens),
        positions(work, p.positions),
        tables(work, p.tables),
        residual(work, p.residual),
        queries(work, p.queries),
        attended(work, p.attended),
        y(work, p.y) {}

  cuda::SlotView result(const CudaInputBuffers& input, const CudaLinear& l) const {
    return cuda::prompt_slots_of(l.storage.view, rows, y.as<float>(), input.scales.as<float>());
  }
  Status run(const CudaInputBuffers& input, const CudaLinear& l, cuda::Launch launch) const {
    return cuda::run_prompt_linear(l.storage.view, rows, input.of(l), y.as<float>(), launch);
  }
};

template <class T>
T* input_field(const cuda::DeviceBuffer& inputs, size_t offset) {
  return reinterpret_cast<T*>(inputs.as<std::byte>() + offset);
}

}  // namespace halfbyte
