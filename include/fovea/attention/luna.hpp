// SPDX-License-Identifier: MIT
/// \file
/// Luna attention (Ma et al. 2021; MATHS.md, section 7): a few packed rows attend to the sequence,
/// and the sequence attends to them.
#pragma once

#include "fovea/attention/softmax/operator.hpp"
#include "fovea/patterns/window.hpp"

FOVEA_NAMESPACE_BEGIN

/// Options of LunaAttention and its two steps.
struct LunaOptions {
  /// Scale of the logits of both steps; the default is 1/sqrt(D).
  std::optional<double> scale = {};
};

namespace detail {

/// One of the two softmax attentions of Luna, `Op`: every row sees all keys.
template <class Op>
class LunaStep : public SoftmaxOperator<Op> {
 public:
  LunaOptions options;  ///< checked at every call

  /// Whether queries and keys are rows of the same sequence: one of them is packed here.
  static constexpr bool kIsCross = true;

  /// Has the default options.
  LunaStep() = default;
  /// Holds these options, which are checked at every call.
  explicit LunaStep(const LunaOptions& chosen) : options(chosen) {}

  /// Every row of every head sees all keys.
  Dense pattern(Index /*head*/, const SequenceShape& /*shape*/) const { return {}; }

  /// Does nothing: the scale is checked with the options of every softmax operator.
  void check_options() const {}

  /// There is no decoder; calling this is a compile error.
  template <class T>
  void decoder(const DecoderShape& /*shape*/) const {
    static_assert(
        !std::same_as<T, T>,
        "Luna attention has no decoder: it is not causal, since the packed rows attend to "
        "all tokens");
  }
};

}  // namespace detail

/// The first step of Luna attention: Yp = softmax(scale pq xk^T) xv for each head, where pq are the
/// projected queries of the packed rows [B, Hq, P, D], and xk and xv the projected keys and values
/// of the sequence. Key lengths hide rows of the sequence. The shapes, the errors and the calls are
/// those of SoftmaxOperator.
class LunaPack : public detail::LunaStep<LunaPack> {
 public:
  using LunaStep::LunaStep;
  /// The operator's name.
  static constexpr const char* name() { return "LunaPack"; }
};

/// The second step of Luna attention: Yx = softmax(scale xq yk^T) yv for each head, where xq are
/// the projected queries of the sequence, and yk and yv the keys and values of the packed rows [B,
/// Hk, P, ...], projected from Yp. The shapes, the errors and the calls are those of
/// SoftmaxOperator.
class LunaUnpack : public detail::LunaStep<LunaUnpack> {
 public:
  using LunaStep::LunaStep;
  /// The operator's name.
  static constexpr const char* name() { return "LunaUnpack"; }
};

/// Luna attention (Ma et al. 2021, eqs. 5 and 6, with softmax in both): `pack` computes Yp, and
/// `unpack`, whose keys and values the caller projects from Yp, computes Yx. Each has a backward
/// pass. The d_out of `pack` is the sum of two gradients of Yp: that from the projections to yk and
/// yv, and that of Yp as an output. LunaLayer does all this and owns the weights.
///
/// Not causal: the packed rows attend to all tokens, so a causal option or a decoder does not
/// compile.
///
/// Cost: 4 P (D + Dv) flops for each token and head. No N x N matrix is kept in memory.
class LunaAttention {
 public:
  LunaOptions options;  ///< of both steps

  /// Has the default options.
  LunaAttention() = default;
  /// Holds these options. They are checked when a step is called.
  explicit LunaAttention(const LunaOptions& chosen) : options(chosen) {}

  /// The operator's name.
  static constexpr const char* name() { return "LunaAttention"; }

  /// The step that computes Yp.
  LunaPack pack() const { return LunaPack(options); }
  /// The step that computes Yx.
  LunaUnpack unpack() const { return LunaUnpack(options); }
};

FOVEA_NAMESPACE_END
