// SPDX-License-Identifier: MIT
/// \file
/// The FAT layer (Zhuang et al. 2022, eq. 5): full attention over the hidden state cross. Needs
/// FFTW.
#pragma once

#include "fovea/attention/fat.hpp"
#include "fovea/layers/hidden_cross_layer.hpp"

FOVEA_NAMESPACE_BEGIN

/// Options of FatLayer: what HiddenCrossOptions has, and those of the operator.
struct FatLayerOptions : HiddenCrossOptions {
  FatOptions attention = {};
};

/// x [B, 1, L, Dm] to y by FatAttention; see HiddenCrossLayer.
template <class T = float>
class FatLayer : public HiddenCrossLayer<FatAttention, T> {
 public:
  FatLayer() = default;

  /// \throws std::invalid_argument sizes that do not go together
  FatLayer(const FatLayerOptions& options, Initialiser& initialiser)
      : HiddenCrossLayer<FatAttention, T>("FatLayer", FatAttention(options.attention), options, 0,
                                          initialiser) {}
};

FOVEA_NAMESPACE_END
