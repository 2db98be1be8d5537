// SPDX-License-Identifier: MIT
/// \file
/// Patterns in stages: plans that are executed in order, each with its own blocks of rows, carrying
/// each row's running softmax from stage to stage. For unions whose parts group rows differently.
#pragma once

#include <tuple>
#include <utility>

#include "fovea/patterns/combine.hpp"
#include "fovea/patterns/fixed.hpp"
#include "fovea/patterns/strided.hpp"

FOVEA_NAMESPACE_BEGIN

/// The union of disjoint stages.
template <Pattern... P>
class Stages {
 public:
  /// The number of stages.
  static constexpr std::size_t kCount = sizeof...(P);

  /// Holds a copy of each stage.
  explicit Stages(const P&... stages) : stages_(stages...) {}

  /// Whether the query at position i sees key j in some stage.
  bool allows(Index i, Index j) const {
    return std::apply([&](const P&... stage) { return (stage.allows(i, j) || ...); }, stages_);
  }

  /// Stage N, counted from 0.
  template <std::size_t N>
  const auto& stage() const {
    return std::get<N>(stages_);
  }

 private:
  std::tuple<P...> stages_;
};

/// A pattern as a list of stages that an operator executes: stage<N>() for N < kCount.
template <class P>
concept StagedPattern = requires(const P pattern, Index i, Index j) {
  { pattern.allows(i, j) } -> std::same_as<bool>;
  { P::kCount } -> std::convertible_to<std::size_t>;
  { pattern.template stage<0>() } -> Pattern;
};

/// Calls f(stage, number) for each stage in order. A plain pattern is its own only stage.
template <class P, class F>
requires Pattern<P> || StagedPattern<P>
void for_each_stage(const P& pattern, F&& f) {
  if constexpr (StagedPattern<P>) {
    [&]<std::size_t... N>(std::index_sequence<N...>) {
      (f(pattern.template stage<N>(), std::integral_constant<std::size_t, N>{}), ...);
    }
    (std::make_index_sequence<P::kCount>{});
  } else {
    f(pattern, std::integral_constant<std::size_t, 0>{});
  }
}

/// The number of stages of a pattern: 1 for a plain one.
template <class P>
inline constexpr std::size_t kStageCount = 1;
/// The number of stages of a pattern that has stages.
template <StagedPattern P>
inline constexpr std::size_t kStageCount<P> = P::kCount;

/// The union of a and b: first a, then what b adds.
template <SlotPattern A, SlotPattern B>
Stages<A, Difference<B, A>> in_stages(const A& a, const B& b) {
  return Stages<A, Difference<B, A>>(a, subtract(b, a));
}

/// A1 and A2 of strided attention in one softmax (MATHS.md, section 3).
using StridedMerged = Stages<Window, StridedBeyond>;

/// Strided attention with this stride and window, causal or not.
inline StridedMerged strided_merged(Index stride, bool causal = true,
                                    StridedReach reach = StridedReach::formula) {
  return StridedMerged(strided_local(stride, causal, reach), StridedBeyond{stride, causal, reach});
}

/// A1 and A2 of fixed attention in one softmax (MATHS.md, section 3).
using FixedMerged = Stages<BlockWindow, FixedBeyond>;

/// Fixed attention with these sizes.
inline FixedMerged fixed_merged(const FixedShape& shape) {
  return FixedMerged(fixed_local(shape.stride, shape.causal), FixedBeyond{shape});
}

FOVEA_NAMESPACE_END
