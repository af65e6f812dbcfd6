#include "policy_options.h"

#include <fmt/format.h>

#include "chat/sampling_defaults.h"
#include "decode/reset.h"
#include "model/config.h"
#include "model/published_reset.h"

namespace halfbyte::tools {

void add_policy_flags(Flags& flags, PolicyOptions& o) {
  flags
      .option("--policy", o.rule,
              "What chooses each token's temperature: fixed (--temperature), reset (ReSET: by entropy, step by step), "
              "or one "
              "of its ablations: token, window, step, low-step")
      ->capture_default_str()
      ->check(readable(parse_temperature_rule));
  flags.option("--reset-tau0", o.tau0,
               "Threshold of a confident step, nats (default: the plan's, the published one, 0.6349)");
  flags.option("--reset-t-low", o.t_low, "Temperature below the threshold; 0: greedy (default: likewise, 0.3)");
  flags.option("--reset-t-high", o.t_high, "Temperature from the threshold on (default: 1)");
  flags.option("--reset-window", o.window, "Tokens of the sliding window (default: 32)")->check(whole_number(1, 4096));
  flags.flag("--reset-include-current", o.include_current,
             "Count the token's own entropy in its step's mean, as the paper writes it; its code does not");
}

Result<ChosenPolicy> choose_policy(const PolicyOptions& o, const Model& model, bool temperature_given) {
  ChosenPolicy out;
  TemperaturePolicy& p = out.policy;
  HB_ASSIGN(p.rule, parse_temperature_rule(o.rule));
  const bool given = o.tau0 || o.t_low || o.t_high || o.window || o.include_current;
  if (p.rule == TemperatureRule::kFixed) {
    if (given) return invalid_argument("the --reset- flags belong to a policy; add --policy reset");
    return out;
  }
  if (temperature_given)
    return invalid_argument(
        fmt::format("--policy {} chooses the temperature: leave out --temperature, or use --reset-t-high "
                    "and --reset-t-low",
                    o.rule));
  if (const auto& own = model.plan().reset) {
    p.tau0 = own->tau0;
    p.t_low = own->t_low;
    out.source = "calibrated, from the model's halfbyte_plan.json";
  } else if (const auto published = published_reset(model.config())) {
    p.tau0 = published->tau0;
    p.t_low = published->t_low;
    out.source = fmt::format("published for {}", published->model);
  } else {
    out.source = "the published code's defaults; halfbyte calibrate reset makes values for this model";
  }
  if (const std::string& other = model.summary().calibrated_plan; !other.empty())
    out.source += fmt::format("; those in halfbyte_plan.json are of the plan {} and not used", other);
  if (o.tau0) p.tau0 = *o.tau0;
  if (o.t_low) p.t_low = static_cast<float>(*o.t_low);
  if (o.t_high) p.t_high = static_cast<float>(*o.t_high);
  if (o.window) p.window = *o.window;
  p.include_current = o.include_current;
  if (given) out.source = o.tau0 && o.t_low ? "from the flags" : "from the flags, the rest " + out.source;
  HB_TRY(check_policy(p).with_context("--policy " + o.rule));
  return out;
}

std::string policy_text(const TemperaturePolicy& p) {
  return fmt::format("{}: tau0 {:.4g}, t_low {:.4g}, t_high {:.4g}, window {}{}", name_of(p.rule), p.tau0, p.t_low,
                     p.t_high, p.window, p.include_current ? ", current token included" : "");
}

std::string drawing_text(const SamplingParams& p, const std::string& policy_source) {
  if (p.policy.rule == TemperatureRule::kFixed) return sampling_text(p);
  return fmt::format("{} ({}), top-p {:g}, top-k {}, min-p {:g}{}", policy_text(p.policy), policy_source, p.top_p,
                     p.top_k, p.min_p,
                     p.marker_penalty == 0 ? "" : fmt::format(", marker penalty {:g}", p.marker_penalty));
}

}  // namespace halfbyte::tools
