#include "io/gguf.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <set>
#include <utility>

#include "base/checked.h"
#include "io/message.h"

namespace halfbyte {
namespace {

constexpr std::string_view kDamaged = "; the file is damaged or cut short: download or write it again";
constexpr uint64_t kMaxKeyBytes = 65535;   // the GGUF specification's limit
constexpr uint64_t kMaxTensorName = 1024;  // ggml allows 64
constexpr uint32_t kMaxRank = 4;

// Bytes of one element; 0 for types without a fixed size.
uint64_t element_bytes(GgufType type) {
  switch (type) {
    case GgufType::kU8:
    case GgufType::kI8:
    case GgufType::kBool: return 1;
    case GgufType::kU16:
    case GgufType::kI16: return 2;
    case GgufType::kU32:
    case GgufType::kI32:
    case GgufType::kF32: return 4;
    case GgufType::kU64:
    case GgufType::kI64:
    case GgufType::kF64: return 8;
    case GgufType::kString:
    case GgufType::kArray: return 0;
  }
  return 0;
}

const char* type_name(GgufType type) {
  static constexpr const char* kNames[] = {"uint8", "int8",   "uint16", "int16",  "uint32", "int32",  "float32",
                                           "bool",  "string", "array",  "uint64", "int64",  "float64"};
  return kNames[static_cast<uint32_t>(type)];
}

// ggml's tensor types by number; dtype is set for those that Halfbyte reads.
struct TensorTypeName {
  uint32_t id;
  const char* name;
  std::optional<DType> dtype;
};
constexpr TensorTypeName kTensorTypes[] = {{0, "F32", DType::kF32},
                                           {1, "F16", DType::kF16},
                                           {2, "Q4_0", DType::kQ4_0},
                                           {3, "Q4_1", DType::kQ4_1},
                                           {6, "Q5_0", DType::kQ5_0},
                                           {7, "Q5_1", DType::kQ5_1},
                                           {8, "Q8_0", DType::kQ8_0},
                                           {9, "Q8_1", {}},
                                           {10, "Q2_K", DType::kQ2K},
                                           {11, "Q3_K", DType::kQ3K},
                                           {12, "Q4_K", DType::kQ4K},
                                           {13, "Q5_K", DType::kQ5K},
                                           {14, "Q6_K", DType::kQ6K},
                                           {15, "Q8_K", {}},
                                           {16, "IQ2_XXS", {}},
                                           {17, "IQ2_XS", {}},
                                           {18, "IQ3_XXS", {}},
                                           {19, "IQ1_S", {}},
                                           {20, "IQ4_NL", DType::kIQ4NL},
                                           {21, "IQ3_S", {}},
                                           {22, "IQ2_S", {}},
                                           {23, "IQ4_XS", DType::kIQ4XS},
                                           {24, "I8", {}},
                                           {25, "I16", {}},
                                           {26, "I32", {}},
                                           {27, "I64", {}},
                                           {28, "F64", {}},
                                           {29, "IQ1_M", {}},
                                           {30, "BF16", DType::kBF16},
                                           {34, "TQ1_0", {}},
                                           {35, "TQ2_0", {}},
                                           {39, "MXFP4", DType::kGgufMXFP4},
                                           {40, "NVFP4", DType::kGgufNVFP4}};

uint64_t little_endian(std::span<const std::byte> bytes) {
  uint64_t value = 0;
  for (size_t i = bytes.size(); i-- > 0;) value = value << 8 | static_cast<uint64_t>(bytes[i]);
  return value;
}

// A signed or unsigned integer element; nothing if it exceeds int64.
std::optional<int64_t> integer_of(GgufType type, std::span<const std::byte> bytes) {
  const uint64_t raw = little_endian(bytes);
  switch (type) {
    case GgufType::kU8:
    case GgufType::kU16:
    case GgufType::kU32:
    case GgufType::kU64: return checked_cast<int64_t>(raw);
    case GgufType::kI8: return static_cast<int8_t>(raw);
    case GgufType::kI16: return static_cast<int16_t>(raw);
    case GgufType::kI32: return static_cast<int32_t>(raw);
    case GgufType::kI64: return std::bit_cast<int64_t>(raw);
    default: return std::nullopt;
  }
}

bool is_integer(GgufType type) {
  return type != GgufType::kF32 && type != GgufType::kF64 && type != GgufType::kBool && element_bytes(type) != 0;
}

}  // namespace

// Reads forward through the file. Failures carry the text after "name: ".
class GgufParser {
 public:
  GgufParser(std::span<const std::byte> file, GgufFile& out) : file_(file), out_(out) {}

