// A halfbyte_plan.json, and the same bytes as the one-line form of --plan: an error in one printable line, or a plan that
// resolves every linear and reads back equal from what is written of it.
#include "../io/fuzz_support.h"
#include "halfbyte/plan.h"

namespace {

using namespace halfbyte;
using fuzzing::check_message;
using fuzzing::require;

void check_plan(const Result<PrecisionPlan>& plan) {
  check_message(plan.status());
  if (!plan.ok()) return;
  for (const char* name : {"lm_head", "layers.0.self_attn.q_proj", "layers.17.mlp.down_proj", ""})
    plan->linear_for(name);
  const auto back = plan_from_json(plan_to_json(*plan), "back");
  require(back.ok() && *back == *plan);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text = fuzzing::text_of(data, size);
  check_plan(plan_from_json(text, "halfbyte_plan.json"));
  // A command line cannot hold what JSON may: the text is as it comes, valid UTF-8 or not.
  const auto plan = parse_plan(text);
  check_message(plan.status());
  if (plan.ok() && !find_invalid_utf8(text)) check_plan(plan);
  return 0;
}
