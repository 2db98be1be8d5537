// SPDX-License-Identifier: MIT
/// \file
/// The switch between training and evaluation: tokens with a training step are trained on, all
/// others evaluated.
#pragma once

#include <cstdint>

#include "fovea/core/philox.hpp"

FOVEA_NAMESPACE_BEGIN

/// A training step. Dropout depends only on it, the place in the layer and the position, so that
/// the backward pass drops the same elements without storing them.
struct TrainingStep {
  std::uint64_t seed = 0;  ///< the run's seed
  /// The step's number; passes with different numbers drop different elements.
  std::uint64_t step = 0;
  /// The layer's number. An EncoderStack numbers its blocks from here; blocks called individually
  /// need different numbers.
  std::uint32_t layer = 0;

  /// Whether both drop the same elements.
  bool operator==(const TrainingStep&) const = default;
};

/// Where in a layer dropout is applied.
enum class DropoutPlace : std::uint32_t {
  weights,             ///< of attention, after the softmax
  after_attention,     ///< the output of a block's attention layer
  after_feed_forward,  ///< the output of a block's feed-forward network
  own,                 ///< a DropoutLayer called directly, as after an embedding
};

/// The seed of one place of one layer in one step.
[[nodiscard]] constexpr std::uint64_t dropout_seed(const TrainingStep& training,
                                                   DropoutPlace place) {
  const auto words =
      philox4x32_10({detail::low_half(training.step), detail::high_half(training.step),
                     training.layer, static_cast<std::uint32_t>(place)},
                    {detail::low_half(training.seed), detail::high_half(training.seed)});
  return std::uint64_t{words[0]} << 32 | words[1];
}

FOVEA_NAMESPACE_END
