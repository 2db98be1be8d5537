// SPDX-License-Identifier: MIT
/// \file
/// The FSAT layer (Zhuang et al. 2022, sections 3 and 4): attention along the edges that the hidden
/// state cross predicts. It needs FFTW.
#pragma once

#include "fovea/layers/hidden_cross_layer.hpp"
#include "fovea/layers/predicted_dominant.hpp"

FOVEA_NAMESPACE_BEGIN

/// Options of FsatLayer: those of HiddenCrossOptions, the number of predictions, and those of the
/// operator.
struct FsatLayerOptions : HiddenCrossOptions {
  Index dominant = 4;          ///< M, how many indices are predicted for each key and head
  FsatOptions attention = {};  ///< options of FsatAttention, of which max_length (Lmax) must be set
};

/// Maps x [B, 1, L, Dm] to y by FsatAttention, as HiddenCrossLayer describes, where L is at most
/// Lmax. PredictedDominant makes the dominant indices of C. A new layer uses the edges of
/// inference.
template <class T = float>
class FsatLayer : public HiddenCrossLayer<FsatAttention, T, PredictedDominant<T>> {
  using Base = HiddenCrossLayer<FsatAttention, T, PredictedDominant<T>>;

 public:
  /// A layer without sizes, which has yet to be assigned to.
  FsatLayer() = default;

  /// Draws the weights. \throws std::invalid_argument if sizes do not go together
  FsatLayer(const FsatLayerOptions& options, Initialiser& initialiser)
      : Base("FsatLayer", FsatAttention(options.attention), options, options.dominant,
             initialiser) {}

  /// Uses predicted and random edges from now on, as in training (section 4.2.3).
  /// \param seed draws the random edges of this step: it must be another one for each step and each
  /// layer, and the same in forward and backward
  void set_training(std::uint64_t seed) {
    this->op().options.edges = EdgeSource::both;
    this->op().options.seed = seed;
  }

  /// Uses predicted edges alone from now on.
  void set_inference() { this->op().options.edges = EdgeSource::predicted; }
};

FOVEA_NAMESPACE_END
