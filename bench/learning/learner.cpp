// SPDX-License-Identifier: MIT
// What all learners share: their settings as a text, and how a system is found by its name.
#include "bench/learning/learner.hpp"

#include <charconv>
#include <cstdio>

namespace learning {

std::string Settings::text() const {
  char numbers[400];
  std::snprintf(numbers, sizeof numbers,
                " tokens %td to %td, width %td, layers %td, heads %td, steps %td, batch %td, held "
                "out %td, rate %.17g, seed %llu",
                shortest, length, width, layers, heads, steps, batch, held_out, learning_rate,
                static_cast<unsigned long long>(seed));
  return task + " " + system + numbers;
}

std::string known_systems() {
  return "full, local:WINDOW, strided:STRIDE, fixed:STRIDE:SUMMARY, linear:MAPS, fmm:MAPS:BAND, "
         "smart_bird:KEYS, fsat:DOMINANT";
}

std::vector<Index> numbers_of(const std::string& system, std::vector<Index> otherwise) {
  std::size_t at = system.find(':');
  for (Index& number : otherwise) {
    if (at == system.npos) break;
    const char* const begin = system.data() + at + 1;
    at = system.find(':', at + 1);
    const char* const stop = system.data() + std::min(at, system.size());
    const auto [end, error] = std::from_chars(begin, stop, number);
    if (error != std::errc{} || end != stop || number < 1 || number > (Index{1} << 30)) {
      throw std::invalid_argument("--systems '" + system + "': '" + std::string(begin, stop) +
                                  "' is not a whole number of at least 1");
    }
  }
  if (at != system.npos) {
    throw std::invalid_argument("--systems '" + system + "': it has too many numbers");
  }
  return otherwise;
}

std::unique_ptr<Learner> make_learner(const Settings& settings, const Task& task) {
  for (MakeLearner* const make : {make_softmax_learner, make_linear_learner, make_fmm_learner,
                                  make_sketch_learner, make_fsat_learner}) {
    if (auto learner = make(settings, task)) return learner;
  }
  throw std::invalid_argument("--systems '" + settings.system + "' is none of " + known_systems());
}

}  // namespace learning
