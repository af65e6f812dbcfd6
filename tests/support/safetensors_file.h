// Safetensors files for tests: right ones from typed tensors, wrong ones from a header as text.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

namespace halfbyte::testing {

// Length, header, data: whatever they are.
inline std::string raw_safetensors(const std::string& header, const std::string& data, uint64_t length) {
  std::string out(8, '\0');
  std::memcpy(out.data(), &length, 8);
  return out + header + data;
}
inline std::string raw_safetensors(const std::string& header, const std::string& data) {
  return raw_safetensors(header, data, header.size());
}

// The bytes of any values.
template <class T>
std::string bytes_of(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

class SafetensorsFile {
 public:
  SafetensorsFile& add(const std::string& name, const std::string& dtype, const std::vector<int64_t>& shape,
                       const std::string& bytes) {
    header_ += header_.empty() ? "{" : ",";
    header_ += "\"" + name + "\":{\"dtype\":\"" + dtype + "\",\"shape\":[";
    for (size_t i = 0; i < shape.size(); ++i) header_ += (i ? "," : "") + std::to_string(shape[i]);
    header_ += "],\"data_offsets\":[" + std::to_string(data_.size()) + "," +
               std::to_string(data_.size() + bytes.size()) + "]}";
    data_ += bytes;
    return *this;
  }
  SafetensorsFile& add_f32(const std::string& name, const std::vector<int64_t>& shape,
                           const std::vector<float>& values) {
    return add(name, "F32", shape, bytes_of(values));
  }
  // Zeros of the right size.
  SafetensorsFile& add_zeros(const std::string& name, const std::string& dtype, const std::vector<int64_t>& shape) {
    uint64_t bytes = dtype == "F32"                      ? 4
                     : dtype == "BF16" || dtype == "F16" ? 2
                     : dtype == "I64" || dtype == "F64"  ? 8
                                                         : 1;
    for (const int64_t size : shape) bytes *= static_cast<uint64_t>(size);
    return add(name, dtype, shape, std::string(bytes, '\0'));
  }
  std::string str() const { return raw_safetensors(header_.empty() ? "{}" : header_ + "}", data_); }

 private:
  std::string header_, data_;
};

}  // namespace halfbyte::testing
