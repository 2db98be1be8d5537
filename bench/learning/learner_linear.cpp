// SPDX-License-Identifier: MIT
// Learners of linear attention with one to three feature maps.
#include <fovea/attention/linear.hpp>

#include "bench/learning/model.hpp"

namespace learning {

using fovea::EluMinusPlusOne;
using fovea::EluPlusOne;
using fovea::LinearAttention;
using fovea::TanhPlusOne;

std::unique_ptr<Learner> make_linear_learner(const Settings& settings, const Task& task) {
  if (name_of(settings.system) != "linear") return nullptr;
  const bool causal = task.asks_rows();
  const Index maps = numbers_of(settings.system, {1})[0];
  if (maps == 1) {
    return learner_of(LinearAttention<EluPlusOne>{{.causal = causal}}, settings, task);
  }
  if (maps == 2) {
    return learner_of(LinearAttention<EluPlusOne, EluMinusPlusOne>{{.causal = causal}}, settings,
                      task);
  }
  if (maps == 3) {
    return learner_of(LinearAttention<EluPlusOne, EluMinusPlusOne, TanhPlusOne>{{.causal = causal}},
                      settings, task);
  }
  throw std::invalid_argument("--systems '" + settings.system + "': expected 1 to 3 maps");
}

}  // namespace learning
