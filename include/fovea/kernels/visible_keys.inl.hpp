// SPDX-License-Identifier: MIT
/// \file
/// Which keys of a run some rows of a block see: as one range, and as bounds in the lanes.

/// The keys of one run that some rows see: all of the rows see those of [full_begin, full_end),
/// some of them those of [begin, end).
struct SeenKeys {
  Index begin;
  Index full_begin;
  Index full_end;
  Index end;
};

/// What rows [row, row + rows) of a block see of the keys [low, high) of a run.
inline SeenKeys seen_keys(const KeyRun& run, Index row, Index rows, Index low, Index high) {
  if (run.lower == nullptr) return {low, low, high, high};
  SeenKeys seen{high, low, high, low};
  for (Index i = row; i < row + rows; ++i) {
    const Index first = larger(run.lower[i], low);
    const Index last = smaller(run.upper[i], high);
    seen.full_begin = larger(seen.full_begin, first);
    seen.full_end = smaller(seen.full_end, last);
    if (first < last) {
      seen.begin = smaller(seen.begin, first);
      seen.end = larger(seen.end, last);
    }
  }
  return seen;
}

/// The bounds of rows [row, row + rows) in the lanes, counted from key `begin` of the run and cut
/// to `keys`; lanes beyond the rows see nothing.
template <int V, class T>
FOVEA_NOINLINE void set_bounds(LaneBounds<V, T>& bounds, const KeyRun& run, Index row, Index rows,
                               Index begin, Index keys) {
  for (Index i = 0; i < V * kLanes<T>; ++i) {
    const bool real = i < rows;
    const Index low = real && run.lower != nullptr ? run.lower[row + i] - begin : 0;
    const Index high = !real ? 0 : run.upper != nullptr ? run.upper[row + i] - begin : keys;
    bounds.lower[i] = static_cast<Int<T>>(clamped(low, 0, keys));
    bounds.upper[i] = static_cast<Int<T>>(clamped(high, 0, keys));
  }
}
