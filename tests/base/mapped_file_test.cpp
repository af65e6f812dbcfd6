#include "base/mapped_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <fstream>

namespace halfbyte {
namespace {

std::string temporary(const std::string& name) {
  return std::string(HALFBYTE_TEST_TMP) + "/" + name;
}

std::string write_file(const std::string& name, const std::string& bytes) {
  const std::string path = temporary(name);
  std::ofstream(path, std::ios::binary) << bytes;
  return path;
}

TEST(MappedFile, HoldsTheBytes) {
  std::string bytes(100'000, '\0');
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<char>(i * 7);
  const std::string path = write_file("bytes.bin", bytes);
  const auto file = MappedFile::open(path);
  ASSERT_TRUE(file.ok()) << file.status().message();
  ASSERT_EQ((*file)->bytes().size(), bytes.size());
  EXPECT_EQ(std::memcmp((*file)->bytes().data(), bytes.data(), bytes.size()), 0);
  EXPECT_EQ((*file)->path(), path);
  // The mapping outlives the name.
  ASSERT_EQ(::unlink(path.c_str()), 0);
  EXPECT_EQ(static_cast<char>((*file)->bytes()[99'999]), bytes[99'999]);
}

TEST(MappedFile, EmptyFileIsAnEmptyView) {
  const auto file = MappedFile::open(write_file("empty", ""));
  ASSERT_TRUE(file.ok());
  EXPECT_TRUE((*file)->bytes().empty());
}

TEST(MappedFile, RefusesWhatIsNoFile) {
  const auto missing = MappedFile::open(temporary("missing"));
  EXPECT_EQ(missing.status().code(), StatusCode::kNotFound);
  EXPECT_THAT(missing.status().message(), ::testing::HasSubstr("missing'"));
  EXPECT_EQ(MappedFile::open(write_file("plain", "x") + "/below").status().code(), StatusCode::kNotFound);
  EXPECT_EQ(MappedFile::open("").status().code(), StatusCode::kNotFound);
  EXPECT_EQ(MappedFile::open("/").status().code(), StatusCode::kInvalidData);
  EXPECT_EQ(MappedFile::open("/dev/null").status().code(), StatusCode::kInvalidData);
  const std::string pipe = temporary("pipe");
  ::unlink(pipe.c_str());
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_EQ(MappedFile::open(pipe).status().code(), StatusCode::kInvalidData) << "and it must not wait for a writer";
  EXPECT_EQ(MappedFile::open(std::string("a\0b", 3)).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(MappedFile::open(std::string(100'000, 'x')).status().code(), StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace halfbyte
