// SPDX-License-Identifier: MIT
/// \file
/// Softmax attention whose logits pass through a user's function, as the score functions of
/// FlexAttention (Dong et al. 2024) do: a position bias that was learnt, a cap of one's own.
#pragma once

#include <concepts>
#include <type_traits>
#include <utility>

#include "fovea/attention/softmax/operator.hpp"

FOVEA_NAMESPACE_BEGIN

/// Which pair a logit belongs to. The key is one of the rows of k of the sequence; the position of
/// the query need not be: it is row plus the position of row 0, which may be outside of [0, Nk).
/// (SequenceShape, CausalAlignment and SoftmaxInputs::first_positions say where row 0 is: with more
/// queries than keys it is negative for bottom_right, for top_left the last rows are behind the
/// last key.) A causal pattern hides all keys from rows before position 0, but the modifier may be
/// asked for them as for any hidden pair, and without such a pattern they see keys. So a table that
/// has Nq rows is read by `row`, and one of positions must be bounded by the modifier.
struct ScorePair {
  Index batch = 0;  ///< number of the sequence
  Index head = 0;   ///< number of the query head
  Index query = 0;  ///< position of the query
  Index key = 0;    ///< position of the key, in [0, Nk)
  /// Row of the query in its sequence, in [0, Nq): of q, or in a decoder of the q of this step.
  Index row = 0;
};

/// A user's function of the logit z = scale <q, k> of a pair. It must give the same number whenever
/// it is asked, and may be called by several threads at once.
template <class M, class T>
concept ScoreModifier = std::copy_constructible<M> && requires(const M& m, T z, ScorePair pair) {
  { m.value(z, pair) }
  noexcept->std::same_as<T>;
};

/// One that also has the derivative of `value` with respect to the logit.
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

/// The softmax operator `Op` with modified logits: s_ij = m(scale <q_i, k_j>, pair), after the soft
/// cap, if there is one, and before bias, ALiBi and mask. Everything else is that of `Op`: pattern,
/// options, shapes, errors, decoder. The modifier is compiled where this operator is called, by the
/// flags of that file; the kernels are those of `Op`.
///
/// m may depend on the positions of the pair, the head and the sequence. A logit of -infinity gives
/// a weight of 0, but does not hide the pair: a row of such logits alone is NaN, and an infinite
/// value meets the weight 0. For parameters of m that are learnt: where m adds them to the logit,
/// their gradients are sums of `grads.bias` of a bias of zeros.
///
/// `backward` does not compile for a modifier without `derivative`. m is called for the pairs of
/// whole tiles, hidden ones among them, with their logits. Rows and keys are always those of the
/// sequence; ScorePair says when the position of a query is not one of a key.
/// Cost: that of `Op`, and one call of m for each pair, in rows of up to 128; the backward pass
/// calls it again, with its derivative.
/// \tparam Op a softmax operator, such as FullAttention
/// \tparam M a ScoreModifier; its object is copied
template <class Op, class M>
class ModifiedAttention : public SoftmaxOperator<ModifiedAttention<Op, M>> {
  static_assert(std::derived_from<Op, SoftmaxOperator<Op>>,
                "ModifiedAttention takes a softmax operator, such as FullAttention");

 public:
  Op attention;  ///< whose logits are modified
  M modifier;    ///< the user's function

  /// Holds copies of both.
  ModifiedAttention(Op of, M by) : attention(std::move(of)), modifier(std::move(by)) {}

  /// The name that stands in error messages: that of the operator.
  static constexpr const char* name() { return Op::name(); }
  /// As that of the operator.
  static constexpr bool kPatternKnowsShape = Op::kPatternKnowsShape;

  /// The options that every softmax operator has.
  SoftmaxOptions softmax_options() const { return attention.softmax_options(); }
  /// The pattern of a head.
  decltype(auto) pattern(Index head, const SequenceShape& shape) const {
    return attention.pattern(head, shape);
  }
  /// The patterns of heads repeat after this many query heads.
  Index pattern_period(Index heads) const { return attention.pattern_period(heads); }
  /// \throws std::invalid_argument as the operator does
  void check_options() const { attention.check_options(); }
  /// \throws std::invalid_argument as the operator does
  void check_pattern(const SequenceShape& shape) const { attention.check_pattern(shape); }

  /// The modifier in the form that kernels take.
  /// \tparam T the type of the arithmetic
  /// \tparam kBackward whether a backward pass calls it
  template <class T, bool kBackward>
  ScoreModifierArgs<T> score_modifier() const {
    static_assert(ScoreModifier<M, T>,
                  "a score modifier has T value(T logit, ScorePair) const noexcept");
    ScoreModifierArgs<T> args{&modifier, &detail::modify_logits<M, T>, nullptr};
    if constexpr (kBackward) {
      static_assert(DifferentiableScoreModifier<M, T>,
                    "backward needs T derivative(T logit, ScorePair) const noexcept of the score "
                    "modifier");
      args.derivative = &detail::modifier_slopes<M, T>;
    }
    return args;
  }
};

FOVEA_NAMESPACE_END
