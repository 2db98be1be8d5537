// SPDX-License-Identifier: MIT
/// \file
/// The policy for rows of linear attention whose denominator vanishes or changes sign.
#pragma once

#include <limits>
#include <string>

#include "fovea/attention/linear/feature_map.hpp"
#include "fovea/core/error.hpp"
#include "fovea/kernels/linear/linear.hpp"

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

FOVEA_NAMESPACE_END
