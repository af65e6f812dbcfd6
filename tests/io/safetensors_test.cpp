#include "io/safetensors.h"

#include <gtest/gtest.h>

#include "io/tensor_source.h"
#include "support/expect_status.h"
#include "support/safetensors_file.h"
#include "support/temp_folder.h"

namespace halfbyte {
namespace {

using testing::expect_failure;
using testing::raw_safetensors;
using testing::SafetensorsFile;
using testing::TempFolder;

Result<std::vector<SafetensorsEntry>> parse(const std::string& file) {
  return parse_safetensors(std::as_bytes(std::span(file.data(), file.size())), "m.safetensors");
}

void expect_refused(const std::string& file, std::initializer_list<std::string> parts) {
  expect_failure(parse(file), StatusCode::kInvalidData, parts);
}

TEST(Safetensors, ReadsEveryTypeAndRank) {
  SafetensorsFile file;
  file.add_zeros("b", "BF16", {2, 3})
      .add_zeros("scalar", "F32", {})
      .add_zeros("empty", "F16", {0, 4})
      .add_zeros("a", "F8_E4M3", {5});
  file.add_zeros("i", "I64", {2})
      .add_zeros("u", "U8", {1, 1, 2})
      .add_zeros("flag", "BOOL", {3})
      .add_zeros("d", "F64", {1});
  HB_ASSERT_OK(const auto entries, parse(file.str()));
  ASSERT_EQ(entries.size(), 8u);
  EXPECT_EQ(entries[0].name, "a");  // by name
  EXPECT_EQ(entries[0].dtype, DType::kF8E4M3);
  EXPECT_EQ(entries[1].name, "b");
  EXPECT_EQ(entries[1].shape, (Shape{{2, 3}}));
  EXPECT_EQ(entries[1].bytes, 12u);
  EXPECT_EQ(entries[3].name, "empty");
  EXPECT_EQ(entries[3].bytes, 0u);
  const std::string text = file.str();
  EXPECT_EQ(entries[1].begin, text.size() - (12 + 4 + 0 + 5 + 16 + 2 + 3 + 8));
}

TEST(Safetensors, AcceptsMetadataAndPadding) {
  EXPECT_TRUE(
      parse(raw_safetensors(
                R"({"__metadata__":{"format":"pt"},"x":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}   )", "z"))
          .ok());
  EXPECT_TRUE(parse(raw_safetensors("{}", "")).ok());
}

// serving.md section 10: header length bound.
TEST(Safetensors, HeaderLengthIsBounded) {
  expect_refused("", {"m.safetensors", "0 bytes", "at least 10", "damaged"});
  expect_refused("1234567", {"7 bytes"});
  expect_refused(raw_safetensors("{}", "", 3),
                 {"gives its header 3 bytes", "expected 2 to 2", "a file of 10 bytes", "download"});
  expect_refused(raw_safetensors("{}", "", 100'000'001), {"100000001", "expected 2 to 2", "a file of 10 bytes"});
  expect_refused(raw_safetensors("{}", "", UINT64_MAX), {"18446744073709551615", "expected 2 to 2"});
  expect_refused(raw_safetensors("{}", "", UINT64_MAX - 7), {"expected 2 to 2"});
  expect_refused(raw_safetensors("", "{}", 0), {"gives its header 0 bytes", "expected 2 to 2", "a file of 10 bytes"});
}

TEST(Safetensors, HeaderStartsWithBrace) {
  expect_refused(raw_safetensors(R"( {"x":1})", ""), {"m.safetensors", "starts with ' '", "expected '{'"});
  expect_refused(raw_safetensors("[]", ""), {"starts with '['"});
  expect_refused("GGUF" + std::string(20, '\0'), {"not a safetensors file"});
}

TEST(Safetensors, BrokenJson) {
  expect_refused(raw_safetensors(R"({"x":)", ""), {"m.safetensors"});
  expect_refused(raw_safetensors(R"({"x":1})", ""), {"m.safetensors", "x"});
  expect_refused(raw_safetensors(R"({"x":{"dtype":"U8","shape":[1]}})", "z"), {"m.safetensors", "x", "data_offsets"});
  expect_refused(raw_safetensors(R"({"x":{"dtype":"U8","data_offsets":[0,1]}})", "z"), {"x", "shape"});
  expect_refused(raw_safetensors(R"({"x":{"shape":[1],"data_offsets":[0,1]}})", "z"), {"x", "dtype"});
  expect_refused(raw_safetensors(R"({"x":{"dtype":"U8","shape":[1],"data_offsets":[0]}})", "z"),
                 {"x", "data_offsets", "[begin, end]"});
  expect_refused(raw_safetensors(R"({"x":{"dtype":"U8","shape":[-1],"data_offsets":[0,1]}})", "z"),
                 {"x", "shape", "-1"});
  expect_refused(raw_safetensors(R"({"x":{"dtype":"U8","shape":[1.5],"data_offsets":[0,1]}})", "z"), {"x", "shape"});
  expect_refused(raw_safetensors(R"({"x":{"dtype":"U8","shape":[1],"data_offsets":[1,0]}})", "z"),
                 {"x", "ends before it begins"});
  expect_refused(raw_safetensors(R"({"x":{"dtype":"U8","shape":[1,1,1,1,1,1,1,1,1],"data_offsets":[0,1]}})", "z"),
                 {"9 dimensions", "at most 8"});
  expect_refused(raw_safetensors(R"({"__metadata__":{"a":1}})", ""), {"__metadata__"});
  expect_refused(raw_safetensors(std::string("{\"a\xff\":1}"), ""), {"m.safetensors"});
}

TEST(Safetensors, DuplicateNames) {
  const std::string x = R"("x":{"dtype":"U8","shape":[1],"data_offsets":[)";
  expect_refused(raw_safetensors("{" + x + "0,1]}," + x + "1,2]}}", "zz"), {"m.safetensors", "x", "twice"});
}

TEST(Safetensors, UnknownType) {
  const auto file = raw_safetensors(R"({"x":{"dtype":"F4","shape":[2],"data_offsets":[0,1]}})", "z");
  expect_failure(parse(file), StatusCode::kUnsupported, {"m.safetensors", "'x'", "'F4'", "supported: F32"});
}

TEST(Safetensors, ShapeTimesTypeIsBytes) {
  expect_refused(raw_safetensors(R"({"x":{"dtype":"F32","shape":[2,2],"data_offsets":[0,15]}})", std::string(15, 'z')),
                 {"m.safetensors", "'x'", "[2, 2] F32 needs 16 bytes", "hold 15", "download"});
  // 2^32 * 2^32 * 4 overflows 64 bits to 0.
  expect_refused(raw_safetensors(R"({"x":{"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,0]}})", ""),
                 {"'x'", "more than 2^64"});
  // 2^62 * 4 = 2^64.
  expect_refused(raw_safetensors(R"({"x":{"dtype":"F32","shape":[4611686018427387904],"data_offsets":[0,0]}})", ""),
                 {"'x'", "more than 2^64"});
}

