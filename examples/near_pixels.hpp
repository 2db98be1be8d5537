// SPDX-License-Identifier: MIT
/// \file
/// A pattern of one's own: an image as a sequence of pixels, row after row, each of which sees the
/// pixels near it that came before (Image Transformer, Parmar et al. 2018).
#pragma once

#include <cstdlib>
#include <fovea/patterns.hpp>

/// Pixel i sees itself and the pixels j < i that are at most `radius` rows and columns away.
struct NearPixels {
  fovea::Index width = 1;   // of the image
  fovea::Index radius = 1;  // at least 0

  /// The mask, which the functions below must agree with: whether the query at i sees key j.
  bool allows(fovea::Index i, fovea::Index j) const {
    const fovea::Index rows = i / width - j / width, columns = i % width - j % width;
    return j <= i && rows <= radius && std::abs(columns) <= radius;
  }

  /// Intervals of keys that a query sees at most: one of each row of the image.
  fovea::Index interval_count() const { return radius + 1; }

  /// Writes them. They need not end with the sequence, but must have no key in common.
  void keys_of(fovea::Index i, std::span<fovea::Range> intervals) const {
    const fovea::Index column = i % width;
    for (fovea::Index up = 0; up <= radius; ++up) {
      const fovea::Index row = i - column - up * width;  // its first pixel
      const fovea::Index end = up == 0 ? column + 1 : std::min(column + radius + 1, width);
      intervals[static_cast<std::size_t>(up)] = {row + std::max<fovea::Index>(column - radius, 0),
                                                 row + end};
    }
  }

  /// Not needed, but what is said here is neither looked at nor, in a decoder, kept: how far before
  /// and after itself a position sees keys, and which positions may see a key of an interval.
  fovea::ReceptiveField receptive_field() const { return {radius * (width + 1), 0}; }
  fovea::Range seen_from(const fovea::Range& keys) const {
    return {keys.begin, keys.end + receptive_field().before};
  }

  /// What operators ask for. IntervalPlan makes it of the functions above.
  fovea::IntervalPlan<NearPixels> plan(const fovea::SequenceShape& shape) const {
    return {*this, shape};
  }
};

static_assert(fovea::Pattern<NearPixels>);
