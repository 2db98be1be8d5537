// SPDX-License-Identifier: MIT
/// \file
/// The FSAT layer (Zhuang et al. 2022, sections 3 and 4): attention along edges predicted from the
/// hidden state cross. Requires FFTW.
#pragma once

#include "fovea/layers/hidden_cross_layer.hpp"
#include "fovea/layers/predicted_dominant.hpp"

FOVEA_NAMESPACE_BEGIN

/// Options of FsatLayer: those of HiddenCrossOptions, the number of predictions, and those of the
/// operator.
struct FsatLayerOptions : HiddenCrossOptions {
  Index dominant = 4;          ///< M, the indices predicted per key and head
  FsatOptions attention = {};  ///< options of FsatAttention; max_length (Lmax) must be set
};

/// Maps x [B, 1, L, Dm] to y by FsatAttention, as HiddenCrossLayer describes, where L is at most
/// Lmax. PredictedDominant computes the dominant indices from C. A new layer uses inference edges.
template <class T = float>
class FsatLayer : public HiddenCrossLayer<FsatAttention, T, PredictedDominant<T>> {
  using Base = HiddenCrossLayer<FsatAttention, T, PredictedDominant<T>>;

 public:
  /// An empty layer; assign one before use.
  FsatLayer() = default;

  /// Draws the weights. \throws std::invalid_argument if sizes are inconsistent
  FsatLayer(const FsatLayerOptions& options, Initialiser& initialiser)
      : Base("FsatLayer", FsatAttention(options.attention), options, options.dominant,
             initialiser) {}

  /// Uses predicted and random edges from now on, as in training (section 4.2.3). The random ones
  /// are drawn unless the tokens give their queries, `Tokens::random`.
  /// \param seed seeds the random edges of this step: different for each step and layer, equal in
  /// forward and backward
  void set_training(std::uint64_t seed) {
    this->op().options.edges = EdgeSource::both;
    this->op().options.seed = seed;
  }

  /// Uses only predicted edges from now on.
  void set_inference() { this->op().options.edges = EdgeSource::predicted; }
};

FOVEA_NAMESPACE_END
