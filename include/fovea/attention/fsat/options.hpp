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

/// The type of an option that an operator on the hidden state cross does not have, since it has no
/// causal form. Giving it any value does not compile.
struct NotCausal {
  /// The only value.
  constexpr NotCausal() = default;

  /// Does not compile, and says why.
  template <class X>
  // NOLINTNEXTLINE(google-explicit-constructor): `.causal = true` is to arrive here
  requires(!std::same_as<X, NotCausal>) constexpr NotCausal(const X& /*flag*/) {
    static_assert(!std::same_as<X, X>,
                  "FSAT and FAT are not causal: position i of the hidden state cross mixes tokens "
                  "up to 2 i + 1, so there is no causal option");
  }
};

/// How sure an edge is: the normal density N(I; Ibar, sigma^2) of eqs. 8 and 10.
enum class Confidence : unsigned char {
  density,   ///< the normal density
  relative,  ///< the density without its constant 1 / sqrt(2 pi sigma^2), so 1 at I = Ibar
};

/// Which edges a key gets from its slots.
enum class EdgeSource : unsigned char {
  predicted,  ///< from query Ip = min(floor(Ibar), Lmax - 1): for inference
  random,     ///< from query Ir, uniform over the sequence: the ablation of the paper's Table 3
  both,       ///< from both: for training
};

/// Options of FsatAttention.
struct FsatOptions {
  /// Lmax, of which Ibar is a fraction (eq. 9). It must be set, to at least 1 and the length of
  /// every sequence.
  Index max_length = 0;
  /// sigma^2, positive; the default is Lmax.
  std::optional<double> variance = {};
  /// Whether confidences have the constant of the normal density.
  Confidence confidence = Confidence::density;
  /// Scale of the logits; the default is 1/sqrt(D).
  std::optional<double> scale = {};
  /// Which edges there are; the default is that of inference.
  EdgeSource edges = EdgeSource::predicted;
  /// Seed of the random edges. That of slot m of key j comes from query floor(u n) with u =
  /// `uniform_draw<double>(seed, sequence, head, j, m)` (fovea/core/philox.hpp) and n the length.
  /// Each training step should take a new seed, the same one in forward and backward.
  std::uint64_t seed = 0;
  /// If true, the gradient of a confidence flows on only where it is negative (section 4.2.4).
  bool truncate_gradient = true;
  /// There is no causal option: giving it a value does not compile.
  NotCausal causal = {};

  /// sigma^2: the option, or Lmax.
  double variance_or_default() const {
    return variance ? *variance : static_cast<double>(max_length);
  }
  /// The number of edges that one slot can have: 1 or 2.
  Index edges_per_slot() const { return edges == EdgeSource::both ? 2 : 1; }
};

FOVEA_NAMESPACE_END
