#include "base/json.h"

#include <simdjson.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "base/json_scan.h"
#include "base/quote.h"
#include "base/size_text.h"

namespace halfbyte {
namespace {

using simdjson::internal::tape_ref;
using simdjson::internal::tape_type;

// Below this many keys, comparing all pairs beats sorting.
constexpr size_t kFewKeys = 8;

JsonKind kind_of(const tape_ref& ref) {
  switch (ref.tape_ref_type()) {
    case tape_type::START_OBJECT: return JsonKind::kObject;
    case tape_type::START_ARRAY: return JsonKind::kArray;
    case tape_type::STRING: return JsonKind::kString;
    case tape_type::INT64:
    case tape_type::UINT64: return JsonKind::kInt;
    case tape_type::DOUBLE: return JsonKind::kDouble;
    case tape_type::TRUE_VALUE:
    case tape_type::FALSE_VALUE: return JsonKind::kBool;
    default: return JsonKind::kNull;
  }
}

const char* kind_name(JsonKind kind) {
  switch (kind) {
    case JsonKind::kNull: return "null";
    case JsonKind::kBool: return "a boolean";
    case JsonKind::kInt: return "an integer";
    case JsonKind::kDouble: return "a number";
    case JsonKind::kString: return "a string";
    case JsonKind::kArray: return "an array";
    case JsonKind::kObject: return "an object";
  }
  return "nothing";
}

// Index of the brace or bracket that ends the container at `index`.
size_t end_of(const simdjson::dom::document& doc, size_t index) {
  return tape_ref(&doc, index).matching_brace_index() - 1;
}

// Plain names are joined by dots, others quoted: model.vocab["a b"].
void append_key(std::string& path, std::string_view key) {
  const auto plain = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-' ||
           c == '.';
  };
  if (!key.empty() && key.size() <= 200 && std::all_of(key.begin(), key.end(), plain)) {
    path += (path.empty() ? "" : ".") + std::string(key);
  } else {
    path += "[" + quote(key) + "]";
  }
}

// A key with its first eight bytes as a number, which decide most comparisons without a look at the text: vocabularies
// have more than 100,000 keys.
struct SortKey {
  uint64_t head = 0;
  std::string_view text;

  explicit SortKey(std::string_view key) : text(key) {
    for (size_t i = 0; i < 8; ++i) head = head << 8 | (i < key.size() ? static_cast<uint8_t>(key[i]) : 0);
  }
  bool operator<(const SortKey& other) const { return head != other.head ? head < other.head : text < other.text; }
};

// The first key that stands twice in the object at `index`, if any. Sorting, not hashing: no input makes it slow.
std::optional<std::string_view> duplicate_key(const simdjson::dom::document& doc, size_t index,
                                              std::vector<SortKey>& keys) {
  keys.clear();
  const size_t end = end_of(doc, index);
  for (size_t at = index + 1; at < end;) {
    keys.emplace_back(tape_ref(&doc, at).get_string_view());
    at = tape_ref(&doc, at + 1).after_element();
  }
  if (keys.size() <= kFewKeys) {
    for (size_t i = 1; i < keys.size(); ++i) {
      for (size_t j = 0; j < i; ++j) {
        if (keys[i].text == keys[j].text) return keys[i].text;
      }
    }
    return std::nullopt;
  }
  std::sort(keys.begin(), keys.end());
  const auto same = [](const SortKey& a, const SortKey& b) { return a.head == b.head && a.text == b.text; };
  const auto twin = std::adjacent_find(keys.begin(), keys.end(), same);
  if (twin == keys.end()) return std::nullopt;
  return twin->text;
}

// In a string behind a NUL, which nobody writes before one of them.
constexpr std::array<std::string_view, 3> kPythonNumbers{"NaN", "Infinity", "-Infinity"};

}  // namespace

std::string without_python_numbers(std::string_view json, PythonNumbers become) {
  const auto holds = [&](std::string_view word) { return json.find(word) != std::string_view::npos; };
  if (std::ranges::none_of(kPythonNumbers, holds)) return std::string(json);
  std::string out;
  out.reserve(json.size());
  bool in_string = false;
  for (size_t i = 0; i < json.size(); ++i) {
    const char c = json[i];
    if (in_string && c == '\\' && i + 1 < json.size()) {
      out += c;
      out += json[++i];
      continue;
    }
    if (c == '"') in_string = !in_string;
    const auto begins = [&](std::string_view word) { return json.substr(i).starts_with(word); };
    const auto* const word = in_string ? kPythonNumbers.end() : std::ranges::find_if(kPythonNumbers, begins);
    if (word == kPythonNumbers.end()) {
      out += c;
      continue;
    }
    if (become == PythonNumbers::kNull) out += "null";
    if (become == PythonNumbers::kMark) (out += "\"\\u0000").append(*word) += '"';
    i += word->size() - 1;
  }
  return out;
}

