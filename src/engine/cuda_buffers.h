// Memory of a pass that its parts (cuda_pass.cpp, cuda_layers.cpp, cuda_prompt.cpp) share the shape of; private to them.
#pragma once

#include <algorithm>
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
  cuda::DeviceBuffer fp4, bf16, scales;

  // rows: padded, or of a prompt's pass.
  Status make(const std::vector<const CudaLinear*>& linears, int rows, bool prompt) {
    size_t fp4_bytes = 0, bf16_bytes = 0;
    for (const CudaLinear* l : linears) {
      size_t& most = l->storage.view.fp4 ? fp4_bytes : bf16_bytes;
      most =
          std::max(most, prompt ? cuda::prompt_x_bytes(l->storage.view, rows) : cuda::x_bytes(l->storage.view, rows));
    }
    HB_ASSIGN(fp4, cuda::DeviceBuffer::make(fp4_bytes, /*zero=*/true));
    HB_ASSIGN(bf16, cuda::DeviceBuffer::make(bf16_bytes, /*zero=*/true));
    HB_ASSIGN(scales,
              cuda::DeviceBuffer::make(static_cast<size_t>(std::max(rows, cuda::kMaxRows)) * sizeof(float), true));
    return {};
  }
  void* of(const CudaLinear& l) const { return l.storage.view.fp4 ? fp4.as<void>() : bf16.as<void>(); }
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
  cuda::DeviceBuffer partial;         // slots of whichever linear ran last
  cuda::DeviceBuffer logits_partial;  // slots of the head
  cuda::DeviceBuffer parts, stats;    // attention

  // The result of a linear whose input was in `input`.
  cuda::SlotView result(const CudaInputBuffers& input, const CudaLinear& l) const {
    return cuda::slots_of(l.storage.view, rows, partial.as<float>(), input.scales.as<float>());
  }
};

// The layers' linears by the input that they read.
struct CudaLinearKinds {
  std::vector<const CudaLinear*> qkv, o, gate_up, down;
  explicit CudaLinearKinds(const CudaWeights& w) {
    for (const CudaLayer& l : w.layers) {
      qkv.push_back(&l.qkv);
      o.push_back(&l.o);
      gate_up.push_back(&l.gate_up);
      down.push_back(&l.down);
    }
  }
};

// Of prompt passes.
struct CudaPass::PromptBuffers {
  int rows = 0;    // of the last pass
  int padded = 0;  // padded_prompt_rows of it
  CudaInputBuffers attention, o, mlp, down;
  cuda::DeviceBuffer tokens, positions;  // [prompt_rows] int32
  cuda::DeviceBuffer tables;             // [sequences][table_stride]
  cuda::DeviceBuffer residual;           // [prompt_rows][hidden]
  cuda::DeviceBuffer queries;            // prompt_query_floats for prompt_rows
  cuda::DeviceBuffer attended;           // [prompt_rows][q_width], where attention does not round its result itself
  cuda::DeviceBuffer y;                  // result of whichever linear ran last
  std::vector<int32_t> host_tokens, host_positions, host_tables;

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
