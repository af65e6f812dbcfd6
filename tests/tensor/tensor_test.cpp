#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <new>

#include "tensor/buffer.h"
#include "tensor/dtype.h"
#include "tensor/quant_linear.h"
#include "tensor/shape.h"

namespace halfbyte {
namespace {

TEST(DType, NamesAndSizes) {
  EXPECT_EQ(dtype_info(DType::kF32).name, "F32");
  EXPECT_EQ(dtype_info(DType::kBF16).name, "BF16");
  EXPECT_EQ(dtype_info(DType::kF8E4M3).name, "F8_E4M3");
  EXPECT_EQ(dtype_info(DType::kBool).name, "BOOL");
  EXPECT_EQ(dtype_info(DType::kQ8_0).name, "Q8_0");
  EXPECT_EQ(dtype_bytes(DType::kF16, 7), 14u);
  EXPECT_EQ(dtype_bytes(DType::kI64, 3), 24u);
  EXPECT_EQ(dtype_bytes(DType::kQ4_0, 64), 36u);
  EXPECT_EQ(dtype_bytes(DType::kQ4_1, 32), 20u);
  EXPECT_EQ(dtype_bytes(DType::kQ8_0, 96), 102u);
  EXPECT_EQ(dtype_bytes(DType::kQ4_0, 33), std::nullopt) << "a broken block";
  EXPECT_EQ(dtype_bytes(DType::kF64, UINT64_MAX / 4), std::nullopt) << "overflow";
}

TEST(Shape, ElementsAndText) {
  EXPECT_EQ((Shape{{4, 3}}).elements(), 12u);
  EXPECT_EQ((Shape{{}}).elements(), 1u);
  EXPECT_EQ((Shape{{5, 0, 7}}).elements(), 0u);
  EXPECT_EQ((Shape{{INT64_MAX, 3}}).elements(), std::nullopt);
  EXPECT_EQ((Shape{{4096, 1024}}).text(), "[4096, 1024]");
}

TEST(QuantLinear, SizesOfARow) {
  EXPECT_EQ(code_bytes_per_row(WeightFormat::kNVFP4, 17), 16);
  EXPECT_EQ(scale_bytes_per_row(WeightFormat::kNVFP4, 17), 2);
  EXPECT_EQ(code_bytes_per_row(WeightFormat::kMXFP4, 33), 32);
  EXPECT_EQ(scale_bytes_per_row(WeightFormat::kMXFP4, 32), 1);
  EXPECT_EQ(code_bytes_per_row(WeightFormat::kBF16, 5), 10);
  EXPECT_EQ(scale_bytes_per_row(WeightFormat::kF32, 5), 0);
}

TEST(Buffer, OwnedIsZeroAlignedAndHasSlack) {
  for (size_t bytes :
       {size_t{0}, size_t{1}, size_t{63}, size_t{64}, size_t{4096}, size_t{5} << 20, (size_t{8} << 20) + 3}) {
    Buffer b = Buffer::allocate(bytes);
    EXPECT_EQ(b.size(), bytes);
    EXPECT_FALSE(b.borrowed());
    EXPECT_EQ(reinterpret_cast<uintptr_t>(b.bytes().data()) % 64, 0u);
    // The slack is readable; a sanitizer would say if not.
    for (size_t i = 0; i<bytes + 64; i += bytes> 100000 ? 4093 : 1) EXPECT_EQ(b.as<uint8_t>()[i], 0) << i;
    if (bytes != 0) std::memset(b.mutable_bytes().data(), 1, bytes);
    const Buffer copy = b;
    EXPECT_EQ(copy.bytes().data(), b.bytes().data()) << "copies share the bytes";
  }
  EXPECT_THROW((void)Buffer::allocate(SIZE_MAX - 10), std::bad_alloc);
}

TEST(Buffer, BorrowedKeepsItsOwner) {
  auto owner = std::make_shared<std::vector<std::byte>>(10, std::byte{7});
  const std::weak_ptr<std::vector<std::byte>> watch = owner;
  Buffer b = Buffer::borrow({owner->data(), owner->size()}, owner);
  owner.reset();
  EXPECT_TRUE(b.borrowed());
  EXPECT_EQ(b.bytes()[9], std::byte{7});
  EXPECT_FALSE(watch.expired());
  b = Buffer();
  EXPECT_TRUE(watch.expired());
}

}  // namespace
}  // namespace halfbyte
