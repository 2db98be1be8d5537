// SPDX-License-Identifier: MIT
/// \file
/// The plan of an interval pattern: each interval becomes one run of a block.
#pragma once

#include <cassert>

#include "fovea/patterns/intervals.hpp"
#include "fovea/patterns/pair_count.hpp"
#include "fovea/patterns/partition.hpp"

FOVEA_NAMESPACE_BEGIN

/// The plan of an IntervalPattern P. Its blocks have at most block_rows(queries) rows, and it takes
/// O(1) memory. Building a block costs O(rows intervals), or O(intervals) if its rows all see the
/// same. A pattern may name its IntervalPlan while it is still an incomplete type.
template <class P>
class IntervalPlan {
 public:
  /// The plan of a pattern for a sequence of this shape.
  IntervalPlan(const P& pattern, const SequenceShape& shape)
      : intervals_(Intervals<P>(pattern).up_to(shape.keys)),
        shape_(shape),
        rows_(rows_of_block(intervals_.row_block(), shape.queries)),
        row_blocks_(shape.queries, intervals_.row_step(), rows_),
        key_blocks_(shape.keys, intervals_.key_step(), key_block_rows(shape.keys)) {
    static_assert(IntervalPattern<P>);
    assert(intervals_.row_step() == 1 || intervals_.key_step() == intervals_.row_step());
  }

  /// The number of blocks of query rows.
  Index block_count() const {
    if (intervals_.row_step() > 1) return row_blocks_.size();
    return shape_.queries == 0 ? 0 : block_at(positions().end - 1) + 1;
  }

  /// The distance between neighbouring rows of a block.
  Index row_step() const { return intervals_.row_step(); }

  /// The largest number of runs in a block, for BlockStorage.
  Index most_runs() const { return (std::max)(intervals_.count(), intervals_.interval_capacity()); }

  /// Block b of the query rows; its runs point into the storage.
  /// \pre storage.capacity() >= most_runs()
  QueryBlock block(Index b, BlockStorage& storage) const {
    assert(storage.capacity() >= most_runs());
    const RowBlock rows = this->rows(b);
    QueryBlock block{rows.first, rows.step, rows.count, storage.runs(), 0, intervals_.most_keys()};
    const Index first = rows.first + shape_.first_position;
    const Index end = first + rows.span().end - rows.first;
    const Index count = intervals_.count();
    for (Index s = 0; s < count; ++s) {
      const StridedRange strided_range = intervals_.strided_range(s, floor_mod(first, rows.step));
      const Index points = strided_range.size(shape_.keys);
      storage.state(s) = {strided_range.phase, strided_range.step, points, points, 0, false, true};
    }
    for (Index r = 0; r < rows.count;) {
      const Index i = first + r * rows.step;
      const auto row_at = [&](Index position) {
        return position >= end ? rows.count : r + ceil_div(position - i, rows.step);
      };
      const Index next = row_at(intervals_.same_until(i));
      intervals_.keys_of(i, storage.intervals());
      if constexpr (LinearIntervals<P>) {
        const Index last = row_at(intervals_.pattern().linear_until(i));
        if (last > next) {
          add_moving_rows({r, last, rows, i}, storage);
          r = last;
          continue;
        }
      }
      for (Index s = 0; s < count; ++s) {
        add_rows({r, next, rows, i}, at(storage.intervals(), s), s, storage);
      }
      r = next;
    }
    for (Index s = 0; s < count; ++s) {
      const KeyRun run = finished_run(s, rows.count, storage);
      if (run.count > 0) storage.runs()[block.run_count++] = run;
    }
    block.step = step_within(block.step, shape_.queries);
    return block;
  }

  /// The rows of block b, cheaper than the block.
  RowBlock rows(Index b) const {
    if (intervals_.row_step() > 1) return row_blocks_[b];
    Index begin = positions().begin;
    for (;;) {
      const Index end = (std::min)(positions().end, intervals_.next_cut(begin));
      const Index count = piece_at(begin, end - 1) + 1;
      if (b < count) {
        const Index first = piece_begin(begin, b);
        return {first - shape_.first_position, 1,
                (std::min)(end, piece_begin(begin, b + 1)) - first};
      }
      b -= count;
      begin = end;
    }
  }

  /// The number of visible (query, key) pairs; the largest Index if there are more. Cost:
  /// O(intervals) for each group of rows whose intervals move alike; beyond 2^32 rows see
  /// PairCount.
  Index attended_pairs() const { return detail::IntervalPairs<P>(intervals_, shape_).count(); }

  /// The number of blocks of keys.
  Index key_block_count() const { return key_blocks_.size(); }
  /// The largest number of keys in a block: the first is as long as any.
  Index largest_key_block() const { return key_blocks_.size() == 0 ? 0 : key_blocks_[0].count; }
  /// Block p of the keys.
  KeyBlock key_block(Index p) const {
    KeyBlock keys = key_blocks_[p];
    keys.step = step_within(keys.step, shape_.keys);
    return keys;
  }

