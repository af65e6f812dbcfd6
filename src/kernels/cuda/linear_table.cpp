#include "kernels/cuda/linear_table.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <sstream>
#include <system_error>

#include "base/quote.h"
#include "base/user_cache.h"

namespace halfbyte::cuda {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kTitle = "halfbyte cuda linears 1";
constexpr std::string_view kEnd = "end";
constexpr double kMargin = 0.98;  // what another kernel's time must be below, of the ring's: a measurement's noise

bool is_rows(int rows) {
  return rows == 1 || rows == 2 || rows == 4 || rows == 8 || rows == 16;
}

std::string number(double us) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.3f", us);
  return text;
}

// "fp4 6144 4096 1 ring 5.71 stages 6.40"
bool read_line(const std::string& line, LinearTimes& out) {
  std::istringstream in(line);
  std::string word;
  if (!(in >> word) || word != "fp4" || !(in >> out.n >> out.k >> out.rows)) return false;
  if (out.n < 1 || out.k < 1 || !is_rows(out.rows)) return false;
  bool any = false;
  double us = 0;
  while (in >> word) {
    const auto kernel = linear_kernel_named(word);
    if (!kernel.ok() || !(in >> us) || !std::isfinite(us) || us <= 0) return false;
    if (out.us[static_cast<size_t>(*kernel)] > 0) return false;  // said twice
    out.us[static_cast<size_t>(*kernel)] = us;
    any = true;
  }
  return any;
}

}  // namespace

std::optional<LinearKernel> LinearTable::best(int n, int k, int rows) const {
  const LinearTimes* found = nullptr;
  for (const LinearTimes& t : lines_) {
    if (t.n == n && t.k == k && t.rows >= rows && (found == nullptr || t.rows < found->rows)) found = &t;
  }
  if (found == nullptr) return std::nullopt;
  const double ring = found->us[static_cast<size_t>(LinearKernel::kRing)],
               stages = found->us[static_cast<size_t>(LinearKernel::kStages)];
  if (ring <= 0) return LinearKernel::kStages;
  return stages > 0 && stages < kMargin * ring ? LinearKernel::kStages : LinearKernel::kRing;
}

void LinearTable::add(const LinearTimes& times) {
  for (LinearTimes& t : lines_) {
    if (t.n == times.n && t.k == times.k && t.rows == times.rows) {
      t = times;
      return;
    }
  }
  lines_.push_back(times);
}

std::string LinearTable::file_text(const TableKey& key) const {
  std::string out = std::string(kTitle) + "\ndevice " + key.device + "\ndriver " + std::to_string(key.driver) +
                    "\nkernels " + key.kernels + "\n";
  for (const LinearTimes& t : lines_) {
    out += "fp4 " + std::to_string(t.n) + " " + std::to_string(t.k) + " " + std::to_string(t.rows);
    for (size_t i = 0; i < t.us.size(); ++i) {
      if (t.us[i] > 0)
        out += " " + std::string(linear_kernel_name(static_cast<LinearKernel>(i))) + " " + number(t.us[i]);
    }
    out += "\n";
  }
  return out + std::string(kEnd) + "\n";
}

Result<LinearTable> LinearTable::parse(const std::string& text, const TableKey& key) {
  std::istringstream in(text);
  std::string line;
  int at = 1;
  const auto broken = [&](const std::string& expected) {
    return invalid_data("line " + std::to_string(at) + " is " + quote(line) + ", expected " + expected);
  };
  if (!std::getline(in, line) || line != kTitle) return broken(quote(kTitle));
  const std::pair<std::string, std::string> wanted[] = {
      {"device ", key.device}, {"driver ", std::to_string(key.driver)}, {"kernels ", key.kernels}};
  for (const auto& [name, value] : wanted) {
    ++at;
    line.clear();
    if (!std::getline(in, line) || !line.starts_with(name)) return broken(quote(name + value));
    if (line.substr(name.size()) != value)
      return unsupported("measured with " + quote(line) + ", here is " + quote(name + value));
  }
  LinearTable out;
  for (++at, line.clear(); std::getline(in, line); ++at) {
    if (line == kEnd && !out.lines().empty()) {
      ++at;
      if (std::getline(in, line)) return broken("nothing behind 'end'");
      return Result<LinearTable>(std::move(out));
    }
    LinearTimes times;
    if (!read_line(line, times)) return broken("'fp4 N K ROWS ring MICROSECONDS stages MICROSECONDS'");
    out.add(times);
    line.clear();
  }
  return invalid_data("it ends at line " + std::to_string(at) + ", without 'end'");
}

