"""ReSET: step-aware temperature from entropy (Lee et al., "ReSET: Accurate Latency-Critical NVFP4 Reasoning via Step-Aware
Temperature Scaling", 2026; the policy as its published code behaves, which differs from the paper in excluding H_t).

Per request, before a token is drawn, with H_t the entropy of the raw logits (sampler.entropy, nats):
    boundary (the last emitted tokens ended a reasoning step): the step buffer is emptied, the window is not
    H_step = mean of the last w entropies (the window; H_t if empty) while the step holds fewer than w, else the step's mean
    H_bar  = mean of all earlier entropies (H_step if none)
    T      = T_high if H_t >= (H_step if H_step > H_bar else tau0) else T_low
then H_t is appended everywhere. All means exclude H_t. Sums are float64, oldest entropy first.

Ablations, by `rule`: "token" compares with tau0 always; "window" takes the window for H_step always; "step" the step's mean always
(H_t at its first token); "low-step" is T_low for every token of a confident step. `include_current` counts H_t in H_step (as the
paper writes it), the window then being the last w entropies with H_t.
"""

from dataclasses import dataclass, field

NEWLINE, DOUBLE_NEWLINE = 1, 2


def piece_class(text):
    """2: the token's text contains two newlines in a row; 1: it is exactly one newline; else 0. Added special tokens: 0."""
    return DOUBLE_NEWLINE if "\n\n" in text else NEWLINE if text == "\n" else 0


def at_boundary(classes):
    """True when the generated tokens so far (their classes) end a step: the last contains a blank line, or the last two
    are one newline each. Prompt tokens never count."""
    return len(classes) > 0 and (classes[-1] == DOUBLE_NEWLINE or list(classes[-2:]) == [NEWLINE, NEWLINE])


@dataclass
class Reset:
    tau0: float
    t_low: float
    t_high: float = 1.0
    window: int = 32
    rule: str = "reset"
    include_current: bool = False
    _recent: list = field(default_factory=list)      # the last `window` entropies
    _step_sum: float = 0.0
    _step_count: int = 0
    _all_sum: float = 0.0
    _all_count: int = 0

    def step(self, h, boundary):
        """(temperature, H_step, H_bar, uncertain) for the token about to be drawn."""
        if boundary:
            self._step_sum, self._step_count = 0.0, 0
        h_step = self._level(h)
        h_bar = self._all_sum / self._all_count if self._all_count else h_step
        uncertain = h_step > h_bar
        threshold = h_step if uncertain and self.rule != "token" else self.tau0
        high = h >= threshold and (uncertain or self.rule != "low-step")
        temperature = self.t_high if high else self.t_low
        self._step_sum, self._step_count = self._step_sum + h, self._step_count + 1
        self._all_sum, self._all_count = self._all_sum + h, self._all_count + 1
        self._recent = (self._recent + [h])[-self.window:]
        return temperature, h_step, h_bar, uncertain

    def _level(self, h):
        if self.rule == "window" or (self.rule != "step" and self._step_count < self.window):
            return self._window_mean(h)
        if self.include_current:
            return (self._step_sum + h) / (self._step_count + 1)
        return self._step_sum / self._step_count if self._step_count else h

    def _window_mean(self, h):
        entropies = self._recent
        if self.include_current or not entropies:
            entropies = (entropies + [h])[-self.window:]
        total = 0.0
        for entropy in entropies:
            total += entropy
        return total / len(entropies)
