// Decides what stdin says, for reset_parity_test.py. A record is (little-endian): rule u8, include_current u8, window i32, tau0
// f64, t_low f32, t_high f32, n i32, n entropies f64, n classes u8. For each record it writes n temperatures f32, n step
// means f64, n running means f64, n bytes boundary + 2 * uncertain.
#include <cstdio>
#include <vector>

#include "decode/reset.h"

namespace {

template <class T>
bool read(T* values, size_t count) {
  return std::fread(values, sizeof(T), count, stdin) == count;
}

template <class T>
void write(const std::vector<T>& values) {
  std::fwrite(values.data(), sizeof(T), values.size(), stdout);
}

}  // namespace

int main() {
  uint8_t rule = 0, include = 0;
  while (read(&rule, 1)) {
    halfbyte::TemperaturePolicy p;
    int32_t window = 0, n = 0;
    if (!read(&include, 1) || !read(&window, 1) || !read(&p.tau0, 1) || !read(&p.t_low, 1) || !read(&p.t_high, 1) ||
        !read(&n, 1))
      return 1;
    p.rule = static_cast<halfbyte::TemperatureRule>(rule);
    p.include_current = include != 0;
    p.window = window;
    const auto count = static_cast<size_t>(n);
    std::vector<double> entropies(count), step(count), running(count);
    std::vector<uint8_t> classes(count), marks(count);
    std::vector<float> temperatures(count);
    if (!read(entropies.data(), count) || !read(classes.data(), count)) return 1;
    halfbyte::TemperatureState state(p);
    for (size_t t = 0; t < count; ++t) {
      const halfbyte::TemperatureChoice c = state.next(entropies[t]);
      state.accept(classes[t]);
      temperatures[t] = c.temperature;
      step[t] = c.step_mean;
      running[t] = c.running_mean;
      marks[t] = static_cast<uint8_t>(c.boundary + 2 * c.uncertain);
    }
    write(temperatures);
    write(step);
    write(running);
    write(marks);
  }
  return 0;
}
