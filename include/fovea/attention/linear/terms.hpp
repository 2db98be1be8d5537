// SPDX-License-Identifier: MIT
/// \file
/// The far field of FMM attention: its terms and parameters. Linear attention and the delta rule
/// are special cases (FMMformer, eqs. 8-10 and Table 2; MATHS.md, section 4).
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "fovea/attention/attention.hpp"
#include "fovea/attention/linear/feature_map.hpp"
#include "fovea/core/error.hpp"
#include "fovea/kernels/linear/linear.hpp"
#include "fovea/patterns/pattern.hpp"

FOVEA_NAMESPACE_BEGIN

/// The policy for the denominator den_i = sum_d phi(q_i)_d z_id, where z_i = sum_j phi(k_j) over
/// the visible keys j (MATHS.md, section 4).
class Denominator {
 public:
  /// Divides by the denominator unconditionally; 0 / 0 is NaN.
  static constexpr Denominator propagate() { return {DenominatorPolicy::propagate, 0}; }

  /// A row whose denominator is exactly 0 gets 0 from this map, and has no gradient through it.
  static constexpr Denominator zero_row() { return {DenominatorPolicy::zero_row, 0}; }

  /// Divides by sign(den_i) max(|den_i|, tau sum_d |phi(q_i)_d z_id|), where the sign of 0 is +.
  /// \param tau in (0, 1]
  static constexpr Denominator signed_floor(double tau) {
    return {DenominatorPolicy::signed_floor, tau};
  }

  /// Which of the three policies this is.
  constexpr DenominatorPolicy policy() const { return policy_; }
  /// The tau of signed_floor; 0 for the other policies.
  constexpr double tau() const { return tau_; }
  /// Calls f with the choice.
  template <class F>
  constexpr void for_each_option(F&& f) const {
    f(policy_);
    f(tau_);
  }

 private:
  constexpr Denominator(DenominatorPolicy policy, double tau) : policy_(policy), tau_(tau) {}

  DenominatorPolicy policy_;
  double tau_;
};

/// A Denominator that must be chosen.
struct RequiredDenominator : Denominator {
  /// The chosen policy.
  constexpr RequiredDenominator(Denominator chosen) : Denominator(chosen) {}  // NOLINT: a value
};

/// A Denominator that defaults to `propagate`.
struct DefaultDenominator : Denominator {
  /// The default policy, `propagate`.
  constexpr DefaultDenominator() : Denominator(propagate()) {}
  /// The chosen policy.
  constexpr DefaultDenominator(Denominator chosen) : Denominator(chosen) {}  // NOLINT: a value
};

/// The type of the option `denominator` for these maps: required if a map can be negative.
template <class... Maps>
using DenominatorOption =
    std::conditional_t<(Maps::kNonNegative && ...), DefaultDenominator, RequiredDenominator>;

/// \tparam T the type of the arithmetic
/// \throws std::invalid_argument if the tau of signed_floor is not in (0, 1], or is subnormal in T
template <class T>
void check_denominator(const char* op, const Denominator& denominator) {
  if (denominator.policy() != DenominatorPolicy::signed_floor) return;
  const double tau = denominator.tau();
  if (!(tau >= static_cast<double>((std::numeric_limits<T>::min)()) && tau <= 1)) {
    refuse(op, "the tau of signed_floor", to_string(tau), "more than 0, and at most 1");
  }
}

/// The inputs of a far field's passes for any operator: they have every member of the family.
/// `detail::inputs_as` makes them.
template <class T>
using LinearFamilyInputs = FmmDeltaInputs<T>;
/// The gradients that a far field's passes write, for any operator.
template <class T>
using LinearFamilyGrads = FmmDeltaGrads<T>;

/// A far-field term that is written by the delta rule (fast weights) instead of being summed.
template <class Map>
struct DeltaRule {
  static_assert(Map::kNonNegative,
                "fovea: features are divided by their sum, so the map must be kNonNegative");
  /// The term has no denominator that could change sign.
  static constexpr bool kNonNegative = true;
};

/// A far-field term: either a feature map, or DeltaRule of one.
template <class Term>
struct LinearTerm {
  /// The feature map of the term.
  using Map = Term;
  /// Whether the term is written by the delta rule.
  static constexpr bool kIsDelta = false;
};
/// A term that is written by the delta rule.
template <class M>
struct LinearTerm<DeltaRule<M>> {
  /// The feature map of the term.
  using Map = M;
  /// Whether the term is written by the delta rule.
  static constexpr bool kIsDelta = true;
};

/// How a far field's feature maps are combined.
enum class CombineMaps : std::uint8_t {
  sum,   ///< each map has its own denominator; the quotients are summed (FMMformer, eq. 10)
  mean,  ///< the same divided by the number of terms, so that the weights of a row sum to 1
  joint  ///< the sum of all numerators divided by the sum of all denominators
};

namespace detail {

/// The maps of the delta-rule terms, or of the others.
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

/// An operator's far field. Without a delta rule, none of its kernels are compiled.
/// \tparam T the type of the arithmetic
/// \tparam kSums whether it has maps that are summed
/// \tparam kDelta whether it has a term that is written by the delta rule
template <class T, bool kSums, bool kDelta>
struct LinearTerms {
  /// Whether it has maps that are summed.
  static constexpr bool kHasSums = kSums;
  /// Whether it has a term that is written by the delta rule.
  static constexpr bool kHasDelta = kDelta;

