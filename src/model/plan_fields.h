// The fields of a plan by name: what the one-line form (plan.cpp) and the JSON form (plan_json.cpp) share.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"
#include "halfbyte/plan.h"

namespace halfbyte {

// "weights", "activations", "activation_scale".
bool is_linear_field(std::string_view field);

// Sets one field from its text. Setting weights moves activations that do not fit them to the weights' own precision
// (bf16 weights cannot have fp4 activations), so "weights=bf16" alone is enough.
Status set_linear_field(LinearPlan& plan, std::string_view field, std::string_view value);
Status set_embedding(PrecisionPlan& plan, std::string_view value);
Status set_kv(PrecisionPlan& plan, std::string_view value);
Status set_kv_scale(PrecisionPlan& plan, std::string_view value);

// The shortest text that parse_plan() reads as this plan: the preset, and behind it what differs from it. Calibrated values
// have no place in it.
std::string plan_to_text(const PrecisionPlan& plan);

// invalid_argument for a combination that has no meaning: fp8 and fp4 activations need FP4 weights.
Status check_linear_plan(const LinearPlan& plan);
Status check_plan(const PrecisionPlan& plan);

}  // namespace halfbyte
