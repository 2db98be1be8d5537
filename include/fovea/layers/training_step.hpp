// SPDX-License-Identifier: MIT
/// \file
/// The switch between training and evaluation: tokens that have a step of training are trained on,
/// and all others are evaluated.
#pragma once

#include <cstdint>

#include "fovea/core/philox.hpp"

FOVEA_NAMESPACE_BEGIN

/// A step of training. What layers drop is a function of it, of the place in the layer and of the
/// position alone, so that the backward pass drops the same without keeping it.
struct TrainingStep {
  std::uint64_t seed = 0;  ///< of the run
  /// Number of the step, another one for each forward pass that should drop something else.
  std::uint64_t step = 0;
  /// Number of the layer. An EncoderStack counts its blocks from this number on; blocks that a
  /// program calls one by one are given different numbers by the program.
  std::uint32_t layer = 0;

  /// Whether both drop the same.
  bool operator==(const TrainingStep&) const = default;
};

/// The places of a layer where something is dropped.
enum class DropoutPlace : std::uint32_t {
  weights,             ///< of attention, after the softmax
  after_attention,     ///< what the attention layer of a block gives
  after_feed_forward,  ///< what the feed-forward network of a block gives
  own,                 ///< of a DropoutLayer that a program calls itself, as after an embedding
};

/// The seed of the draws of one place of one layer in one step.
[[nodiscard]] constexpr std::uint64_t dropout_seed(const TrainingStep& training,
                                                   DropoutPlace place) {
  const auto words =
      philox4x32_10({detail::low_half(training.step), detail::high_half(training.step),
                     training.layer, static_cast<std::uint32_t>(place)},
                    {detail::low_half(training.seed), detail::high_half(training.seed)});
  return std::uint64_t{words[0]} << 32 | words[1];
}

FOVEA_NAMESPACE_END
