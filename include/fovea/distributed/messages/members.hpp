// SPDX-License-Identifier: MIT
/// \file
/// Enumerates the members of any aggregate, so that ranks can compare options and inputs without
/// listing them.
#pragma once

#include <cstddef>
#include <type_traits>
#include <utility>

#include "fovea/core/config.hpp"

FOVEA_NAMESPACE_BEGIN

namespace distributed::detail {

/// A placeholder for a member of any type, to count members.
struct AnyMember {
  /// Any member that is copied.
  template <class X>
  operator X&() const& noexcept;  // NOLINT(google-explicit-constructor)
  /// Any member that is moved.
  template <class X>
  operator X&&() const&& noexcept;  // NOLINT(google-explicit-constructor)
};

/// Whether that many members can be initialised.
template <class A, std::size_t... kIndex>
constexpr bool has_members(std::index_sequence<kIndex...> /*members*/) {
  return requires { A{(static_cast<void>(kIndex), AnyMember{})...}; };
}

/// The maximum number of members for for_each_member.
inline constexpr std::size_t kMostMembers = 16;

/// The number of members of an aggregate without base classes and arrays.
template <class A, std::size_t kMost = kMostMembers>
constexpr std::size_t member_count() {
  static_assert(!has_members<A>(std::make_index_sequence<kMostMembers + 1>{}),
                "for_each_member does not support that many members");
  if constexpr (has_members<A>(std::make_index_sequence<kMost>{})) {
    return kMost;
  } else {
    return member_count<A, kMost - 1>();
  }
}

/// Calls f with each member of an aggregate without base classes and arrays, in order; or with what
/// its own for_each_option(f) visits, if defined.
template <class A, class F>
void for_each_member(const A& x, const F& f) {
  if constexpr (requires { x.for_each_option(f); }) {
    x.for_each_option(f);
  } else {
    constexpr std::size_t n = member_count<A>();
    const auto visit = [&](const auto&... members) { (f(members), ...); };
    // clang-format off
    if constexpr (n == 1) { const auto& [a] = x; visit(a); }
    if constexpr (n == 2) { const auto& [a, b] = x; visit(a, b); }
    if constexpr (n == 3) { const auto& [a, b, c] = x; visit(a, b, c); }
    if constexpr (n == 4) { const auto& [a, b, c, d] = x; visit(a, b, c, d); }
    if constexpr (n == 5) { const auto& [a, b, c, d, e] = x; visit(a, b, c, d, e); }
    if constexpr (n == 6) { const auto& [a, b, c, d, e, g] = x; visit(a, b, c, d, e, g); }
    if constexpr (n == 7) { const auto& [a, b, c, d, e, g, h] = x; visit(a, b, c, d, e, g, h); }
    if constexpr (n == 8) {
      const auto& [a, b, c, d, e, g, h, i] = x;
      visit(a, b, c, d, e, g, h, i);
    }
    if constexpr (n == 9) {
      const auto& [a, b, c, d, e, g, h, i, j] = x;
      visit(a, b, c, d, e, g, h, i, j);
    }
    if constexpr (n == 10) {
      const auto& [a, b, c, d, e, g, h, i, j, k] = x;
      visit(a, b, c, d, e, g, h, i, j, k);
    }
    if constexpr (n == 11) {
      const auto& [a, b, c, d, e, g, h, i, j, k, l] = x;
      visit(a, b, c, d, e, g, h, i, j, k, l);
    }
    if constexpr (n == 12) {
      const auto& [a, b, c, d, e, g, h, i, j, k, l, m] = x;
      visit(a, b, c, d, e, g, h, i, j, k, l, m);
    }
    if constexpr (n == 13) {
      const auto& [a, b, c, d, e, g, h, i, j, k, l, m, o] = x;
      visit(a, b, c, d, e, g, h, i, j, k, l, m, o);
    }
    if constexpr (n == 14) {
      const auto& [a, b, c, d, e, g, h, i, j, k, l, m, o, p] = x;
      visit(a, b, c, d, e, g, h, i, j, k, l, m, o, p);
    }
    if constexpr (n == 15) {
      const auto& [a, b, c, d, e, g, h, i, j, k, l, m, o, p, q] = x;
      visit(a, b, c, d, e, g, h, i, j, k, l, m, o, p, q);
    }
    if constexpr (n == 16) {
      const auto& [a, b, c, d, e, g, h, i, j, k, l, m, o, p, q, r] = x;
      visit(a, b, c, d, e, g, h, i, j, k, l, m, o, p, q, r);
    }
    // clang-format on
  }
}

}  // namespace distributed::detail

FOVEA_NAMESPACE_END