TEST(Safetensors, OffsetsStartAtZeroWithoutGapsOrOverlaps) {
  expect_refused(raw_safetensors(R"({"x":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}})", "zz"),
                 {"'x'", "begins at byte 1", "gap", "expected 0"});
  const std::string a = R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},)";
  expect_refused(raw_safetensors(a + R"("b":{"dtype":"U8","shape":[1],"data_offsets":[3,4]}})", "zzzz"),
                 {"'b'", "gap", "expected 2"});
  expect_refused(raw_safetensors(a + R"("b":{"dtype":"U8","shape":[2],"data_offsets":[1,3]}})", "zzz"),
                 {"'b'", "inside the tensor before it"});
  // An empty tensor inside another one overlaps it too.
  expect_refused(raw_safetensors(a + R"("b":{"dtype":"U8","shape":[0],"data_offsets":[1,1]}})", "zz"),
                 {"'b'", "inside"});
}

TEST(Safetensors, TensorsCoverTheBuffer) {
  const std::string header = R"({"x":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}})";
  EXPECT_TRUE(parse(raw_safetensors(header, "1234")).ok());
  expect_refused(raw_safetensors(header, "123"), {"'x'", "ends at byte 4", "the file holds 3", "cut short"});
  expect_refused(raw_safetensors(header, "12345"), {"5 bytes of data", "end at 4"});
  expect_refused(raw_safetensors("{}", "x"), {"1 bytes of data", "end at 0"});
}

