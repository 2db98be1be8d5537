// SPDX-License-Identifier: MIT
/// \file
/// How the work of a step's few query rows is shared, with sharded keys.
#pragma once

#include <vector>

#include "fovea/attention/softmax/decode_plan.hpp"
#include "fovea/distributed/softmax/key_blocks.hpp"

FOVEA_NAMESPACE_BEGIN

namespace distributed {

/// A segment of an item of a DecodePlan, or a band. The rank that stores its keys computes it. If
/// several ranks store them, they are sent to all, and every rank computes it; likewise a band,
/// which writes output rows.
struct DecodeShare {
  /// The rank value of keys that are sent to all.
  static constexpr int kEveryRank = -1;

  DecodePlan::Task task;  ///< the segment or the band
  int rank = kEveryRank;  ///< the rank that computes it
  Index first = 0;        ///< position of its first key
  Index step = 1;         ///< stride of its keys
  KeyRows key_rows;       ///< its keys among the rank's, or among those sent

  /// Whether its keys are sent to all ranks.
  bool travels() const { return rank == kEveryRank; }
};

/// The shares of all classes of a plan, equal on every rank. Remaking them reuses their memory.
class DecodeShares {
 public:
  /// The shares of one class of heads.
  struct HeadClass {
    Range all;            ///< in the list of shares
    Range own;            ///< in the list of those that this rank computes
    Index travelling;     ///< keys that are sent
    Index own_keys = 0;   ///< keys that this rank reads, for all heads together
    Index own_pairs = 0;  ///< (query, key) pairs of one head that it computes
  };

  /// Computes the shares.
  /// \param plan finished   \param classes the number of its classes   \param rank this rank
  /// \throws std::bad_alloc
  void make(const DecodePlan& plan, Index classes, const KeyBlocks& blocks, int rank) {
    classes_.clear();
    shares_.clear();
    own_.clear();
    for (Index c = 0; c < classes; ++c) {
      HeadClass made{{size(shares_), 0}, {size(own_), 0}, 0};
      const Range items = plan.head_class(c).items;
      for (Index n = items.begin; n < items.end; ++n) add_item(plan, n, blocks, made.travelling);
      made.all.end = size(shares_);
      for (Index n = made.all.begin; n < made.all.end; ++n) {
        const DecodeShare& x = share(n);
        if (!x.travels() && x.rank != rank) continue;
        own_.push_back(n);
        made.own_keys += x.task.keys;
        made.own_pairs += x.task.keys * plan.item(x.task.item).block.count;
      }
      made.own.end = size(own_);
      classes_.push_back(made);
    }
  }

  /// The shares of class c.
  const HeadClass& head_class(Index c) const { return classes_[static_cast<std::size_t>(c)]; }
  /// Share n of the list.
  const DecodeShare& share(Index n) const { return shares_[static_cast<std::size_t>(n)]; }
  /// Share n of this rank's shares.
  const DecodeShare& own_share(Index n) const { return share(own_[static_cast<std::size_t>(n)]); }

  /// Bytes of memory that the lists hold.
  Index memory_bytes() const {
    return static_cast<Index>(classes_.capacity() * sizeof(HeadClass) +
                              shares_.capacity() * sizeof(DecodeShare) +
                              own_.capacity() * sizeof(Index));
  }

 private:
  template <class X>
  static Index size(const std::vector<X>& list) {
    return static_cast<Index>(list.size());
  }

  void add_item(const DecodePlan& plan, Index n, const KeyBlocks& blocks, Index& travelling) {
    const DecodePlan::Item& item = plan.item(n);
    if (item.is_band) {
      const DecodePlan::Task task = {n, item.first_segment, 0, 0, KeySource::recent};
      // A band has one run, or none if its rows see no keys.
      const KeyRun run = item.block.run_count == 0 ? KeyRun{} : item.block.runs[0];
      add(task, run, {run.first / run.step, run.first / run.step + run.count}, blocks, travelling);
    }
    for (Index s = item.first_segment; s < item.first_segment + item.segment_count; ++s) {
      const RunSegment at = *plan.segments(s);
      const KeyRun& run = item.block.runs[at.run];
      const Index begin = run.first / run.step;
      const Range all = {begin, begin + run.count};
      add({n, s, 1, 0, KeySource::recent}, run,
          all.within({at.segment * kKeySegment, (at.segment + 1) * kKeySegment}), blocks,
          travelling);
    }
  }

  /// Adds the share of some points of a run.
  void add(const DecodePlan::Task& task, const KeyRun& run, const Range& points,
           const KeyBlocks& blocks, Index& travelling) {
    DecodeShare made;
    made.task = task;
    made.task.keys = points.end - points.begin;
    made.step = run.step;
    const Index phase = run.first % run.step;
    made.first = phase + run.step * points.begin;
    const Index last = made.first + run.step * (made.task.keys - 1);
    const bool is_band = task.segment_count == 0;
    if (blocks.ranks() == 1 || (!is_band && blocks.are_together(made.first, last))) {
      made.rank = blocks.rank_of(made.first);
      made.key_rows.base = made.first - blocks.place(made.first);
    } else {
      made.key_rows = {points.begin - travelling, run.step, 1, phase};
      travelling += made.task.keys;
    }
    shares_.push_back(made);
  }

  std::vector<HeadClass> classes_;
  std::vector<DecodeShare> shares_;
  std::vector<Index> own_;  // shares that this rank computes
};

}  // namespace distributed

FOVEA_NAMESPACE_END
