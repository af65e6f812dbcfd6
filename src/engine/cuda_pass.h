// One pass of rows through a model on a CUDA device, and the draw of their tokens: the order of the kernels, their
// buffers, and the graphs made of them. Decode: up to 64 rows, a graph a shape (cuda_pass.cpp, and cuda_layers.cpp for what
// is in it). Prompts: hundreds of rows, kernels one after another (cuda_prompt.cpp).
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "base/result.h"
#include "decode/reset.h"
#include "engine/cuda_memory.h"
#include "engine/cuda_weights.h"
#include "kernels/cuda/ops.h"

namespace halfbyte {

// A row as the host names it.
struct CudaRow {
  int32_t token = 0;
  int32_t position = 0;
  std::span<const int32_t> pages;  // of its sequence
};
// Consecutive rows of one sequence's prompt.
struct CudaSegment {
  std::span<const int32_t> tokens;
  int64_t position = 0;            // of the first
  std::span<const int32_t> pages;  // of the sequence
};
// A row whose logits are wanted.
struct CudaPick {
  int32_t row = 0;  // of the pass
  cuda::DrawRule rule;
  // A policy whose state goes to the device with the row, so that the row can go on by itself (Shape::advance), and where its
  // steps end; else null.
  const TemperatureState* policy = nullptr;
  std::shared_ptr<const StepClasses> classes;
};

// A piece of device memory that another owns.
class DeviceSpan {
 public:
  DeviceSpan() = default;
  DeviceSpan(const cuda::DeviceBuffer& all, const WorkPiece& piece)
      : data_(piece.bytes == 0 ? nullptr : all.as<std::byte>() + piece.offset), size_(piece.bytes) {}
  template <class T>
  T* as() const {
    return reinterpret_cast<T*>(data_);
  }
  // Whether it has room for so many.
  template <class T, class Count>
  bool holds(Count count) const {
    return static_cast<size_t>(count) * sizeof(T) <= size_;
  }

 private:
  std::byte* data_ = nullptr;
  size_t size_ = 0;
};

// Thread-compatible.
class CudaPass {
 public:
  // Takes all memory that it will need, but for graphs, which are captured when a shape first runs. kResourceExhausted names
  // what was too much.
  static Result<std::unique_ptr<CudaPass>> create(std::shared_ptr<const CudaWeights> weights, const CudaKvShape& kv,
                                                  const CudaPassLimits& limits);
  ~CudaPass();

  // Whether passes note the device's clock at their ends, and at their beginnings too, which takes a kernel.
  enum class Stamps : uint8_t { kNone, kEnds, kBoth };
  // What a pass does beside the layers.
  struct Shape {
    int rows = 1;           // padded: the last group of 16 to 1, 2, 4, 8 or 16
    int picks = 0;          // padded; 0: no logits
    bool own_rows = false;  // each row is another sequence's: decode
    bool plain = false;     // keep the logits for the host
    bool advance = false;   // tokens, positions and policies move on by themselves, for the next pass
    Stamps stamps = Stamps::kNone;
    auto operator<=>(const Shape&) const = default;
  };
  enum class Logits : uint8_t { kNone, kKept };  // for the host

  // Decode rows on their way: begin returns at once, finish waits for the pass of that ticket, and for nothing behind it.
  // Up to limits.rows rows of as many sequences, each drawn by the pick of its number. At most two passes are on their way, and are
  // finished in order or given up.
  Result<int> begin(std::span<const CudaRow> rows, std::span<const CudaPick> picks, Logits logits, bool advance);
  // The rows of the last begin (with advance) once more, one token on, before anyone here knows that token. `rows`: their next
  // positions and the pages that they hold by then. -1: it can't, begin it when the tokens are there.
  Result<int> begin_next(std::span<const CudaRow> rows);
  // Waits; drawn has one entry a pick. A fault of any kernel shows here.
  Status finish(int ticket, std::span<cuda::Drawn> drawn);
  // Whether the device's page table of a row agrees with `pages` as far as `position`.
  bool table_covers(int row, std::span<const int32_t> pages, int64_t position) const;

  // Runs up to 16 rows of one sequence and draws for the picks; drawn has one entry a pick.
  Status run(std::span<const CudaRow> rows, std::span<const CudaPick> picks, Logits logits,
             std::span<cuda::Drawn> drawn);
  // Runs prompt rows, at most prompt_rows of at most `sequences` sequences, rows counted through the segments.
  Status run_prompt(std::span<const CudaSegment> segments);
  // Draws for rows of the last run_prompt, at most 16 at a time.
  Status draw_prompt(std::span<const CudaPick> picks, Logits logits, std::span<cuda::Drawn> drawn);
  int64_t prompt_rows() const { return limits_.prompt_rows; }
  // Of the allocation that all passes work in.
  size_t work_bytes() const { return work_.size(); }
  // Logits of the last pick of that number, with Logits::kKept; out: [vocab].
  Status logits(int pick, std::span<float> out);

  // A page's bytes from and to the host, behind everything that was begun before.
  Status read_page(int32_t page, std::span<std::byte> out);
  Status write_page(int32_t page, std::span<const std::byte> from);
  size_t page_bytes() const { return kv_shape_.page_bytes(); }
  // How often the host has waited for all that it had begun, not for one pass: for pages.
  uint64_t stream_waits() const { return stream_waits_; }

