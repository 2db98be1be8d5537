// SPDX-License-Identifier: MIT
/// \file
/// The members of what a call is given in braces: views, spans of numbers and spans of integers
/// that a compiler refuses in few lines. A list in braces whose members do not convert would rule
/// out the function, and the compiler would list all functions without a reason. So these types can
/// be made of everything; but what is made of a wrong type is marked as unavailable, with a
/// sentence that the compiler prints with the line that has the wrong member.
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

/// Only for ConvertsTo.
template <class To>
void take(To x) noexcept;

/// What converts, as std::convertible_to says by way of more templates, which compilers would list.
template <class X, class To>
concept ConvertsTo = requires(X&& x) {
  take<To>(static_cast<X&&>(x));
};

/// What does not convert. (A concept, so that constraints which add to it are stricter.)
template <class X, class To>
concept NoConversion = !ConvertsTo<X, To>;

/// A tensor of elements U.
template <class X, class U>
concept OfScalar =
    Viewable<X> && std::same_as<typename ViewTraits<std::remove_cvref_t<X>>::Scalar, U>;

/// A tensor of other elements than U.
template <class X, class U>
concept OfOtherScalar =
    Viewable<X> && !std::same_as<typename ViewTraits<std::remove_cvref_t<X>>::Scalar, U>;

/// The scalar of a call whose output is an Out: float where that is no tensor, so that the call
/// gets as far as the sentence that says so.
template <class Out>
struct CallScalar {
  using Type = float;
};
template <class Out>
requires Viewable<Out>
struct CallScalar<Out> {
  using Type = typename ViewTraits<std::remove_cvref_t<Out>>::Scalar;
};

/// A tensor of the scalar T, with which the library computes; it may be const.
template <class X, class T>
concept TensorOf = OfScalar<X, T> && TensorScalar<T>;

/// A tensor of the scalar T that can be written.
template <class X, class T>
concept OutputOf = TensorOf<X, T> && ConvertsTo<X, View<T>>;

}  // namespace detail

/// A member that is a View: what a View<T> can be made of becomes one, and anything else does not
/// compile and says why. A View itself does not take everything, so that functions can be
/// overloaded for views of several types.
template <class T>
class ViewMember : public View<T> {
 public:
  /// No tensor.
  ViewMember() = default;
  /// The view that such a constructor of View makes.
  ViewMember(T* data, const Shape& shape) : View<T>(data, shape) {}
  /// The view that such a constructor of View makes.
  ViewMember(T* data, const Shape& shape, const Shape& strides) : View<T>(data, shape, strides) {}
  /// Whatever a View<T> can be made of.
  template <detail::ConvertsTo<View<T>> X>
  // NOLINTNEXTLINE(google-explicit-constructor,bugprone-forwarding-reference-overload)
  ViewMember(X&& x) : View<T>(std::forward<X>(x)) {}

  /// Catches every other type.
  template <class X>
  requires detail::NoConversion<X, View<T>>
  // NOLINTNEXTLINE(google-explicit-constructor,bugprone-forwarding-reference-overload)
  __attribute__((unavailable(
      "fovea: this member is a tensor: an Eigen tensor of rank 4, an Eigen matrix (both by "
      "<fovea/core/eigen.hpp>) or fovea::View(pointer, shape); evaluate other expressions "
      "first"))) ViewMember(X&& x);
  /// Catches tensors of another scalar.
  template <class X>
  requires detail::NoConversion<X, View<T>> && detail::OfOtherScalar<X, std::remove_const_t<T>>
  // NOLINTNEXTLINE(google-explicit-constructor,bugprone-forwarding-reference-overload)
  __attribute__((unavailable(
      "fovea: this member is a tensor of another scalar type; q, k, v and out have the same, "
      "other numbers that of the arithmetic (float for 16 bits), a mask has bool, and indices "
      "have fovea::Index; convert it first, for instance by x.cast<float>()"))) ViewMember(X&& x);
  /// Catches constant tensors where one is written.
  template <class X>
  requires detail::NoConversion<X, View<T>> && detail::OfScalar<X, std::remove_const_t<T>>
  // NOLINTNEXTLINE(google-explicit-constructor,bugprone-forwarding-reference-overload)
  __attribute__((unavailable("fovea: this member is written, so its tensor must not be const")))
  ViewMember(X&& x);
};

/// A ViewMember is viewed as its View.
template <class T>
struct ViewTraits<ViewMember<T>> : ViewTraits<View<T>> {};

/// A member that is a span of numbers, as ViewMember is a View.
template <class T>
class SpanMember : public std::span<T> {
 public:
  /// No numbers.
  SpanMember() = default;
  /// Whatever a std::span<T> can be made of.
  template <detail::ConvertsTo<std::span<T>> X>
  // NOLINTNEXTLINE(google-explicit-constructor,bugprone-forwarding-reference-overload)
  SpanMember(X&& x) : std::span<T>(std::forward<X>(x)) {}
  /// `count` numbers from `data` on.
  SpanMember(T* data, std::size_t count) : std::span<T>(data, count) {}

  /// Catches every other type.
  template <class X>
  requires(!detail::ConvertsTo<X, std::span<T>>)
      // NOLINTNEXTLINE(google-explicit-constructor,bugprone-forwarding-reference-overload)
      __attribute__((unavailable(
          "fovea: this member is a std::vector, std::array or std::span of numbers, one for each "
          "head, of the type of the arithmetic (float for tensors of 16 bits)"))) SpanMember(X&& x);
};

FOVEA_NAMESPACE_END
