// SPDX-License-Identifier: MIT
/// \file
/// Functions of single elements, computed in vectors: sigmoid and GELU, with their derivatives.
#pragma once

#include "fovea/layers/layer_calls.hpp"

FOVEA_NAMESPACE_BEGIN

namespace detail {

/// The number of elements that are computed at once. Each lies in a whole vector of an aligned
/// array, wherever it lies in its row, so its bits depend on its value alone.
inline constexpr int kPiece = 64;
/// The elements that are computed at once.
template <class T>
using Piece = Eigen::Array<T, kPiece, 1>;

/// y[i] = f(x[i]) for a row, where f maps a Piece to a Piece. x and y may be the same.
template <class T, class F>
void map_row(const T* x, T* y, Index count, F&& f) {
  Piece<T> in;
  Piece<T> out;
  for (Index first = 0; first < count; first += kPiece) {
    const Index n = (std::min<Index>)(kPiece, count - first);
    if (n < kPiece) in.setZero();
    std::copy_n(x + first, n, in.data());
    out = f(in);
    std::copy_n(out.data(), n, y + first);
  }
}

/// z[i] = f(x[i], y[i]) for a row, where f maps two Pieces to one. z may be x or y.
template <class T, class F>
void map_rows(const T* x, const T* y, T* z, Index count, F&& f) {
  Piece<T> a;
  Piece<T> b;
  Piece<T> out;
  for (Index first = 0; first < count; first += kPiece) {
    const Index n = (std::min<Index>)(kPiece, count - first);
    if (n < kPiece) {
      a.setZero();
      b.setZero();
    }
    std::copy_n(x + first, n, a.data());
    std::copy_n(y + first, n, b.data());
    out = f(a, b);
    std::copy_n(out.data(), n, z + first);
  }
}

/// 1 / (1 + exp(-x)), which goes to 0 and 1 at the ends. It is NaN for NaN.
template <class T>
Piece<T> sigmoid(const Piece<T>& x) {
  // Beyond 80 the exponential could overflow to something that is no number in some vector units. A
  // NaN does not pass through the clamp, which may lose it, but through the select below.
  const Piece<T> clamped = ((x.max)(T{-80}).min)(T{80});
  const Piece<T> y = T{1} / (T{1} + (-clamped).exp());
  return (x == x).select(y, x);
}

/// The tanh form of GELU (Hendrycks and Gimpel 2016) is x sigmoid(2 u(x)) with u(x) = sqrt(2 / pi)
/// (x + 0.044715 x^3). kGeluSlope is 2 sqrt(2 / pi), and kGeluCubic is the factor of x^3.
inline constexpr double kGeluSlope = 2 * 0.79788456080286535588;
inline constexpr double kGeluCubic = 0.044715;

/// The factor of x in gelu: sigmoid(2 u(x)).
template <class T>
Piece<T> gelu_gate(const Piece<T>& x) {
  const Piece<T> inner = x * (T{1} + static_cast<T>(kGeluCubic) * x.square());
  return sigmoid<T>(static_cast<T>(kGeluSlope) * inner);
}

/// GELU in its tanh form.
template <class T>
Piece<T> gelu(const Piece<T>& x) {
  return x * gelu_gate<T>(x);
}

/// The derivative of gelu, s + x s (1 - s) 2 u'(x) with s = sigmoid(2 u(x)).
template <class T>
Piece<T> gelu_derivative(const Piece<T>& x) {
  const Piece<T> s = gelu_gate<T>(x);
  // For large x, s (1 - s) vanishes before x u'(x) overflows.
  const Piece<T> near = ((x.max)(T{-1e3}).min)(T{1e3});
  const Piece<T> slope =
      static_cast<T>(kGeluSlope) * (T{1} + static_cast<T>(3 * kGeluCubic) * near.square());
  return s + near * s * (T{1} - s) * slope;
}

/// y = f(x) for activations, over the executor. y may be x.
template <class T, class E, class F>
void map_activations(const View<const T>& x, const View<T>& y, E&& executor, F&& f) {
  for_each_row_block(executor, x.batch(), x.rows(), [&](Index b, Index first, Index count) {
    for (Index n = first; n < first + count; ++n) {
      map_row<T>(&x(b, 0, n, 0), &y(b, 0, n, 0), x.width(), f);
    }
  });
}

/// z = f(x, y) for activations, over the executor. z may be x or y.
template <class T, class E, class F>
void map_activations(const View<const T>& x, const View<const T>& y, const View<T>& z, E&& executor,
                     F&& f) {
  for_each_row_block(executor, x.batch(), x.rows(), [&](Index b, Index first, Index count) {
    for (Index n = first; n < first + count; ++n) {
      map_rows<T>(&x(b, 0, n, 0), &y(b, 0, n, 0), &z(b, 0, n, 0), x.width(), f);
    }
  });
}

}  // namespace detail

FOVEA_NAMESPACE_END