  Status run() {
    HB_TRY(read_header());
    for (uint64_t i = 0; i < key_count_; ++i) HB_TRY(read_key());
    HB_TRY(read_alignment());
    for (uint64_t i = 0; i < tensor_count_; ++i) HB_TRY(read_tensor_info());
    return place_tensors();
  }

 private:
  Status fail(const std::string& text) const { return invalid_data(out_.name_ + ": " + text); }
  uint64_t left() const { return file_.size() - at_; }

  Result<std::span<const std::byte>> take(uint64_t bytes, const char* what) {
    if (bytes > left()) {
      return fail(std::string(what) + " at byte " + std::to_string(at_) + " needs " + std::to_string(bytes) +
                  " bytes, but only " + std::to_string(left()) + " are left" + std::string(kDamaged));
    }
    const auto span = file_.subspan(at_, bytes);
    at_ += bytes;
    return span;
  }
  Result<uint32_t> take_u32(const char* what) {
    HB_ASSIGN(const auto bytes, take(4, what));
    return static_cast<uint32_t>(little_endian(bytes));
  }
  Result<uint64_t> take_u64(const char* what) {
    HB_ASSIGN(const auto bytes, take(8, what));
    return little_endian(bytes);
  }
  Result<std::string_view> take_string(uint64_t max, const char* what) {
    HB_ASSIGN(const uint64_t length, take_u64(what));
    if (length > max) {
      return fail(std::string(what) + " at byte " + std::to_string(at_ - 8) + " says it is " + std::to_string(length) +
                  " bytes long, the limit is " + std::to_string(max) + std::string(kDamaged));
    }
    HB_ASSIGN(const auto bytes, take(length, what));
    return std::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  }

  Status read_header();
  Status read_key();
  Result<GgufValue> read_value(std::string_view key);
  Status read_array(std::string_view key, GgufValue& value);
  Status read_alignment();
  Status read_tensor_info();
  Status place_tensors();

