// SPDX-License-Identifier: MIT
/// \file
/// The options of an operator as text, compared across ranks. Differences that change no message
/// would go unnoticed otherwise, and ranks would compute different things.
#pragma once

#include <concepts>
#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "fovea/attention/linear/terms.hpp"
#include "fovea/core/error.hpp"
#include "fovea/distributed/messages/members.hpp"

FOVEA_NAMESPACE_BEGIN

namespace distributed::detail {

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
