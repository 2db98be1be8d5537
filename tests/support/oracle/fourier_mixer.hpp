// SPDX-License-Identifier: MIT
/// \file
/// The Fourier mixer as MATHS.md, section 7 writes it (FNet, section 3.1): a transform along the
/// width, then one along the sequence, each by the double loop of its definition.
///
/// The gauge is that of transforms, normwise (tests/README.md, "How results are judged"):
/// lg(N D) times the norm of the sequence.
#pragma once

#include <algorithm>
#include <cmath>
#include <complex>
#include <numbers>
#include <vector>

#include "support/compare.hpp"
#include "support/tensor.hpp"

namespace fovea_test {

/// e^{-2 pi i m / n} for m in [0, n).
template <class W>
std::vector<std::complex<W>> oracle_roots(Index n) {
  std::vector<std::complex<W>> roots;
  for (Index m = 0; m < n; ++m) {
    const W angle = -2 * std::numbers::pi_v<W> * static_cast<W>(m) / static_cast<W>(n);
    roots.emplace_back(std::cos(angle), std::sin(angle));
  }
  return roots;
}

/// Re(F_N (F_D x)) of every sequence.
template <class T>
Reference<T> oracle_fourier_mixer(const View<const T>& x) {
  using W = Wide<T>;
  const Shape shape = x.shape();
  const Index rows = shape[2];
  const Index width = shape[3];
  Reference<T> made{shape, std::vector<W>(as_size(size_of(shape))),
                    std::vector<W>(as_size(size_of(shape)))};
  const auto row_roots = oracle_roots<W>(width);
  const auto column_roots = oracle_roots<W>(rows);
  for (Index b = 0; b < shape[0]; ++b) {
    std::vector<std::complex<W>> inner(as_size(rows * width));
    W squares = 0;
    for (Index n = 0; n < rows; ++n) {
      for (Index c = 0; c < width; ++c) {
        for (Index d = 0; d < width; ++d) {
          inner[as_size(n * width + c)] +=
              static_cast<W>(x(b, 0, n, d)) * row_roots[as_size(d * c % width)];
        }
        squares += static_cast<W>(x(b, 0, n, c)) * static_cast<W>(x(b, 0, n, c));
      }
    }
    const W gauge =
        std::log2(static_cast<W>(std::max<Index>(2, rows * width))) * std::sqrt(squares);
    for (Index k = 0; k < rows; ++k) {
      for (Index c = 0; c < width; ++c) {
        std::complex<W> sum = 0;
        for (Index n = 0; n < rows; ++n) {
          sum += inner[as_size(n * width + c)] * column_roots[as_size(n * k % rows)];
        }
        const std::size_t at = as_size((b * rows + k) * width + c);
        made.value[at] = sum.real();
        made.gauge[at] = gauge;
      }
    }
  }
  return made;
}

}  // namespace fovea_test
