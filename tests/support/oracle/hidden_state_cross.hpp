// SPDX-License-Identifier: MIT
/// \file
/// The cross of hidden states as MATHS.md, section 6 writes it (FSAT, eqs. 2 and 4): the double
/// loop of the linear convolution, its merge, and the double loop of its adjoint; nothing clever.
///
/// The gauge is that of transforms, normwise (tests/README.md, "How results are judged"):
/// lg n |x| |y| of the channel, and of the gradients lg n |g| |y|.
#pragma once

#include <algorithm>
#include <cmath>
#include <vector>

#include "support/reference.hpp"

namespace fovea_test {

/// One channel of one sequence, in the type that results are judged in.
template <class T>
std::vector<Wide<T>> channel(const View<const T>& x, Index b, Index c, Index n) {
  std::vector<Wide<T>> values;
  for (Index i = 0; i < n; ++i) values.push_back(static_cast<Wide<T>>(x(b, 0, i, c)));
  return values;
}

template <class W>
W norm(const std::vector<W>& x) {
  W sum = 0;
  for (const W value : x) sum += value * value;
  return std::sqrt(sum);
}

/// Eqs. 2 and 4, without the normalisation.
template <class W>
std::vector<W> oracle_cross(const std::vector<W>& f1, const std::vector<W>& f2) {
  const std::size_t n = f1.size();
  std::vector<W> c0(2 * n, W{0});
  for (std::size_t a = 0; a < n; ++a) {
    for (std::size_t b = 0; b < n; ++b) c0[a + b] += f1[a] * f2[b];
  }
  std::vector<W> out(n, W{0});
  for (std::size_t i = 0; i + 1 < n; ++i) out[i] = c0[2 * i] + c0[2 * i + 1] - f1[i] * f2[i];
  return out;
}

/// The gradient of f1, from that of the output; of f2 with f1 in the place of f2.
template <class W>
std::vector<W> oracle_cross_gradient(const std::vector<W>& f2, std::vector<W> g) {
  const std::size_t n = f2.size();
  if (n > 0) g[n - 1] = 0;
  std::vector<W> d_f1(n, W{0});
  for (std::size_t a = 0; a < n; ++a) {
    for (std::size_t b = 0; b < n; ++b) d_f1[a] += g[(a + b) / 2] * f2[b];
    d_f1[a] -= g[a] * f2[a];
  }
  return d_f1;
}

template <class T>
Reference<T> cross_reference(const Shape& shape) {
  const std::vector<Wide<T>> zeros(as_size(size_of(shape)));
  return {shape, zeros, zeros};
}

/// Writes a channel of a reference. \param size |x| |y|
template <class T>
void put_channel(Reference<T>& to, Index b, Index c, const std::vector<Wide<T>>& x, Wide<T> size) {
  const auto n = static_cast<Index>(x.size());
  const Wide<T> gauge = std::log2(static_cast<Wide<T>>(std::max<Index>(n, 2))) * size;
  for (Index i = 0; i < n; ++i) {
    const std::size_t at = as_size((b * to.shape[2] + i) * to.shape[3] + c);
    to.value[at] = x[as_size(i)];
    to.gauge[at] = gauge;
  }
}

}  // namespace fovea_test