  /// A range that contains every query block that sees a key of block p.
  Range query_blocks(Index p) const {
    const KeyBlock keys = key_block(p);
    if (!intervals_.has_residue_of(keys.first)) return {};
    const Range seen = intervals_.seen_from(keys.span()).within(positions());
    if (seen.is_empty()) return {};
    const Index first = shape_.first_position;
    if (intervals_.row_step() > 1) {
      return row_blocks_.range(floor_mod(keys.first - first, intervals_.row_step()),
                               {seen.begin - first, seen.end - first});
    }
    return {block_at(seen.begin), block_at(seen.end - 1) + 1};
  }

  /// If this is false, block b of the queries sees no key of block p.
  bool meets(Index b, Index p) const {
    const Range rows = this->rows(b).span();
    const KeyBlock keys = key_block(p);
    const Index first = shape_.first_position;
    if (floor_mod(rows.begin + first - keys.first, intervals_.row_step()) != 0) return false;
    if (!intervals_.has_residue_of(keys.first)) return false;
    return intervals_.meets({rows.begin + first, rows.end + first}, keys.span());
  }

  /// A range that contains every key block that a query block sees.
  Range key_blocks(const QueryBlock& block) const {
    Range blocks;
    for (Index r = 0; r < block.run_count; ++r) {
      const KeyRun& run = block.runs[r];
      const Range keys = RowBlock{run.first, run.step, run.count}.span();
      const Range of_run = key_blocks_.range(run.first % key_blocks_.step(), keys);
      blocks.begin = r == 0 ? of_run.begin : (std::min)(blocks.begin, of_run.begin);
      blocks.end = (std::max)(blocks.end, of_run.end);
    }
    return blocks;
  }

 private:
  static Range& at(std::span<Range> intervals, Index s) {
    return intervals[static_cast<std::size_t>(s)];
  }

  /// The rows of a block. Blocks do not cross multiples of `multiple`, unless they would become too
  /// small.
  static Index rows_of_block(Index multiple, Index queries) {
    constexpr Index least = 16;  // the lanes of a vector
    const Index most = block_rows(queries);
    if (multiple <= 0 || multiple > most) return most;
    return (least + multiple - 1) / multiple * multiple;
  }

  /// The step, shortened if it exceeds the sequence (it is never taken then), so that it can be
  /// multiplied by strides without overflow.
  static Index step_within(Index step, Index count) {
    return (std::min)(step, (std::max)(count, Index{1}));
  }

  Range positions() const {
    return {shape_.first_position, shape_.first_position + shape_.queries};
  }

  /// The block that contains a position. \pre row_step is 1
  Index block_at(Index position) const {
    Index blocks = 0;
    for (Index begin = positions().begin;;) {
      const Index end = (std::min)(positions().end, intervals_.next_cut(begin));
      if (position < end) return blocks + piece_at(begin, position);
      blocks += piece_at(begin, end - 1) + 1;
      begin = end;
    }
  }

  /// The piece that contains a position, if rows from `begin` on are cut into pieces of rows_ rows.
  /// If the pattern has a row_block, pieces end at multiples of rows_.
  Index piece_at(Index begin, Index position) const {
    return intervals_.row_block() > 0 ? floor_div(position, rows_) - floor_div(begin, rows_)
                                      : (position - begin) / rows_;
  }
  Index piece_begin(Index begin, Index piece) const {
    if (intervals_.row_block() == 0) return begin + piece * rows_;
    return piece == 0 ? begin : (floor_div(begin, rows_) + piece) * rows_;
  }

  /// Rows [begin, end) of a block, whose intervals are processed together. Row `begin` has position
  /// i.
  struct SameRows {
    Index begin;
    Index end;
    const RowBlock& rows;
    Index i;
  };

  /// Adds the interval of some rows to an interval's state: as one interval if they are all rows of
  /// the block, otherwise as bounds.
  void add_rows(const SameRows& same, const Range& interval, Index s, BlockStorage& storage) const {
    BlockStorage::RunState& state = storage.state(s);
    const Index from = std::clamp(interval.begin, Index{0}, state.points);
    const Index to = std::clamp(interval.end, from, state.points);
    const bool crosses =
        intervals_.causal_cut() && from < to && state.phase + state.step * (to - 1) > same.i;
    if (crosses) {
      add_causal_rows(same, {from, to}, s, storage);
    } else if (same.end - same.begin == same.rows.count) {
      state.begin = from;
      state.end = to;
    } else {
      write(storage, s, {same.begin, same.end}, {from, to});
    }
  }

