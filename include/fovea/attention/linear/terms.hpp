// SPDX-License-Identifier: MIT
/// \file
/// The far field of FMM attention, of which linear attention and the delta rule are special cases
/// (FMMformer, eqs. 8-10 and Table 2; MATHS.md, section 4): its terms, and what one call of it is.
#pragma once

#include <array>
#include <span>
#include <type_traits>

#include "fovea/attention/call/sequences.hpp"
#include "fovea/attention/linear/denominator.hpp"
#include "fovea/patterns/pattern.hpp"

FOVEA_NAMESPACE_BEGIN

/// What the passes of a far field read, and the gradients that they write, whichever family they
/// are of: the inputs that have all of it, made by `detail::inputs_as`.
template <class T>
using LinearFamilyInputs = FmmDeltaInputs<T>;
template <class T>
using LinearFamilyGrads = FmmDeltaGrads<T>;

/// A term of the far field that is written by the delta rule (fast weights) instead of a sum.
template <class Map>
struct DeltaRule {
  static_assert(Map::kNonNegative,
                "features are divided by their sum: the map must not change sign");
  /// Of the term's denominators: it has none.
  static constexpr bool kNonNegative = true;
};

/// A term of the far field: a feature map, or DeltaRule of one.
template <class Term>
struct LinearTerm {
  using Map = Term;
  static constexpr bool kIsDelta = false;
};
template <class M>
struct LinearTerm<DeltaRule<M>> {
  using Map = M;
  static constexpr bool kIsDelta = true;
};

namespace detail {

/// The maps of the terms that are written by the delta rule, or of those that are not.
template <class T, bool kDelta, class... Terms>
constexpr auto term_maps() {
  constexpr std::size_t count = (std::size_t{LinearTerm<Terms>::kIsDelta == kDelta} + ... + 0);
  std::array<FeatureMapArgs<T>, count> maps{};
  std::size_t n = 0;
  const auto add = [&]<class Term>(LinearTerm<Term>) {
    if constexpr (LinearTerm<Term>::kIsDelta == kDelta) {
      maps[n++] = map_args<typename LinearTerm<Term>::Map, T>();
    }
  };
  (add(LinearTerm<Terms>{}), ...);
  return maps;
}

template <class T, bool kDelta, class... Terms>
inline constexpr auto kTermMaps = term_maps<T, kDelta, Terms...>();

}  // namespace detail

/// What the far field of an operator is. \tparam T the type of the arithmetic
/// \tparam kSums whether it has maps that are summed   \tparam kDelta whether it has a delta rule:
/// who has none compiles no kernel of it
template <class T, bool kSums, bool kDelta>
struct LinearTerms {
  static constexpr bool kHasSums = kSums;
  static constexpr bool kHasDelta = kDelta;

  std::span<const FeatureMapArgs<T>> maps;    // of sums, each with its denominators
  std::span<const FeatureMapArgs<T>> deltas;  // that of the delta rule, or none
  Denominator denominator = Denominator::propagate();
  bool causal = false;
  CausalAlignment alignment = CausalAlignment::bottom_right;

  /// \tparam Terms feature maps, and at most one DeltaRule: there is one beta
  template <class... Terms>
  static LinearTerms of(const Denominator& denominator, bool causal, CausalAlignment alignment) {
    static_assert((Index{LinearTerm<Terms>::kIsDelta} + ...) <= 1);
    return {detail::kTermMaps<T, false, Terms...>, detail::kTermMaps<T, true, Terms...>,
            denominator, causal, alignment};
  }

  Index map_count() const { return static_cast<Index>(maps.size()); }
  Index delta_count() const { return static_cast<Index>(deltas.size()); }

  /// Sizes of the sums of one call.
  LinearShape linear_shape(const AttentionShape& shape) const {
    return {map_count(), shape.width, shape.value_width};
  }

  LinearMaps<T> linear_maps() const {
    return {maps.data(), map_count(), denominator.policy(), static_cast<T>(denominator.tau())};
  }

  /// The position of query row 0 of a sequence.
  Index first_position(Index queries, Index keys) const {
    return SequenceShape::of(queries, keys, alignment).first_position;
  }
};

/// That of an operator with these terms.
template <class T, class... Terms>
using LinearTermsOf =
    LinearTerms<T, (!LinearTerm<Terms>::kIsDelta || ...), (LinearTerm<Terms>::kIsDelta || ...)>;

/// An operator without a near field.
struct NoNearField {
  static constexpr bool kExists = false;
};

/// The weights of near and far field for each query head and column of the values, or none.
template <class T>
class FarWeights {
 public:
  FarWeights() = default;
  FarWeights(Index heads, Index value_width)
      : row_(padded_row<T>(value_width)),
        near_(static_cast<std::size_t>(heads * row_)),
        far_(static_cast<std::size_t>(heads * row_)) {}

  bool are_given() const { return row_ > 0; }
  T* near(Index head) { return near_.data() + head * row_; }
  T* far(Index head) { return far_.data() + head * row_; }
  /// [Dv], or null: 1.
  const T* near(Index head) const { return are_given() ? near_.data() + head * row_ : nullptr; }
  const T* far(Index head) const { return are_given() ? far_.data() + head * row_ : nullptr; }

 private:
  Index row_ = 0;
  std::vector<T> near_;  // [heads, row_]
  std::vector<T> far_;
};

FOVEA_NAMESPACE_END
