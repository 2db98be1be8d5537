// SPDX-License-Identifier: MIT
/// \file
/// Training checkpoints as named tensors: parameters, Adam's state, and the program's counters.
#pragma once

#include <charconv>
#include <cstdint>

#include "fovea/io/parameters.hpp"
#include "fovea/layers/adam.hpp"

FOVEA_NAMESPACE_BEGIN

/// The counters of a training program.
struct TrainingProgress {
  Index step = 0;          ///< the number of steps taken
  std::uint64_t seed = 0;  ///< the seed of its random draws
};

namespace detail {

inline constexpr const char* kAdamMean = "adam.mean.";
inline constexpr const char* kAdamSquare = "adam.square.";

/// A number in the metadata. \throws std::runtime_error if it is not a number
template <class Number>
Number number_at(const TensorSet& set, const std::string& name) {
  const std::string& text = set.string_at(name);
  Number number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc{} || end != text.data() + text.size() || number < Number{0}) {
    refuse_file(set.origin, quoted_name(name) + " in its metadata is " + quoted_name(text) +
                                ", which is not a non-negative integer");
  }
  return number;
}

}  // namespace detail

/// The parameters under their names, Adam's state as "adam.mean.NAME" and "adam.square.NAME", and
/// "step", "seed" and "adam.steps" in the metadata. Tensors refer to the memory of both. Adam's
/// options are not included. \throws std::invalid_argument if two parameters have the same name
template <class Layer, class T>
TensorSet checkpoint_of(Layer& layer, Adam<T>& adam, const TrainingProgress& progress = {}) {
  TensorSet set = parameters_of(layer);
  adam.visit_state(
      layer, [&](const std::string& name, const RowMatrix<T>& mean, const RowMatrix<T>& square) {
        detail::add_tensor(detail::kAdamMean + name, mean, kDtype<T>, set);
        detail::add_tensor(detail::kAdamSquare + name, square, kDtype<T>, set);
      });
  set.metadata = {{"step", std::to_string(progress.step)},
                  {"seed", std::to_string(progress.seed)},
                  {"adam.steps", std::to_string(adam.steps())}};
  return set;
}

/// Restores a checkpoint from `checkpoint_of`: the next step is bit-identical to that of the
/// original run.
/// \param layer, adam of the same sizes; Adam's options are not restored
/// \return the counters of the program
/// \throws std::runtime_error "<file>: <what is wrong>", with nothing changed, as load_parameters
template <class Layer, class T>
TrainingProgress load_checkpoint(Layer& layer, Adam<T>& adam, const TensorSet& set) {
  const TrainingProgress progress{.step = detail::number_at<Index>(set, "step"),
                                  .seed = detail::number_at<std::uint64_t>(set, "seed")};
  const auto steps = detail::number_at<Index>(set, "adam.steps");
  const LoadOptions options;
  detail::LoadPlan plan(set, options);
  layer.visit([&](const std::string& name, auto& parameter) { plan.add(name, parameter.value); });
  adam.visit_state(layer, [&](const std::string& name, RowMatrix<T>& mean, RowMatrix<T>& square) {
    plan.add(detail::kAdamMean + name, mean);
    plan.add(detail::kAdamSquare + name, square);
  });
  plan.read();
  adam.set_steps(steps);
  return progress;
}

FOVEA_NAMESPACE_END
