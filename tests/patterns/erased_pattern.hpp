// SPDX-License-Identifier: MIT
/// \file
/// Patterns of any type as one type, so that trees of them need few instantiations.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "fovea/patterns/combine.hpp"
#include "fovea/patterns/passes.hpp"
#include "patterns/enumeration.hpp"

namespace fovea_test {

using fovea::Index;
using fovea::Intervals;
using fovea::StridedRange;

/// A pattern of any type with the properties of that one, as a single type: separate instantiations
/// for all pairs would take minutes to compile. It has a pattern's member functions.
struct ErasedPattern {
  template <fovea::IntervalPattern P>
  static ErasedPattern of(const P& pattern) {
    const auto intervals = std::make_shared<const Intervals<P>>(pattern);
    const Intervals<P>* const p = intervals.get();
    return {[p](Index i, Index j) { return p->allows(i, j); },
            [p] { return p->count(); },
            [p] { return p->interval_capacity(); },
            [p](Index i, std::span<Range> to) { p->keys_of(i, to); },
            [p] { return p->row_step(); },
            [p](Index interval) { return p->strided_range(interval, 0); },
            [p] { return p->causal_cut(); },
            [p](Index i) { return p->same_until(i); },
            [p](Index i) { return p->next_cut(i); },
            [p] { return p->row_block(); },
            [p](const Range& keys) { return p->seen_from(keys); },
            [p](const Range& rows, const Range& keys) { return p->meets(rows, keys); },
            intervals};
  }

  fovea::IntervalPlan<ErasedPattern> plan(const SequenceShape& shape) const {
    return {*this, shape};
  }

  std::function<bool(Index, Index)> allows;
  std::function<Index()> interval_count;
  std::function<Index()> interval_capacity;
  std::function<void(Index, std::span<Range>)> keys_of;
  std::function<Index()> row_step;
  std::function<StridedRange(Index)> strided_range;
  std::function<bool()> causal_cut;
  std::function<Index(Index)> same_until;
  std::function<Index(Index)> next_cut;
  std::function<Index()> row_block;
  std::function<Range(const Range&)> seen_from;
  std::function<bool(const Range&, const Range&)> meets;
  std::shared_ptr<const void> wrapped;  // what the functions ask
};
static_assert(fovea::MultiIntervalPattern<ErasedPattern> && fovea::Pattern<ErasedPattern>);

/// Each key of each row in one pass only, whatever the steps of the rows.
template <class P>
void expect_passes(const P& pattern, const SequenceShape& shape) {
  std::vector<int> times(as_size(shape.queries * shape.keys));
  for_each_pass(pattern, [&](const auto& pass, auto) {
    expect_mask(pass, shape, "stage", [&](Index i, Index j) { return pass.allows(i, j); });
    const Shown shown = enumerate(pass.plan(shape), shape.queries, shape.keys);
    for (std::size_t n = 0; n < times.size(); ++n) times[n] += shown.pairs[n];
  });
  for (Index r = 0; r < shape.queries; ++r) {
    for (Index j = 0; j < shape.keys; ++j) {
      ASSERT_EQ(times[as_size(r * shape.keys + j)],
                pattern.allows(r + shape.first_position, j) ? 1 : 0)
          << r << " " << j;
    }
  }
}

}  // namespace fovea_test
