// SPDX-License-Identifier: MIT
/// \file
/// The options of FSAT attention (Zhuang et al. 2022; MATHS.md, section 6), and the type of an
/// option that it does not support.
#pragma once

#include <concepts>
#include <cstdint>
#include <optional>

#include "fovea/core/config.hpp"

FOVEA_NAMESPACE_BEGIN

/// The type of the unsupported option `causal` of operators on the hidden state cross, which have
/// no causal form. Setting it does not compile.
struct NotCausal {
  /// The only value.
  constexpr NotCausal() = default;

  /// Fails to compile with a message.
  template <class X>
  // NOLINTNEXTLINE(google-explicit-constructor): so that `.causal = true` arrives here
  requires(!std::same_as<X, NotCausal>) constexpr NotCausal(const X& /*flag*/) {
    static_assert(!std::same_as<X, X>,
                  "FSAT and FAT are not causal: position i of the hidden state cross mixes tokens "
                  "up to 2 i + 1, so there is no causal option");
  }
};

/// The confidence of an edge: the normal density N(I; Ibar, sigma^2) of eqs. 8 and 10.
enum class Confidence : unsigned char {
  density,   ///< the normal density
  relative,  ///< the density without its constant 1 / sqrt(2 pi sigma^2), so 1 at I = Ibar
};

/// Which edges a key's slots produce.
enum class EdgeSource : unsigned char {
  predicted,  ///< from query Ip = min(floor(Ibar), Lmax - 1): for inference
  random,     ///< from query Ir, uniform over the sequence: the ablation in the paper's Table 3
  both,       ///< from both: for training
};

/// Options of FsatAttention.
struct FsatOptions {
  /// Lmax, of which Ibar is a fraction (eq. 9). Required: at least 1 and the length of every
  /// sequence.
  Index max_length = 0;
  /// sigma^2, positive; the default is Lmax.
  std::optional<double> variance = {};
  /// Whether confidences include the constant of the normal density.
  Confidence confidence = Confidence::density;
  /// Scale of the logits; the default is 1/sqrt(D).
  std::optional<double> scale = {};
  /// Which edges to use; the default is for inference.
  EdgeSource edges = EdgeSource::predicted;
  /// Seed of the random edges. That of slot m of key j comes from query floor(u n) with u =
  /// `uniform_draw<double>(seed, sequence, head, j, m)` (fovea/core/philox.hpp) and n the length.
  /// Each training step should use a new seed, the same in forward and backward.
  std::uint64_t seed = 0;
  /// If true, only negative gradients of confidences are propagated (section 4.2.4).
  bool truncate_gradient = true;
  /// There is no causal option: setting it does not compile.
  NotCausal causal = {};

  /// sigma^2: the option, or Lmax.
  double variance_or_default() const {
    return variance ? *variance : static_cast<double>(max_length);
  }
  /// The number of edges that one slot can have: 1 or 2.
  Index edges_per_slot() const { return edges == EdgeSource::both ? 2 : 1; }
};

FOVEA_NAMESPACE_END