  /// Adds rows whose intervals move alike; the second row determines by how much.
  /// \pre the intervals hold the intervals of the first row
  void add_moving_rows(const SameRows& moving, BlockStorage& storage) const {
    const Index row = moving.begin;
    for (Index s = 0; s < intervals_.count(); ++s) {
      const Range& first = at(storage.intervals(), s);
      storage.lower(s)[row] = first.begin;
      storage.upper(s)[row] = first.end;
    }
    intervals_.keys_of(moving.i + moving.rows.step, storage.intervals());
    for (Index s = 0; s < intervals_.count(); ++s) {
      const Range first = {storage.lower(s)[row], storage.upper(s)[row]};
      const Range second = at(storage.intervals(), s);
      const Range motion = {second.begin - first.begin, second.end - first.end};
      if (motion == Range{}) {
        add_rows(moving, first, s, storage);
      } else {
        write_linear(storage, s, {row, moving.end}, first, motion);
      }
    }
  }

  /// Writes the bounds of some rows: `seen` are those of the first one, and `motion` says how they
  /// move from row to row.
  static void write_linear(BlockStorage& storage, Index s, const Range& rows, Range seen,
                           const Range& motion) {
    BlockStorage::RunState& state = storage.state(s);
    Index* const lower = storage.lower(s);
    Index* const upper = storage.upper(s);
    const Index points = state.points;
    Index begin = state.begin;
    Index end = state.end;
    for (Index r = rows.begin; r < rows.end; ++r) {
      const Index from = (std::max)(seen.begin, Index{0});
      const Index to = (std::min)(seen.end, points);
      const bool sees = from < to;
      lower[r] = sees ? from : 0;
      upper[r] = sees ? to : 0;
      begin = (std::min)(begin, sees ? from : points);
      end = (std::max)(end, upper[r]);
      seen = {seen.begin + motion.begin, seen.end + motion.end};
    }
    state.begin = begin;
    state.end = end;
    state.written = true;
    for (Index r = rows.begin; state.same && r < rows.end; ++r) {
      state.same = lower[r] == lower[0] && upper[r] == upper[0];
    }
  }

  /// Adds rows whose positions cut the interval causally: it grows at each strided range point they
  /// reach.
  void add_causal_rows(const SameRows& same, const Range& interval, Index s,
                       BlockStorage& storage) const {
    const BlockStorage::RunState& state = storage.state(s);
    Index to = floor_div(same.i - state.phase, state.step) + 1;
    for (Index r = same.begin; r < same.end;) {
      const Index i = same.i + (r - same.begin) * same.rows.step;
      const Index reached = state.step == same.rows.step || to >= interval.end
                                ? 1
                                : state.phase + state.step * to - i;  // here rows.step is 1
      const Index next = to >= interval.end ? same.end : (std::min)(same.end, r + reached);
      write(storage, s, {r, next}, {interval.begin, (std::min)(to, interval.end)});
      r = next;
      ++to;
    }
  }

  /// Writes the bounds of some rows that see the same.
  static void write(BlockStorage& storage, Index s, const Range& rows, const Range& seen) {
    BlockStorage::RunState& state = storage.state(s);
    const Range bounds = seen.is_empty() ? Range{} : seen;
    Index* const lower = storage.lower(s);
    Index* const upper = storage.upper(s);
    for (Index r = rows.begin; r < rows.end; ++r) {
      lower[r] = bounds.begin;
      upper[r] = bounds.end;
    }
    state.written = true;
    state.same = state.same && bounds == Range{lower[0], upper[0]};
    if (bounds.is_empty()) return;
    state.begin = (std::min)(state.begin, bounds.begin);
    state.end = (std::max)(state.end, bounds.end);
  }

  /// The run made from an interval. Its bounds count from the first key that one of its rows sees.
  KeyRun finished_run(Index s, Index rows, BlockStorage& storage) const {
    const BlockStorage::RunState& state = storage.state(s);
    if (state.begin >= state.end) return {};
    KeyRun run{state.phase + state.step * state.begin, step_within(state.step, shape_.keys),
               state.end - state.begin};
    if (!state.written || state.same) return run;
    Index* const lower = storage.lower(s);
    Index* const upper = storage.upper(s);
    const Index begin = state.begin;
    for (Index r = 0; begin > 0 && r < rows; ++r) {
      lower[r] = (std::max)(lower[r] - begin, Index{0});
      upper[r] = (std::max)(upper[r] - begin, Index{0});
    }
    run.lower = lower;
    run.upper = upper;
    return run;
  }

  Intervals<P> intervals_;
  SequenceShape shape_;
  Index rows_;                // the largest number of rows in a block
  ResidueBlocks row_blocks_;  // the blocks of rows, if row_step > 1
  ResidueBlocks key_blocks_;  // the blocks of keys
};

FOVEA_NAMESPACE_END
