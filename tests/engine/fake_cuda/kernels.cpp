// The kernels' host functions (kernels/cuda/ops.h) as far as the engine calls them.
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <map>
#include <utility>

#include "base/size_text.h"
#include "fake_cuda/fake_cuda.h"
#include "fake_cuda/stream.h"
#include "kernels/cuda/cold_linear.h"
#include "kernels/cuda/ops.h"

namespace halfbyte::cuda {
namespace {

using fake_cuda::put;
using fake_cuda::state;

using Pieces = std::map<size_t, size_t>;  // bytes by offset
struct Allocation {
  size_t bytes = 0;
  Pieces pieces;
};
std::map<const std::byte*, Allocation>& allocations() {
  static std::map<const std::byte*, Allocation> all;
  return all;
}
struct Division {
  size_t bytes = 0;  // 0: none is waiting
  Pieces pieces;
};
Division& next_division() {
  static Division next;
  return next;
}

// The last entry that does not begin behind `at`.
template <class Map, class Key>
typename Map::const_iterator holder(const Map& map, const Key& at) {
  const auto behind = map.upper_bound(at);
  return behind == map.begin() ? map.end() : std::prev(behind);
}

bool is_there(const void* at, size_t bytes) {
  const auto* begin = static_cast<const std::byte*>(at);
  const auto found = holder(allocations(), begin);
  if (found == allocations().end()) return false;
  const auto& [base, allocation] = *found;
  const auto offset = static_cast<size_t>(begin - base);
  if (allocation.pieces.empty()) return offset + bytes <= allocation.bytes;
  const auto piece = holder(allocation.pieces, offset);
  return piece != allocation.pieces.end() && offset + bytes <= piece->first + piece->second;
}
void reads(const void* at, size_t bytes) {
  if (bytes > 0 && !is_there(at, bytes)) ++state().faults;
}
void writes(void* at, size_t bytes) {
  if (bytes == 0) return;
  if (is_there(at, bytes)) {
    std::memset(at, 0xA5, bytes);
  } else {
    ++state().faults;
  }
}

Linear view_of(const LinearSize& size) {
  Linear out;
  out.fp4 = size.fp4;
  out.n = static_cast<int>(size.n);
  out.k = static_cast<int>(size.k);
  out.rows = static_cast<int>(size.rows());
  out.k_steps = static_cast<int>(size.k_steps());
  return out;
}

Result<LinearStorage> storage_of(WeightFormat format, int64_t n, int64_t k, int multiprocessors) {
  const LinearSize size{format != WeightFormat::kBF16, n, k};
  LinearStorage out;
  out.view = view_of(size);
  HB_ASSIGN(out.weights, DeviceBuffer::make(linear_bytes(size, multiprocessors)));
  return Result<LinearStorage>(std::move(out));
}

void writes_input(const RowOutput& out, const LinearSize& linear, int rows) {
  writes(out.x, x_bytes(linear, rows));
  writes(out.x_scale, static_cast<size_t>(rows) * sizeof(float));
}
void writes_prompt_input(const RowOutput& out, int64_t k, int rows) {
  writes(out.x, prompt_x_bytes(LinearSize{out.mode != RowMode::kBf16Rows, 1, k}, rows));
  writes(out.x_scale, static_cast<size_t>(rows) * sizeof(float));
}
void reads_slots(const SlotView& y) {
  if (y.partial != nullptr)
    reads(y.partial, static_cast<size_t>(y.columns) * static_cast<size_t>(y.rows) * sizeof(float));
}

// The pages that a row's positions lie in.
void reads_cache(const AttentionRows& a, int rows) {
  for (int row = 0; row < rows; ++row) {
    const int32_t position = a.positions[row];
    if (position < 0) continue;
    const int32_t* table = a.kv.tables + static_cast<ptrdiff_t>(row) * a.kv.table_stride;
    for (int32_t page = 0; page <= position / a.kv.page_tokens; ++page)
      reads(a.kv.base + static_cast<size_t>(table[page]) * a.kv.page_stride, a.kv.page_stride);
  }
}

}  // namespace
}  // namespace halfbyte::cuda

namespace halfbyte::fake_cuda {

void divide_next(size_t bytes, const std::vector<Piece>& pieces) {
  cuda::Division& next = cuda::next_division();
  next = {bytes, {}};
  for (const Piece& piece : pieces)
    if (piece.bytes > 0) next.pieces[piece.offset] = piece.bytes;
}
bool divided() {
  return cuda::next_division().bytes == 0;
}
void touch(const void* at, size_t bytes) {
  cuda::reads(at, bytes);
}

}  // namespace halfbyte::fake_cuda

