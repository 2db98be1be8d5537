// SPDX-License-Identifier: MIT
/// \file
/// The visible pairs of a tile of the backward pass, at the granularity at which products skip
/// hidden ones. Hidden pairs would add exact zeros, so bits do not depend on it.

#if !defined(FOVEA_LEVEL)  // for editors
#pragma once
#include "fovea/kernels/softmax/grad.hpp"
#include "fovea/kernels/softmax/visible_keys.inl.hpp"
#endif

/// The queries whose tiles are computed together: kGradTile of them are kGradGroups groups.
template <class T>
inline constexpr Index kGradGroup = 4 * kLanes<T>;

/// The number of keys that share one interval of visible queries.
inline constexpr Index kGradQuad = 4;

/// The tile of one sub-block of queries and up to kGradTile keys of a run.
template <class T>
struct GradPairs {
  VisibleKeys lanes[kGradTile / kLanes<T>];  // keys of the tile seen by a vector of queries
  Index first_query[kGradTile / kGradQuad];  // the first to see one of four keys
  Index last_query[kGradTile / kGradQuad];   // one past the last

  /// Makes all keys visible to all `rows` queries.
  void set_all(Index rows, Index keys) {
    for (Index v = 0; v < kGradTile / kLanes<T>; ++v) {
      lanes[v] = v * kLanes<T> < rows ? VisibleKeys{0, 0, keys, keys} : VisibleKeys{0, 0, 0, 0};
    }
    for (Index n = 0; n * kGradQuad < keys; ++n) {
      first_query[n] = 0;
      last_query[n] = rows;
    }
  }

  /// Makes the keys [begin, end) visible to rows [row, row + rows) of a block by the bounds of a
  /// run.
  void set_bounds(const KeyRun& run, Index row, Index rows, Index begin, Index end) {
    for (Index v = 0; v < kGradTile / kLanes<T>; ++v) {
      const Index lane = v * kLanes<T>;
      lanes[v] = {0, 0, 0, 0};
      if (lane >= rows) continue;
      const VisibleKeys seen =
          seen_keys(run, row + lane, smaller(kLanes<T>, rows - lane), begin, end);
      if (seen.begin >= seen.end) continue;
      const Index full = clamped(seen.full_begin, seen.begin, seen.end);
      lanes[v] = {seen.begin - begin, full - begin, clamped(seen.full_end, full, seen.end) - begin,
                  seen.end - begin};
    }
    for (Index n = 0; n * kGradQuad < end - begin; ++n) {
      set_queries(run, row, rows, begin, n, smaller(end, begin + (n + 1) * kGradQuad));
    }
  }

 private:
  /// Finds the queries of quad n, whose keys end at `end`: first by vectors, then individually.
  void set_queries(const KeyRun& run, Index row, Index rows, Index begin, Index n, Index end) {
    constexpr Index w = kLanes<T>;
    const Index from = n * kGradQuad;
    const Index to = end - begin;
    Index first = 0;
    while (first < rows && (lanes[first / w].begin >= to || lanes[first / w].end <= from)) {
      first += w;
    }
    Index last = (rows + w - 1) / w * w;
    while (last > first && (lanes[last / w - 1].begin >= to || lanes[last / w - 1].end <= from)) {
      last -= w;
    }
    last = smaller(last, rows);
    const Index* lower = run.lower + row;
    const Index* upper = run.upper + row;
    while (first < last && (lower[first] >= end || upper[first] <= begin + from)) ++first;
    while (first < last && (lower[last - 1] >= end || upper[last - 1] <= begin + from)) --last;
    first_query[n] = smaller(first, last);
    last_query[n] = last;
  }
};

/// The vectors [begin, end) of a group.
struct Vectors {
  Index begin;
  Index end;
  friend constexpr bool operator==(const Vectors&, const Vectors&) = default;
};

/// The vectors from the first to the last one of a group that sees one of the keys [begin, end).
inline Vectors vectors_that_see(const VisibleKeys* lanes, Index begin, Index end) {
  Vectors seen{4, 0};
  for (Index v = 0; v < 4; ++v) {
    if (lanes[v].begin < end && begin < lanes[v].end) {
      seen.begin = smaller(seen.begin, v);
      seen.end = v + 1;
    }
  }
  return seen;
}
