// SPDX-License-Identifier: MIT
/// \file
/// Softmax attention with a user's function of the logits, like FlexAttention's score functions
/// (Dong et al. 2024): a learnt position bias, a custom cap.
#pragma once

#include <concepts>
#include <type_traits>
#include <utility>

#include "fovea/attention/softmax/operator.hpp"

FOVEA_NAMESPACE_BEGIN

/// The pair that a logit belongs to. The key is a row of k. The query's position is `row` plus the
/// position of row 0, which CausalAlignment or SoftmaxInputs::first_positions determines, and may
/// be outside [0, Nk): with more queries than keys, the first rows have negative positions for
/// bottom_right, and the last rows come after the last key for top_left. The modifier may be called
/// for such rows even if the pattern hides all keys from them. So index a table that has Nq rows by
/// `row`, and clamp positions that index a table.
struct ScorePair {
  Index batch = 0;  ///< number of the sequence
  Index head = 0;   ///< number of the query head
  Index query = 0;  ///< position of the query
  Index key = 0;    ///< position of the key, in [0, Nk)
  /// Row of the query in its sequence, in [0, Nq): a row of q, in a decoder of this step's q.
  Index row = 0;
};

/// A user's function of the logit z = scale <q, k> of a pair. It must be deterministic, and may be
/// called by several threads at once.
template <class M, class T>
concept ScoreModifier = std::copy_constructible<M> && requires(const M& m, T z, ScorePair pair) {
  { m.value(z, pair) }
  noexcept->std::same_as<T>;
};

/// A ScoreModifier that also has the derivative of `value` with respect to the logit.
template <class M, class T>
concept DifferentiableScoreModifier = ScoreModifier<M, T> &&
    requires(const M& m, T z, ScorePair pair) {
  { m.derivative(z, pair) }
  noexcept->std::same_as<T>;
};

namespace detail {

constexpr ScorePair pair_of(const PairRow& pairs, Index n) {
  return {pairs.batch, pairs.head, pairs.query + pairs.query_step * n,
          pairs.key + pairs.key_step * n, pairs.row + pairs.query_step * n};
}

template <class M, class T>
void modify_logits(const void* modifier, const PairRow& pairs, T* logits) noexcept {
  const M& m = *static_cast<const M*>(modifier);
  for (Index n = 0; n < pairs.count; ++n) logits[n] = m.value(logits[n], pair_of(pairs, n));
}
template <class M, class T>
void modifier_slopes(const void* modifier, const PairRow& pairs, const T* logits,
                     T* slopes) noexcept {
  const M& m = *static_cast<const M*>(modifier);
  for (Index n = 0; n < pairs.count; ++n) slopes[n] = m.derivative(logits[n], pair_of(pairs, n));
}

}  // namespace detail

/// The softmax operator `Op` with modified logits: s_ij = m(scale <q_i, k_j>, pair), after any soft
/// cap and before bias, ALiBi and mask. Everything else is as in `Op`: pattern, options, shapes,
/// errors, decoder. The modifier is compiled where this operator is called, with that file's flags;
/// the kernels are those of `Op`.
///
/// m may depend on the positions of the pair, the head and the sequence. A logit of -infinity gives
/// a weight of 0, but does not hide the pair: a row with only such logits is NaN, and so is 0 times
/// an infinite value. To learn parameters that m adds to the logit, pass a bias of zeros: their
/// gradients are sums of `grads.bias`.
///
/// `backward` does not compile for a modifier without `derivative`. m is called for the pairs of
/// whole tiles, including hidden ones, with their logits. Rows and keys are always valid in the
/// sequence; for positions see ScorePair.
/// Cost: `Op`'s, and one call of m for each pair, in rows of up to 128; the backward pass calls it
/// again, with its derivative.
/// \tparam Op a softmax operator, such as FullAttention
/// \tparam M a ScoreModifier, which is copied
template <class Op, class M>
class ModifiedAttention : public SoftmaxOperator<ModifiedAttention<Op, M>> {
  static_assert(std::derived_from<Op, SoftmaxOperator<Op>>,
                "ModifiedAttention requires a softmax operator, such as FullAttention");

 public:
  Op attention;  ///< the operator
  M modifier;    ///< the user's function

  /// Holds copies of both.
  ModifiedAttention(Op of, M by) : attention(std::move(of)), modifier(std::move(by)) {}

  /// `Op`'s name.
  static constexpr const char* name() { return Op::name(); }
  /// As in `Op`.
  static constexpr bool kPatternKnowsShape = Op::kPatternKnowsShape;

  /// The common options of softmax operators.
  SoftmaxOptions softmax_options() const { return attention.softmax_options(); }
  /// A head's pattern.
  decltype(auto) pattern(Index head, const SequenceShape& shape) const {
    return attention.pattern(head, shape);
  }
  /// The period of the heads' patterns.
  Index pattern_period(Index heads) const { return attention.pattern_period(heads); }
  /// \throws std::invalid_argument as the operator does
  void check_options() const { attention.check_options(); }
  /// \throws std::invalid_argument as the operator does
  void check_pattern(const SequenceShape& shape) const { attention.check_pattern(shape); }

  /// The modifier as the kernels take it.
  /// \tparam T the type of the arithmetic
  /// \tparam kBackward whether it is for a backward pass
  template <class T, bool kBackward>
  ScoreModifierArgs<T> score_modifier() const {
    static_assert(ScoreModifier<M, T>,
                  "a score modifier needs T value(T logit, ScorePair) const noexcept");
    ScoreModifierArgs<T> args{&modifier, &detail::modify_logits<M, T>, nullptr};
    if constexpr (kBackward) {
      static_assert(
          DifferentiableScoreModifier<M, T>,
          "backward needs T derivative(T logit, ScorePair) const noexcept in the score modifier");
      args.derivative = &detail::modifier_slopes<M, T>;
    }
    return args;
  }
};

FOVEA_NAMESPACE_END