struct JsonDocument::Impl {
  std::string name;
  simdjson::dom::document doc;

  static constexpr size_t kRoot = 1;  // tape[0] is the root mark

  Status failure(const std::string& path, const std::string& text) const {
    return invalid_data(name + ": " + (path.empty() ? "" : path + ": ") + text);
  }

  // The path of the value at `target`: walks down from the root to the container that spans it.
  std::string path_of(size_t target) const {
    std::string path;
    size_t at = kRoot;
    while (at != target) {
      const JsonKind kind = kind_of(tape_ref(&doc, at));
      if (kind != JsonKind::kObject && kind != JsonKind::kArray) break;
      const size_t end = end_of(doc, at), key_words = kind == JsonKind::kObject ? 1 : 0;
      size_t child = at + 1, number = 0;
      for (size_t next; child < end; child = next, ++number) {
        next = tape_ref(&doc, child + key_words).after_element();
        if (target < next) break;
      }
      if (child >= end) break;
      if (kind == JsonKind::kObject) {
        append_key(path, tape_ref(&doc, child).get_string_view());
      } else {
        path += "[" + std::to_string(number) + "]";
      }
      at = child + key_words;
    }
    return path;
  }

  Status check_keys() const {
    std::vector<SortKey> keys;
    const size_t end = tape_ref(&doc, kRoot).after_element();
    // Every tape word that starts an object, in file order; numbers take a second word, which is no type.
    for (size_t at = kRoot; at < end;) {
      const tape_ref ref(&doc, at);
      const tape_type type = ref.tape_ref_type();
      if (type == tape_type::START_OBJECT) {
        if (const auto key = duplicate_key(doc, at, keys)) {
          return failure(path_of(at), "the key " + quote(*key) + " stands twice in one object");
        }
      }
      at += type == tape_type::INT64 || type == tape_type::UINT64 || type == tape_type::DOUBLE ? 2 : 1;
    }
    return {};
  }
};

JsonDocument::JsonDocument() : impl_(std::make_unique<Impl>()) {}
JsonDocument::~JsonDocument() = default;

Result<std::unique_ptr<JsonDocument>> JsonDocument::parse(std::string_view text, std::string name, JsonLimits limits) {
  std::unique_ptr<JsonDocument> document(new JsonDocument());
  Impl& d = *document->impl_;
  d.name = std::move(name);
  if (text.substr(0, 3) == "\xEF\xBB\xBF") text.remove_prefix(3);
  if (text.empty()) text = "";  // simdjson copies from where it points, be it of no length
  // 2^32 - 1 bytes is what simdjson can address.
  const size_t max_bytes = std::min<size_t>(limits.max_bytes, 0xFFFF0000u);
  if (text.size() > max_bytes) {
    return d.failure("", format_bytes(text.size()) + " of JSON, the limit is " + format_bytes(max_bytes));
  }
  std::string widened;  // the text with over-long integers made into doubles; rarely needed
  for (int attempt = 0;; ++attempt) {
    simdjson::dom::parser parser(max_bytes);
    auto error = parser.allocate(std::max<size_t>(text.size(), 1), limits.max_depth + 1);
    if (!error) error = parser.parse_into_document(d.doc, text.data(), text.size()).error();
    if (!error) break;
    if (error == simdjson::MEMALLOC) return resource_exhausted(d.name + ": not enough memory to read the JSON text");
    if (attempt == 0 && widen_big_integers(text, widened)) {
      text = widened;
      continue;
    }
    return d.failure("", describe_json_error(text, limits.max_depth, simdjson::error_message(error)));
  }
  HB_TRY(d.check_keys());
  return document;
}

JsonValue JsonDocument::root() const {
  return JsonValue(this, Impl::kRoot);
}
const std::string& JsonDocument::name() const {
  return impl_->name;
}

JsonKind JsonValue::kind() const {
  return kind_of(tape_ref(&document_->impl_->doc, index_));
}
std::string JsonValue::path() const {
  return document_->impl_->path_of(index_);
}
Status JsonValue::error(std::string text) const {
  return document_->impl_->failure(path(), text);
}

