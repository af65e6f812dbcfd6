#include "quantize/recipe.h"

#include "base/quote.h"

namespace halfbyte {
namespace {

Result<QuantLinear> round_to_nearest(const WeightSource& weight, float group_amax, ThreadPool& pool) {
  QuantizeOptions options;
  options.format = WeightFormat::kNVFP4;
  options.amax = group_amax;
  return quantize_weight(weight, options, pool);
}

}  // namespace

std::vector<Recipe> recipes() {
  return {{"bf16", "every tensor in BF16, nothing quantised", nullptr},
          {"rtn", "NVFP4 weights, round to nearest, no calibration data", round_to_nearest}};
}

Result<Recipe> recipe_named(std::string_view name) {
  std::string known;
  for (Recipe& recipe : recipes()) {
    if (recipe.name == name) return std::move(recipe);
    known += (known.empty() ? "" : ", ") + recipe.name;
  }
  return invalid_argument("there is no recipe " + quote(name) + "; recipes: " + known);
}

}  // namespace halfbyte