  std::span<const FeatureMapArgs<T>> maps;    ///< maps that are summed, each with its denominator
  std::span<const FeatureMapArgs<T>> deltas;  ///< the map of the delta rule, or none
  /// The policy for the sums' denominators.
  Denominator denominator = Denominator::propagate();
  /// If true, row i sees no key after its own position.
  bool causal = false;
  /// Position of query row 0; by default the queries end where the rows of k end.
  CausalAlignment alignment = CausalAlignment::bottom_right;
  /// How the maps are combined; with `mean`, FarWeights includes the division.
  CombineMaps combine = CombineMaps::sum;

  /// The far field with these terms.
  /// \tparam Terms feature maps, and at most one DeltaRule, since there is one beta
  template <class... Terms>
  static LinearTerms of(const Denominator& denominator, bool causal, CausalAlignment alignment,
                        CombineMaps combine) {
    static_assert((Index{LinearTerm<Terms>::kIsDelta} + ...) <= 1,
                  "fovea: at most one term is a DeltaRule");
    return {detail::kTermMaps<T, false, Terms...>,
            detail::kTermMaps<T, true, Terms...>,
            denominator,
            causal,
            alignment,
            combine};
  }

  /// The number of maps of one denominator.
  Index joined() const {
    return combine == CombineMaps::joint ? (std::max)(Index{1}, static_cast<Index>(maps.size()))
                                         : 1;
  }
  /// The number of sums, each with its denominator: one per map, or 1 if these are joined.
  Index map_count() const { return static_cast<Index>(maps.size()) / joined(); }
  /// The number of features of a row of q or k for one sum.
  Index features(Index width) const { return feature_width(joined(), width); }
  /// The number of terms that are written by the delta rule: 0 or 1.
  Index delta_count() const { return static_cast<Index>(deltas.size()); }

  /// The factor of the sum of the terms: for the mean, 1 over their number.
  double share() const {
    return combine == CombineMaps::mean ? 1.0 / static_cast<double>(map_count() + delta_count())
                                        : 1.0;
  }
  /// The sum of a row's weights if each term's sum to 1.
  double row_sum() const { return static_cast<double>(map_count() + delta_count()) * share(); }

  /// The sizes of the sums of one call.
  LinearShape linear_shape(const AttentionShape& shape) const {
    return {map_count(), features(shape.width), shape.value_width};
  }

  /// The multiply-adds of adding a token to each term's state, or of a row that reads it.
  template <class S>
  double products_of_row(const S& shape) const {
    return (static_cast<double>(map_count() * features(shape.width)) +
            2 * static_cast<double>(delta_count() * shape.width)) *
           static_cast<double>(shape.value_width);
  }

  /// The maps that are summed, and the policy for denominators, as kernels take them.
  /// \param width that of q and k
  LinearMaps<T> linear_maps(Index width) const {
    return {maps.data(), map_count(), denominator.policy(), static_cast<T>(denominator.tau()),
            joined(),    width};
  }
};

/// The LinearTerms of an operator with these terms.
template <class T, class... Terms>
using LinearTermsOf =
    LinearTerms<T, (!LinearTerm<Terms>::kIsDelta || ...), (LinearTerm<Terms>::kIsDelta || ...)>;

/// The near field of an operator without one.
struct NoNearField {
  /// There is no near field.
  static constexpr bool kExists = false;
};

/// The weights of the near and the far field for each query head and value column. If not given,
/// all are 1.
template <class T>
class FarWeights {
 public:
  /// All weights are 1.
  FarWeights() = default;
  /// Makes room for the weights of that many query heads and columns.
  FarWeights(Index heads, Index value_width)
      : row_(padded_row<T>(value_width)),
        near_(static_cast<std::size_t>(heads * row_)),
        far_(static_cast<std::size_t>(heads * row_)) {}

  /// The weights of a far field without a near field.
  /// \param weight of each head and column
  static FarWeights alone(Index heads, Index value_width, double weight) {
    if (weight == 1) return {};
    FarWeights made(heads, value_width);
    std::fill(made.far_.begin(), made.far_.end(), static_cast<T>(weight));
    return made;
  }

  /// Whether weights are given.
  bool are_given() const { return row_ > 0; }
  /// The weights of the near field of a head, [Dv], to be written.
  /// \pre are_given()
  T* near_field(Index head) { return near_.data() + head * row_; }
  /// The weights of the far field of a head, [Dv], to be written.
  /// \pre are_given()
  T* far_field(Index head) { return far_.data() + head * row_; }
  /// The weights of the near field of a head, [Dv]; null if all are 1.
  const T* near_field(Index head) const {
    return are_given() ? near_.data() + head * row_ : nullptr;
  }
  /// The weights of the far field of a head, [Dv]; null if all are 1.
  const T* far_field(Index head) const { return are_given() ? far_.data() + head * row_ : nullptr; }

 private:
  Index row_ = 0;
  std::vector<T> near_;  // [heads, row_]
  std::vector<T> far_;   // [heads, row_]
};

FOVEA_NAMESPACE_END
