// The versions that README.md compares. Names: step number, kernel, then tile warps . tiles a warp . groups, stages, in
// flight.
#include "candidates.cuh"

namespace halfbyte::ladder {

namespace {

// The winner: M -> tile warps and tiles a warp; groups, stages and split are the same for every M, so that sums are
// too.
template <int kM, int kTileWarps, int kTiles, Part kPart = Part::kAll, int kConsumerRegisters = 0>
using Winner = GroupsConfig<kM, kTileWarps, kTiles, 2, 5, 4, 1, 1, kPart, kConsumerRegisters, true>;

// The same, adding the slots itself.
template <int kM, int kTileWarps, int kTiles>
using Finishing = GroupsConfig<kM, kTileWarps, kTiles, 2, 5, 4, 1, 1, Part::kAll, 0, true, true>;

template <class Config>
void groups(const char* name) {
  registry().push_back(groups_candidate<Config>(name, 1));
}

template <int kM, bool kC1, bool kC2, bool kC3>
void half2_without(const char* name) {
  registry().push_back(half2_candidate<Half2Config<kM, kC1, kC2, kC3>>(name));
}

}  // namespace

void register_candidates() {
  auto& r = registry();
  r.push_back(registers_candidate<RegistersConfig<1, 8, 4, 2, WordCode::kShifted>>("1-registers", 2));
  r.push_back(registers_candidate<RegistersConfig<8, 8, 2, 2, WordCode::kShifted>>("1-registers", 2));
  r.push_back(registers_candidate<RegistersConfig<1, 8, 4, 2, WordCode::kMixed>>("2-mixed", 2));
  r.push_back(registers_candidate<RegistersConfig<8, 8, 2, 2, WordCode::kMixed>>("2-mixed", 2));
  r.push_back(ring_candidate<RingConfig<1, 8, 1, 2, 5, 1, FirstX::kBulkBehindWeights>>("3-ring 8.1.2 s5", 1));
  r.push_back(ring_candidate<RingConfig<1, 8, 1, 2, 5, 1>>("4-ring-x 8.1.2 s5", 1));
  r.push_back(ring_candidate<RingConfig<1, 8, 1, 2, 5, 1, FirstX::kConsumers, Memory::kInterleaved>>(
      "5-ring-interleaved 8.1.2 s5", 1));
  r.push_back(stream_candidate<StreamConfig<1, 8, 1, 2, 10, 5, 1>>("6-stream 8.1.2 s10 f5", 1));
  r.push_back(bulk_candidate<BulkConfig<1, 4, 2, 2, 10, 7, 1>>("8-bulk 4.2.2 s10 f7", 1));
  r.push_back(bulk_candidate<BulkConfig<8, 8, 1, 2, 10, 7, 1>>("8-bulk 8.1.2 s10 f7", 1));
  groups<GroupsConfig<1, 4, 2, 2, 5, 4, 1>>("9-groups 4.2.2 s5 f4");
  groups<GroupsConfig<8, 8, 1, 2, 5, 4, 1>>("9-groups 8.1.2 s5 f4");
  groups<Winner<1, 4, 2, Part::kCopyOnly>>("10-copy-only");
  groups<Winner<1, 4, 2>>("10-evict-first 4.2.2 s5 f4");
  groups<Winner<2, 4, 2>>("10-evict-first 4.2.2 s5 f4");
  groups<Winner<4, 8, 1>>("10-evict-first 8.1.2 s5 f4");
  groups<Winner<8, 8, 1>>("10-evict-first 8.1.2 s5 f4");
  groups<Winner<16, 8, 1, Part::kAll, 112>>("10-evict-first 8.1.2 s5 f4");
  groups<Finishing<1, 4, 2>>("10-finishing 4.2.2 s5 f4");
  groups<Finishing<2, 4, 2>>("10-finishing 4.2.2 s5 f4");
  groups<Finishing<4, 8, 1>>("10-finishing 8.1.2 s5 f4");
  groups<Finishing<8, 8, 1>>("10-finishing 8.1.2 s5 f4");
  half2_without<1, true, true, true>("half2 C1 C2 C3");
  half2_without<1, true, false, true>("half2 C1 C3");
  half2_without<1, true, true, false>("half2 C1 C2");
  half2_without<4, true, true, true>("half2 C1 C2 C3");
  half2_without<4, false, true, true>("half2 C2 C3");
  half2_without<4, true, false, true>("half2 C1 C3");
  half2_without<4, true, true, false>("half2 C1 C2");
  half2_without<8, true, true, true>("half2 C1 C2 C3");
  half2_without<8, false, true, true>("half2 C2 C3");
  half2_without<8, true, false, true>("half2 C1 C3");
  half2_without<8, true, true, false>("half2 C1 C2");
}

}  // namespace halfbyte::ladder