  std::span<const std::byte> file_;
  GgufFile& out_;
  uint64_t at_ = 0;
  uint64_t key_count_ = 0;
  uint64_t tensor_count_ = 0;
  uint64_t alignment_ = 32;
  std::set<std::string, std::less<>> tensor_names_;
};

Status GgufParser::read_header() {
  HB_ASSIGN(const auto magic, take(4, "the magic number"));
  if (std::memcmp(magic.data(), "GGUF", 4) != 0) {
    return fail("starts with " + quote({reinterpret_cast<const char*>(magic.data()), 4}) +
                ", expected 'GGUF'; this is not a GGUF file");
  }
  HB_ASSIGN(out_.version_, take_u32("the version"));
  if (out_.version_ == 0x02000000 || out_.version_ == 0x03000000) {
    return unsupported(
        out_.name_ +
        ": is a big-endian GGUF file, expected little-endian; convert it with gguf-py's gguf-convert-endian");
  }
  if (out_.version_ != 2 && out_.version_ != 3) {
    return unsupported(out_.name_ + ": has GGUF version " + std::to_string(out_.version_) +
                       ", supported: 2 and 3; convert the model again");
  }
  HB_ASSIGN(tensor_count_, take_u64("the tensor count"));
  HB_ASSIGN(key_count_, take_u64("the metadata count"));
  // Smallest possible entries: a key of no letters with a one-byte value; a tensor without name and dimensions.
  constexpr uint64_t kMinKey = 8 + 4 + 1, kMinTensor = 8 + 4 + 4 + 8;
  if (key_count_ > left() / kMinKey || tensor_count_ > left() / kMinTensor) {
    return fail("says it has " + std::to_string(tensor_count_) + " tensors and " + std::to_string(key_count_) +
                " metadata keys, more than its " + std::to_string(file_.size()) + " bytes can hold" +
                std::string(kDamaged));
  }
  return {};
}

Status GgufParser::read_key() {
  HB_ASSIGN(const std::string_view key, take_string(kMaxKeyBytes, "a metadata key"));
  HB_ASSIGN(const GgufValue value, read_value(key));
  if (!out_.metadata_.emplace(key, value).second) return fail("metadata key " + quote(key) + " appears twice");
  return {};
}

Result<GgufValue> GgufParser::read_value(std::string_view key) {
  HB_ASSIGN(const uint32_t type, take_u32("a metadata type"));
  if (type > static_cast<uint32_t>(GgufType::kF64)) {
    return fail("metadata key " + quote(key) + " has the unknown type " + std::to_string(type) + std::string(kDamaged));
  }
  GgufValue value;
  value.type = static_cast<GgufType>(type);
  if (value.type == GgufType::kArray) {
    HB_TRY(read_array(key, value));
  } else if (value.type == GgufType::kString) {
    HB_ASSIGN(const std::string_view text, take_string(UINT64_MAX, "a metadata string"));
    value.bytes = std::as_bytes(std::span(text.data(), text.size()));
  } else {
    HB_ASSIGN(value.bytes, take(element_bytes(value.type), "a metadata value"));
    if (value.type == GgufType::kBool && static_cast<uint8_t>(value.bytes[0]) > 1) {
      return fail("metadata key " + quote(key) + " is a bool with the byte " +
                  std::to_string(static_cast<int>(value.bytes[0])) + ", expected 0 or 1" + std::string(kDamaged));
    }
  }
  return value;
}

Status GgufParser::read_array(std::string_view key, GgufValue& value) {
  HB_ASSIGN(const uint32_t type, take_u32("an array's type"));
  if (type > static_cast<uint32_t>(GgufType::kF64) || type == static_cast<uint32_t>(GgufType::kArray)) {
    return fail("metadata key " + quote(key) + " is an array of type " + std::to_string(type) +
                ", expected numbers, bools or strings");
  }
  value.type = static_cast<GgufType>(type);
  value.array = true;
  HB_ASSIGN(value.count, take_u64("an array's length"));
  if (value.type != GgufType::kString) {
    const auto bytes = checked_mul(value.count, element_bytes(value.type));
    if (!bytes || *bytes > left()) {
      return fail("metadata key " + quote(key) + " is an array of " + std::to_string(value.count) + " " +
                  type_name(value.type) + ", more than the " + std::to_string(left()) + " bytes left" +
                  std::string(kDamaged));
    }
    HB_ASSIGN(value.bytes, take(*bytes, "an array"));
    return {};
  }
  if (value.count > left() / 8) {
    return fail("metadata key " + quote(key) + " is an array of " + std::to_string(value.count) +
                " strings, more than the " + std::to_string(left()) + " bytes left can hold" + std::string(kDamaged));
  }
  const uint64_t begin = at_;
  for (uint64_t i = 0; i < value.count; ++i) HB_TRY(take_string(UINT64_MAX, "a string of a metadata array").status());
  value.bytes = file_.subspan(begin, at_ - begin);
  return {};
}

Status GgufParser::read_alignment() {
  HB_ASSIGN(const auto alignment, out_.integer("general.alignment", 1, 1 << 20));
  if (!alignment) return {};
  if (!std::has_single_bit(static_cast<uint64_t>(*alignment))) {
    return out_.error("general.alignment", "is " + std::to_string(*alignment) + ", expected a power of two");
  }
  alignment_ = static_cast<uint64_t>(*alignment);
  return {};
}

Status GgufParser::read_tensor_info() {
  HB_ASSIGN(const std::string_view name, take_string(kMaxTensorName, "a tensor's name"));
  if (!tensor_names_.emplace(name).second) return fail("tensor " + quote(name) + " appears twice");
  const auto broken = [&](const std::string& text) { return fail("tensor " + quote(name) + ": " + text); };
  HB_ASSIGN(const uint32_t rank, take_u32("a tensor's rank"));
  if (rank > kMaxRank)
    return broken("has " + std::to_string(rank) + " dimensions, expected at most 4" + std::string(kDamaged));
  GgufTensor tensor;
  tensor.name = std::string(name);
  for (uint32_t i = 0; i < rank; ++i) {
    HB_ASSIGN(const uint64_t raw, take_u64("a tensor's dimension"));
    const auto size = checked_cast<int64_t>(raw);
    if (!size || *size == 0) return broken("has a dimension of " + std::to_string(raw) + std::string(kDamaged));
    tensor.shape.dims.insert(tensor.shape.dims.begin(), *size);
  }
  HB_ASSIGN(const uint32_t type, take_u32("a tensor's type"));
  HB_ASSIGN(tensor.begin, take_u64("a tensor's offset"));
  const auto* known =
      std::find_if(std::begin(kTensorTypes), std::end(kTensorTypes), [&](const auto& t) { return t.id == type; });
  if (known == std::end(kTensorTypes))
    return broken("has the unknown element type " + std::to_string(type) + std::string(kDamaged));
  if (!known->dtype) {
    return unsupported(out_.name_ + ": tensor " + quote(name) + " has element type " + known->name +
                       ", which is not supported yet; supported: F32, F16, BF16, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, "
                       "Q2_K to Q6_K, IQ4_NL, IQ4_XS, MXFP4, NVFP4; use a file of the model in one of these");
  }
  tensor.dtype = *known->dtype;
  const auto elements = tensor.shape.elements();
  const auto bytes = elements ? dtype_bytes(tensor.dtype, *elements) : std::nullopt;
  const uint32_t block = dtype_info(tensor.dtype).block;
  const int64_t row = rank == 0 ? 1 : tensor.shape.dims.back();
  if (!bytes || row % block != 0) {
    return broken("has shape " + tensor.shape.text() + ", which " +
                  (bytes ? "has no whole " + std::to_string(block) + "-element blocks in its rows"
                         : std::string("is too large or no whole number of blocks")) +
                  std::string(kDamaged));
  }
  tensor.bytes = *bytes;
  out_.tensors_.push_back(std::move(tensor));
  return {};
}

Status GgufParser::place_tensors() {
  if (out_.tensors_.empty()) return {};  // a file of a vocabulary only may end right after its metadata
  const auto padded = checked_add(at_, alignment_ - 1);
  const uint64_t data_begin = padded ? *padded / alignment_ * alignment_ : UINT64_MAX;
  std::vector<const GgufTensor*> by_offset;
  for (GgufTensor& tensor : out_.tensors_) {
    const uint64_t offset = tensor.begin;
    const auto begin = checked_add(data_begin, offset);
    const auto end = begin ? checked_add(*begin, tensor.bytes) : std::nullopt;
    if (offset % alignment_ != 0) {
      return fail("tensor " + quote(tensor.name) + ": its offset " + std::to_string(offset) +
                  " is no multiple of the alignment " + std::to_string(alignment_) + std::string(kDamaged));
    }
    if (!end || *end > file_.size()) {
      return fail("tensor " + quote(tensor.name) + ": its " + std::to_string(tensor.bytes) + " bytes at offset " +
                  std::to_string(offset) + " reach beyond the file of " + std::to_string(file_.size()) + " bytes" +
                  std::string(kDamaged));
    }
    tensor.begin = *begin;
    by_offset.push_back(&tensor);
  }
  std::sort(by_offset.begin(), by_offset.end(), [](const auto* a, const auto* b) { return a->begin < b->begin; });
  for (size_t i = 1; i < by_offset.size(); ++i) {
    const GgufTensor& before = *by_offset[i - 1];
    if (before.begin + before.bytes > by_offset[i]->begin) {
      return fail("tensors " + quote(before.name) + " and " + quote(by_offset[i]->name) + " overlap" +
                  std::string(kDamaged));
    }
  }
  return {};
}

Result<GgufFile> GgufFile::parse(std::span<const std::byte> file, const std::string& name) {
  GgufFile out;
  out.name_ = name;
  GgufParser parser(file, out);
  HB_TRY(parser.run());
  return out;
}

const GgufValue* GgufFile::find(std::string_view key) const {
  const auto it = metadata_.find(key);
  return it == metadata_.end() ? nullptr : &it->second;
}

Status GgufFile::error(std::string_view key, const std::string& text) const {
  return invalid_data(name_ + ": metadata key " + quote(key) + ": " + text);
}

Result<std::optional<int64_t>> GgufFile::integer(std::string_view key, int64_t min, int64_t max) const {
  const GgufValue* value = find(key);
  if (value == nullptr) return std::optional<int64_t>();
  if (value->array || !is_integer(value->type)) {
    return error(key,
                 std::string("is ") + (value->array ? "an array" : type_name(value->type)) + ", expected an integer");
  }
  const auto number = integer_of(value->type, value->bytes);
  if (!number || *number < min || *number > max) {
    return error(key, "is " + (number ? std::to_string(*number) : std::to_string(little_endian(value->bytes))) +
                          ", expected " + std::to_string(min) + " to " + std::to_string(max));
  }
  return number;
}

Result<std::optional<double>> GgufFile::number(std::string_view key) const {
  const GgufValue* value = find(key);
  if (value == nullptr) return std::optional<double>();
  double number = 0;
  if (!value->array && value->type == GgufType::kF32) {
    number = std::bit_cast<float>(static_cast<uint32_t>(little_endian(value->bytes)));
  } else if (!value->array && value->type == GgufType::kF64) {
    number = std::bit_cast<double>(little_endian(value->bytes));
  } else if (value->array || !is_integer(value->type)) {
    return error(key,
                 std::string("is ") + (value->array ? "an array" : type_name(value->type)) + ", expected a number");
  } else {
    HB_ASSIGN(const auto whole, integer(key, INT64_MIN, INT64_MAX));
    number = static_cast<double>(*whole);
  }
  if (!std::isfinite(number)) return error(key, "is not finite");
  return std::optional<double>(number);
}

Result<std::optional<bool>> GgufFile::boolean(std::string_view key) const {
  const GgufValue* value = find(key);
  if (value == nullptr) return std::optional<bool>();
  if (value->array || value->type != GgufType::kBool) {
    return error(key, std::string("is ") + (value->array ? "an array" : type_name(value->type)) + ", expected bool");
  }
  return std::optional<bool>(value->bytes[0] != std::byte{0});
}

Result<std::optional<std::string_view>> GgufFile::string(std::string_view key) const {
  const GgufValue* value = find(key);
  if (value == nullptr) return std::optional<std::string_view>();
  if (value->array || value->type != GgufType::kString) {
    return error(key,
                 std::string("is ") + (value->array ? "an array" : type_name(value->type)) + ", expected a string");
  }
  return std::optional<std::string_view>({reinterpret_cast<const char*>(value->bytes.data()), value->bytes.size()});
}

Result<std::vector<std::string_view>> GgufFile::strings(std::string_view key) const {
  std::vector<std::string_view> out;
  const GgufValue* value = find(key);
  if (value == nullptr) return out;
  if (!value->array || value->type != GgufType::kString) {
    return error(key, std::string("is ") + (value->array ? "an array of " : "") + type_name(value->type) +
                          ", expected an array of strings");
  }
  out.reserve(value->count);  // the parser has seen each of them
  std::span<const std::byte> rest = value->bytes;
  for (uint64_t i = 0; i < value->count; ++i) {
    const uint64_t length = little_endian(rest.first(8));
    out.emplace_back(reinterpret_cast<const char*>(rest.data()) + 8, length);
    rest = rest.subspan(8 + length);
  }
  return out;
}

Result<std::vector<int64_t>> GgufFile::integers(std::string_view key) const {
  std::vector<int64_t> out;
  const GgufValue* value = find(key);
  if (value == nullptr) return out;
  if (!is_integer(value->type))
    return error(key, std::string("holds ") + type_name(value->type) + ", expected integers");
  const uint64_t size = element_bytes(value->type);
  out.reserve(value->count);
  for (uint64_t i = 0; i < value->count; ++i) {
    const auto number = integer_of(value->type, value->bytes.subspan(i * size, size));
    if (!number) return error(key, "holds a number above 2^63");
    out.push_back(*number);
  }
  return out;
}

Result<std::vector<float>> GgufFile::floats(std::string_view key) const {
  std::vector<float> out;
  const GgufValue* value = find(key);
  if (value == nullptr) return out;
  if (value->type != GgufType::kF32)
    return error(key, std::string("holds ") + type_name(value->type) + ", expected float32");
  out.reserve(value->count);
  for (uint64_t i = 0; i < value->count; ++i)
    out.push_back(std::bit_cast<float>(static_cast<uint32_t>(little_endian(value->bytes.subspan(i * 4, 4)))));
  return out;
}

}  // namespace halfbyte
