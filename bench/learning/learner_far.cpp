// SPDX-License-Identifier: MIT
// Learners of linear attention and of FMM attention, with one to three feature maps.
#include <fovea/attention/fmm.hpp>
#include <fovea/attention/linear.hpp>

#include "bench/learning/model.hpp"

namespace learning {
namespace {

/// make.operator()<Maps...>() with the first `count` maps.
template <class F>
std::unique_ptr<Learner> with_maps(const Settings& settings, Index count, const F& make) {
  using fovea::EluMinusPlusOne, fovea::EluPlusOne, fovea::TanhPlusOne;
  if (count == 1) return make.template operator()<EluPlusOne>();
  if (count == 2) return make.template operator()<EluPlusOne, EluMinusPlusOne>();
  if (count == 3) return make.template operator()<EluPlusOne, EluMinusPlusOne, TanhPlusOne>();
  throw std::invalid_argument("--systems '" + settings.system + "': expected 1 to 3 maps");
}

}  // namespace

std::unique_ptr<Learner> make_far_learner(const Settings& settings, const Task& task) {
  const std::string name = name_of(settings.system);
  const bool causal = task.asks_rows();
  if (name == "linear") {
    const Index maps = numbers_of(settings.system, {1})[0];
    return with_maps(settings, maps, [&]<class... Maps>() {
      return learner_of(fovea::LinearAttention<Maps...>{{.causal = causal}}, settings, task);
    });
  }
  if (name == "fmm") {
    const auto numbers = numbers_of(settings.system, {1, 10});
    const auto band =
        causal ? fovea::Band::causal_total(numbers[1]) : fovea::Band::total(numbers[1]);
    return with_maps(settings, numbers[0], [&]<class... Maps>() {
      return learner_of(fovea::FmmAttention<Maps...>{{.band = band, .causal = causal}}, settings,
                        task);
    });
  }
  return nullptr;
}

}  // namespace learning
