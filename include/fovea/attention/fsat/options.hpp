// SPDX-License-Identifier: MIT
/// \file
/// The options of FSAT attention (Zhuang et al. 2022; MATHS.md, section 6), and the type of an
/// option that it cannot have.
#pragma once

#include <concepts>
#include <cstdint>
#include <optional>

#include "fovea/core/config.hpp"

FOVEA_NAMESPACE_BEGIN

/// Where an operator on the hidden state cross has no causal form: any value is refused when it is
/// compiled.
struct NotCausal {
  constexpr NotCausal() = default;

  template <class X>
  // NOLINTNEXTLINE(google-explicit-constructor): `.causal = true` is to arrive here
  requires(!std::same_as<X, NotCausal>) constexpr NotCausal(const X& /*flag*/) {
    static_assert(!std::same_as<X, X>,
                  "FSAT and FAT are not causal: position i of the hidden state cross mixes tokens "
                  "up to 2 i + 1, so there is no causal option");
  }
};

/// How sure an edge is: N(I; Ibar, sigma^2) of eqs. 8 and 10.
enum class Confidence : unsigned char {
  density,   ///< the normal density
  relative,  ///< without its constant 1 / sqrt(2 pi sigma^2): 1 at the dominant index
};

/// Where edges lead.
enum class EdgeSource : unsigned char {
  predicted,  ///< to Ip = min(floor(Ibar), Lmax - 1): inference
  random,     ///< to Ir, uniform over the sequence: the ablation of the paper's Table 3
  both,       ///< to both: training
};

/// Options of FsatAttention.
struct FsatOptions {
  /// Lmax, of which Ibar is a fraction (eq. 9): at least the length of every sequence. Must be set.
  Index max_length = 0;
  /// sigma^2; Lmax if not set.
  std::optional<double> variance = {};
  Confidence confidence = Confidence::density;
  /// Scale of the logits; the default is 1/sqrt(D).
  std::optional<double> scale = {};
  EdgeSource edges = EdgeSource::predicted;
  /// Of the random edges: slot m of key j leads to floor(u n), u =
  /// `uniform_draw<double>(seed, sequence, head, j, m)` (fovea/core/philox.hpp), n the length. A
  /// training step takes another one each time, and the same in forward and backward.
  std::uint64_t seed = 0;
  /// Whether the gradient of a confidence flows on only where it is negative (section 4.2.4).
  bool truncate_gradient = true;
  NotCausal causal = {};

  double variance_or_default() const {
    return variance ? *variance : static_cast<double>(max_length);
  }
};

FOVEA_NAMESPACE_END
