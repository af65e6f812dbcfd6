// Reading untrusted JSON with limits. A thin view over simdjson's DOM, so that no other header needs it and every
// message names the document and the path of the value ("config.json: rope_scaling.factor: ...").
//
//   HB_ASSIGN(auto document, JsonDocument::parse(text, "config.json"));
//   HB_ASSIGN(JsonValue layers, document->root().at("num_hidden_layers"));
//   HB_ASSIGN(int64_t n, layers.as_int(1, 1000));
//
// JSON is written with nlohmann::ordered_json, in the .cpp files that write it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"

namespace halfbyte {

struct JsonLimits {
  size_t max_bytes = size_t{256} << 20;
  size_t max_depth = 64;
};

enum class JsonKind { kNull, kBool, kInt, kDouble, kString, kArray, kObject };

// Python writes NaN, Infinity and -Infinity into JSON, and published files hold them. The text with each of these words
// outside strings replaced: by a mark that JsonValue knows again, so that who wants a number or a text there is told what
// was found, or by null, which nobody misses.
enum class PythonNumbers { kMark, kNull };
std::string without_python_numbers(std::string_view json, PythonNumbers become = PythonNumbers::kMark);

class JsonDocument;

// One value of a document; two words, cheap to copy. Thread-safe (the document never changes). The JsonDocument must
// outlive it. A default-made value may only be assigned to.
class JsonValue {
 public:
  JsonKind kind() const;
  bool is_null() const { return kind() == JsonKind::kNull; }
  bool is_object() const { return kind() == JsonKind::kObject; }
  bool is_array() const { return kind() == JsonKind::kArray; }
  bool is_string() const { return kind() == JsonKind::kString; }
  // "NaN", "Infinity" or "-Infinity" where without_python_numbers() left its mark, which counts as a string but is none.
  std::optional<std::string_view> python_number() const;

  // "model.vocab[3]", or "" for the root. Looked up in the document on each call: for messages, not for loops.
  std::string path() const;

  // Typed reads: invalid_data that names document, path, kind expected and found.
  Result<bool> as_bool() const;
  Result<int64_t> as_int(int64_t min, int64_t max) const;  // also accepts a double without fraction
  Result<double> as_double() const;                        // also accepts an integer; always finite
  Result<std::string_view> as_string() const;              // lives as long as the document

  // Object: the member, or not there (also when this is no object). A null member counts as not there for find_set().
  // Linear in the number of members: walk members() to read many of a large object.
  std::optional<JsonValue> find(std::string_view key) const;
  std::optional<JsonValue> find_set(std::string_view key) const;
  Result<JsonValue> at(std::string_view key) const;
  // Members in file order. Duplicate keys are refused when the document is parsed.
  Result<std::vector<std::pair<std::string_view, JsonValue>>> members() const;
  // Elements in file order.
  Result<std::vector<JsonValue>> elements() const;

  // A failure about this value: "config.json: hidden_size: <text>".
  Status error(std::string text) const;

 private:
  friend class JsonDocument;
  JsonValue(const JsonDocument* document, size_t index) : document_(document), index_(index) {}
  Status wrong_kind(const char* expected) const;

  const JsonDocument* document_ = nullptr;
  size_t index_ = 0;  // on the document's tape

 public:
  JsonValue() = default;
};

// Thread-safe after parsing.
class JsonDocument {
 public:
  // `name` is what messages call the document, usually the file's name. Refuses, with line and column where there is
  // one: too large, too deep, broken JSON, invalid UTF-8, numbers beyond a double, duplicate keys in one object. An
  // integer that 64 bits cannot hold is read as a double (tokenizer configurations write 1e30 out in digits).
  // A byte order mark at the start is skipped. Memory: about 10 times the text, touched only as far as the text needs.
  static Result<std::unique_ptr<JsonDocument>> parse(std::string_view text, std::string name, JsonLimits limits = {});
  ~JsonDocument();

  JsonValue root() const;
  const std::string& name() const;

 private:
  friend class JsonValue;
  struct Impl;
  JsonDocument();
  std::unique_ptr<Impl> impl_;
};

}  // namespace halfbyte
