// One pass of up to 16 rows through a model on a CUDA device, and the draw of their tokens: the order of the kernels,
// their buffers, and the graphs made of them.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "base/result.h"
#include "engine/cuda_weights.h"
#include "kernels/cuda/ops.h"

namespace halfbyte {

// The device's cache: a page holds page_tokens positions of one sequence for every layer, [layers][K, V][kv_heads]
// [page_tokens][head_dim] in BF16.
struct CudaKvShape {
  int64_t layers = 0;
  int64_t kv_heads = 0;
  int64_t head_dim = 0;
  int64_t page_tokens = 0;

  size_t layer_bytes() const { return static_cast<size_t>(2 * kv_heads * page_tokens * head_dim) * 2; }
  size_t page_bytes() const { return static_cast<size_t>(layers) * layer_bytes(); }
};

// A row as the host names it.
struct CudaRow {
  int32_t token = 0;
  int32_t position = 0;
  std::span<const int32_t> pages;  // of its sequence
};
// A row whose logits are wanted.
struct CudaPick {
  int32_t row = 0;  // of the pass
  cuda::DrawRule rule;
};

// Thread-compatible.
class CudaPass {
 public:
  static Result<std::unique_ptr<CudaPass>> create(std::shared_ptr<const CudaWeights> weights, const CudaKvShape& kv,
                                                  int64_t pages);
  ~CudaPass();

  // What a pass does beside the layers.
  struct Shape {
    int rows = 1;           // padded
    int picks = 0;          // padded; 0: no logits
    bool own_rows = false;  // each row is another sequence's: decode
    bool plain = false;     // keep the logits for the host
    bool advance = false;   // tokens and positions move on by themselves, for the next pass
    auto operator<=>(const Shape&) const = default;
  };

  // Runs rows (at most 16) and draws for the picks; drawn has one entry a pick. own_rows as in Shape.
  Status run(std::span<const CudaRow> rows, std::span<const CudaPick> picks, bool own_rows, bool plain,
             std::span<cuda::Drawn> drawn);
  // Logits of the last run's pick, with plain; out: [vocab].
  Status logits(int pick, std::span<float> out);

  // A page's bytes from and to the host.
  Status read_page(int32_t page, std::span<std::byte> out);
  Status write_page(int32_t page, std::span<const std::byte> from);
  size_t page_bytes() const { return kv_shape_.page_bytes(); }

  // For measurements: rows as given, then `steps` decode passes that feed themselves; the device's clock in ns at the
  // end of each. The cache holds whatever it holds.
  Status decode_alone(std::span<const CudaRow> rows, int steps, std::vector<uint64_t>& stamps);
  Status fill_cache_randomly();
  const CudaWeights& weights() const { return *weights_; }

 private:
  struct Buffers;
  CudaPass(std::shared_ptr<const CudaWeights> weights, const CudaKvShape& kv);

  Status allocate(int64_t pages);
  Result<Buffers*> buffers(int rows);
  Status place(std::span<const CudaRow> rows, std::span<const CudaPick> picks, const Shape& shape);
  Result<cudaGraphExec_t> graph(const Shape& shape);
  Status enqueue(const Shape& shape, Buffers& b, Buffers* head);
  Status enqueue_layer(size_t layer, const Shape& shape, Buffers& b);
  Status enqueue_head(const Shape& shape, Buffers& b, Buffers& head);
  cuda::AttentionRows attention_of(size_t layer, const Shape& shape, Buffers& b) const;
  cuda::Launch how() const { return {stream_, true}; }

  std::shared_ptr<const CudaWeights> weights_;
  CudaKvShape kv_shape_;
  int64_t table_stride_ = 0;
  cudaStream_t stream_ = nullptr;
  cuda::DeviceBuffer cache_;                          // [pages][page_bytes]
  cuda::DeviceBuffer inputs_;                         // Inputs
  cuda::DeviceBuffer tables_;                         // [16][table_stride]
  cuda::DeviceBuffer residual_;                       // [16][hidden]
  cuda::DeviceBuffer drawn_, plain_, stamps_, step_;  // [16] Drawn; [16][vocab]; ns; int32
  std::array<std::vector<int32_t>, cuda::kMaxRows> placed_tables_;
  std::map<int, std::unique_ptr<Buffers>> buffers_;
  std::map<Shape, cudaGraphExec_t> graphs_;
};

}  // namespace halfbyte
