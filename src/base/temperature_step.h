// The temperature of one token as a function of its entropy: what a policy (decode/reset.h) knows before the logits of
// the token are there. A machine that draws by itself evaluates it beside the logits and needs no state of the policy.
#pragma once

namespace halfbyte {

struct TemperatureStep {
  // H_step = (sum + H_t where it counts) / count; count >= 1.
  double sum = 0;
  double count = 1;
  double running_mean = 0;  // H_bar, where there is one: else H_step stands for it
  double tau0 = 0;
  float t_low = 0, t_high = 0;
  bool counts_current = false;
  bool has_running_mean = false;
  bool by_token = false;       // the threshold is tau0 always
  bool low_confident = false;  // t_low for every token of a confident step

  struct Decision {
    float temperature;
    double step_mean, running_mean, threshold;
    bool uncertain;
  };
  // entropy: H_t in nats. The same bits on host and device: single FP64 operations.
  constexpr Decision decide(double entropy) const {
    Decision d{};
    d.step_mean = (sum + (counts_current ? entropy : 0.0)) / count;
    d.running_mean = has_running_mean ? running_mean : d.step_mean;
    d.uncertain = d.step_mean > d.running_mean;
    d.threshold = d.uncertain && !by_token ? d.step_mean : tau0;
    const bool high = entropy >= d.threshold && (d.uncertain || !low_confident);
    d.temperature = high ? t_high : t_low;
    return d;
  }
};

}  // namespace halfbyte