namespace halfbyte::cuda {

bool driver_is_there() {
  return true;
}
Result<std::vector<DeviceInfo>> devices() {
  DeviceInfo d;
  d.name = "a device on the host";
  d.major = 9;
  d.multiprocessors = fake_cuda::kMultiprocessors;
  d.memory_bytes = state().memory;
  d.free_bytes = state().memory - state().live;
  d.kernels = active_kernels();
  return std::vector<DeviceInfo>{d};
}
Result<DeviceInfo> usable_device(int) {
  HB_ASSIGN(const std::vector<DeviceInfo> all, devices());
  return all[0];
}
void force_kernels(ForcedKernels) {}
const KernelSet& active_kernels() {
  static KernelSet set;
  set.clusters = true;
  set.wgmma = state().wgmma;
  return set;
}
Clocks current_clocks(int) {
  return {};
}
Status check(cudaError_t code, const char* what) {
  return code == cudaSuccess ? Status() : internal_error(what);
}

Result<DeviceBuffer> DeviceBuffer::make(size_t bytes, bool zero) {
  DeviceBuffer out;
  if (bytes == 0) return Result<DeviceBuffer>(std::move(out));
  ++state().makes;
  if (state().live + bytes > state().memory) return resource_exhausted("allocating " + format_bytes(bytes));
  out.data_ = std::aligned_alloc(256, (bytes + 255) / 256 * 256);
  out.size_ = bytes;
  std::memset(out.data_, zero ? 0 : 0xA5, bytes);
  Allocation& made = allocations()[static_cast<std::byte*>(out.data_)];
  made.bytes = bytes;
  if (Division& next = next_division(); next.bytes == bytes) {
    made.pieces = std::move(next.pieces);
    next = {};
  }
  state().live += bytes;
  return Result<DeviceBuffer>(std::move(out));
}
DeviceBuffer::DeviceBuffer(DeviceBuffer&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}
DeviceBuffer& DeviceBuffer::operator=(DeviceBuffer&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}
DeviceBuffer::~DeviceBuffer() {
  if (data_ == nullptr) return;
  allocations().erase(static_cast<std::byte*>(data_));
  state().live -= size_;
  std::free(data_);
}
Status DeviceBuffer::upload(const void* from, size_t bytes, size_t offset) {
  if (offset + bytes > size_) return internal_error("a write behind the end of device memory");
  std::memcpy(as<std::byte>() + offset, from, bytes);
  return {};
}
Status DeviceBuffer::download(void* to, size_t bytes, size_t offset) const {
  if (offset + bytes > size_) return internal_error("a read behind the end of device memory");
  std::memcpy(to, as<std::byte>() + offset, bytes);
  return {};
}

Result<LinearStorage> make_linear(const std::vector<LinearPart>& parts, int multiprocessors) {
  int64_t n = 0;
  for (const LinearPart& part : parts) n += part.n;
  return storage_of(parts[0].format, n, parts[0].k, multiprocessors);
}
Result<LinearStorage> make_random_linear(WeightFormat format, int64_t n, int64_t k, int multiprocessors, uint64_t) {
  return storage_of(format, n, k, multiprocessors);
}
void use_linear_table(LinearTable) {}
Result<std::vector<LinearTimes>> measure_linear(int64_t, int64_t, int) {
  return std::vector<LinearTimes>{};
}
Status fill_random_fp8(void*, size_t, uint64_t, Launch) {
  return {};
}
Status fill_random_bf16(void*, size_t, float, uint64_t, Launch) {
  return {};
}

int prompt_layout_rows(const Linear&, int rows) {
  return padded_prompt_rows(rows);
}
SlotView slots_of(const Linear& linear, int rows, const float* partial, const float* x_scale) {
  return {partial, nullptr, nullptr, nullptr, x_scale, linear.rows, padded_rows(rows)};
}
SlotView prompt_slots_of(const Linear& linear, int rows, const float* y, const float* x_scale) {
  return {y, nullptr, nullptr, nullptr, x_scale, linear.rows, padded_prompt_rows(rows)};
}
bool fuses_prompt_rounding(const AttentionRows&, RowMode mode) {
  return active_kernels().wgmma && (mode == RowMode::kA16 || mode == RowMode::kBf16Rows);
}

Status run_norm_linear(const NormRows& a, const Linear& linear, int rows, float* partial, Launch) {
  put([=] {
    reads_slots(a.y);
    if (a.keep) writes(a.residual, static_cast<size_t>(rows * a.k) * sizeof(float));
    writes_input(a.out, linear.size(), rows);
    writes(partial, slot_floats(linear, rows) * sizeof(float));
  });
  return {};
}
Status run_linear(const Linear& linear, int rows, const void* x, float* partial, Launch) {
  put([=] {
    reads(x, x_bytes(linear, rows));
    writes(partial, slot_floats(linear, rows) * sizeof(float));
  });
  return {};
}
bool attention_merges(int rows) {
  return active_kernels().clusters && rows > 1;
}
Status attention_merged(const AttentionRows& a, KvState, const RowOutput& out, int rows, Launch) {
  put([=] {
    reads_slots(a.qkv);
    reads_cache(a, rows);
    const int k = a.heads * a.head_dim;
    writes(a.parts, static_cast<size_t>(rows * k) * sizeof(float));  // with some roundings
    writes_input(out, LinearSize{out.mode != RowMode::kBf16Rows, 1, k}, rows);
  });
  return {};
}
Status run_merge_linear(const MergeRows& a, const Linear& linear, int rows, float* partial, Launch) {
  put([=] {
    reads(a.parts, part_floats(HeadSize{a.heads, 1, a.head_dim}, rows) * sizeof(float));
    writes_input(a.out, linear.size(), rows);
    writes(partial, slot_floats(linear, rows) * sizeof(float));
  });
  return {};
}
Status run_silu_linear(const SiluRows& a, const Linear& linear, int rows, float* partial, Launch) {
  put([=] {
    reads_slots(a.y);
    writes_input(a.out, linear.size(), rows);
    writes(partial, slot_floats(linear, rows) * sizeof(float));
  });
  return {};
}
Status append_rows(const AttentionRows& a, int rows, Launch) {
  put([=] { reads_cache(a, rows); });
  return {};
}
Status attention_rows(const AttentionRows& a, KvState, int rows, Launch) {
  put([=] {
    const HeadSize heads{a.heads, a.kv_heads, a.head_dim};
    reads_slots(a.qkv);
    reads_cache(a, rows);
    writes(a.parts, part_floats(heads, rows) * sizeof(float));
    writes(a.stats, stat_floats(heads, rows) * sizeof(float));
  });
  return {};
}

Status norm_prompt(const NormRows& a, int rows, Launch) {
  put([=] {
    reads_slots(a.y);
    writes(a.residual, static_cast<size_t>(rows * a.k) * sizeof(float));
    writes_prompt_input(a.out, a.k, rows);
  });
  return {};
}
Status run_prompt_linear(const Linear& linear, int rows, const void* x, float* y, Launch, int) {
  put([=] {
    reads(x, prompt_x_bytes(linear, rows));
    writes(y, prompt_y_floats(linear, rows) * sizeof(float));
  });
  return {};
}
Status run_prompt_silu(const Linear& linear, int rows, const void* x, const float*, const RowOutput& out, Launch, int) {
  put([=] {
    reads(x, prompt_x_bytes(linear, rows));
    writes_prompt_input(out, linear.n / 2, rows);
  });
  return {};
}
Status prompt_heads(const AttentionRows& a, int rows, bool, Launch) {
  put([=] {
    reads_cache(a, rows);
    writes(a.parts, prompt_query_floats({a.heads, a.kv_heads, a.head_dim}, rows) * sizeof(float));
  });
  return {};
}
Status attention_prompt(const AttentionRows& a, int rows, float* out, const RowOutput* x, int, Launch) {
  put([=, rounded = x != nullptr] {
    reads_cache(a, rows);
    if (!rounded) writes(out, static_cast<size_t>(rows * a.heads * a.head_dim) * sizeof(float));
  });
  return {};
}
Status round_rows(const RoundRows& a, int rows, Launch) {
  put([=] { writes_prompt_input(a.out, a.k, rows); });
  return {};
}
Status silu_rows(const SiluRows& a, int rows, Launch) {
  put([=] {
    reads_slots(a.y);
    writes_prompt_input(a.out, a.k, rows);
  });
  return {};
}

Status stamp_begin(StepStamps*, Launch) {
  return {};
}
Status draw_rows(const DrawRows& a, int rows, Launch) {
  put([=] {
    reads_slots(a.logits);
    for (int m = 0; m < rows; ++m) {
      const int32_t row = a.rows[m];
      if (row < 0) continue;
      const int32_t position = a.positions[row];
      if (position < 0) continue;
      const int32_t token = fake_cuda::follows(a.tokens[row], position);
      const DrawRule& rule = a.rules[m];
      // A test gives each request classes of its own, all of them the low byte of its seed.
      if (rule.classes != nullptr) {
        const auto count = static_cast<size_t>(rule.class_count);
        reads(rule.classes, count);
        const auto own = static_cast<uint8_t>(rule.seed);
        if (rule.classes[0] != own || rule.classes[count - 1] != own) ++state().faults;
        ++state().class_reads;
      }
      a.drawn[(position % a.drawn_places) * a.drawn_stride + m] = {token, 1.0f, a.rules[m].temperature};
      if (a.plain != nullptr) {
        float* const plain = a.plain + static_cast<ptrdiff_t>(m) * a.vocab;
        reads(plain, static_cast<size_t>(a.vocab) * sizeof(float));
        std::fill(plain, plain + a.vocab, 0.0f);
        plain[token] = 50.0f;
      }
      if (!a.advance) continue;
      a.tokens[row] = token;
      const bool stops = std::find(rule.stops, rule.stops + rule.stop_count, token) != rule.stops + rule.stop_count;
      a.positions[row] = stops || position + 2 >= rule.limit ? -1 : position + 1;
    }
  });
  return {};
}

}  // namespace halfbyte::cuda
