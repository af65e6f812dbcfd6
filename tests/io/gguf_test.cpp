// The GGUF container: what is read, and every way of being wrong.
#include "io/gguf.h"

#include <gtest/gtest.h>

#include <limits>

#include "support/expect_status.h"
#include "support/gguf_file.h"

namespace halfbyte {
namespace {

using testing::expect_failure;
using testing::gguf_string;
using testing::GgufBuilder;
using testing::little;

Result<GgufFile> parse(const std::string& file) {
  // Exactly sized, so that a sanitizer sees a read past the end.
  static std::vector<std::byte> bytes;
  bytes.assign(reinterpret_cast<const std::byte*>(file.data()),
               reinterpret_cast<const std::byte*>(file.data()) + file.size());
  bytes.shrink_to_fit();
  return GgufFile::parse(bytes, "m.gguf");
}

void expect_refused(const std::string& file, std::initializer_list<std::string> parts) {
  expect_failure(parse(file), StatusCode::kInvalidData, parts);
}

TEST(Gguf, ReadsTypedMetadata) {
  for (const uint32_t version : {2u, 3u}) {
    GgufBuilder file;
    file.version = version;
    file.u32("u32", 7)
        .i32("i32", -7)
        .f32("f32", 0.5f)
        .boolean("yes", true)
        .text("text", "h\xc3\xa4")
        .texts("list", {"a", "", "c"})
        .i32s("ids", {3, -1});
    file.raw_key("u8", 0, "\xff")
        .raw_key("i8", 1, "\xff")
        .raw_key("u16", 2, little<uint16_t>(65535))
        .raw_key("i16", 3, little<int16_t>(-2));
    file.raw_key("u64", 10, little<uint64_t>(5))
        .raw_key("i64", 11, little<int64_t>(INT64_MIN))
        .raw_key("f64", 12, little(0.25));
    HB_ASSERT_OK(const GgufFile gguf, parse(file.str()));
    EXPECT_EQ(gguf.version(), version);
    EXPECT_EQ(*gguf.integer("u32", 0, 10), 7);
    EXPECT_EQ(*gguf.integer("i32", -10, 10), -7);
    EXPECT_EQ(*gguf.integer("u8", 0, 255), 255);
    EXPECT_EQ(*gguf.integer("i8", -1, 255), -1);
    EXPECT_EQ(*gguf.integer("u16", 0, 65535), 65535);
    EXPECT_EQ(*gguf.integer("i16", -2, -2), -2);
    EXPECT_EQ(*gguf.integer("u64", 0, 5), 5);
    EXPECT_EQ(*gguf.integer("i64", INT64_MIN, 0), INT64_MIN);
    EXPECT_EQ(*gguf.number("f32"), 0.5);
    EXPECT_EQ(*gguf.number("f64"), 0.25);
    EXPECT_EQ(*gguf.number("u32"), 7.0);
    EXPECT_EQ(*gguf.boolean("yes"), true);
    EXPECT_EQ(*gguf.string("text"), "h\xc3\xa4");
    EXPECT_EQ(*gguf.strings("list"), (std::vector<std::string_view>{"a", "", "c"}));
    EXPECT_EQ(*gguf.integers("ids"), (std::vector<int64_t>{3, -1}));
    EXPECT_EQ(*gguf.integers("u32"), (std::vector<int64_t>{7}));
    EXPECT_EQ(*gguf.integer("absent", 0, 1), std::nullopt);
    EXPECT_EQ(*gguf.strings("absent"), std::vector<std::string_view>{});
  }
}

// llama.cpp PR #26690: one type taken for another.
TEST(Gguf, TypesAreNotConfused) {
  GgufBuilder file;
  file.u32("n", 7)
      .f32("f", 1.5f)
      .f32("nan", std::numeric_limits<float>::quiet_NaN())
      .text("s", "x")
      .boolean("b", true)
      .texts("list", {"a"})
      .i32s("ids", {1});
  file.raw_key("big", 10, little<uint64_t>(UINT64_MAX));
  HB_ASSERT_OK(const GgufFile gguf, parse(file.str()));
  const auto invalid = StatusCode::kInvalidData;
  expect_failure(gguf.integer("f", 0, 9), invalid, {"m.gguf", "metadata key 'f'", "float32", "expected an integer"});
  expect_failure(gguf.integer("b", 0, 9), invalid, {"'b'", "bool"});
  expect_failure(gguf.integer("ids", 0, 9), invalid, {"'ids'", "an array"});
  expect_failure(gguf.integer("n", 8, 9), invalid, {"'n'", "is 7", "expected 8 to 9"});
  expect_failure(gguf.integer("big", 0, INT64_MAX), invalid, {"'big'", "18446744073709551615"});
  expect_failure(gguf.number("s"), invalid, {"'s'", "string"});
  expect_failure(gguf.number("nan"), invalid, {"'nan'", "not finite"});
  expect_failure(gguf.boolean("n"), invalid, {"'n'", "uint32", "expected bool"});
  expect_failure(gguf.string("n"), invalid, {"'n'", "expected a string"});
  expect_failure(gguf.string("list"), invalid, {"'list'", "an array"});
  expect_failure(gguf.strings("s"), invalid, {"'s'", "expected an array of strings"});
  expect_failure(gguf.strings("ids"), invalid, {"'ids'", "an array of int32"});
  expect_failure(gguf.integers("list"), invalid, {"'list'", "string"});
  expect_failure(gguf.integers("b"), invalid, {"'b'", "bool"});
  expect_failure(gguf.integers("big"), invalid, {"'big'", "2^63"});
}

TEST(Gguf, MagicAndVersion) {
  GgufBuilder file;
  file.magic = "GGML";
  expect_refused(file.str(), {"m.gguf", "starts with 'GGML'", "expected 'GGUF'"});
  expect_refused("", {"m.gguf", "needs 4 bytes", "0 are left"});
  file.magic = "GGUF";
  for (const uint32_t version : {0u, 1u, 4u}) {
    file.version = version;
    expect_failure(parse(file.str()), StatusCode::kUnsupported,
                   {"m.gguf", "version " + std::to_string(version), "supported: 2 and 3"});
  }
  file.version = 0x03000000;
  expect_failure(parse(file.str()), StatusCode::kUnsupported, {"big-endian", "gguf-convert-endian"});
}

// CVE-2024-21802, llama.cpp #19003: counts and lengths are bounded by the bytes left before anything is allocated.
TEST(Gguf, CountsAreBounded) {
  for (const uint64_t count : {uint64_t{1000}, uint64_t{1} << 40, UINT64_MAX / 8, UINT64_MAX}) {
    GgufBuilder file;
    file.u32("n", 1);
    file.key_count = count;
    expect_refused(file.str(), {"m.gguf", std::to_string(count) + " metadata keys", "more than its", "damaged"});
    file.key_count.reset();
    file.tensor_count = count;
    expect_refused(file.str(), {std::to_string(count) + " tensors"});
  }
}

TEST(Gguf, LengthsAreBounded) {
  const std::string head = "GGUF" + little<uint32_t>(3) + little<uint64_t>(0) + little<uint64_t>(1);
  const std::string key = gguf_string("key");
  for (const uint64_t length :
       {uint64_t{100}, uint64_t{1} << 31, (uint64_t{1} << 32) + 1, UINT64_MAX - 8, UINT64_MAX}) {
    const std::string tail = little(length) + std::string(16, 'x');
    expect_refused(head + tail, {"m.gguf", "a metadata key"});                       // the key's name
    expect_refused(head + key + little<uint32_t>(8) + tail, {"a metadata string"});  // a string
    expect_refused(head + key + little<uint32_t>(9) + little<uint32_t>(5) + tail,
                   {"'key'", "array of " + std::to_string(length) + " int32"});
    expect_refused(head + key + little<uint32_t>(9) + little<uint32_t>(8) + tail,
                   {"'key'", "array of " + std::to_string(length) + " strings"});
    // A string inside an array.
    expect_refused(head + key + little<uint32_t>(9) + little<uint32_t>(8) + little<uint64_t>(1) + tail,
                   {"a string of a metadata array"});
  }
  // Number of elements times size overflows 64 bits.
  expect_refused(head + key + little<uint32_t>(9) + little<uint32_t>(12) + little<uint64_t>((uint64_t{1} << 61) + 1) +
                     std::string(8, 'x'),
                 {"'key'", "float64"});
}

TEST(Gguf, UnknownTypesAndNestedArrays) {
  expect_refused(GgufBuilder().raw_key("k", 13, "xxxx").str(), {"'k'", "unknown type 13"});
  expect_refused(GgufBuilder().raw_key("k", UINT32_MAX, "xxxx").str(), {"'k'", "unknown type"});
  expect_refused(GgufBuilder().raw_key("k", 9, little<uint32_t>(9) + little<uint64_t>(1) + std::string(12, '\0')).str(),
                 {"'k'", "array of type 9"});
  expect_refused(
      GgufBuilder().raw_key("k", 9, little<uint32_t>(99) + little<uint64_t>(1) + std::string(12, '\0')).str(),
      {"'k'", "array of type 99"});
  expect_refused(GgufBuilder().raw_key("k", 7, "\2").str(), {"'k'", "bool with the byte 2"});
}

// llama.cpp PR #19856.
TEST(Gguf, DuplicateKeysAndTensors) {
  expect_refused(GgufBuilder().u32("k", 1).u32("k", 2).str(), {"m.gguf", "'k'", "twice"});
  expect_refused(GgufBuilder().f32_tensor("t", {1}, {1}).f32_tensor("t", {1}, {1}).str(), {"tensor 't'", "twice"});
}

TEST(Gguf, ReadsTensorsInnermostFirst) {
  GgufBuilder file;
  file.f32_tensor("w", {3, 2}, {1, 2, 3, 4, 5, 6})
      .f32_tensor("scalar", {}, {9})
      .tensor("q", {64, 2}, 2, std::string(4 * 18, '\0'));
  const std::string text = file.str();
  HB_ASSERT_OK(const GgufFile gguf, parse(text));
  ASSERT_EQ(gguf.tensors().size(), 3u);
  EXPECT_EQ(gguf.tensors()[0].shape, (Shape{{2, 3}}));
  EXPECT_EQ(gguf.tensors()[0].bytes, 24u);
  EXPECT_EQ(gguf.tensors()[0].begin % 32, 0u);
  EXPECT_EQ(gguf.tensors()[1].bytes, 4u);
  EXPECT_EQ(gguf.tensors()[1].begin, gguf.tensors()[0].begin + 32);
  EXPECT_EQ(gguf.tensors()[2].dtype, DType::kQ4_0);
  EXPECT_EQ(gguf.tensors()[2].shape, (Shape{{2, 64}}));
}

// llama.cpp PR #24997.
TEST(Gguf, Alignment) {
  for (const uint32_t alignment : {1u, 8u, 64u, 4096u}) {
    GgufBuilder file;
    file.alignment = alignment;
    file.u32("general.alignment", alignment).f32_tensor("a", {1}, {1}).f32_tensor("b", {1}, {2});
    HB_ASSERT_OK(const GgufFile gguf, parse(file.str()));
    EXPECT_EQ(gguf.tensors()[1].begin % alignment, 0u);
  }
  expect_refused(GgufBuilder().u32("general.alignment", 0).str(), {"'general.alignment'", "is 0"});
  expect_refused(GgufBuilder().u32("general.alignment", 24).str(), {"'general.alignment'", "power of two"});
  expect_refused(GgufBuilder().u32("general.alignment", 1u << 31).str(), {"'general.alignment'"});
  expect_refused(GgufBuilder().text("general.alignment", "32").str(), {"'general.alignment'", "string"});
  expect_refused(GgufBuilder().f32_tensor("a", {9}, std::vector<float>(9)).raw_tensor("b", {1}, 0, 4).str(),
                 {"'b'", "offset 4", "multiple of the alignment 32"});
}

// CVE-2026-7482: every tensor is range-checked against the file. CVE-2025-53630, CVE-2026-27940: sums that overflow.
TEST(Gguf, TensorsLieInTheFile) {
  const std::string data(64, '\0');
  const auto file = [&](uint64_t offset, std::vector<uint64_t> dims) {
    GgufBuilder b;
    b.tensor("good", {16}, 0, data).raw_tensor("bad", dims, 0, offset);
    return b.str();
  };
  EXPECT_TRUE(parse(file(64, {0x0 + 1}).append(4, '\0')).ok());
  expect_refused(file(64, {1}), {"m.gguf", "'bad'", "4 bytes at offset 64", "beyond the file", "download"});
  expect_refused(file(32, {16}), {"'bad'", "beyond"});
  expect_refused(file(uint64_t{1} << 40, {1}), {"'bad'", "beyond"});
  expect_refused(file(UINT64_MAX - 31, {8}), {"'bad'", "beyond"});  // offset + size wraps to a small number
  expect_refused(file(UINT64_MAX / 32 * 32, {1}), {"'bad'", "beyond"});
  expect_refused(file(0, {uint64_t{1} << 62, 4}), {"'bad'", "too large"});  // elements * 4 wraps
  expect_refused(file(0, {uint64_t{1} << 32, uint64_t{1} << 32}), {"'bad'", "too large"});
  expect_refused(file(0, {UINT64_MAX}), {"'bad'", "dimension of 18446744073709551615"});
  expect_refused(file(0, {0}), {"'bad'", "dimension of 0"});
  expect_refused(file(0, {1, 1, 1, 1, 1}), {"'bad'", "5 dimensions", "at most 4"});
  expect_refused(file(0, {4}), {"overlap", "'good'", "'bad'"});
}

TEST(Gguf, TensorTypes) {
  const auto file = [](uint32_t type) { return GgufBuilder().tensor("t", {256}, type, std::string(1024, '\0')).str(); };
  for (const auto& [type, dtype] : std::initializer_list<std::pair<uint32_t, DType>>{{2, DType::kQ4_0},
                                                                                     {3, DType::kQ4_1},
                                                                                     {6, DType::kQ5_0},
                                                                                     {7, DType::kQ5_1},
                                                                                     {8, DType::kQ8_0},
                                                                                     {10, DType::kQ2K},
                                                                                     {11, DType::kQ3K},
                                                                                     {12, DType::kQ4K},
                                                                                     {13, DType::kQ5K},
                                                                                     {14, DType::kQ6K},
                                                                                     {20, DType::kIQ4NL},
                                                                                     {23, DType::kIQ4XS},
                                                                                     {39, DType::kGgufMXFP4},
                                                                                     {40, DType::kGgufNVFP4}}) {
    const auto parsed = parse(file(type));
    ASSERT_TRUE(parsed.ok()) << parsed.status().message();
    EXPECT_EQ(parsed->tensors()[0].dtype, dtype);
    EXPECT_EQ(parsed->tensors()[0].bytes, dtype_bytes(dtype, 256));
  }
  for (const auto& [type, name] : std::initializer_list<std::pair<uint32_t, std::string>>{
           {9, "Q8_1"}, {15, "Q8_K"}, {16, "IQ2_XXS"}, {34, "TQ1_0"}, {28, "F64"}}) {
    expect_failure(parse(file(type)), StatusCode::kUnsupported,
                   {"m.gguf", "'t'", name, "supported: F32, F16, BF16, Q4_0", "Q2_K to Q6_K", "MXFP4, NVFP4"});
  }
  expect_refused(file(4), {"'t'", "unknown element type 4"});  // Q4_2, removed long ago
  expect_refused(file(1000), {"'t'", "unknown element type 1000"});
  // Rows that are no whole number of blocks, though the total is.
  expect_refused(GgufBuilder().tensor("t", {16, 2}, 8, std::string(34, '\0')).str(),
                 {"'t'", "[2, 16]", "32-element blocks"});
  expect_refused(GgufBuilder().tensor("t", {33}, 8, std::string(68, '\0')).str(), {"'t'", "[33]"});
}

TEST(Gguf, TruncatedAnywhereIsRefused) {
  GgufBuilder file;
  file.u32("n", 7)
      .texts("list", {"a", "b"})
      .text("t", "hello")
      .i32s("ids", {1, 2})
      .f32_tensor("a", {3}, {1, 2, 3})
      .f32_tensor("b", {2}, {1, 2});
  const std::string whole = file.str();
  ASSERT_TRUE(parse(whole).ok());
  for (size_t n = 0; n < whole.size(); ++n) expect_refused(whole.substr(0, n), {"m.gguf"});
}

TEST(Gguf, NamesInMessagesArePrintable) {
  expect_refused(GgufBuilder().u32("bad\n\x1b[2Jkey", 1).u32("bad\n\x1b[2Jkey", 1).str(), {"\\n", "\\x1"});
  expect_refused(GgufBuilder().raw_tensor(std::string(1025, 'n'), {1}, 0, 0).str(),
                 {"1025 bytes long", "limit is 1024"});
}

}  // namespace
}  // namespace halfbyte
