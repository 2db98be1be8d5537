// SPDX-License-Identifier: MIT
/// \file
/// The FAT layer (Zhuang et al. 2022, eq. 5): full attention over the hidden state cross. Requires
/// FFTW.
#pragma once

#include "fovea/attention/fat.hpp"
#include "fovea/layers/hidden_cross_layer.hpp"

FOVEA_NAMESPACE_BEGIN

/// Options of FatLayer: those of HiddenCrossOptions, and those of the operator.
struct FatLayerOptions : HiddenCrossOptions {
  FatOptions attention = {};  ///< options of FatAttention
};

/// Maps x [B, 1, L, Dm] to y by FatAttention, as HiddenCrossLayer describes.
template <class T = float>
class FatLayer : public HiddenCrossLayer<FatAttention, T> {
 public:
  /// An empty layer; assign one before use.
  FatLayer() = default;

  /// Draws the weights. \throws std::invalid_argument if sizes are inconsistent
  FatLayer(const FatLayerOptions& options, Initialiser& initialiser)
      : HiddenCrossLayer<FatAttention, T>("FatLayer", FatAttention(options.attention), options, 0,
                                          initialiser) {}
};

FOVEA_NAMESPACE_END
