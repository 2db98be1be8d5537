// SPDX-License-Identifier: MIT
/// \file
/// FAT attention (Zhuang et al. 2022, eq. 5): full attention whose keys and values come of the
/// hidden state cross.
#pragma once

#include "fovea/attention/fsat/options.hpp"
#include "fovea/attention/softmax/operator.hpp"
#include "fovea/patterns/window.hpp"

FOVEA_NAMESPACE_BEGIN

/// Options of FatAttention.
struct FatOptions {
  /// Of the logits; 1 / sqrt(D) if not set.
  std::optional<double> scale = {};
  NotCausal causal = {};
};

/// out_i = sum_j softmax_j(scale <q_i, k_j>) v_j over all keys, with q made of the tokens, k and v
/// of their cross (eq. 6); see SoftmaxOperator for shapes, errors and the calls. Not causal:
/// position i of the cross mixes tokens up to 2 i + 1. There is no causal option and no decoder;
/// neither compiles. Cost: 2 (D + Dv) flops per pair; no N x N in memory.
class FatAttention : public SoftmaxOperator<FatAttention> {
 public:
  FatOptions options;

  FatAttention() = default;
  explicit FatAttention(const FatOptions& chosen) : options(chosen) {}

  static constexpr const char* name() { return "FatAttention"; }

  Dense pattern(Index /*head*/, const SequenceShape& /*shape*/) const { return {}; }

  void check_options() const {}

  /// There is none. \tparam T as of other operators
  template <class T>
  void decoder(const DecoderShape& /*shape*/) const {
    static_assert(!std::same_as<T, T>,
                  "FatAttention has no decoder: it is not causal, since position i of the hidden "
                  "state cross mixes tokens up to 2 i + 1");
  }
};

FOVEA_NAMESPACE_END
