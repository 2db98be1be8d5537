// SPDX-License-Identifier: MIT
/// \file
/// Tensors in the type that they are stored in: that of the arithmetic, or one of 16 bits, to which
/// they are rounded.
#pragma once

#include <Eigen/Core>
#include <cmath>
#include <limits>
#include <type_traits>
#include <vector>

#include "bench/reference/row_reference.hpp"
#include "fovea/core/scalar.hpp"

namespace bench {

using fovea::Shape;

/// A tensor of S with the elements of another one, row-major.
template <class S>
struct Stored {
  template <class T>
  explicit Stored(const View<const T>& x)
      : shape(x.shape()), data(static_cast<std::size_t>(x.size())) {
    Index i = 0;
    for (Index h = 0; h < shape[1]; ++h) {
      for (Index n = 0; n < shape[2]; ++n) {
        for (Index d = 0; d < shape[3]; ++d) {
          data[static_cast<std::size_t>(i++)] = static_cast<S>(x(0, h, n, d));
        }
      }
    }
  }

  View<S> view() { return View<S>(data.data(), shape); }
  View<const S> view() const { return View<const S>(data.data(), shape); }

  Shape shape;
  std::vector<S> data;
};

/// What results of the arithmetic in T lose when they are stored in S.
template <class S, class T>
Rounding rounding_to() {
  if constexpr (std::is_same_v<S, T>) return {};
  return {std::ldexp(1.0, -std::numeric_limits<S>::digits),
          static_cast<double>(std::numeric_limits<S>::denorm_min()) / 2};
}

/// What a call reads and writes, with q, k, v and out of S. \tparam T of the arithmetic
template <class S, class T>
struct StoredCall {
  StoredCall(const AllInputs<T>& in, const View<T>& to)
      : q(in.q),
        k(in.k),
        v(in.v),
        result(View<const T>(to)),
        inputs(in.template with_tensors<S>(q.view(), k.view(), v.view())),
        out(result.view()),
        as_numbers(to) {}
  StoredCall(const StoredCall&) = delete;
  StoredCall& operator=(const StoredCall&) = delete;

  /// Writes what the last pass has made to the output of T.
  void widen() const {
    const Shape& shape = out.shape();
    for (Index h = 0; h < shape[1]; ++h) {
      for (Index n = 0; n < shape[2]; ++n) {
        for (Index d = 0; d < shape[3]; ++d) {
          as_numbers(0, h, n, d) = static_cast<T>(out(0, h, n, d));
        }
      }
    }
  }

  Stored<S> q, k, v, result;
  AllInputs<S> inputs;
  View<S> out;
  View<T> as_numbers;
};

/// Tensors that are stored in the type of the arithmetic are taken as they are.
template <class T>
struct StoredCall<T, T> {
  StoredCall(const AllInputs<T>& in, const View<T>& to) : inputs(in), out(to), as_numbers(to) {}
  void widen() const {}

  AllInputs<T> inputs;
  View<T> out, as_numbers;
};

}  // namespace bench
