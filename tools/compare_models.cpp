#include "compare_models.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "io/dequantize.h"
#include "io/load_linear.h"

namespace halfbyte::tools {
namespace {

constexpr int64_t kRun = 16;  // rows that are read at once

// One thing to compare: a linear or a plain tensor, opened only while it is compared.
struct Entry {
  const TensorInfo* tensor = nullptr;
  std::optional<LinearFacts> facts;  // of a linear

  std::string stored() const { return facts ? describe(*facts) : std::string(dtype_info(tensor->dtype).name); }
  Shape shape() const { return facts ? Shape{{facts->n, facts->k}} : tensor->shape; }
};
using Entries = std::map<std::string, Entry>;

std::optional<std::string> module_of(const TensorInfo& t) {
  for (const std::string_view suffix : {".weight", ".weight_packed"}) {
    if (t.name.ends_with(suffix) && t.shape.rank() == 2) return t.name.substr(0, t.name.size() - suffix.size());
  }
  return std::nullopt;
}

Result<Entries> entries_of(const ModelSource& source) {
  Entries out;
  std::set<std::string> parts;  // scales and the like, which belong to a linear
  for (const TensorInfo& t : source.tensors->tensors()) {
    const auto module = module_of(t);
    if (!module) continue;
    HB_ASSIGN(const LinearFacts facts, linear_facts(*source.tensors, source.quant, *module));
    for (const TensorInfo* part : facts.stored)
      if (part != facts.bias) parts.insert(part->name);
    out.emplace(*module, Entry{&t, facts});
  }
  for (const TensorInfo& t : source.tensors->tensors())
    if (!parts.contains(t.name)) out.emplace(t.name, Entry{&t, std::nullopt});
  return out;
}

// Rows of FP32 with the pre-scale multiplied in.
Result<WeightSource> open_rows(const ModelSource& source, const std::string& name, const Entry& entry) {
  const TensorSource& tensors = *source.tensors;
  if (!entry.facts) {
    const Shape& shape = entry.tensor->shape;
    const int64_t k = shape.rank() == 0 ? 1 : shape[shape.rank() - 1];
    return WeightSource{name, shape.rank() == 2 ? shape[0] : 1, k,
                        [&tensors, t = entry.tensor](int64_t first, int64_t rows, std::span<float> out) {
                          return tensors.read_rows(*t, first, rows, out);
                        }};
  }
  HB_ASSIGN(LinearRows opened, open_linear_rows(tensors, *entry.facts, name));
  if (opened.beside.pre_scale.empty()) return std::move(opened.rows);
  WeightSource scaled = opened.rows;
  scaled.read = [read = std::move(opened.rows.read), scale = std::move(opened.beside.pre_scale)](
                    int64_t first, int64_t rows, std::span<float> out) {
    HB_TRY(read(first, rows, out));
    for (size_t i = 0; i < out.size(); ++i) out[i] *= scale[i % scale.size()];
    return Status();
  };
  return scaled;
}

struct Sums {
  double signal = 0, noise = 0, largest = 0;
  uint64_t nan_a = 0, nan_b = 0;
};

void add(std::span<const float> a, std::span<const float> b, Sums& out) {
  for (size_t i = 0; i < a.size(); ++i) {
    const bool bad_a = !std::isfinite(a[i]), bad_b = !std::isfinite(b[i]);
    out.nan_a += bad_a ? 1 : 0;
    out.nan_b += bad_b ? 1 : 0;
    if (bad_a || bad_b) continue;
    const double x = static_cast<double>(a[i]), d = x - static_cast<double>(b[i]);
    out.signal += x * x;
    out.noise += d * d;
    out.largest = std::max(out.largest, std::abs(d));
  }
}

// Summed run by run in their order, so that threads change nothing.
Result<Sums> compare_rows(const WeightSource& a, const WeightSource& b, ThreadPool& pool) {
  const int64_t runs = (a.n + kRun - 1) / kRun;
  std::vector<Sums> sums(static_cast<size_t>(runs));
  std::vector<Status> failures(static_cast<size_t>(runs));
  pool.parallel_for(runs, 1, [&](int64_t begin, int64_t end, int) {
    std::vector<float> x(static_cast<size_t>(kRun * a.k)), y(x.size());
    for (int64_t run = begin; run < end; ++run) {
      const int64_t rows = std::min(kRun, a.n - run * kRun);
      const auto size = static_cast<size_t>(rows * a.k), at = static_cast<size_t>(run);
      failures[at] = a.read(run * kRun, rows, std::span(x).first(size));
      if (failures[at].ok()) failures[at] = b.read(run * kRun, rows, std::span(y).first(size));
      if (failures[at].ok()) add(std::span(x).first(size), std::span(y).first(size), sums[at]);
    }
  });
  Sums total;
  for (int64_t run = 0; run < runs; ++run) {
    const auto at = static_cast<size_t>(run);
    HB_TRY(failures[at]);
    total.signal += sums[at].signal;
    total.noise += sums[at].noise;
    total.largest = std::max(total.largest, sums[at].largest);
    total.nan_a += sums[at].nan_a;
    total.nan_b += sums[at].nan_b;
  }
  return total;
}

double decibels(const Sums& sums) {
  if (sums.noise == 0) return std::numeric_limits<double>::infinity();
  if (sums.signal == 0) return -std::numeric_limits<double>::infinity();
  return 10 * std::log10(sums.signal / sums.noise);
}

Result<TensorDifference> compare_entries(const ModelSource& a, const ModelSource& b, const std::string& name,
                                         const Entry* x, const Entry* y, ThreadPool& pool) {
  TensorDifference out;
  out.name = name;
  if (x != nullptr) out.stored_a = x->stored();
  if (y != nullptr) out.stored_b = y->stored();
  if (x == nullptr || y == nullptr) {
    out.note = x == nullptr ? "only in the second" : "only in the first";
    return out;
  }
  if (x->shape() != y->shape()) {
    out.note = fmt::format("other shape: {} and {}", x->shape().text(), y->shape().text());
    return out;
  }
  for (const Entry* entry : {x, y}) {
    if (entry->facts || (can_dequantize(entry->tensor->dtype) && entry->tensor->shape.rank() <= 2)) continue;
    out.note = "not read: " + entry->stored();
    return out;
  }
  HB_ASSIGN(const WeightSource rows_a, open_rows(a, name, *x));
  HB_ASSIGN(const WeightSource rows_b, open_rows(b, name, *y));
  HB_ASSIGN(const Sums sums, compare_rows(rows_a, rows_b, pool));
  out.snr_db = decibels(sums);
  out.largest = sums.largest;
  out.nan_a = sums.nan_a;
  out.nan_b = sums.nan_b;
  return out;
}

}  // namespace

Result<std::vector<TensorDifference>> compare_models(const ModelSource& a, const ModelSource& b, ThreadPool& pool,
                                                     const std::function<void(size_t, size_t)>& progress) {
  HB_ASSIGN(const Entries first, entries_of(a));
  HB_ASSIGN(const Entries second, entries_of(b));
  std::set<std::string> names;
  for (const Entries* entries : {&first, &second})
    for (const auto& [name, entry] : *entries) names.insert(name);
  std::vector<TensorDifference> out;
  for (const std::string& name : names) {
    const auto x = first.find(name), y = second.find(name);
    HB_ASSIGN(TensorDifference difference, compare_entries(a, b, name, x == first.end() ? nullptr : &x->second,
                                                           y == second.end() ? nullptr : &y->second, pool));
    out.push_back(std::move(difference));
    progress(out.size(), names.size());
  }
  return out;
}

bool all_equal(const std::vector<TensorDifference>& differences) {
  return std::all_of(differences.begin(), differences.end(), [](const TensorDifference& d) {
    return d.compared() && std::isinf(d.snr_db) && d.snr_db > 0 && d.nan_a == d.nan_b;
  });
}

std::string differences_text(const std::vector<TensorDifference>& differences) {
  size_t width = 44;
  for (const TensorDifference& d : differences) width = std::max(width, d.name.size());
  std::string out = fmt::format("  {:<{}} {:>9} {:>11} {:>6}  {}\n", "", width, "SNR", "largest", "NaN", "stored as");
  size_t equal = 0;
  const TensorDifference* worst = nullptr;
  for (const TensorDifference& d : differences) {
    const std::string stored = d.stored_a == d.stored_b ? d.stored_a : d.stored_a + " | " + d.stored_b;
    if (!d.compared()) {
      constexpr size_t kColumns = 28;  // of SNR, largest and NaN
      const bool fits = d.note.size() <= kColumns;
      out += fmt::format("  {:<{}} {:>{}}  {}{}\n", d.name, width, fits ? d.note : "not compared", kColumns, stored,
                         fits ? "" : "; " + d.note);
      continue;
    }
    const bool same = std::isinf(d.snr_db) && d.snr_db > 0;
    equal += same ? 1 : 0;
    if (!same && (worst == nullptr || d.snr_db < worst->snr_db)) worst = &d;
    const std::string nan = d.nan_a + d.nan_b == 0 ? "" : fmt::format("{}|{}", d.nan_a, d.nan_b);
    out += same ? fmt::format("  {:<{}} {:>9} {:>11} {:>6}  {}\n", d.name, width, "equal", "", nan, stored)
                : fmt::format("  {:<{}} {:>6.2f} dB {:>11.4g} {:>6}  {}\n", d.name, width, d.snr_db, d.largest, nan,
                              stored);
  }
  out += fmt::format("{} of {} tensors are equal", equal, differences.size());
  if (worst != nullptr) out += fmt::format("; worst {} with {:.2f} dB", worst->name, worst->snr_db);
  return out + "\n";
}

}  // namespace halfbyte::tools
