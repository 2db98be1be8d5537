// SPDX-License-Identifier: MIT
/// \file
/// Who computes what of the few query rows of a step, where the keys are spread over ranks.
#pragma once

#include <vector>

#include "fovea/attention/softmax/decode_plan.hpp"
#include "fovea/distributed/softmax/key_blocks.hpp"

FOVEA_NAMESPACE_BEGIN

namespace distributed {

/// A segment of an item of a DecodePlan, or a band. The rank that keeps its keys computes it. If
/// several ranks keep them they travel to all, and every rank computes it; so does it with a band,
/// which writes the rows of the output.
struct DecodeShare {
  /// The rank of keys that travel.
  static constexpr int kEveryRank = -1;

  DecodePlan::Task task;  ///< the segment or the band
  int rank = kEveryRank;  ///< who computes it
  Index first = 0;        ///< position of its first key
  Index step = 1;         ///< from one key to the next
  KeyRows key_rows;       ///< its keys among those of the rank, or among those that travel

  /// Whether its keys are sent to all ranks.
  bool travels() const { return rank == kEveryRank; }
};

/// The shares of all classes of a plan. Every rank makes the same ones. Their memory is kept: when
/// they are made again they take no more.
class DecodeShares {
 public:
  /// The shares of one class of heads.
  struct HeadClass {
    Range all;            ///< in the list of shares
    Range own;            ///< in the list of those that this rank computes
    Index travelling;     ///< keys that travel
    Index own_keys = 0;   ///< keys that this rank reads, for any number of heads together
    Index own_pairs = 0;  ///< (query, key) pairs of one head that it computes
  };

  /// Makes the shares.
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
  /// Share n of those that this rank computes.
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
      // A band has one run, or none if its rows see no key.
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
