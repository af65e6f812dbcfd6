// The race of `halfbyte bench --race`: what its lanes show at a time, and its result. Needs no device.
#include "bench_race.h"

#include <gtest/gtest.h>

namespace halfbyte::tools {
namespace {

std::vector<RaceLane> lanes(int batch = 1) {
  return {RaceLane::of("bf16", std::vector<double>(10, 4.0), batch),
          RaceLane::of("w4a16", std::vector<double>(10, 2.0), batch)};
}

TEST(Race, CountsTheTokensThatHaveEnded) {
  const RaceLane lane = RaceLane::of("p", {1.0, 2.0, 0.5});
  EXPECT_EQ(lane.total_ms(), 3.5);
  EXPECT_EQ(lane.tokens_at(0.99), 0);
  EXPECT_EQ(lane.tokens_at(1.0), 1);
  EXPECT_EQ(lane.tokens_at(3.49), 2);
  EXPECT_EQ(lane.tokens_at(1e9), 3);
  EXPECT_EQ(RaceLane::of("p", {}).tokens_at(5), 0);
}

TEST(Race, ALaneStopsItsClockAtItsEnd) {
  const std::string frame = race_frame(lanes(), 30);
  EXPECT_NE(frame.find("    7 tokens   233.3/s   0.03 s"), std::string::npos) << frame;
  EXPECT_NE(frame.find("   10 tokens   500.0/s   0.02 s"), std::string::npos) << frame;
  EXPECT_EQ(race_frame(lanes(), 1e6), race_frame(lanes(), 40)) << "nothing moves behind the last end";
}

TEST(Race, CountsTheTokensOfAllSequences) {
  const std::string frame = race_frame(lanes(/*batch=*/8), 1e6);
  EXPECT_NE(frame.find("   80 tokens  2000.0/s   0.04 s"), std::string::npos) << frame;
  EXPECT_NE(frame.find("   80 tokens  4000.0/s   0.02 s"), std::string::npos) << frame;
}

// --kv holds for both lanes; a cache that is the plan's own stays with its lane, and the result says which lane has which.
TEST(Race, LanesHaveTheCacheThatWasAskedFor) {
  CudaDecodeOptions o;
  o.shape = "qwen3-8b";
  o.plan = *parse_plan("w4a16,kv=fp8");
  const auto own = race_entries(o, /*same_cache=*/false), same = race_entries(o, /*same_cache=*/true);
  ASSERT_TRUE(own.ok() && same.ok());
  EXPECT_EQ((*own)[0].plan, *plan_preset("bf16"));
  EXPECT_EQ((*same)[0].plan.kv, KvKind::kFP8);
  EXPECT_EQ((*same)[0].plan.linear, plan_preset("bf16")->linear);
  for (const auto* entries : {&*own, &*same}) EXPECT_EQ((*entries)[1].plan, o.plan);
  CudaDecodeReport r;
  r.place = {"a device", "portable", "the kernel of each operation"};
  std::vector<RaceLane> two = lanes();
  EXPECT_NE(race_result(o, r, two, false).find("kernels portable, KV cache bf16: "), std::string::npos);
  two[1].kv = KvKind::kFP8;
  EXPECT_NE(race_result(o, r, two, false).find("KV cache bf16 and fp8: "), std::string::npos);
  const std::string json = race_result(o, r, two, true);
  EXPECT_NE(json.find("\"kv\": \"bf16\""), std::string::npos) << json;
  EXPECT_NE(json.find("\"kv\": \"fp8\""), std::string::npos) << json;
}

TEST(Race, ResultsNameBothRates) {
  CudaDecodeOptions o;
  o.shape = "qwen3-8b";
  o.steps = 10;
  o.batch = 2;
  CudaDecodeReport r;
  r.place = {"a device", "portable", "the kernel of each operation"};
  EXPECT_NE(race_result(o, r, lanes(2), false).find("w4a16 is 2.00 times as fast as bf16"), std::string::npos);
  EXPECT_NE(race_result(o, r, lanes(2), false).find("2 sequences, a device, kernels portable"), std::string::npos);
  const std::string json = race_result(o, r, lanes(2), true);
  EXPECT_NE(json.find("\"kernels\": \"portable\""), std::string::npos) << json;
  EXPECT_NE(json.find("\"ratio\": 2.0"), std::string::npos) << json;
  EXPECT_NE(json.find("\"tokens_per_s\": 1000.0"), std::string::npos) << json;
}

}  // namespace
}  // namespace halfbyte::tools