TEST(Safetensors, NamesInMessagesArePrintable) {
  const auto status =
      parse(raw_safetensors(R"({"a\u001b[31m\n":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}})", "zz")).status();
  expect_failure(status, StatusCode::kInvalidData, {"m.safetensors"});
}

TEST(Safetensors, TruncatedAnywhereIsRefused) {
  const std::string whole = SafetensorsFile().add_f32("a", {3}, {1, 2, 3}).add_zeros("b", "BF16", {2, 2}).str();
  for (size_t n = 0; n < whole.size(); ++n) {
    const auto status = parse(whole.substr(0, n)).status();
    expect_failure(status, StatusCode::kInvalidData, {"m.safetensors"});
  }
  EXPECT_TRUE(parse(whole).ok());
}

TEST(SafetensorsIndex, Reads) {
  HB_ASSERT_OK(
      const auto index,
      parse_safetensors_index(
          R"({"metadata":{"total_size":3},"weight_map":{"b":"y.safetensors","a":"x.safetensors","c":"x.safetensors"}})",
          "i.json"));
  EXPECT_EQ(index.files, (std::vector<std::string>{"x.safetensors", "y.safetensors"}));
  EXPECT_EQ(index.file_of.at("b"), "y.safetensors");
}

TEST(SafetensorsIndex, RefusesBadOnes) {
  for (const char* name : {"../x.safetensors", "/etc/x.safetensors", "a/b.safetensors", "x.bin", ".safetensors",
                           ".x.safetensors", "..", "a\\\\b.safetensors"}) {
    const std::string json = R"({"weight_map":{"a":")" + std::string(name) + R"("}})";
    expect_failure(parse_safetensors_index(json, "i.json"), StatusCode::kInvalidData,
                   {"i.json", "weight_map", "plain name"});
  }
  expect_failure(parse_safetensors_index("{}", "i.json"), StatusCode::kInvalidData, {"i.json", "weight_map"});
  expect_failure(parse_safetensors_index(R"({"weight_map":{}})", "i.json"), StatusCode::kInvalidData,
                 {"lists no tensors"});
  expect_failure(parse_safetensors_index(R"({"weight_map":{"a":3}})", "i.json"), StatusCode::kInvalidData,
                 {"weight_map", "a"});
  expect_failure(parse_safetensors_index(R"({"weight_map":{"a":"x.safetensors","a":"y.safetensors"}})", "i.json"),
                 StatusCode::kInvalidData, {"twice"});
}

// Folders.

TEST(SafetensorsFolder, ReadsOneFile) {
  const TempFolder folder;
  folder.write("model.safetensors", SafetensorsFile()
                                        .add_f32("w", {2, 3}, {1, 2, 3, 4, 5, 6})
                                        .add("h", "BF16", {2}, std::string("\x80\x3f\x00\xc0", 4))
                                        .str());
  HB_ASSERT_OK(const auto source, open_tensor_source(folder.path()));
  EXPECT_EQ(source->describe(), "Hugging Face folder, 1 safetensors file");
  ASSERT_EQ(source->tensors().size(), 2u);
  EXPECT_EQ(source->find("none"), nullptr);
  const TensorInfo* w = source->find("w");
  ASSERT_NE(w, nullptr);
  std::vector<float> row(3);
  ASSERT_TRUE(source->read_rows(*w, 1, 1, row).ok());
  EXPECT_EQ(row, (std::vector<float>{4, 5, 6}));
  HB_ASSERT_OK(const auto half, read_all(*source, *source->find("h")));
  EXPECT_EQ(half, (std::vector<float>{1, -2}));
  HB_ASSERT_OK(const auto bytes, source->bytes(*w));
  EXPECT_EQ(bytes.size(), 24u);
  // Wrong ranges are refused, whatever they are.
  EXPECT_FALSE(source->read_rows(*w, 2, 1, row).ok());
  EXPECT_FALSE(source->read_rows(*w, -1, 1, row).ok());
  EXPECT_FALSE(source->read_rows(*w, 0, 2, row).ok());
  EXPECT_FALSE(source->read_rows(*w, INT64_MAX, INT64_MAX, row).ok());
}

TEST(SafetensorsFolder, OwnerKeepsBytesAlive) {
  const TempFolder folder;
  folder.write("model.safetensors", SafetensorsFile().add_f32("w", {1}, {7}).str());
  std::shared_ptr<const void> owner;
  std::span<const std::byte> bytes;
  {
    HB_ASSERT_OK(const auto source, open_tensor_source(folder.path()));
    owner = source->owner(*source->find("w"));
    bytes = *source->bytes(*source->find("w"));
  }
  float value;
  std::memcpy(&value, bytes.data(), 4);
  EXPECT_EQ(value, 7.0f);
}

std::string index_of(std::initializer_list<std::pair<const char*, const char*>> map) {
  std::string json = R"({"metadata":{},"weight_map":{)";
  bool first = true;
  for (const auto& [tensor, file] : map) {
    json += std::string(first ? "" : ",") + "\"" + tensor + "\":\"" + file + "\"";
    first = false;
  }
  return json + "}}";
}

TEST(SafetensorsFolder, ReadsShards) {
  const TempFolder folder;
  folder.write("model-00001-of-00002.safetensors",
               SafetensorsFile().add_f32("a", {1}, {1}).add_f32("c", {1}, {3}).str());
  folder.write("model-00002-of-00002.safetensors", SafetensorsFile().add_f32("b", {1}, {2}).str());
  folder.write("model.safetensors.index.json", index_of({{"a", "model-00001-of-00002.safetensors"},
                                                         {"b", "model-00002-of-00002.safetensors"},
                                                         {"c", "model-00001-of-00002.safetensors"}}));
  HB_ASSERT_OK(const auto source, open_tensor_source(folder.path()));
  EXPECT_EQ(source->describe(), "Hugging Face folder, 2 safetensors files");
  const std::vector<std::string> names = {"a", "b", "c"};
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(source->tensors()[i].name, names[i]);
    HB_ASSERT_OK(const auto values, read_all(*source, source->tensors()[i]));
    EXPECT_EQ(values.at(0), static_cast<float>(i + 1));
  }
  // The shard's path is in messages about its tensor.
  EXPECT_EQ(source->error(*source->find("b"), "x").message(),
            folder / "model-00002-of-00002.safetensors" + ": tensor 'b': x");
}

