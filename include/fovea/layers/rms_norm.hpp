// SPDX-License-Identifier: MIT
/// \file
/// Root mean square layer normalisation over the channels of a token (Zhang and Sennrich 2019,
/// "Root Mean Square Layer Normalization", eq. 4).
#pragma once

#include "fovea/layers/row_norm.hpp"

FOVEA_NAMESPACE_BEGIN

/// Options of RmsNorm.
struct RmsNormOptions {
  double epsilon = 1e-6;      ///< added to the mean square, more than 0; 0 in the paper
  const char* name = "norm";  ///< the prefix of its parameter's name
};

/// y = x / sqrt(mean(x^2) + epsilon) * scale, with the mean over the C channels of a token. The
/// scale is the gain g of the paper. A row of zeros gives zeros. See RowNorm for its passes.
template <class T>
class RmsNorm : public RowNorm<RmsNorm<T>, T> {
 public:
  /// Rows are neither centred nor shifted.
  static constexpr bool kIsCentred = false;

  /// An empty layer; assign one before use.
  RmsNorm() = default;

  /// Normalises activations of this width.
  /// \throws std::invalid_argument if the width is below 1 or epsilon is not above 0
  explicit RmsNorm(Index width, const RmsNormOptions& options = {})
      : RowNorm<RmsNorm<T>, T>(width, options.epsilon, options.name) {}

  /// The name in error messages.
  static constexpr const char* name() { return "RmsNorm"; }

  /// Lists the scale.
  template <class Self, class F>
  static void each_part(Self& self, F&& f) {
    f(self.scale);
  }
};

FOVEA_NAMESPACE_END
