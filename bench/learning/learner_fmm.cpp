// SPDX-License-Identifier: MIT
// Learners of FMM attention: one to three feature maps and a band.
#include <fovea/attention/fmm.hpp>

#include "bench/learning/model.hpp"

namespace learning {

using fovea::EluMinusPlusOne;
using fovea::EluPlusOne;
using fovea::FmmAttention;
using fovea::TanhPlusOne;

std::unique_ptr<Learner> make_fmm_learner(const Settings& settings, const Task& task) {
  if (name_of(settings.system) != "fmm") return nullptr;
  const bool causal = task.asks_rows();
  const auto numbers = numbers_of(settings.system, {1, 10});
  const auto band = causal ? fovea::Band::causal_total(numbers[1]) : fovea::Band::total(numbers[1]);
  if (numbers[0] == 1) {
    return learner_of(FmmAttention<EluPlusOne>{{.band = band, .causal = causal}}, settings, task);
  }
  if (numbers[0] == 2) {
    return learner_of(FmmAttention<EluPlusOne, EluMinusPlusOne>{{.band = band, .causal = causal}},
                      settings, task);
  }
  if (numbers[0] == 3) {
    return learner_of(
        FmmAttention<EluPlusOne, EluMinusPlusOne, TanhPlusOne>{{.band = band, .causal = causal}},
        settings, task);
  }
  throw std::invalid_argument("--systems '" + settings.system + "': expected 1 to 3 maps");
}

}  // namespace learning
