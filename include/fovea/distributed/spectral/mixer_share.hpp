// SPDX-License-Identifier: MIT
/// \file
/// Which columns of the Fourier mixer each rank computes.
#pragma once

#include <algorithm>
#include <vector>

#include "fovea/patterns/pattern.hpp"
#include "fovea/spectral/mixer_steps.hpp"

FOVEA_NAMESPACE_BEGIN

namespace distributed {

namespace detail {

/// The pairs of columns [begin, end) of a mixer of `width` columns.
///
/// Pair j reads the sums 2j, 2j + 1, D - 2j - 1 and D - 2j of a row, and computes the columns of
/// these numbers that no other pair computes. So neighbouring pairs read two ranges, and compute
/// two. Concatenated, these are the inputs and outputs of the last pairs of a narrower mixer, and
/// the kernels are called with its width.
struct MixerShare {
  Index width = 0;  ///< D
  Index begin = 0;  ///< the first pair
  Index end = 0;    ///< one past the last pair

  /// The shares of all ranks, nearly equal numbers of pairs.
  static std::vector<MixerShare> of_ranks(Index width, int ranks) {
    const Index pairs = width == 0 ? 0 : mixer_pairs(width);
    std::vector<MixerShare> shares;
    for (Index rank = 0; rank < ranks; ++rank) {
      shares.push_back({width, pairs * rank / ranks, pairs * (rank + 1) / ranks});
    }
    return shares;
  }

  /// The number of pairs.
  Index count() const { return end - begin; }
  /// The sums of a row that the pairs read: their own, and those of their mirror images.
  std::vector<Range> sums() const {
    if (count() == 0) return {};
    return {{2 * begin, 2 * end}, {width - 2 * end + 1, width - 2 * begin + 1}};
  }
  /// The columns of the result that the pairs compute, likewise.
  std::vector<Range> columns() const {
    if (count() == 0) return {};
    const Index own = width / 2 + 1;  // columns that are not mirror images
    return {{2 * begin, (std::min)(2 * end, own)},
            {(std::max)(width - 2 * end + 1, own), (std::min)(width - 2 * begin + 1, width)}};
  }

  /// The width of the mixer whose row of sums is `sums()`, concatenated. It has no other pairs.
  Index width_of_sums() const { return 4 * count() - 1; }
  /// The first of these pairs in the mixer that computes `columns()`, concatenated. Pair 0 computes
  /// one column less than others, so it is omitted there if it is not one of these.
  Index first() const { return begin == 0 ? 0 : 1; }
  /// The width of that mixer. Its last pair computes four columns, unless these pairs are also the
  /// last of the whole mixer.
  Index width_of_columns() const {
    const bool is_last = end == mixer_pairs(width);
    return is_last ? width - 4 * (begin - first()) : 4 * (first() + count()) - 1;
  }
};

}  // namespace detail

}  // namespace distributed

FOVEA_NAMESPACE_END
