#include "eval/compare.h"

#include <algorithm>
#include <functional>
#include <map>
#include <string_view>
#include <utility>

namespace halfbyte {
namespace {

struct Pair {
  const SampleResult* reference;
  const SampleResult* other;
};

using Questions = std::vector<std::vector<Pair>>;

Questions shared_samples(std::span<const SampleResult> reference, std::span<const SampleResult> other) {
  std::map<std::pair<std::string_view, int64_t>, const SampleResult*> by_id;
  for (const SampleResult& r : other) by_id.emplace(std::pair(std::string_view(r.id), r.sample), &r);
  Questions out;
  std::map<std::string_view, size_t> places;
  for (const SampleResult& r : reference) {
    const auto at = by_id.find({r.id, r.sample});
    if (at == by_id.end()) continue;
    const auto [place, is_new] = places.emplace(r.id, out.size());
    if (is_new) out.emplace_back();
    out[place->second].push_back({&r, at->second});
  }
  return out;
}

void add(const SampleResult& r, Side& side) {
  side.accuracy += r.points();
  side.reasoning_tokens += static_cast<double>(r.reasoning_tokens);
  side.tokens += static_cast<double>(r.tokens);
  side.steps += static_cast<double>(r.shape.steps);
  side.repeated += r.shape.repeated;
  side.alike += r.shape.alike;
  side.truncated += r.truncated;
  side.looped += r.looped;
}

void divide(Side& side, double n) {
  for (double* mean : {&side.accuracy, &side.reasoning_tokens, &side.tokens, &side.steps, &side.repeated, &side.alike,
                       &side.truncated, &side.looped})
    *mean /= n;
}

// Per question: the mean over its samples of a value of each side.
template <class Value>
std::pair<std::vector<double>, std::vector<double>> per_question(const Questions& questions, Value&& value) {
  std::pair<std::vector<double>, std::vector<double>> out;
  for (const auto& pairs : questions) {
    double reference = 0, other = 0;
    for (const Pair& p : pairs) {
      reference += value(*p.reference);
      other += value(*p.other);
    }
    out.first.push_back(reference / static_cast<double>(pairs.size()));
    out.second.push_back(other / static_cast<double>(pairs.size()));
  }
  return out;
}

Status no_shared_sample() {
  return invalid_argument("the files share no sample: no id and sample number is in both");
}

double reasoning_tokens(const SampleResult& r) {
  return static_cast<double>(r.reasoning_tokens);
}

std::vector<LengthBin> bins(const Questions& questions) {
  std::vector<Pair> all;
  for (const auto& pairs : questions) all.insert(all.end(), pairs.begin(), pairs.end());
  std::stable_sort(all.begin(), all.end(), [](const Pair& a, const Pair& b) {
    return a.reference->reasoning_tokens < b.reference->reasoning_tokens;
  });
  std::vector<LengthBin> out;
  constexpr size_t kBins = 4;
  for (size_t i = 0; i < kBins; ++i) {
    const size_t begin = i * all.size() / kBins, end = (i + 1) * all.size() / kBins;
    if (begin == end) continue;
    LengthBin bin{all[begin].reference->reasoning_tokens, all[end - 1].reference->reasoning_tokens,
                  static_cast<int64_t>(end - begin)};
    for (size_t at = begin; at < end; ++at) {
      bin.reference += all[at].reference->points();
      bin.other += all[at].other->points();
    }
    bin.reference /= static_cast<double>(bin.samples);
    bin.other /= static_cast<double>(bin.samples);
    out.push_back(bin);
  }
  return out;
}

}  // namespace

Result<Comparison> compare_results(std::span<const SampleResult> reference, std::span<const SampleResult> other,
                                   int draws) {
  const Questions questions = shared_samples(reference, other);
  if (questions.empty()) return no_shared_sample();
  Comparison out;
  out.questions = static_cast<int64_t>(questions.size());
  double ratios = 0;
  for (const auto& pairs : questions) {
    for (const Pair& p : pairs) {
      ++out.samples;
      add(*p.reference, out.reference);
      add(*p.other, out.other);
      ratios += static_cast<double>(std::max<int64_t>(p.other->reasoning_tokens, 1)) /
                static_cast<double>(std::max<int64_t>(p.reference->reasoning_tokens, 1));
    }
  }
  const auto n = static_cast<double>(out.samples);
  divide(out.reference, n);
  divide(out.other, n);
  auto [before, after] = per_question(questions, [](const SampleResult& r) { return r.points(); });
  std::transform(after.begin(), after.end(), before.begin(), after.begin(), std::minus<>());
  out.change = bootstrap_mean(after, draws);
  if (out.reference.reasoning_tokens > 0) {
    const auto length = per_question(questions, reasoning_tokens);
    out.ctir = bootstrap_ratio(length.second, length.first, draws);
    out.paired_ratio = ratios / n;
  }
  const auto tokens = per_question(questions, [](const SampleResult& r) { return static_cast<double>(r.tokens); });
  const Interval ratio = bootstrap_ratio(tokens.second, tokens.first, draws);
  out.tokens_saved = {1 - ratio.mean, 1 - ratio.high, 1 - ratio.low};
  out.by_length = bins(questions);
  return out;
}

std::optional<double> serving_penalty(const Comparison& comparison, double reference_rate, double other_rate) {
  if (!(reference_rate > 0 && other_rate > 0 && comparison.reference.tokens > 0)) return std::nullopt;
  return comparison.other.tokens / other_rate / (comparison.reference.tokens / reference_rate);
}

Result<Interval> mean_ctir(std::span<const TaskFiles> tasks, int draws) {
  std::vector<std::pair<std::vector<double>, std::vector<double>>> lengths;  // [task]: the reference's, the other's
  for (const TaskFiles& files : tasks) {
    const Questions questions = shared_samples(files.reference, files.other);
    if (questions.empty()) return no_shared_sample();
    lengths.push_back(per_question(questions, reasoning_tokens));
  }
  std::vector<RatioTask> ratios;
  for (const auto& [reference, other] : lengths) ratios.push_back({other, reference});
  return bootstrap_mean_of_ratios(ratios, draws);
}

}  // namespace halfbyte
