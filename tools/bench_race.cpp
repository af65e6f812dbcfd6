#include "bench_race.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>
#include <thread>

#include "command.h"
#include "halfbyte/version.h"
#include "model/plan_fields.h"

namespace halfbyte::tools {
namespace {

using Json = nlohmann::ordered_json;
constexpr int kTrack = 48;  // characters of a lane

double tokens_per_s(const RaceLane& lane) {
  return static_cast<double>(lane.tokens()) * 1000.0 / lane.total_ms();
}

// "bf16", or "bf16 and fp8" by lane.
std::string caches_text(const std::vector<RaceLane>& lanes) {
  const std::string first = name_of(lanes[0].kv), second = name_of(lanes[1].kv);
  return first == second ? first : first + " and " + second;
}

void play(const std::vector<RaceLane>& lanes) {
  double end = 0;
  for (const RaceLane& lane : lanes) end = std::max(end, lane.total_ms());
  const auto begin = std::chrono::steady_clock::now();
  for (double ms = 0; ms < end;) {
    std::this_thread::sleep_for(std::chrono::milliseconds(40));
    ms = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count();
    print_err((ms > 50 ? fmt::format("\x1b[{}A", lanes.size()) : std::string()) + race_frame(lanes, ms));
  }
}

}  // namespace

RaceLane RaceLane::of(const std::string& plan, const std::vector<double>& step_ms, int batch, KvKind kv) {
  RaceLane lane{plan, {}, batch, kv};
  double end = 0;
  for (const double ms : step_ms) lane.ends.push_back(end += ms);
  return lane;
}

int64_t RaceLane::tokens_at(double ms) const {
  return batch * (std::upper_bound(ends.begin(), ends.end(), ms) - ends.begin());
}

std::string race_frame(const std::vector<RaceLane>& lanes, double ms) {
  std::string out;
  for (const RaceLane& lane : lanes) {
    const int64_t tokens = lane.tokens_at(ms), all = lane.tokens();
    const int filled = static_cast<int>(tokens * kTrack / std::max<int64_t>(1, all));
    const double seconds = std::min(ms, lane.total_ms()) / 1000;
    const double rate = seconds > 0 ? static_cast<double>(tokens) / seconds : 0;
    out += fmt::format("{:<12} {:#<{}}{:.<{}} {:>5} tokens {:>7.1f}/s {:>6.2f} s\n", lane.plan, "", filled, "",
                       kTrack - filled, tokens, rate, seconds);
  }
  return out;
}

std::string race_result(const CudaDecodeOptions& o, const CudaDecodeReport& first, const std::vector<RaceLane>& lanes,
                        bool json) {
  const double ratio = lanes[0].total_ms() / lanes[1].total_ms();
  if (!json)
    return race_frame(lanes, std::max(lanes[0].total_ms(), lanes[1].total_ms())) +
           fmt::format("{}, {}, {}, kernels {}, KV cache {}: {} is {:.2f} times as fast as {}\n", o.shape,
                       o.batch == 1 ? "1 sequence" : fmt::format("{} sequences", o.batch), first.place.device,
                       first.place.kernels, caches_text(lanes), lanes[1].plan, ratio, lanes[0].plan);
  Json out{{"device", first.place.device},
           {"kernels", first.place.kernels},
           {"version", version()},
           {"commit", build_commit()},
           {"shape", o.shape},
           {"batch", o.batch},
           {"context", o.context},
           {"tokens", o.steps},
           {"ratio", ratio},
           {"lanes", Json::array()}};
  for (const RaceLane& lane : lanes)
    out["lanes"].push_back({{"plan", lane.plan},
                            {"kv", name_of(lane.kv)},
                            {"seconds", lane.total_ms() / 1000},
                            {"tokens_per_s", tokens_per_s(lane)}});
  return out.dump(2) + "\n";
}

Result<std::vector<CudaDecodeOptions>> race_entries(const CudaDecodeOptions& options, bool same_cache) {
  CudaDecodeOptions bf16 = options;
  HB_ASSIGN(bf16.plan, plan_preset("bf16"));
  if (same_cache) bf16.plan.kv = options.plan.kv;
  return std::vector<CudaDecodeOptions>{bf16, options};
}

int run_race(const CudaDecodeOptions& options, bool same_cache, bool json) {
  const auto entries = race_entries(options, same_cache);
  if (!entries.ok()) return fail(entries.status());
  std::vector<RaceLane> lanes;
  CudaDecodeReport first;
  for (const CudaDecodeOptions& o : *entries) {
    const auto report = measure_cuda_decode(o);  // the first lane's weights are gone before the second's are made
    if (!report.ok()) return fail(report.status());
    lanes.push_back(RaceLane::of(plan_to_text(o.plan), report->step_ms, o.batch, o.plan.kv));
    first = *report;
  }
  if (!json && stderr_is_terminal()) play(lanes);
  return write_out(race_result(options, first, lanes, json)) ? kDone : fail_output();
}

}  // namespace halfbyte::tools
