// SPDX-License-Identifier: MIT
/// \file
/// Which rows of a query block see which key blocks, from the block's runs.
#pragma once

#include "fovea/patterns/intervals.hpp"
#include "fovea/patterns/partition.hpp"

FOVEA_NAMESPACE_BEGIN

namespace detail {

/// Whether a query block may see one of the keys before key_end, judged by the runs without their
/// bounds.
inline bool meets(const QueryBlock& block, const KeyBlock& keys, Index key_end) {
  const Index begin = keys.first;
  const Index end = (std::min)(keys.span().end, key_end);
  for (Index r = 0; r < block.run_count; ++r) {
    const KeyRun& run = block.runs[r];
    const Index last = run.first + run.step * (run.count - 1);
    if (run.count == 0 || last < begin || end <= run.first) continue;
    if ((run.first - begin) % keys.step != 0) continue;
    const Index t = begin <= run.first ? 0 : ceil_div(begin - run.first, run.step);
    if (run.first + run.step * t < end) return true;
  }
  return false;
}

/// The rows of a block that see some of the keys: from the first such row, rounded down to a
/// multiple of `tile`, to the last.
inline Range rows_that_see(const QueryBlock& block, const KeyBlock& keys, Index key_end,
                           Index tile) {
  const Range whole = {keys.first, (std::min)(keys.span().end, key_end)};
  Range rows = {block.count, 0};
  for (Index n = 0; n < block.run_count; ++n) {
    const KeyRun& run = block.runs[n];
    if ((run.first - keys.first) % keys.step != 0) continue;
    const Range seen = StridedRange{0, run.step}.points(
        {whole.begin - run.first, whole.end - run.first});  // keys t of the run
    const auto sees = [&](Index r) { return seen.meets(seen_by(run, r)); };
    Index first = 0;
    while (first < rows.begin && !sees(first)) ++first;
    rows.begin = (std::min)(rows.begin, first);
    Index last = block.count;
    while (last > (std::max)(rows.begin, rows.end) && !sees(last - 1)) --last;
    if (last > rows.begin) rows.end = (std::max)(rows.end, last);
  }
  rows.begin = rows.begin / tile * tile;
  return rows;
}

}  // namespace detail

FOVEA_NAMESPACE_END
