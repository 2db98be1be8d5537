// SPDX-License-Identifier: MIT
/// \file
/// Layer normalisation over the channels of a token (Ba, Kiros and Hinton 2016).
#pragma once

#include "fovea/layers/row_norm.hpp"

FOVEA_NAMESPACE_BEGIN

/// Options of LayerNorm.
struct LayerNormOptions {
  double epsilon = 1e-5;      ///< added to the variance, more than 0
  const char* name = "norm";  ///< the prefix of its parameters' names
};

/// y = (x - mean) / sqrt(variance + epsilon) * scale + shift, with the mean and variance of the C
/// channels of a token. A row of zeros gives exactly `shift`. See RowNorm for its passes.
template <class T>
class LayerNorm : public RowNorm<LayerNorm<T>, T> {
 public:
  /// Rows are centred and shifted.
  static constexpr bool kIsCentred = true;

  Parameter<T> shift;  ///< [1, C], initially 0

  /// An empty layer; assign one before use.
  LayerNorm() = default;

  /// Normalises activations of this width.
  /// \throws std::invalid_argument if the width is below 1 or epsilon is not above 0
  explicit LayerNorm(Index width, const LayerNormOptions& options = {})
      : RowNorm<LayerNorm<T>, T>(width, options.epsilon, options.name),
        shift(std::string(options.name) + ".shift", 1, width) {}

  /// The name in error messages.
  static constexpr const char* name() { return "LayerNorm"; }

  /// Lists the scale and the shift.
  template <class Self, class F>
  static void each_part(Self& self, F&& f) {
    f(self.scale);
    f(self.shift);
  }
};

FOVEA_NAMESPACE_END
