// A linear's tensors in any combination of names, types and small shapes, which random bytes of a file would hardly give:
// the first bytes choose the tensors, the rest are their data. All that is read must agree, whichever way it is read.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <deque>

#include "fuzz_support.h"
#include "io/dequantize.h"
#include "io/load_linear.h"

namespace {

using namespace halfbyte;
using fuzzing::check_message;
using fuzzing::require;

constexpr const char* kSuffixes[] = {"weight",          "weight_packed",
                                     "weight_scale",    "weight_scale_inv",
                                     "weight_scale_2",  "weight_global_scale",
                                     "input_scale",     "input_global_scale",
                                     "pre_quant_scale", "bias",
                                     "k_scale",         "qweight",
                                     "input_scale_2"};
constexpr DType kTypes[] = {DType::kU8,  DType::kF8E4M3, DType::kF32,       DType::kBF16,
                            DType::kF16, DType::kI8,     DType::kGgufNVFP4, DType::kGgufMXFP4};
constexpr ModuleQuant kQuants[] = {ModuleQuant::kNone,      ModuleQuant::kNVFP4, ModuleQuant::kNVFP4W4A16,
                                   ModuleQuant::kNVFP4Wide, ModuleQuant::kMXFP4, ModuleQuant::kFP8};
constexpr int64_t kSizes[] = {1, 2, 3, 4, 8, 16, 32, 64};

// Tensors in memory.
class Source final : public TensorSource {
 public:
  void add(const std::string& suffix, DType type, Shape shape, std::string bytes) {
    const std::string name = "m." + suffix;
    if (find(name) != nullptr) return;
    TensorInfo info{name, name, type, std::move(shape), bytes.size()};
    const auto at = std::lower_bound(infos_.begin(), infos_.end(), name,
                                     [](const TensorInfo& t, const std::string& n) { return t.name < n; });
    data_.insert(data_.begin() + (at - infos_.begin()), std::move(bytes));
    infos_.insert(at, std::move(info));
  }
  std::string describe() const override { return "fuzz"; }
  const std::string& path() const override { return path_; }
  std::span<const TensorInfo> tensors() const override { return infos_; }
  const TensorInfo* find(std::string_view name) const override {
    for (const TensorInfo& t : infos_)
      if (t.name == name) return &t;
    return nullptr;
  }
  Result<std::span<const std::byte>> bytes(const TensorInfo& tensor) const override {
    const std::string& data = data_[static_cast<size_t>(&tensor - infos_.data())];
    return std::as_bytes(std::span(data.data(), data.size()));
  }
  std::shared_ptr<const void> owner(const TensorInfo&) const override { return nullptr; }
  Status read_rows(const TensorInfo& tensor, int64_t first, int64_t rows, std::span<float> out) const override {
    if (!can_dequantize(tensor.dtype) || tensor.shape.rank() > 2)
      return unsupported(error(tensor, "not read").message());
    if (out.empty()) return {};
    const size_t columns = out.size() / static_cast<size_t>(std::max<int64_t>(rows, 1));
    const size_t row = *dtype_bytes(tensor.dtype, columns);
    for (int64_t r = 0; r < rows; ++r)
      dequantize_row(tensor.dtype, bytes(tensor)->subspan(static_cast<size_t>(first + r) * row, row),
                     out.subspan(static_cast<size_t>(r) * columns, columns));
    return {};
  }
  std::string label(const TensorInfo& tensor) const override { return "fuzz: tensor '" + tensor.name + "'"; }

 private:
  std::string path_ = "fuzz";
  std::vector<TensorInfo> infos_;
  std::vector<std::string> data_;
};

class Input {
 public:
  Input(const uint8_t* data, size_t size) : data_(data), size_(size) {}
  uint8_t byte() { return size_ == 0 ? uint8_t{0} : (--size_, *data_++); }
  template <class T, size_t N>
  T pick(const T (&list)[N]) {
    return list[byte() % N];
  }

 private:
  const uint8_t* data_;
  size_t size_;
};

bool same(float a, float b) {
  return a == b || (std::isnan(a) && std::isnan(b));
}

void read_all_ways(const Source& source, const LinearFacts& facts) {
  fuzzing::check_message(invalid_data(describe(facts)));
  const auto linear = load_quant_linear(source, facts, "m");
  const auto rows = open_linear_rows(source, facts, "m");
  check_message(linear.status());
  check_message(rows.status());
  if (!linear.ok() || !rows.ok()) return;
  require(linear->n == facts.n && linear->k == facts.k && facts.n > 0 && facts.k > 0);
  require(linear->codes.size() == static_cast<uint64_t>(linear->n * code_bytes_per_row(linear->format, linear->k)));
  require(linear->block_scales.size() ==
          static_cast<uint64_t>(linear->n * scale_bytes_per_row(linear->format, linear->k)));
  require(linear->tensor_scale > 0 && std::isfinite(linear->tensor_scale));
  require(!linear->input_scale || *linear->input_scale >= 0);
  std::vector<float> one(static_cast<size_t>(facts.k)), other(one.size());
  for (int64_t row = 0; row < facts.n; ++row) {
    check_message(rows->rows.read(row, 1, other));
    dequantize_row(*linear, row, one);
    for (size_t i = 0; i < one.size(); ++i) {
      require(same(one[i], other[i]));
      require(!facts.packed_format() || !std::isnan(one[i]));
    }
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  Input in(data, size);
  QuantConfig quant;
  quant.quantised = true;
  quant.file = "config.json";
  quant.default_quant = in.pick(kQuants);
  quant.fp8_block_rows = in.pick(kSizes);
  quant.fp8_block_columns = in.pick(kSizes);
  Source source;
  for (int count = in.byte() % 8; count > 0; --count) {
    const char* suffix = in.pick(kSuffixes);
    const DType type = in.pick(kTypes);
    Shape shape;
    uint64_t elements = 1;
    for (int rank = in.byte() % 4; rank > 0; --rank) {
      shape.dims.push_back(in.pick(kSizes));
      elements *= static_cast<uint64_t>(shape.dims.back());
    }
    // Files are refused before this when a tensor's rows are no whole blocks, or its size is not that of its shape.
    const auto last = shape.dims.empty() ? int64_t{1} : shape.dims.back();
    if (static_cast<uint64_t>(last) % dtype_info(type).block != 0 || elements > 4096) continue;
    std::string bytes(*dtype_bytes(type, elements), '\0');
    for (char& c : bytes) c = static_cast<char>(in.byte());
    source.add(suffix, type, std::move(shape), std::move(bytes));
  }
  std::vector<std::string> warnings;
  const auto facts = linear_facts(source, quant, "m", &warnings);
  check_message(facts.status());
  for (const std::string& warning : warnings) check_message(invalid_data(warning));
  if (facts.ok()) read_all_ways(source, *facts);
  return 0;
}
