// Reads the golden vectors tests/golden/*.hbg (format: tests/golden/README.md). For tests only: bad files and wrong
// names throw std::runtime_error with a sentence, which GoogleTest reports as the test's failure.
#pragma once

#include <cstdint>
#include <cstring>
#include <fstream>
#include <iterator>
#include <map>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace halfbyte::testing {

class GoldenFile {
 public:
  // `path` as it is; open_topic("linear") reads tests/golden/linear.hbg of this source tree.
  explicit GoldenFile(std::string path) : path_(std::move(path)) {
    std::ifstream in(path_, std::ios::binary);
    if (!in) throw std::runtime_error(path_ + ": cannot open; expected a golden file (see tests/golden/README.md)");
    bytes_.assign(std::istreambuf_iterator<char>(in), {});
    parse();
  }
#ifdef HALFBYTE_SOURCE_DIR
  static GoldenFile open_topic(const std::string& topic) {
    return GoldenFile(std::string(HALFBYTE_SOURCE_DIR) + "/tests/golden/" + topic + ".hbg");
  }
#endif

  bool has(const std::string& name) const {
    return entries_.count(name) != 0;
  }

  // The array's dimensions; empty for a scalar.
  const std::vector<int64_t>& dims(const std::string& name) const {
    return find(name).dims;
  }

  // All elements in row-major order. T must be the stored type.
  template <class T>
  std::vector<T> get(const std::string& name) const {
    const Entry& e = find(name);
    if (e.tag != tag_of<T>()) {
      throw std::runtime_error(path_ + ": '" + name + "' holds " + tag_name(e.tag) + ", asked for " +
                               tag_name(tag_of<T>()));
    }
    std::vector<T> out(e.size / sizeof(T));
    if (e.size != 0) std::memcpy(out.data(), bytes_.data() + e.offset, e.size);
    return out;
  }

  template <class T>
  T scalar(const std::string& name) const {
    const std::vector<T> all = get<T>(name);
    if (all.size() != 1) {
      throw std::runtime_error(path_ + ": '" + name + "' has " + std::to_string(all.size()) + " elements, expected 1");
    }
    return all[0];
  }

  std::string text(const std::string& name) const {
    const Entry& e = find(name);
    if (e.tag != kText)
      throw std::runtime_error(path_ + ": '" + name + "' holds " + tag_name(e.tag) + ", asked for text");
    return bytes_.substr(e.offset, e.size);
  }

  // The next path components below `prefix`, in file order: children("") may be {"k1", "k15"}, children("k1") {"x",
  // "nvfp4"}.
  std::vector<std::string> children(const std::string& prefix) const {
    const std::string start = prefix.empty() ? "" : prefix + "/";
    std::vector<std::string> out;
    for (const std::string& name : order_) {
      if (name.compare(0, start.size(), start) != 0) continue;
      std::string part = name.substr(start.size(), name.find('/', start.size()) - start.size());
      bool seen = false;
      for (const std::string& known : out) seen = seen || known == part;
      if (!seen) out.push_back(std::move(part));
    }
    if (out.empty()) throw std::runtime_error(path_ + ": no array below '" + prefix + "'");
    return out;
  }

  const std::vector<std::string>& names() const {
    return order_;
  }
  const std::string& path() const {
    return path_;
  }

 private:
  static constexpr uint8_t kText = 11;
  struct Entry {
    uint8_t tag = 0;
    std::vector<int64_t> dims;
    size_t offset = 0;
    size_t size = 0;  // bytes
  };

  template <class T>
  static constexpr uint8_t tag_of() {
    if constexpr (std::is_same_v<T, uint8_t>)
      return 1;
    else if constexpr (std::is_same_v<T, int8_t>)
      return 2;
    else if constexpr (std::is_same_v<T, uint16_t>)
      return 3;
    else if constexpr (std::is_same_v<T, int16_t>)
      return 4;
    else if constexpr (std::is_same_v<T, uint32_t>)
      return 5;
    else if constexpr (std::is_same_v<T, int32_t>)
      return 6;
    else if constexpr (std::is_same_v<T, uint64_t>)
      return 7;
    else if constexpr (std::is_same_v<T, int64_t>)
      return 8;
    else if constexpr (std::is_same_v<T, float>)
      return 9;
    else {
      static_assert(std::is_same_v<T, double>, "golden files hold (u)int8..64, float and double");
      return 10;
    }
  }
  static std::string tag_name(uint8_t tag) {
    static const char* const kNames[] = {"?",     "uint8",  "int8",  "uint16", "int16",  "uint32",
                                         "int32", "uint64", "int64", "float",  "double", "text"};
    return tag <= kText ? kNames[tag] : "dtype " + std::to_string(tag);
  }
  static size_t tag_size(uint8_t tag) {
    static constexpr size_t kSizes[] = {0, 1, 1, 2, 2, 4, 4, 8, 8, 4, 8, 1};
    return tag <= kText ? kSizes[tag] : 0;
  }

  template <class T>
  T take(size_t& at) const {
    if (bytes_.size() - at < sizeof(T)) throw std::runtime_error(path_ + ": ends inside an array's header");
    T value;
    std::memcpy(&value, bytes_.data() + at, sizeof(T));
    at += sizeof(T);
    return value;
  }

  void parse() {
    if (bytes_.compare(0, 4, "HBG1") != 0) throw std::runtime_error(path_ + ": does not begin with HBG1");
    size_t at = 4;
    const auto count = take<uint32_t>(at);
    for (uint32_t i = 0; i < count; ++i) {
      const size_t name_bytes = take<uint16_t>(at);
      if (bytes_.size() - at < name_bytes) throw std::runtime_error(path_ + ": ends inside an array's name");
      const std::string name = bytes_.substr(at, name_bytes);
      at += name_bytes;
      Entry e;
      e.tag = take<uint8_t>(at);
      if (tag_size(e.tag) == 0) throw std::runtime_error(path_ + ": '" + name + "' has unknown " + tag_name(e.tag));
      e.size = tag_size(e.tag);
      const int rank = take<uint8_t>(at);
      for (int r = 0; r < rank; ++r) {
        const auto dim = take<uint64_t>(at);
        if (dim > bytes_.size())
          throw std::runtime_error(path_ + ": '" + name + "' has a dimension beyond the file's size");
        e.dims.push_back(static_cast<int64_t>(dim));
        e.size *= dim;
        if (e.size > bytes_.size()) break;
      }
      if (bytes_.size() - at < e.size) throw std::runtime_error(path_ + ": ends inside the data of '" + name + "'");
      e.offset = at;
      at += e.size;
      order_.push_back(name);
      if (!entries_.emplace(name, std::move(e)).second) throw std::runtime_error(path_ + ": '" + name + "' twice");
    }
    if (at != bytes_.size()) throw std::runtime_error(path_ + ": bytes behind the last array");
  }

  const Entry& find(const std::string& name) const {
    const auto it = entries_.find(name);
    if (it != entries_.end()) return it->second;
    throw std::runtime_error(path_ + ": no array '" + name +
                             "'; write the files again with python -m halfbyte_reference.golden");
  }

  std::string path_;
  std::string bytes_;
  std::vector<std::string> order_;
  std::map<std::string, Entry> entries_;
};

}  // namespace halfbyte::testing
