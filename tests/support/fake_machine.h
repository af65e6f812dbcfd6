// A made-up /sys and /proc, for code that asks the machine what it has.
#pragma once

#include <filesystem>
#include <fstream>
#include <string>

namespace halfbyte::testing {

class FakeMachine {
 public:
  // `name`: of a folder among the test's scratch files, emptied here.
  explicit FakeMachine(const std::string& name) : root_(std::string(HALFBYTE_TEST_TMP) + "/" + name) {
    std::filesystem::remove_all(root_);
    std::filesystem::create_directories(root_);
  }
  void write(const std::string& path, const std::string& text) const {
    const std::filesystem::path file = root_ + "/" + path;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << text << "\n";
  }
  std::string sys() const { return root_ + "/sys"; }
  std::string proc() const { return root_ + "/proc"; }

 private:
  std::string root_;
};

}  // namespace halfbyte::testing