  // For measurements. From start_stamps on, decode passes note the device's clock in ns, up to `steps` of them;
  // take_stamps waits, gives what was noted and ends it. Each pass counts once, taken or given up.
  struct Stamp {
    uint64_t begin = 0, end = 0;
  };
  Status start_stamps(int steps, Stamps which);
  Result<std::vector<Stamp>> take_stamps();
  // Rows as given, then `steps` decode passes that feed themselves, one behind the other, with each pick's own rule. The
  // cache holds whatever it holds.
  Result<std::vector<Stamp>> decode_alone(std::span<const CudaRow> rows, std::span<const CudaPick> picks, int steps,
                                          Stamps which);
  Status fill_cache_randomly();
  const CudaWeights& weights() const { return *weights_; }

 private:
  struct Buffers;
  struct PromptBuffers;
  struct Pinned;
  // Up to 16 rows that go through each operation of a pass together, in every layer one group after the other: the second one
  // finds weights in L2 that the first one read, and a row's numbers are those of a pass of 16.
  struct Group {
    int first = 0;            // row of the pass
    int rows = 0, picks = 0;  // padded
    Buffers* layers = nullptr;
    Buffers* head = nullptr;  // null: no logits
  };
  // Where the head finds the rows that it may pick from.
  struct HeadInput {
    cuda::SlotView y;  // of the last layer's `down`
    float* residual;
    int32_t* positions;
    int32_t* tokens;
  };
  // A pass on its way. Beside the two that count, passes that were given up may still run.
  static constexpr int kFlights = 4;
  struct Flight {
    cudaEvent_t done = nullptr;
    int picks = 0;
    std::array<int32_t, kMaxPassRows> positions;  // of the picks
  };
  // Step classes on the device, shared by all requests that have them. A place for each row: what the longest nobody had makes
  // room.
  struct Classes {
    std::shared_ptr<const StepClasses> host;
    uint64_t used = 0;  // number of the placing
  };
  CudaPass(std::shared_ptr<const CudaWeights> weights, const CudaKvShape& kv, const CudaPassLimits& limits);

  Status allocate();
  Status check_sizes() const;
  bool decode_fits() const;
  bool prompts_fit() const;
  Status check_pages(std::span<const int32_t> pages) const;
  Result<Buffers*> buffers(int rows, int group);
  Result<std::vector<Group>> groups_of(const Shape& shape);
  static Shape shape_of(size_t rows, size_t picks);
  Status place(std::span<const CudaRow> rows, std::span<const CudaPick> picks, bool advance);
  Status place_table(int row, std::span<const int32_t> pages);
  Status place_policy(int row, const CudaPick& pick, cuda::DrawRule& rule);
  Result<const uint8_t*> place_classes(const std::shared_ptr<const StepClasses>& classes);
  Result<cudaGraphExec_t> graph(const Shape& shape);
  Result<int> launch(const Shape& shape, std::span<const int32_t> positions);
  Result<int> depart(std::span<const int32_t> positions);

  Status enqueue(const Shape& shape, std::span<const Group> groups);
  Status enqueue_layer(size_t layer, const Shape& shape, std::span<const Group> groups);
  Status enqueue_attention(size_t layer, const Shape& shape, const Group& group);
  Status enqueue_head(const HeadInput& in, const Shape& shape, const Group& group, cuda::Launch how);
  cuda::NormRows norm_of(const Group& group) const;
  int32_t* row_positions(const Group& group) const;
  cuda::AttentionRows attention_of(size_t layer) const;

  Status place_prompt(std::span<const CudaSegment> segments, int rows);
  Status enqueue_prompt_layer(size_t layer, std::span<const CudaSegment> segments, int rows);
  Status enqueue_prompt_attention(size_t layer, std::span<const CudaSegment> segments, int rows);
  HeadInput prompt_head() const;
  cuda::NormRows prompt_norm(const cuda::SlotView& y, const cuda::DeviceBuffer& weight) const;

  cuda::Launch how() const { return {stream_, true}; }       // each kernel waits for the one ahead itself
  cuda::Launch in_turn() const { return {stream_, false}; }  // kernels begin when the one ahead has ended

  std::shared_ptr<const CudaWeights> weights_;
  CudaKvShape kv_shape_;
  CudaPassLimits limits_;
  int64_t table_stride_ = 0;
  cudaStream_t stream_ = nullptr;
  cuda::DeviceBuffer cache_;     // [pages][page_bytes]
  cuda::DeviceBuffer inputs_;    // CudaInputs
  cuda::DeviceBuffer work_;      // CudaWorkLayout
  DeviceSpan tables_;            // [rows][table_stride], in work_, as are:
  DeviceSpan residual_;          // [rows][hidden]
  DeviceSpan plain_;             // [rows][vocab]
  cuda::DeviceBuffer policies_;  // [64] TemperatureSums and ring
  cuda::DeviceBuffer stamps_;    // StepStamps, begins, ends
  Stamps stamping_ = Stamps::kNone;
  Pinned* pinned_ = nullptr;  // host memory that the device reads and writes by itself
  std::array<Flight, kFlights> flights_;
  int next_flight_ = 0;
  Shape placed_shape_;  // of the last begin
  uint64_t stream_waits_ = 0;
  std::array<std::vector<int32_t>, kMaxPassRows> placed_tables_;
  DeviceSpan classes_memory_;     // [rows][vocab], in work_
  std::vector<Classes> classes_;  // [rows]
  uint64_t placings_ = 0;
  std::map<std::pair<int, int>, std::unique_ptr<Buffers>> buffers_;  // by rows and group
  std::unique_ptr<PromptBuffers> prompt_;
  std::map<Shape, cudaGraphExec_t> graphs_;
};

}  // namespace halfbyte
