// SPDX-License-Identifier: MIT
/// \file
/// A pattern from any predicate: its intervals are listed once, at construction.
#pragma once

#include <string>
#include <vector>

#include "fovea/core/error.hpp"
#include "fovea/patterns/interval_plan.hpp"

FOVEA_NAMESPACE_BEGIN

/// A pattern defined by a predicate alone: predicate(i, j) is whether position i sees key j. It
/// is called once for every pair of the shape; memory is O(visible intervals). This suits
/// predicates whose rows see a few intervals; a pattern that has `keys_of` needs no such list.
/// Cheap to copy.
template <class Predicate>
requires std::predicate<const Predicate&, Index, Index>
class EnumeratedPattern {
 public:
  /// Lists the visible pairs of a sequence of this shape. Plans can be made for that shape and for
  /// parts of it.
  EnumeratedPattern(Predicate predicate, const SequenceShape& shape)
      : predicate_(std::move(predicate)),
        lists_(std::make_shared<const Lists>(predicate_, shape)) {}

  /// Whether the query at position i sees key j.
  bool allows(Index i, Index j) const { return predicate_(i, j); }

  /// The number of intervals: the most intervals of a row.
  Index interval_count() const { return lists_->most; }

  /// Writes the intervals of keys of position i, ascending; unused intervals become empty.
  /// \pre i is a position of the shape
  void keys_of(Index i, std::span<Range> intervals) const {
    const auto [begin, end] = lists_->row(i);
    std::ranges::fill(intervals.first(static_cast<std::size_t>(interval_count())), Range{});
    std::copy(lists_->intervals.begin() + begin, lists_->intervals.begin() + end,
              intervals.begin());
  }

  /// A range that contains every position that sees one of the keys.
  Range seen_from(const Range& keys) const { return lists_->seen_from(keys); }

  /// The plan for one sequence.
  /// \throws std::invalid_argument if positions or keys of the shape were not listed
  IntervalPlan<EnumeratedPattern> plan(const SequenceShape& shape) const {
    const SequenceShape& listed = lists_->shape;
    const Index end = shape.first_position + shape.queries;
    if (shape.first_position < listed.first_position ||
        end > listed.first_position + listed.queries) {
      refuse("EnumeratedPattern",
             "the positions of the queries are " + range_text(shape.first_position, end - 1),
             "expected " +
                 range_text(listed.first_position, listed.first_position + listed.queries - 1) +
                 ", the enumerated positions");
    }
    if (shape.keys > listed.keys) {
      refuse("EnumeratedPattern", "the number of keys", std::to_string(shape.keys),
             "at most " + std::to_string(listed.keys) + ", the enumerated positions");
    }
    return {*this, shape};
  }

 private:
  struct Lists {
    Lists(const Predicate& predicate, const SequenceShape& given)
        : shape(given),
          begins{0},
          first_row(static_cast<std::size_t>(given.keys), given.queries),
          last_row(static_cast<std::size_t>(given.keys), -1) {
      for (Index r = 0; r < shape.queries; ++r) {
        for (Index j = 0; j < shape.keys; ++j) {
          if (predicate(r + shape.first_position, j)) add(r, j);
        }
        const Index end = static_cast<Index>(intervals.size());
        most = (std::max)(most, end - begins.back());
        begins.push_back(end);
      }
    }

    void add(Index row, Index key) {
      const bool follows =
          static_cast<Index>(intervals.size()) > begins.back() && intervals.back().end == key;
      if (follows) {
        ++intervals.back().end;
      } else {
        intervals.push_back({key, key + 1});
      }
      Index& first = first_row[static_cast<std::size_t>(key)];
      first = (std::min)(first, row);
      last_row[static_cast<std::size_t>(key)] = row;
    }

    Range row(Index i) const {
      const std::size_t r = static_cast<std::size_t>(i - shape.first_position);
      return {begins[r], begins[r + 1]};
    }

    Range seen_from(const Range& keys) const {
      Range rows = {shape.queries, 0};
      for (Index j = keys.begin; j < (std::min)(keys.end, shape.keys); ++j) {
        rows.begin = (std::min)(rows.begin, first_row[static_cast<std::size_t>(j)]);
        rows.end = (std::max)(rows.end, last_row[static_cast<std::size_t>(j)] + 1);
      }
      return {rows.begin + shape.first_position, rows.end + shape.first_position};
    }

    SequenceShape shape;
    std::vector<Range> intervals;
    std::vector<Index> begins;     // where each row begins in the intervals
    std::vector<Index> first_row;  // [keys] the first row that sees the key
    std::vector<Index> last_row;   // [keys] the last row that sees the key
    Index most = 1;                // the most intervals of a row
  };

  Predicate predicate_;
  std::shared_ptr<const Lists> lists_;
};

FOVEA_NAMESPACE_END
