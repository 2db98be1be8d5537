// SPDX-License-Identifier: MIT
/// \file
/// Patterns in passes: plans that are executed in order, each with its own blocks of rows, carrying
/// each row's running softmax from pass to pass. For unions whose parts group rows differently.
#pragma once

#include <tuple>
#include <utility>

#include "fovea/patterns/combine.hpp"
#include "fovea/patterns/fixed.hpp"
#include "fovea/patterns/strided.hpp"

FOVEA_NAMESPACE_BEGIN

/// The union of disjoint passes.
template <Pattern... P>
class MultiPass {
 public:
  /// The number of passes.
  static constexpr std::size_t kCount = sizeof...(P);

  /// Holds a copy of each pass.
  explicit MultiPass(const P&... passes) : passes_(passes...) {}

  /// Whether the query at position i sees key j in some pass.
  bool allows(Index i, Index j) const {
    return std::apply([&](const P&... pass) { return (pass.allows(i, j) || ...); }, passes_);
  }

  /// Pass N, counted from 0.
  template <std::size_t N>
  const auto& pass() const {
    return std::get<N>(passes_);
  }

 private:
  std::tuple<P...> passes_;
};

/// A pattern as a list of passes that an operator executes: pass<N>() for N < kCount.
template <class P>
concept MultiPassPattern = requires(const P pattern, Index i, Index j) {
  { pattern.allows(i, j) } -> std::same_as<bool>;
  { P::kCount } -> std::convertible_to<std::size_t>;
  { pattern.template pass<0>() } -> Pattern;
};

/// Calls f(pass, number) for each pass in order. A plain pattern is its own only pass.
template <class P, class F>
requires Pattern<P> || MultiPassPattern<P>
void for_each_pass(const P& pattern, F&& f) {
  if constexpr (MultiPassPattern<P>) {
    [&]<std::size_t... N>(std::index_sequence<N...>) {
      (f(pattern.template pass<N>(), std::integral_constant<std::size_t, N>{}), ...);
    }
    (std::make_index_sequence<P::kCount>{});
  } else {
    f(pattern, std::integral_constant<std::size_t, 0>{});
  }
}

/// The number of passes of a pattern: 1 for a plain one.
template <class P>
inline constexpr std::size_t kPassCount = 1;
/// The number of passes of a pattern that has passes.
template <MultiPassPattern P>
inline constexpr std::size_t kPassCount<P> = P::kCount;

/// The union of a and b: first a, then what b adds.
template <IntervalPattern A, IntervalPattern B>
MultiPass<A, Difference<B, A>> in_passes(const A& a, const B& b) {
  return MultiPass<A, Difference<B, A>>(a, subtract(b, a));
}

/// A1 and A2 of strided attention in one softmax (MATHS.md, section 3).
using StridedMerged = MultiPass<Window, StridedRemainder>;

/// Strided attention with this stride and window, causal or not.
inline StridedMerged strided_merged(Index stride, bool causal = true,
                                    StridedExtent extent = StridedExtent::formula) {
  return StridedMerged(strided_local(stride, causal, extent),
                       StridedRemainder{stride, causal, extent});
}

/// A1 and A2 of fixed attention in one softmax (MATHS.md, section 3).
using FixedMerged = MultiPass<BlockWindow, FixedRemainder>;

/// Fixed attention with these sizes.
inline FixedMerged fixed_merged(const FixedShape& shape) {
  return FixedMerged(fixed_local(shape.stride, shape.causal), FixedRemainder{shape});
}

FOVEA_NAMESPACE_END
