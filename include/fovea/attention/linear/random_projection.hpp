// SPDX-License-Identifier: MIT
/// \file
/// Draws the projection of random features (Choromanski et al. 2020, section 3.2; MATHS.md, section
/// 7).
#pragma once

#include <algorithm>
#include <cmath>
#include <vector>

#include "fovea/core/error.hpp"
#include "fovea/core/philox.hpp"
#include "fovea/core/view.hpp"

FOVEA_NAMESPACE_BEGIN

namespace detail {

/// A normal draw (Box-Muller) as a function of a seed and a number's coordinates.
/// \param kind 0: for rows, 1: for their lengths
inline double normal_draw(std::uint64_t seed, Index block, Index i, Index j, Index kind) {
  const double u = uniform_draw<double>(seed, block, i, j, 2 * kind);
  const double angle = uniform_draw<double>(seed, block, i, j, 2 * kind + 1);
  return std::sqrt(-2 * std::log(u)) * std::cos(2 * 3.14159265358979323846 * angle);
}

}  // namespace detail

/// Draws a projection [1, 1, R, D] for PerformerAttention. Its rows are orthogonal within blocks of
/// D, independent between blocks, and each is distributed like a vector of D independent normal
/// numbers: its direction is that of row i of a Gaussian matrix, orthogonalised against earlier
/// rows (Gram-Schmidt), and its length that of another Gaussian vector, so that it is
/// chi-distributed with D degrees of freedom. All are functions of the seed, block, row and column
/// (uniform_draw), computed in double and rounded for float.
/// Cost: O(R D^2).
/// \param seed a different one for each projection
/// \param projection [1, 1, R, D], written; an Eigen matrix [R, D] works, too
/// \throws std::invalid_argument if the projection has a batch or heads; std::bad_alloc
template <class To, class T = typename ViewTraits<std::remove_cvref_t<To>>::Scalar>
requires std::floating_point<T>
void draw_projection(std::uint64_t seed, To&& projection) {
  const View<T> to(projection);
  for (std::size_t d = 0; d < 2; ++d) {
    if (to.shape()[d] == 1) continue;
    refuse_extent("draw_projection", "projection", to.shape(), d, "1");
  }
  const Index width = to.width();
  const auto row_of = [&](Index r) { return static_cast<std::size_t>(r * width); };
  std::vector<double> block(row_of((std::min)(width, to.rows())));
  for (Index first = 0; first < to.rows() && width > 0; first += width) {
    for (Index i = 0; i < (std::min)(width, to.rows() - first); ++i) {
      double* const row = block.data() + row_of(i);
      double squares = 0;
      for (Index c = 0; c < width; ++c) {
        row[c] = detail::normal_draw(seed, first / width, i, c, 0);
        const double other = detail::normal_draw(seed, first / width, i, c, 1);
        squares += other * other;
      }
      // Twice, to remove the components along earlier rows to rounding accuracy.
      for (Index n = 0; n < 2 * i; ++n) {
        const double* const before = block.data() + row_of(n % i);
        double product = 0;
        for (Index c = 0; c < width; ++c) product += before[c] * row[c];
        for (Index c = 0; c < width; ++c) row[c] -= product * before[c];
      }
      double size = 0;
      for (Index c = 0; c < width; ++c) size += row[c] * row[c];
      size = std::sqrt(size);
      for (Index c = 0; c < width; ++c) {
        row[c] /= size;
        to(0, 0, first + i, c) = static_cast<T>(row[c] * std::sqrt(squares));
      }
    }
  }
}

FOVEA_NAMESPACE_END
