// Measured times of a device's kernels for decode linears, by shape and rows: which one runs, and how that is kept. All of
// the kernels give the same bits, so a table changes times only. Without a line for a shape the rule of kernel_set.h holds.
// No CUDA needed.
//
// A table is made when somebody asks for it (halfbyte inspect --devices --measure), never at a start; it lies as text in the
// user's cache:
//   halfbyte cuda linears 1
//   device NVIDIA H200
//   driver 13000
//   kernels 1c8503e5ab12
//   fp4 6144 4096 1 ring 5.71 stages 6.40         N, K, rows (1, 2, 4, 8 or 16), us of a call with its weights in no cache
// NVFP4 and MXFP4 have one packed form, and so one line.
#pragma once

#include <array>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "kernels/cuda/kernel_set.h"

namespace halfbyte::cuda {

struct LinearTimes {
  int n = 0, k = 0;
  int rows = 0;
  std::array<double, kLinearKernels> us = {};  // 0: cannot run
};

// What a table holds for: another device, driver or build of the kernels may have other times.
struct TableKey {
  std::string device;
  int driver = 0;       // e.g. 13000
  std::string kernels;  // commit of the build
  bool operator==(const TableKey&) const = default;
};

class LinearTable {
 public:
  // The fastest for a shape and a number of rows (rounded up to a measured one); the ring where another is less than 2%
  // faster. Nothing for a shape that was not measured.
  std::optional<LinearKernel> best(int n, int k, int rows) const;
  // In the place of what stood there for the shape and the rows.
  void add(const LinearTimes& times);
  const std::vector<LinearTimes>& lines() const { return lines_; }

  std::string file_text(const TableKey& key) const;
  // kInvalidData: not such a file, or cut off or changed, with the line; kUnsupported: of another device, driver or build.
  static Result<LinearTable> parse(const std::string& text, const TableKey& key);

  // For people.
  std::string text() const;

 private:
  std::vector<LinearTimes> lines_;
};

// <user's cache>/halfbyte/cuda/linears-<device>.txt; empty without a cache (base/user_cache.h).
std::filesystem::path linear_table_path(const std::string& device);
// The table at `path`; an empty one when there is no file. kInvalidArgument when something else lies there, over which no table can
// be written; else as parse().
Result<LinearTable> read_linear_table(const std::filesystem::path& path, const TableKey& key);
// In one step, so that no reader sees half of it.
Status write_linear_table(const std::filesystem::path& path, const LinearTable& table, const TableKey& key);

}  // namespace halfbyte::cuda
