// SPDX-License-Identifier: MIT
/// \file
/// The choice of hits.inl.hpp among some keys of a row, and among all of them: what hits_test.cpp
/// compiles once per level.

#include "fovea/kernels/sketch/unfused.inl.hpp"

#include "fovea/kernels/sketch/scores.inl.hpp"

#include "fovea/kernels/sketch/sampling.inl.hpp"

#include "fovea/kernels/sketch/candidates.inl.hpp"

#include "fovea/kernels/sketch/hits.inl.hpp"

/// Chooses among the keys whose losses are below `cap`. \returns whether that is the choice among
/// all keys for every normaliser that is up to `interval` larger; only then is it written
template <SamplingPolicy P, class T>
inline bool choose_certain(const SketchSelectArgs<T>& args, const RowOfTest<T>& row, T wanted,
                           T cap, double interval, Index head, Index* to) {
  SketchHits<P, T> hits(args, row.memory, row.order, row.room);
  const SketchRow<T> sketch{row.logits, row.keys, row.most, row.normaliser, true};
  if (!hits.candidates().find_below(sketch, wanted, cap, row.names)) return false;
  if (!hits.find(head, 0) || !hits.is_certain(interval)) return false;
  hits.write_sorted(to);
  return true;
}

/// Chooses among all keys.
template <SamplingPolicy P, class T>
inline void choose_of_all(const SketchSelectArgs<T>& args, const RowOfTest<T>& row, Index head,
                          Index* to) {
  SketchHits<P, T> hits(args, row.memory, row.order, row.room);
  // No threshold selects that many keys, so all are candidates.
  const auto wanted = static_cast<T>(2 * row.keys);
  hits.candidates().find({row.logits, row.keys, row.most, row.normaliser, true}, wanted);
  hits.find(head, 0);
  hits.write(to);
}

template <SamplingPolicy P, class T>
inline HitsOfLevel<T> operations() {
  return {&choose_certain<P, T>, &choose_of_all<P, T>};
}
