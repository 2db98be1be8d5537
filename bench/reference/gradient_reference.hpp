// SPDX-License-Identifier: MIT
/// \file
/// The truth for some rows of the gradients of q, k and v of softmax attention in a wider type, and
/// how far results are from it in the library's own unit: u times the magnitudes that go into the
/// element, times 1 + B of the rows (reliability: twice the products of forward, so twice the
/// unit). Compiled in one source, for float and double.
#pragma once

#include <cmath>
#include <vector>

#include "bench/reference/row_reference.hpp"

namespace bench {

/// One row of a gradient: a sum of terms, and its unit.
template <class T>
struct GradientRow {
  using W = Wide<T>;
  explicit GradientRow(Index width)
      : value(static_cast<std::size_t>(width)), unit(static_cast<std::size_t>(width)) {}

  /// Adds factor * x(row), judged by `size`.
  void add(W factor, W size, const View<const T>& x, Index head, Index row) {
    for (std::size_t c = 0; c < value.size(); ++c) {
      const W element = x(0, head, row, static_cast<Index>(c));
      value[c] += factor * element;
      unit[c] += size * std::abs(element);
    }
  }

  /// Compares with a row of what was computed.
  void judge(const View<T>& got, Index head, Index row, Error& error) const {
    for (std::size_t c = 0; c < value.size(); ++c) {
      const auto x = static_cast<W>(got(0, head, row, static_cast<Index>(c)));
      error.add(static_cast<double>(std::abs(x - value[c])),
                static_cast<double>(2 * fovea_test::kRoundoff<T> * unit[c]));
    }
  }

  std::vector<W> value;
  std::vector<W> unit;
};

/// Compares `samples` rows of each head of the gradients of q, k and v of softmax attention over
/// what `mask` shows, scale 1 / sqrt(D).
/// \param lse, out as forward saved them
template <class T>
Error softmax_gradient_error(const fovea_test::ReferenceMask& mask, const AllInputs<T>& in,
                             const View<const T>& out, const View<const T>& lse,
                             const View<const T>& d_out, const AllGrads<T>& grads, Index samples);

}  // namespace bench
