// SPDX-License-Identifier: MIT
/// \file
/// FAT attention (Zhuang et al. 2022, eq. 5; MATHS.md, section 6): full attention with keys and
/// values computed from the hidden state cross.
#pragma once

#include "fovea/attention/fsat/options.hpp"
#include "fovea/attention/softmax/operator.hpp"
#include "fovea/patterns/window.hpp"

FOVEA_NAMESPACE_BEGIN

/// Options of FatAttention.
struct FatOptions {
  /// Scale of the logits; the default is 1/sqrt(D).
  std::optional<double> scale = {};
  /// There is no causal option: setting it does not compile.
  NotCausal causal = {};
};

/// FAT attention: out_i = sum_j softmax_j(scale <q_i, k_j>) v_j over all keys j. The caller
/// computes q from the tokens, and k and v from their hidden state cross (eq. 6). Shapes, errors
/// and calls are as in SoftmaxOperator. The operator is not causal, since position i of the cross
/// mixes tokens up to 2 i + 1: a causal option or a decoder does not compile.
/// Cost: 2 (D + Dv) flops for each pair. No N x N matrix is kept in memory.
class FatAttention : public SoftmaxOperator<FatAttention> {
 public:
  FatOptions options;  ///< checked at every call

  /// Default options.
  FatAttention() = default;
  /// Holds the options.
  explicit FatAttention(const FatOptions& chosen) : options(chosen) {}

  /// The operator's name.
  static constexpr const char* name() { return "FatAttention"; }

  /// Every row of every head sees all keys.
  Dense pattern(Index /*head*/, const SequenceShape& /*shape*/) const { return {}; }

  /// Does nothing: the scale is checked with the options of every softmax operator.
  void check_options() const {}

  /// There is no decoder: a call fails to compile with a message.
  template <class T>
  void decoder(const DecoderShape& /*shape*/) const {
    static_assert(!std::same_as<T, T>,
                  "FatAttention has no decoder: it is not causal, since position i of the hidden "
                  "state cross mixes tokens up to 2 i + 1");
  }
};

FOVEA_NAMESPACE_END