std::string LinearTable::text() const {
  std::string out;
  char line[160];
  std::snprintf(line, sizeof(line), "  %8s %8s %5s %12s %12s  %s\n", "N", "K", "rows", "ring us", "stages us", "runs");
  out += line;
  for (const LinearTimes& t : lines_) {
    const auto cell = [&](LinearKernel kernel) {
      const double us = t.us[static_cast<size_t>(kernel)];
      return us > 0 ? number(us) : std::string("-");
    };
    const std::string_view chosen = linear_kernel_name(*best(t.n, t.k, t.rows));
    std::snprintf(line, sizeof(line), "  %8d %8d %5d %12s %12s  %.*s\n", t.n, t.k, t.rows,
                  cell(LinearKernel::kRing).c_str(), cell(LinearKernel::kStages).c_str(),
                  static_cast<int>(chosen.size()), chosen.data());
    out += line;
  }
  return out;
}

fs::path linear_table_path(const std::string& device) {
  const fs::path cache = user_cache();
  if (cache.empty()) return {};
  std::string name;
  for (const char c : device) {
    const bool plain = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
    name += plain ? c : '-';
  }
  return cache / "cuda" / ("linears-" + name + ".txt");
}

Result<LinearTable> read_linear_table(const fs::path& path, const TableKey& key) {
  std::error_code failure;
  if (path.empty() || !fs::exists(path, failure)) return LinearTable();
  if (!fs::is_regular_file(path, failure))
    return invalid_argument(path.string() + ": no file, but the place of the table of measured times; remove it");
  constexpr std::uintmax_t kMostBytes = 1 << 20;
  const std::uintmax_t bytes = fs::file_size(path, failure);
  if (failure) return invalid_data(path.string() + ": " + failure.message());
  if (bytes > kMostBytes)
    return invalid_data(path.string() + ": no table of kernels, it has " + std::to_string(bytes) + " bytes");
  std::ifstream in(path, std::ios::binary);
  std::ostringstream text;
  text << in.rdbuf();
  if (!in) return invalid_data(path.string() + ": cannot be read");
  auto table = LinearTable::parse(text.str(), key);
  if (!table.ok()) return table.status().with_context(path.string());
  return table;
}

Status write_linear_table(const fs::path& path, const LinearTable& table, const TableKey& key) {
  if (path.empty()) return not_found("no folder for the table of kernels: neither XDG_CACHE_HOME nor HOME is set");
  std::error_code failure;
  fs::create_directories(path.parent_path(), failure);
  const auto not_kept = [&](const std::string& why) {
    return invalid_argument("the measured times cannot be kept in " + path.string() + ": " + why +
                            "; let XDG_CACHE_HOME name a folder that can be written");
  };
  if (failure) return not_kept(failure.message());
  const fs::path partial = path.string() + "." + std::to_string(getpid());
  std::ofstream out(partial, std::ios::binary | std::ios::trunc);
  out << table.file_text(key);
  out.close();
  if (!out) {
    const std::string why = std::generic_category().message(errno);
    fs::remove(partial, failure);
    return not_kept(why);
  }
  fs::rename(partial, path, failure);
  if (!failure) return {};
  const std::string why = failure.message();
  fs::remove(partial, failure);
  return not_kept(why);
}

}  // namespace halfbyte::cuda
