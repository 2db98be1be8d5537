// SPDX-License-Identifier: MIT
/// \file
/// A custom pattern: an image as a sequence of pixels, row after row, where each pixel sees the
/// preceding pixels near it (Image Transformer, Parmar et al. 2018).
#pragma once

#include <cstdlib>
#include <fovea/patterns.hpp>

/// Pixel i sees itself and the pixels j < i that are at most `radius` rows and columns away.
struct NearPixels {
  fovea::Index width = 1;   // of the image
  fovea::Index radius = 1;  // at least 0

  /// Defines the pattern: whether the query at i sees key j. The functions below must agree.
  bool allows(fovea::Index i, fovea::Index j) const {
    const fovea::Index rows = i / width - j / width, columns = i % width - j % width;
    return j <= i && rows <= radius && std::abs(columns) <= radius;
  }

  /// The maximum number of intervals of keys that a query sees: one in each row of the image.
  fovea::Index interval_count() const { return radius + 1; }

  /// Writes the intervals. They may extend beyond the sequence, but must be disjoint.
  void keys_of(fovea::Index i, std::span<fovea::Range> intervals) const {
    const fovea::Index column = i % width;
    for (fovea::Index up = 0; up <= radius; ++up) {
      const fovea::Index row = i - column - up * width;  // its first pixel
      const fovea::Index end = up == 0 ? column + 1 : std::min(column + radius + 1, width);
      intervals[static_cast<std::size_t>(up)] = {row + std::max<fovea::Index>(column - radius, 0),
                                                 row + end};
    }
  }

  /// Optional: how far before and after itself a position sees keys, and which positions may see a
  /// key of an interval. Plans then skip all other keys, and a decoder does not keep them.
  fovea::ReceptiveField receptive_field() const { return {radius * (width + 1), 0}; }
  fovea::Range seen_from(const fovea::Range& keys) const {
    return {keys.begin, keys.end + receptive_field().before};
  }

  /// The plan for one sequence, which IntervalPlan makes from the functions above.
  fovea::IntervalPlan<NearPixels> plan(const fovea::SequenceShape& shape) const {
    return {*this, shape};
  }
};

static_assert(fovea::Pattern<NearPixels>);