TEST(SafetensorsFolder, ShardsMustFitTheIndex) {
  const TempFolder folder;
  const std::string one = SafetensorsFile().add_f32("a", {1}, {1}).str();
  folder.write("x.safetensors", one);
  folder.write("model.safetensors.index.json", index_of({{"a", "x.safetensors"}, {"b", "gone.safetensors"}}));
  expect_failure(open_tensor_source(folder.path()), StatusCode::kNotFound,
                 {"1 of the 2 files", "gone.safetensors", "download"});

  folder.write("gone.safetensors", SafetensorsFile().add_f32("other", {1}, {1}).str());
  expect_failure(open_tensor_source(folder.path()), StatusCode::kInvalidData,
                 {"weight_map", "'b'", "'gone.safetensors'", "no such tensor"});

  folder.write("gone.safetensors", SafetensorsFile().add_f32("b", {1}, {1}).add_f32("a", {1}, {1}).str());
  expect_failure(open_tensor_source(folder.path()), StatusCode::kInvalidData,
                 {"x.safetensors", "'a'", "also in gone.safetensors"});

  folder.write("gone.safetensors", SafetensorsFile().add_f32("b", {1}, {1}).str());
  folder.write("model.safetensors.index.json", index_of({{"a", "gone.safetensors"}, {"b", "x.safetensors"}}));
  expect_failure(open_tensor_source(folder.path()), StatusCode::kInvalidData,
                 {"'a' is in 'gone.safetensors', but it is in 'x.safetensors'"});

  folder.write("gone.safetensors", one.substr(0, one.size() - 1));
  expect_failure(open_tensor_source(folder.path()), StatusCode::kInvalidData, {"gone.safetensors", "cut short"});
}

TEST(SafetensorsFolder, ReadRowsRefusesOtherTypesAndRanks) {
  const TempFolder folder;
  folder.write("model.safetensors", SafetensorsFile().add_zeros("i", "I32", {}).str());
  // I32 is 4 bytes; add_zeros writes 1: use a right one.
  folder.write("model.safetensors",
               SafetensorsFile().add("i", "I32", {1}, "1234").add_zeros("cube", "F32", {1, 1, 1}).str());
  HB_ASSERT_OK(const auto source, open_tensor_source(folder.path()));
  float value;
  expect_failure(source->read_rows(*source->find("i"), 0, 1, std::span(&value, 1)), StatusCode::kUnsupported,
                 {"model.safetensors", "'i'", "I32", "expected F32"});
  expect_failure(source->read_rows(*source->find("cube"), 0, 1, std::span(&value, 1)), StatusCode::kUnsupported,
                 {"'cube'", "[1, 1, 1]", "rank 1 or 2"});
}

}  // namespace
}  // namespace halfbyte
