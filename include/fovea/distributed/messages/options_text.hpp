// SPDX-License-Identifier: MIT
/// \file
/// The options of an operator as text, compared across ranks. Differences that change no message
/// would go unnoticed otherwise, and ranks would compute different things.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "fovea/attention/linear/terms.hpp"
#include "fovea/core/config.hpp"
#include "fovea/core/error.hpp"

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

/// The text of a value without one, such as a pattern. Plan numbers tell ranks whether their
/// patterns differ.
inline constexpr const char* kUntold = "?";

/// A value as text, in C++ initialiser syntax: two texts are equal if all values are, except those
/// of kUntold.
template <class X>
std::string value_text(const X& x) {
  if constexpr (std::same_as<X, bool>) {
    return x ? "true" : "false";
  } else if constexpr (std::is_floating_point_v<X>) {
    return to_string(x);
  } else if constexpr (std::is_integral_v<X>) {
    return std::to_string(x);
  } else if constexpr (std::is_enum_v<X>) {
    return std::to_string(static_cast<std::underlying_type_t<X>>(x));
  } else if constexpr (std::convertible_to<X, std::string_view>) {
    return std::string("\"").append(std::string_view(x)).append("\"");
  } else if constexpr (requires { x.has_value(); }) {
    return x ? std::string("{").append(value_text(*x)).append("}") : "{}";
  } else if constexpr (std::is_empty_v<X>) {
    return "{}";
  } else {
    std::string text;
    const auto add = [&](const auto& part) {
      text.append(text.empty() ? "{" : ", ").append(value_text(part));
    };
    if constexpr (requires { x.begin(); }) {
      for (const auto& part : x) add(part);
    } else if constexpr (std::is_aggregate_v<X> || requires { x.for_each_option(add); }) {
      for_each_member(x, add);
    } else {
      return kUntold;
    }
    return text.empty() ? "{}" : text.append("}");
  }
}

/// The operator's feature maps, if any, each after a comma.
template <class Op>
struct MapsText {
  /// Nothing.
  static std::string of() { return {}; }
};
/// The feature maps of an operator over them.
template <template <class...> class Op, class... Terms>
requires(sizeof...(Terms) > 0 &&
         (requires { LinearTerm<Terms>::Map::name(); } && ...)) struct MapsText<Op<Terms...>> {
  /// The names of the maps.
  static std::string of() {
    std::string text;
    const auto add = [&]<class Term>(LinearTerm<Term> /*term*/) {
      text.append(LinearTerm<Term>::kIsDelta ? ", delta rule of " : ", ");
      text.append(LinearTerm<Term>::Map::name());
    };
    (add(LinearTerm<Terms>{}), ...);
    return text;
  }
};

/// The name of an operator, for messages; or the given name.
template <class Op>
const char* name_of(const Op& op) {
  if constexpr (std::convertible_to<Op, const char*>) {
    return op;
  } else {
    return Op::name();
  }
}

/// All non-default options of an operator, and its feature maps.
template <class Op>
std::string options_text(const Op& op) {
  std::string text = MapsText<Op>::of();
  if constexpr (requires { op.attention; }) {  // modified by a function
    return text.append(", modified").append(options_text(op.attention));
  } else if constexpr (requires { op.options; }) {
    const std::string options = value_text(op.options);
    if constexpr (std::default_initializable<Op>) {
      if (options == value_text(Op().options)) return text;
    }
    return text.append(", options ").append(options);
  } else {
    return text;
  }
}

}  // namespace distributed::detail

FOVEA_NAMESPACE_END
