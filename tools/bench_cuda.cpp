#include "bench_cuda.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "bench_support.h"
#include "halfbyte/version.h"
#include "kernels/cuda/kernel_set.h"
#include "model/plan_fields.h"
#include "model_options.h"

namespace halfbyte::tools {
namespace {

using Json = nlohmann::ordered_json;
using cuda::version_text;

Json gap_json(const CudaGapReport& r) {
  const double step = percentile(r.step_ms, 0.5), idle = percentile(r.idle_us, 0.5);
  return {{"ms_per_step", {{"median", step}, {"p99", percentile(r.step_ms, 0.99)}}},
          {"idle_us", {{"median", idle}, {"p99", percentile(r.idle_us, 0.99)}}},
          {"idle_share", idle / (1000 * step)},
          {"steps_ahead", r.ahead},
          {"steps_ahead_unused", r.ahead_unused},
          {"device_waits", r.waits}};
}

std::string gap_line(const char* name, const CudaGapReport& r) {
  const double step = percentile(r.step_ms, 0.5), idle = percentile(r.idle_us, 0.5);
  return fmt::format("{:<26} {:>9.3f} ms/step, idle between steps {:>7.2f} us, {:.2f}%\n", name, step, idle,
                     idle / (10 * step));
}

}  // namespace

std::string cuda_decode_text(const CudaDecodeOptions& o, const CudaDecodeReport& r, bool json) {
  const double median = percentile(r.step_ms, 0.5), p10 = percentile(r.step_ms, 0.1), p99 = percentile(r.step_ms, 0.99);
  const auto bytes = static_cast<double>(r.layer_bytes + r.head_bytes + r.kv_bytes);
  const double gbps = bytes / (median * 1e6);
  if (json) {
    Json out{{"machine",
              {{"device", r.place.device},
               {"kernels", r.place.kernels},
               {"driver", version_text(r.driver)},
               {"runtime", version_text(r.runtime)},
               {"sm_mhz", r.sm_mhz},
               {"memory_mhz", r.memory_mhz},
               {"read_GBps", r.read_gbps}}},
             {"version", version()},
             {"commit", build_commit()},
             {"shape", o.shape},
             {"plan", plan_to_text(o.plan)},
             {"batch", o.batch},
             {"context", o.context},
             {"steps", r.step_ms.size()},
             {"ms_per_step", {{"median", median}, {"p10", p10}, {"p99", p99}}},
             {"tokens_per_s", o.batch * 1000.0 / median},
             {"bytes", {{"layers", r.layer_bytes}, {"head", r.head_bytes}, {"kv", r.kv_bytes}}},
             {"GBps", gbps},
             {"share_of_read", gbps / r.read_gbps}};
    if (!r.policy_ms.empty()) {
      const double drawn = percentile(r.drawn_ms, 0.5), with = percentile(r.policy_ms, 0.5);
      out["drawn_ms_per_step"] = drawn;
      out["policy_ms_per_step"] = with;
      out["policy_over_drawn"] = with / drawn;
      out["policy_over_greedy"] = with / median;
    }
    if (!r.engine.step_ms.empty()) {
      out["graphs_alone"] = gap_json(r.alone);
      out["engine"] = gap_json(r.engine);
      out["engine_waiting"] = gap_json(r.engine_waiting);
    }
    if (!r.prompt_ms.empty()) {
      const double prompt = percentile(r.prompt_ms, 0.5);
      out["prompt"] = {{"tokens", o.prompt},
                       {"chunk", std::min(o.prompt, o.prefill_chunk)},
                       {"ms", {{"median", prompt}, {"p10", percentile(r.prompt_ms, 0.1)}}},
                       {"tokens_per_s", static_cast<double>(o.prompt) * 1000.0 / prompt}};
    }
    return out.dump(2) + "\n";
  }
  std::string out = fmt::format(
      "{}, driver {}, {} MHz SM, reads {:.0f} GB/s\nkernels {} ({}); halfbyte {} ({})\n{} (random weights), plan {}, "
      "context {}\n\n",
      r.place.device, version_text(r.driver), r.sm_mhz, r.read_gbps, r.place.kernels, r.place.detail, version(),
      build_commit(), o.shape, plan_text(o.plan), o.context);
  out += fmt::format("{:<18} {:>9} {:>9} {:>9} {:>10} {:>8} {:>9}\n", "", "ms/step", "p10", "p99", "tokens/s", "GB/s",
                     "of read");
  out += fmt::format("{:<18} {:>9.3f} {:>9.3f} {:>9.3f} {:>10.1f} {:>8.0f} {:>8.1f}%\n",
                     fmt::format("decode batch {}", o.batch), median, p10, p99, o.batch * 1000.0 / median, gbps,
                     100 * gbps / r.read_gbps);
  if (!r.policy_ms.empty()) {
    const double drawn = percentile(r.drawn_ms, 0.5), with = percentile(r.policy_ms, 0.5);
    out +=
        fmt::format("{:<18} {:>9.3f}\n{:<18} {:>9.3f}   {:+.2f}% over drawing, {:+.2f}% over greedy steps\n",
                    "at temperature 1", drawn, "with ReSET", with, 100 * (with / drawn - 1), 100 * (with / median - 1));
  }
  if (!r.engine.step_ms.empty())
    out += gap_line("graphs, no host between", r.alone) + gap_line("engine, running ahead", r.engine) +
           gap_line("engine, waiting", r.engine_waiting);
  if (!r.prompt_ms.empty()) {
    const double prompt = percentile(r.prompt_ms, 0.5);
    out += fmt::format("{:<18} {:>9.3f} {:>9.3f} {:>9} {:>10.1f}\n", fmt::format("prompt {}", o.prompt), prompt,
                       percentile(r.prompt_ms, 0.1), "", static_cast<double>(o.prompt) * 1000.0 / prompt);
  }
  return out;
}

}  // namespace halfbyte::tools
