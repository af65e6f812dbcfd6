#include "io/safetensors.h"

#include <algorithm>
#include <optional>
#include <set>
#include <utility>

#include "base/checked.h"
#include "base/json.h"
#include "io/message.h"

namespace halfbyte {
namespace {

constexpr std::string_view kDamaged = "; the file is damaged or cut short: download or write it again";
constexpr int64_t kMaxRank = 8;

// Names as the format spells them; U16, U32, U64, F4 and others are known but have no use in a model here.
std::optional<DType> dtype_of(std::string_view name) {
  static constexpr std::pair<std::string_view, DType> kTypes[] = {
      {"F32", DType::kF32},        {"F16", DType::kF16},        {"BF16", DType::kBF16}, {"F64", DType::kF64},
      {"F8_E4M3", DType::kF8E4M3}, {"F8_E5M2", DType::kF8E5M2}, {"U8", DType::kU8},     {"F8_E8M0", DType::kU8},
      {"I8", DType::kI8},          {"I16", DType::kI16},        {"I32", DType::kI32},   {"I64", DType::kI64},
      {"BOOL", DType::kBool}};
  for (const auto& [text, type] : kTypes) {
    if (text == name) return type;
  }
  return std::nullopt;
}

Result<Shape> read_shape(const JsonValue& value) {
  HB_ASSIGN(const auto dims, value.elements());
  if (dims.size() > kMaxRank) {
    return value.error("has " + std::to_string(dims.size()) + " dimensions, expected at most " +
                       std::to_string(kMaxRank));
  }
  Shape shape;
  for (const JsonValue& dim : dims) {
    HB_ASSIGN(const int64_t size, dim.as_int(0, INT64_MAX));
    shape.dims.push_back(size);
  }
  return shape;
}

// One member of the header; offsets are relative to the data and not yet compared with the file.
Result<SafetensorsEntry> read_entry(std::string_view name, const JsonValue& value) {
  SafetensorsEntry entry;
  entry.name = std::string(name);
  HB_ASSIGN(const JsonValue dtype_value, value.at("dtype"));
  HB_ASSIGN(const std::string_view dtype, dtype_value.as_string());
  const auto type = dtype_of(dtype);
  if (!type) {
    return unsupported("tensor " + quote(name) + " has element type " + quote(dtype) +
                       ", which is not supported; supported: F32, F16, BF16, F64, F8_E4M3, F8_E5M2, F8_E8M0, U8, I8, "
                       "I16, I32, I64, BOOL");
  }
  entry.dtype = *type;
  HB_ASSIGN(const JsonValue shape_value, value.at("shape"));
  HB_ASSIGN(entry.shape, read_shape(shape_value));
  HB_ASSIGN(const JsonValue offsets_value, value.at("data_offsets"));
  HB_ASSIGN(const auto offsets, offsets_value.elements());
  if (offsets.size() != 2) {
    return offsets_value.error("has " + std::to_string(offsets.size()) + " numbers, expected [begin, end]");
  }
  HB_ASSIGN(const int64_t begin, offsets[0].as_int(0, INT64_MAX));
  HB_ASSIGN(const int64_t end, offsets[1].as_int(0, INT64_MAX));
  if (end < begin)
    return offsets_value.error("ends before it begins: [" + std::to_string(begin) + ", " + std::to_string(end) + "]");
  entry.begin = static_cast<uint64_t>(begin);
  entry.bytes = static_cast<uint64_t>(end - begin);

  const auto elements = entry.shape.elements();
  const auto bytes = elements ? dtype_bytes(entry.dtype, *elements) : std::nullopt;
  if (!bytes || *bytes != entry.bytes) {
    return invalid_data("tensor " + quote(name) + ": " + entry.shape.text() + " " + std::string(dtype) + " needs " +
                        (bytes ? std::to_string(*bytes) : std::string("more than 2^64")) +
                        " bytes, its data_offsets hold " + std::to_string(entry.bytes) + std::string(kDamaged));
  }
  return entry;
}

Result<std::string_view> header_text(std::span<const std::byte> file) {
  if (file.size() < 8) {
    return invalid_data("is " + std::to_string(file.size()) +
                        " bytes long, expected at least 10 of a safetensors file" + std::string(kDamaged));
  }
  uint64_t length = 0;
  for (int i = 7; i >= 0; --i) length = length << 8 | static_cast<uint64_t>(file[i]);
  const uint64_t most = std::min<uint64_t>(kMaxSafetensorsHeader, file.size() - 8);
  if (length < 2 || length > most) {
    const bool cut = length > most && length <= kMaxSafetensorsHeader;
    return invalid_data("gives its header " + std::to_string(length) +
                        " bytes (its first 8 bytes say so), expected 2 to " + std::to_string(most) + " in a file of " +
                        std::to_string(file.size()) + " bytes" +
                        std::string(cut ? kDamaged : "; this is not a safetensors file or it is damaged"));
  }
  const std::string_view text(reinterpret_cast<const char*>(file.data()) + 8, length);
  if (text.front() != '{') {
    return invalid_data("has a header that starts with " + quote(text.substr(0, 1)) +
                        ", expected '{'; this is not a safetensors file or it is damaged");
  }
  return text;
}

// Ranges start at 0, follow one another without gap or overlap, and end with the data.
Status check_layout(std::vector<SafetensorsEntry>& entries, uint64_t data_bytes) {
  std::sort(entries.begin(), entries.end(), [](const auto& a, const auto& b) {
    return std::tie(a.begin, a.bytes, a.name) < std::tie(b.begin, b.bytes, b.name);
  });
  uint64_t next = 0;
  for (const SafetensorsEntry& entry : entries) {
    if (entry.begin != next) {
      return invalid_data("tensor " + quote(entry.name) + " begins at byte " + std::to_string(entry.begin) +
                          " of the data, " + (entry.begin < next ? "inside the tensor before it" : "leaving a gap") +
                          "; expected " + std::to_string(next) + std::string(kDamaged));
    }
    const auto end = checked_add(entry.begin, entry.bytes);
    if (!end || *end > data_bytes) {
      return invalid_data("tensor " + quote(entry.name) + " ends " +
                          (end ? "at byte " + std::to_string(*end) : "beyond 2^64") +
                          " of the data, but the file holds " + std::to_string(data_bytes) + std::string(kDamaged));
    }
    next = *end;
  }
  if (next != data_bytes) {
    return invalid_data("has " + std::to_string(data_bytes) + " bytes of data, but its tensors end at " +
                        std::to_string(next) + std::string(kDamaged));
  }
  return {};
}

Status check_metadata(const JsonValue& value) {
  HB_ASSIGN(const auto members, value.members());
  for (const auto& [key, member] : members) HB_TRY(member.as_string().status());
  return {};
}

Result<std::vector<SafetensorsEntry>> parse_entries(std::span<const std::byte> file, const std::string& name) {
  HB_ASSIGN(const std::string_view text, header_text(file));
  JsonLimits limits;
  limits.max_bytes = kMaxSafetensorsHeader;
  limits.max_depth = 8;
  auto document = JsonDocument::parse(text, name, limits);
  if (!document.ok()) return document.status();
  HB_ASSIGN(const auto members, (*document)->root().members());
  std::vector<SafetensorsEntry> entries;
  for (const auto& [key, value] : members) {
    if (key == "__metadata__") {
      HB_TRY(check_metadata(value));
      continue;
    }
    HB_ASSIGN(SafetensorsEntry entry, read_entry(key, value));
    entries.push_back(std::move(entry));
  }
  const uint64_t data_begin = 8 + text.size();
  HB_TRY(check_layout(entries, file.size() - data_begin));
  for (SafetensorsEntry& entry : entries) entry.begin += data_begin;
  std::sort(entries.begin(), entries.end(), [](const auto& a, const auto& b) { return a.name < b.name; });
  return entries;
}

// A name that stays inside its folder whatever it holds.
bool is_plain_file_name(std::string_view name) {
  constexpr std::string_view kSuffix = ".safetensors";
  return name.size() > kSuffix.size() && name.size() <= 255 && name.ends_with(kSuffix) && name.front() != '.' &&
         std::all_of(name.begin(), name.end(), [](char c) { return c != '/' && c != '\\' && c != '\0'; });
}

}  // namespace

Result<std::vector<SafetensorsEntry>> parse_safetensors(std::span<const std::byte> file, const std::string& name) {
  auto entries = parse_entries(file, name);
  if (entries.ok()) return entries;
  Status status = entries.status();
  // Failures of the JSON reader name the document themselves.
  if (status.message().starts_with(name)) return status;
  return Status(status.code(), name + (status.message().starts_with("tensor ") ? ": " : " ") + status.message());
}

Result<SafetensorsIndex> parse_safetensors_index(std::string_view json, const std::string& name) {
  JsonLimits limits;
  limits.max_bytes = kMaxSafetensorsHeader;
  limits.max_depth = 8;
  auto document = JsonDocument::parse(json, name, limits);
  if (!document.ok()) return document.status();
  HB_ASSIGN(const JsonValue map, (*document)->root().at("weight_map"));
  HB_ASSIGN(const auto members, map.members());
  if (members.empty()) return map.error("lists no tensors");
  SafetensorsIndex index;
  std::set<std::string, std::less<>> files;
  for (const auto& [tensor, value] : members) {
    HB_ASSIGN(const std::string_view file, value.as_string());
    if (!is_plain_file_name(file)) {
      return value.error("names the file " + quote(file) +
                         ", expected a plain name that ends in .safetensors, without a folder");
    }
    index.file_of.emplace(tensor, file);
    files.emplace(file);
  }
  index.files.assign(files.begin(), files.end());
  return index;
}

}  // namespace halfbyte
