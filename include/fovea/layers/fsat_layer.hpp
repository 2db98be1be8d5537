// SPDX-License-Identifier: MIT
/// \file
/// The FSAT layer (Zhuang et al. 2022, sections 3 and 4): attention along the edges that the hidden
/// state cross predicts. Needs FFTW.
#pragma once

#include "fovea/layers/hidden_cross_layer.hpp"
#include "fovea/layers/predicted_dominant.hpp"

FOVEA_NAMESPACE_BEGIN

/// Options of FsatLayer: what HiddenCrossOptions has, and these.
struct FsatLayerOptions : HiddenCrossOptions {
  Index dominant = 4;          ///< M, predicted for each key and head
  FsatOptions attention = {};  ///< max_length, Lmax, must be set
};

/// x [B, 1, L, Dm] to y by FsatAttention, L at most Lmax, with the dominant indices that
/// PredictedDominant makes of C; see HiddenCrossLayer. It begins with the edges of inference.
template <class T = float>
class FsatLayer : public HiddenCrossLayer<FsatAttention, T, PredictedDominant<T>> {
  using Base = HiddenCrossLayer<FsatAttention, T, PredictedDominant<T>>;

 public:
  FsatLayer() = default;

  /// \throws std::invalid_argument sizes that do not go together
  FsatLayer(const FsatLayerOptions& options, Initialiser& initialiser)
      : Base("FsatLayer", FsatAttention(options.attention), options, options.dominant,
             initialiser) {}

  /// Predicted and random edges, as in training (section 4.2.3). \param seed of the random edges of
  /// this step: another one for each step and layer, the same in forward and backward
  void set_training(std::uint64_t seed) {
    this->op().options.edges = EdgeSource::both;
    this->op().options.seed = seed;
  }

  /// Predicted edges alone.
  void set_inference() { this->op().options.edges = EdgeSource::predicted; }
};

FOVEA_NAMESPACE_END
