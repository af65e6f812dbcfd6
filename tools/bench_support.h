// What the forms of `halfbyte bench` share.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/percentile.h"
#include "base/result.h"
#include "halfbyte/engine.h"
#include "halfbyte/model.h"
#include "kernels/read_bandwidth.h"
#include "model_options.h"

namespace halfbyte::tools {

// Ids spread over the vocabulary by a fixed rule.
std::vector<int32_t> made_up_prompt(int64_t tokens, int64_t vocab, int64_t salt);

// Engine::step; a request that failed in it is an error, for its times would mean nothing.
Result<std::vector<TokenEvent>> measured_step(Engine& engine);

// The machine's read bandwidth, measured between the rounds: other programs come and go, so the best of the medians is the
// machine's, and a share above 1 does not come from a moment in which the probe alone was disturbed.
class ReadSpeed {
 public:
  explicit ReadSpeed(ThreadPool& pool) : probe_(pool, kBufferBytes) {}

  void measure();
  double gbps() const { return gbps_; }

 private:
  static constexpr size_t kBufferBytes = size_t{256} << 20, kSampleBytes = size_t{16} << 20;
  ReadProbe probe_;
  double gbps_ = 0;
};

// halfbyte bench --stepped: measures when a line on stdin asks for it, so that another program can run in between.
//
//   prompt TOKENS               one prompt alone               -> {"case":"prompt","tokens":..,"seconds":..}
//   decode ROWS CONTEXT STEPS   sequences that decode together -> {"case":"decode","rows":..,"context":..,"seconds":[..]}
//   read                        memory bandwidth               -> {"case":"read","GBps":..}
//
// The sequences of a (ROWS, CONTEXT) are made at its first line and go on at the next. Ends at the end of stdin.
int run_stepped(const std::shared_ptr<Model>& model, int threads);

// halfbyte bench --policy-cost: two sequences of one model take turns, step by step, one with a fixed temperature and one
// under ReSET; the ratio of the two times, pair by pair.
int run_policy_cost(const std::shared_ptr<Model>& model, const ModelOptions& options, int64_t context, int64_t pairs,
                    bool json);

// halfbyte bench --roofline: every linear kernel of the chosen instruction set against the machine's limits.
struct RooflineOptions {
  std::string kernels;  // as LoadOptions::kernels
  int threads = 0;
  int repeat = 5;
  bool json = false;
  std::string svg;  // a file to write the picture to, or ""
};
int run_roofline(const RooflineOptions& options);

}  // namespace halfbyte::tools
