// SPDX-License-Identifier: MIT
/// \file
/// Member types for structs of call arguments that are initialised in braces: views, spans of
/// numbers and spans of integers with short compile errors. If a braced list had a member that does
/// not convert, overload resolution would discard the function, and the compiler would list all
/// candidates without a reason. So these types have constructors from any type; those for a wrong
/// type are marked unavailable, with a message that the compiler prints at the offending line.
#pragma once

#include <array>
#include <concepts>
#include <cstddef>
#include <span>
#include <type_traits>
#include <utility>

#include "fovea/core/index_span.hpp"
#include "fovea/core/scalar.hpp"
#include "fovea/core/view.hpp"

FOVEA_NAMESPACE_BEGIN

namespace detail {

/// Used by ConvertsTo only.
template <class To>
void take(To x) noexcept;

/// Like std::convertible_to, with fewer templates for compilers to list in errors.
template <class X, class To>
concept ConvertsTo = requires(X&& x) {
  take<To>(static_cast<X&&>(x));
};

/// The opposite. (A concept, so that constraints that refine it are stricter.)
template <class X, class To>
concept NoConversion = !ConvertsTo<X, To>;

/// A tensor with elements of type U.
template <class X, class U>
concept OfScalar =
    Viewable<X> && std::same_as<typename ViewTraits<std::remove_cvref_t<X>>::Scalar, U>;

/// A tensor with elements of another type than U.
template <class X, class U>
concept OfOtherScalar =
    Viewable<X> && !std::same_as<typename ViewTraits<std::remove_cvref_t<X>>::Scalar, U>;

/// The scalar of a call whose output is an Out; float if Out is not a tensor, so that the call
/// reaches the message about it.
template <class Out>
struct CallScalar {
  using Type = float;
};
template <class Out>
requires Viewable<Out>
struct CallScalar<Out> {
  using Type = typename ViewTraits<std::remove_cvref_t<Out>>::Scalar;
};

/// Calls set(name, member) for each tensor of a struct of tensors, and returns the struct.
template <class Members, class F>
Members made_of_tensors(const F& set) {
  Members made;
  made.for_each_tensor([&](const char* name, const auto& member) {
    // The visitor alone is constant, not the struct.
    set(name, const_cast<std::remove_cvref_t<decltype(member)>&>(member));
  });
  return made;
}

/// A tensor of scalar T, a type that the library computes with; it may be const.
template <class X, class T>
concept TensorOf = OfScalar<X, T> && TensorScalar<T>;

/// A writable tensor of scalar T.
template <class X, class T>
concept OutputOf = TensorOf<X, T> && ConvertsTo<X, View<T>>;

}  // namespace detail

// NOLINTBEGIN(google-explicit-constructor,bugprone-forwarding-reference-overload)

/// A View as a struct member: converts from what a View<T> can be made from; anything else fails to
/// compile with a message. View itself stays strict, so that functions can be overloaded for views
/// of several types.
template <class T>
class ViewMember : public View<T> {
 public:
  /// No tensor.
  ViewMember() = default;
  /// As View's constructor.
  ViewMember(T* data, const Shape& shape) : View<T>(data, shape) {}
  /// As View's constructor.
  ViewMember(T* data, const Shape& shape, const Shape& strides) : View<T>(data, shape, strides) {}
  /// From anything that converts to a View<T>.
  template <detail::ConvertsTo<View<T>> X>
  ViewMember(X&& x) : View<T>(std::forward<X>(x)) {}

  /// Catches every other type.
  template <class X>
  requires detail::NoConversion<X, View<T>>
  __attribute__((unavailable(
      "fovea: this member must be a tensor: an Eigen tensor of rank 4, an Eigen matrix (both need "
      "<fovea/core/eigen.hpp>) or fovea::View(pointer, shape); evaluate expressions first")))
  ViewMember(X&& x);
  /// Catches tensors of another scalar type.
  template <class X>
  requires detail::NoConversion<X, View<T>> && detail::OfOtherScalar<X, std::remove_const_t<T>>
  __attribute__((unavailable(
      "fovea: this tensor has the wrong scalar type: q, k, v and out must have the same, other "
      "numbers the arithmetic type (float for 16-bit tensors), masks bool and indices "
      "fovea::Index; convert it first, for example with x.cast<float>()"))) ViewMember(X&& x);
  /// Catches const tensors for a member that is written.
  template <class X>
  requires detail::NoConversion<X, View<T>> && detail::OfScalar<X, std::remove_const_t<T>>
  __attribute__((unavailable("fovea: this member is written, so its tensor must not be const")))
  ViewMember(X&& x);
};

/// A ViewMember is viewed as its View.
template <class T>
struct ViewTraits<ViewMember<T>> : ViewTraits<View<T>> {};

/// A span of numbers as a struct member, like ViewMember.
template <class T>
class SpanMember : public std::span<T> {
 public:
  /// No numbers.
  SpanMember() = default;
  /// From anything that converts to a std::span<T>.
  template <detail::ConvertsTo<std::span<T>> X>
  SpanMember(X&& x) : std::span<T>(std::forward<X>(x)) {}
  /// `count` numbers from `data` on.
  SpanMember(T* data, std::size_t count) : std::span<T>(data, count) {}

  /// Catches every other type.
  template <class X>
  requires(!detail::ConvertsTo<X, std::span<T>>) __attribute__((unavailable(
      "fovea: this member must be a std::vector, std::array or std::span with one number for "
      "each head, of the arithmetic type (float for 16-bit tensors)"))) SpanMember(X&& x);
};

// NOLINTEND(google-explicit-constructor,bugprone-forwarding-reference-overload)

FOVEA_NAMESPACE_END

/// In a struct of tensors, FOVEA_TENSORS(q, k) defines for_each_tensor(visit), which calls
/// visit("q", q), then visit("k", k).
#define FOVEA_TENSORS(...)                          \
  template <class F>                                \
  constexpr void for_each_tensor(F&& visit) const { \
    FOVEA_EXPAND(FOVEA_VISIT_TENSORS(__VA_ARGS__))  \
  }
// A macro that names itself is not expanded again in one scan: each EXPAND is some more scans.
#define FOVEA_VISIT_TENSORS(tensor, ...) \
  visit(#tensor, tensor);                \
  __VA_OPT__(FOVEA_VISIT_NEXT FOVEA_NO_ARGUMENTS(__VA_ARGS__))
#define FOVEA_VISIT_NEXT() FOVEA_VISIT_TENSORS
#define FOVEA_NO_ARGUMENTS ()
#define FOVEA_EXPAND(...) FOVEA_EXPAND_9(FOVEA_EXPAND_9(__VA_ARGS__))
#define FOVEA_EXPAND_9(...) FOVEA_EXPAND_3(FOVEA_EXPAND_3(FOVEA_EXPAND_3(__VA_ARGS__)))
#define FOVEA_EXPAND_3(...) FOVEA_EXPAND_1(FOVEA_EXPAND_1(FOVEA_EXPAND_1(__VA_ARGS__)))
#define FOVEA_EXPAND_1(...) __VA_ARGS__
