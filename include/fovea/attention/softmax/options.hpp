// SPDX-License-Identifier: MIT
/// \file
/// The common options of softmax operators (MATHS.md, section 2), and their checks.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>

#include "fovea/attention/call/logit_scale.hpp"
#include "fovea/core/error.hpp"
#include "fovea/patterns/pattern.hpp"

FOVEA_NAMESPACE_BEGIN

/// Dropout of the weights after the softmax. A weight is kept, and divided by 1 - probability, if
/// `uniform_draw<T>(seed, batch, head, i, j)` (fovea/core/philox.hpp) is at least `probability`;
/// otherwise it becomes 0. Here i and j are positions, and batch is the number of the sequence.
/// `lse` includes dropped weights.
struct Dropout {
  double probability = 0;  ///< probability that a weight is dropped, in [0, 1); 0: no dropout
  std::uint64_t seed = 0;  ///< seed of the draws, the same for forward and backward

  /// Calls f with what affects results: the seed only if there is dropout.
  template <class F>
  constexpr void for_each_option(F&& f) const {
    f(probability);
    if (probability > 0) f(seed);
  }
};

/// Common options of softmax operators.
struct SoftmaxOptions {
  /// Scale of the logits; the default is 1/sqrt(D).
  std::optional<double> scale = {};
  /// Position of query row 0; by default the queries end where the rows of k end.
  CausalAlignment alignment = CausalAlignment::bottom_right;
  /// If set, the logit z becomes cap tanh(z / cap), before bias, ALiBi and mask.
  std::optional<double> soft_cap = {};
  /// Dropout of the weights, after the softmax; none by default.
  Dropout dropout = {};
};

/// \tparam T the type of the arithmetic
/// \throws std::invalid_argument if the scale or the soft cap is not finite in T, the soft cap is
/// not positive, or the dropout probability is not in [0, 1)
template <class T>
void check_softmax_options(const char* op, const SoftmaxOptions& options) {
  detail::check_scale<T>(op, "scale", options.scale);
  if (options.soft_cap) {
    constexpr auto most = static_cast<double>((std::numeric_limits<T>::max)());
    constexpr auto least = static_cast<double>((std::numeric_limits<T>::min)());
    const double cap = *options.soft_cap;
    if (!(cap >= least && cap <= most)) {
      refuse(op, "soft_cap", to_string(cap), "more than 0 and finite in the inputs' type");
    }
  }
  const double p = options.dropout.probability;
  if (!(p >= 0 && p < 1)) {
    refuse(op, "dropout.probability", to_string(p), "at least 0 and less than 1");
  }
}

FOVEA_NAMESPACE_END