std::optional<std::string_view> JsonValue::python_number() const {
  if (kind() != JsonKind::kString) return std::nullopt;
  const std::string_view text = tape_ref(&document_->impl_->doc, index_).get_string_view();
  if (text.empty() || text.front() != '\0' || std::ranges::find(kPythonNumbers, text.substr(1)) == kPythonNumbers.end())
    return std::nullopt;
  return text.substr(1);
}

Status JsonValue::wrong_kind(const char* expected) const {
  return error("found " + std::string(python_number().value_or(kind_name(kind()))) + ", expected " + expected);
}

Result<bool> JsonValue::as_bool() const {
  if (kind() != JsonKind::kBool) return wrong_kind("a boolean");
  return tape_ref(&document_->impl_->doc, index_).is_true();
}

Result<int64_t> JsonValue::as_int(int64_t min, int64_t max) const {
  const tape_ref ref(&document_->impl_->doc, index_);
  const std::string range = "expected an integer from " + std::to_string(min) + " to " + std::to_string(max);
  if (kind() == JsonKind::kDouble) {
    const auto value = ref.next_tape_value<double>();
    // -2^63 is a double, 2^63 - 1 is not: the upper bound is exclusive.
    if (value != std::floor(value) || value < -0x1p63 || value >= 0x1p63)
      return error("found " + number_text(value) + ", " + range);
    const auto whole = static_cast<int64_t>(value);
    if (whole < min || whole > max) return error("found " + number_text(value) + ", " + range);
    return whole;
  }
  if (kind() != JsonKind::kInt) return wrong_kind("an integer");
  if (ref.is_uint64()) {
    const auto value = ref.next_tape_value<uint64_t>();
    if (max < 0 || value > static_cast<uint64_t>(max) || (min > 0 && value < static_cast<uint64_t>(min)))
      return error("found " + std::to_string(value) + ", " + range);
    return static_cast<int64_t>(value);
  }
  const auto value = ref.next_tape_value<int64_t>();
  if (value < min || value > max) return error("found " + std::to_string(value) + ", " + range);
  return value;
}

Result<double> JsonValue::as_double() const {
  const tape_ref ref(&document_->impl_->doc, index_);
  if (kind() == JsonKind::kDouble) return ref.next_tape_value<double>();
  if (kind() != JsonKind::kInt) return wrong_kind("a number");
  if (ref.is_uint64()) return static_cast<double>(ref.next_tape_value<uint64_t>());
  return static_cast<double>(ref.next_tape_value<int64_t>());
}

Result<std::string_view> JsonValue::as_string() const {
  if (kind() != JsonKind::kString || python_number()) return wrong_kind("a string");
  return tape_ref(&document_->impl_->doc, index_).get_string_view();
}

std::optional<JsonValue> JsonValue::find(std::string_view key) const {
  if (!is_object()) return std::nullopt;
  const simdjson::dom::document& doc = document_->impl_->doc;
  const size_t end = end_of(doc, index_);
  for (size_t at = index_ + 1; at < end; at = tape_ref(&doc, at + 1).after_element()) {
    if (tape_ref(&doc, at).get_string_view() == key) return JsonValue(document_, at + 1);
  }
  return std::nullopt;
}

std::optional<JsonValue> JsonValue::find_set(std::string_view key) const {
  std::optional<JsonValue> value = find(key);
  if (value && value->is_null()) return std::nullopt;
  return value;
}

Result<JsonValue> JsonValue::at(std::string_view key) const {
  if (!is_object()) return wrong_kind("an object");
  std::optional<JsonValue> value = find(key);
  if (!value) return error("the key " + quote(key) + " is missing");
  return *value;
}

Result<std::vector<std::pair<std::string_view, JsonValue>>> JsonValue::members() const {
  if (!is_object()) return wrong_kind("an object");
  const simdjson::dom::document& doc = document_->impl_->doc;
  std::vector<std::pair<std::string_view, JsonValue>> out;
  const size_t end = end_of(doc, index_);
  for (size_t at = index_ + 1; at < end; at = tape_ref(&doc, at + 1).after_element()) {
    out.emplace_back(tape_ref(&doc, at).get_string_view(), JsonValue(document_, at + 1));
  }
  return out;
}

Result<std::vector<JsonValue>> JsonValue::elements() const {
  if (!is_array()) return wrong_kind("an array");
  const simdjson::dom::document& doc = document_->impl_->doc;
  std::vector<JsonValue> out;
  const size_t end = end_of(doc, index_);
  for (size_t at = index_ + 1; at < end; at = tape_ref(&doc, at).after_element()) {
    out.push_back(JsonValue(document_, at));
  }
  return out;
}

}  // namespace halfbyte
