// SPDX-License-Identifier: MIT
// Learners of full, local, strided and fixed attention: one operator with any of their patterns.
#include "bench/learning/model.hpp"
#include "examples/models/chosen_attention.hpp"

namespace learning {

using models::ChosenAttention;

std::unique_ptr<Learner> make_softmax_learner(const Settings& settings, const Task& task) {
  const std::string name = name_of(settings.system);
  const bool causal = task.asks_rows();
  const auto learner = [&](const auto& op) {
    return learner_of(ChosenAttention::of(op), settings, task);
  };
  if (name == "full") {
    numbers_of(settings.system, {});
    return learner(fovea::FullAttention{{.causal = causal}});
  }
  if (name == "local") {
    // A band of that many keys, the last of which is the row's own if it is causal.
    const Index keys = numbers_of(settings.system, {16})[0];
    const auto band = causal ? fovea::Band::causal_total(keys) : fovea::Band::total(keys);
    return learner(fovea::LocalAttention{{.left = band.left, .right = band.right}});
  }
  if (name == "strided") {
    const Index stride = numbers_of(settings.system, {16})[0];
    return learner(fovea::StridedAttention{{.stride = stride, .causal = causal}});
  }
  if (name == "fixed") {
    const auto numbers = numbers_of(settings.system, {16, 4});
    return learner(
        fovea::FixedAttention{{.stride = numbers[0], .summary = numbers[1], .causal = causal}});
  }
  return nullptr;
}

}  // namespace learning
