#include "io/mapping_guard.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <csignal>

#include "support/temp_folder.h"

namespace halfbyte {
namespace {

using testing::TempFolder;

char touch(std::span<const std::byte> bytes, size_t at) {
  return static_cast<char>(*const_cast<const volatile std::byte*>(&bytes[at]));
}

class MappingGuard : public ::testing::Test {
 protected:
  void SetUp() override { GTEST_FLAG_SET(death_test_style, "threadsafe"); }
};

// The file shrinks while it is mapped: one line that names it, exit code 2.
TEST_F(MappingGuard, NamesTheFileThatShrank) {
  const TempFolder folder;
  const std::string path = folder.write("model.safetensors", std::string(3 << 16, 'x'));
  EXPECT_EXIT(
      {
        install_mapping_guard();
        const auto file = open_guarded(path);
        if (!file.ok() || truncate(path.c_str(), 10) != 0) std::exit(1);
        std::exit(touch((*file)->bytes(), 2 << 16));
      },
      ::testing::ExitedWithCode(2), "error: .*/model.safetensors: the file became shorter.*start again\n$");
}

// Faults elsewhere keep their meaning.
TEST_F(MappingGuard, OtherBusErrorsAreNotSwallowed) {
  const TempFolder folder;
  const std::string path = folder.write("other", std::string(1 << 16, 'x'));
  EXPECT_EXIT(
      {
        install_mapping_guard();
        const auto file = MappedFile::open(path);  // not guarded
        if (!file.ok() || truncate(path.c_str(), 10) != 0) std::exit(1);
        std::exit(touch((*file)->bytes(), 1 << 15));
      },
      ::testing::KilledBySignal(SIGBUS), "^$");
  // A mapping that is gone is forgotten.
  EXPECT_EXIT(
      {
        install_mapping_guard();
        { const auto gone = open_guarded(path); }
        const auto file = MappedFile::open(path);
        if (!file.ok() || truncate(path.c_str(), 10) != 0) std::exit(1);
        std::exit(touch((*file)->bytes(), 1 << 15));
      },
      ::testing::KilledBySignal(SIGBUS), "^$");
}

TEST_F(MappingGuard, ManyMappings) {
  const TempFolder folder;
  const std::string path = folder.write("x", "x");
  std::vector<std::shared_ptr<const MappedFile>> files;
  for (int i = 0; i < 3000; ++i) {  // more than the table holds
    auto file = open_guarded(path);
    ASSERT_TRUE(file.ok());
    files.push_back(*file);
  }
  files.clear();
  EXPECT_TRUE(open_guarded(path).ok());
  EXPECT_FALSE(open_guarded(folder / "none").ok());
}

}  // namespace
}  // namespace halfbyte
