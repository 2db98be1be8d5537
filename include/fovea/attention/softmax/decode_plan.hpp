// SPDX-License-Identifier: MIT
/// \file
/// What a few query rows see, as lists. For each class of heads these contain the rows that are
/// computed together, their runs of keys from all passes of the pattern, and pieces of these runs
/// for threads.
#pragma once

#include <algorithm>
#include <optional>
#include <vector>

#include "fovea/attention/softmax/key_source.hpp"
#include "fovea/kernels/softmax/row.hpp"
#include "fovea/patterns/any_pattern.hpp"

FOVEA_NAMESPACE_BEGIN

/// The query heads in groups that share a key head and a pattern. The heads of a group share one
/// read of the keys.
class HeadGroups {
 public:
  /// Query heads that share a key head and a pattern.
  struct Group {
    Index key_head;    ///< the key head that they read
    Index head_class;  ///< their pattern: head % period
    Index first;       ///< index of the first one among the heads in this order
    Index count;       ///< number of heads
  };

  /// \param period patterns repeat after this many query heads
  /// \param most the largest number of heads of a group
  /// \pre key_heads divides query_heads
  HeadGroups(Index query_heads, Index key_heads, Index period, Index most = kMostRows) {
    for (Index key_head = 0; key_head < key_heads; ++key_head) {
      const Index begin = key_head * (query_heads / key_heads);
      const Index end = begin + query_heads / key_heads;
      for (Index first = begin; first < (std::min)(end, begin + period); ++first) {
        for (Index h = first; h < end;) {
          Group group{key_head, first % period, head_count(), 0};
          for (; h < end && group.count < most; h += period, ++group.count) heads_.push_back(h);
          groups_.push_back(group);
          most_heads_ = (std::max)(most_heads_, group.count);
        }
      }
    }
  }

  /// All groups, in the order of their key heads.
  const std::vector<Group>& groups() const { return groups_; }
  /// The number of query heads.
  Index head_count() const { return static_cast<Index>(heads_.size()); }
  /// The largest number of heads of a group.
  Index most_heads() const { return most_heads_; }

  /// The query head at place n of the order.
  Index head(Index n) const { return heads_[static_cast<std::size_t>(n)]; }

 private:
  std::vector<Group> groups_;
  std::vector<Index> heads_;
  Index most_heads_ = 0;
};

/// The lists of one call. Their memory is reused when they are refilled.
class DecodePlan {
 public:
  /// Rows that are computed together.
  struct Item {
    QueryBlock block;  ///< the rows, and their runs
    /// Whether the block kernel's band variant computes it; it has no segments then.
    bool is_band = false;
    Index first_run = 0;      ///< its first run, in the list of runs
    Index first_segment = 0;  ///< its first segment, in the list of segments
    Index segment_count = 0;  ///< number of its segments
  };

  /// A unit of work for one thread: some segments of one item whose keys have one source, or a
  /// whole band.
  struct Task {
    Index item = 0;                        ///< number of the item
    Index first_segment = 0;               ///< first segment, in the list of segments
    Index segment_count = 0;               ///< number of segments; 0 for a band
    Index keys = 0;                        ///< keys of these segments, or of the band
    KeySource source = KeySource::recent;  ///< where these keys are
  };

  /// The part of each list that belongs to one class of heads.
  struct HeadClass {
    Range items;          ///< its items
    Range segments;       ///< its segments
    Range tasks;          ///< its tasks
    Index most_rows = 0;  ///< the largest number of rows of an item
    Index keys = 0;       ///< keys that its tasks read, once for all heads
    Index pairs = 0;      ///< (query, key) pairs of one head
  };

  /// Clears the lists, and keeps the memory.
  void clear() {
    classes_.clear();
    items_.clear();
    runs_.clear();
    notes_.clear();
    bounds_.clear();
    segments_.clear();
    tasks_.clear();
  }

  /// Adds what the rows of the shape see, for the next class of heads.
  /// \param sources the key source of each pass of the pattern
  /// \throws whatever the pattern throws; std::bad_alloc
  void add(const AnyPattern& pattern, const SequenceShape& shape, const KeySource* sources) {
    HeadClass heads{{size(items_), 0}, {size(segments_), 0}, {size(tasks_), 0}};
    if (!add_together(pattern, shape, sources)) {
      for (Index r = 0; r < shape.queries; ++r) {
        add_row(pattern, {1, shape.keys, shape.first_position + r}, r, sources);
      }
    }
    heads.items.end = size(items_);
    heads.segments.end = size(segments_);
    heads.tasks.end = size(tasks_);
    for (Index n = heads.items.begin; n < heads.items.end; ++n) {
      heads.most_rows = (std::max)(heads.most_rows, item(n).block.count);
    }
    for (Index n = heads.tasks.begin; n < heads.tasks.end; ++n) {
      heads.keys += task(n).keys;
      heads.pairs += task(n).keys * item(task(n).item).block.count;
    }
    classes_.push_back(heads);
  }

  /// Completes the lists: sets the blocks' pointers to their runs, and the runs' to their bounds.
  void finish() {
    for (std::size_t n = 0; n < runs_.size(); ++n) {
      if (notes_[n].bounds < 0) continue;
      runs_[n].lower = bounds_.data() + notes_[n].bounds;
      runs_[n].upper = runs_[n].lower + notes_[n].rows;
    }
    for (Item& item : items_) item.block.runs = runs_.data() + item.first_run;
  }

  /// The parts of the lists that belong to class c.
  const HeadClass& head_class(Index c) const { return classes_[static_cast<std::size_t>(c)]; }
  /// Item n of the list.
  const Item& item(Index n) const { return items_[static_cast<std::size_t>(n)]; }
  /// Task n of the list.
  const Task& task(Index n) const { return tasks_[static_cast<std::size_t>(n)]; }
  /// The segments from number n on.
  const RunSegment* segments(Index n) const { return segments_.data() + n; }

  /// Bytes of memory that the lists hold.
  Index memory_bytes() const {
    return bytes(classes_) + bytes(items_) + bytes(runs_) + bytes(notes_) + bytes(bounds_) +
           bytes(segments_) + bytes(tasks_) +
           (storage_ ? BlockStorage::bytes(storage_->capacity()) : 0);
  }

 private:
  /// A run's data while the lists grow.
  struct RunRecord {
    KeySource source;
    Index bounds = -1;  // where its bounds begin: all lower ones, then all upper ones; -1: none
    Index rows = 0;
  };

  template <class X>
  static Index size(const std::vector<X>& list) {
    return static_cast<Index>(list.size());
  }
  template <class X>
  static Index bytes(const std::vector<X>& list) {
    return static_cast<Index>(list.capacity() * sizeof(X));
  }

  BlockStorage& storage(Index runs) {
    if (!storage_ || runs > storage_->capacity()) storage_.emplace(runs);
    return *storage_;
  }

  /// Adds all rows as one item, or each block of a band as one. Returns false, with nothing added,
  /// if the passes have several blocks.
  bool add_together(const AnyPattern& pattern, const SequenceShape& shape,
                    const KeySource* sources) {
    const Index runs_before = size(runs_);
    const Index bounds_before = size(bounds_);
    bool together = true;
    bool band = false;
    for (Index pass = 0; together && pass < pattern.pass_count(); ++pass) {
      const AnyPlan plan = pattern.plan(pass, shape);
      if (plan.block_count() == 0) continue;
      BlockStorage& memory = storage(plan.most_runs());
      const QueryBlock first = plan.block(0, memory);
      band = pattern.pass_count() == 1 && first.most_keys <= kBandKeys;
      together = band || plan.block_count() == 1;
      if (band) {
        add_band(first);
        for (Index b = 1; b < plan.block_count(); ++b) add_band(plan.block(b, memory));
      } else if (together) {
        add_runs(first, sources[pass]);
      }
    }
    if (band) return true;
    if (together) {
      add_item(0, shape.queries, runs_before);
    } else {
      runs_.resize(static_cast<std::size_t>(runs_before));
      notes_.resize(static_cast<std::size_t>(runs_before), RunRecord{});
      bounds_.resize(static_cast<std::size_t>(bounds_before));
    }
    return together;
  }

  /// Adds one row of the queries.
  /// \param shape that of this row alone
  void add_row(const AnyPattern& pattern, const SequenceShape& shape, Index row,
               const KeySource* sources) {
    const Index runs_before = size(runs_);
    for (Index pass = 0; pass < pattern.pass_count(); ++pass) {
      const AnyPlan plan = pattern.plan(pass, shape);
      add_runs(plan.block(0, storage(plan.most_runs())), sources[pass]);
    }
    add_item(row, 1, runs_before);
  }

  void add_runs(const QueryBlock& block, KeySource source) {
    for (Index r = 0; r < block.run_count; ++r) {
      KeyRun run = block.runs[r];
      RunRecord note{source};
      if (run.lower != nullptr) {
        note.bounds = size(bounds_);
        note.rows = block.count;
        bounds_.insert(bounds_.end(), run.lower, run.lower + block.count);
        bounds_.insert(bounds_.end(), run.upper, run.upper + block.count);
      }
      runs_.push_back(run);
      notes_.push_back(note);
    }
  }

  void add_band(const QueryBlock& block) {
    Item item{block, true, size(runs_), size(segments_), 0};
    add_runs(block, KeySource::recent);
    Index keys = 0;
    for (Index r = 0; r < block.run_count; ++r) keys += block.runs[r].count;
    tasks_.push_back({size(items_), item.first_segment, 0, keys, KeySource::recent});
    items_.push_back(item);
  }

  /// Adds an item of rows [row, row + rows), with the runs from `first_run` on.
  void add_item(Index row, Index rows, Index first_run) {
    Item item{{row, 1, rows, nullptr, size(runs_) - first_run}, false, first_run, size(segments_)};
    bool is_open = false;  // whether the last task can take more segments
    for (Index r = 0; r < item.block.run_count; ++r) {
      const KeyRun& run = runs_[static_cast<std::size_t>(first_run + r)];
      const KeySource source = notes_[static_cast<std::size_t>(first_run + r)].source;
      const Index begin = run.first / run.step;
      const Index end = begin + run.count;
      for (Index s = begin / kKeySegment; s * kKeySegment < end; ++s) {
        const Index keys =
            (std::min)(end, (s + 1) * kKeySegment) - (std::max)(begin, s * kKeySegment);
        if (!is_open || tasks_.back().source != source || tasks_.back().keys + keys > kKeySegment) {
          tasks_.push_back({size(items_), size(segments_), 0, 0, source});
        }
        is_open = true;
        segments_.push_back({r, s});
        ++tasks_.back().segment_count;
        tasks_.back().keys += keys;
      }
    }
    item.segment_count = size(segments_) - item.first_segment;
    items_.push_back(item);
  }

  std::vector<HeadClass> classes_;
  std::vector<Item> items_;
  std::vector<KeyRun> runs_;
  std::vector<RunRecord> notes_;  // one for each run
  std::vector<Index> bounds_;
  std::vector<RunSegment> segments_;
  std::vector<Task> tasks_;
  std::optional<BlockStorage> storage_;
};

FOVEA_NAMESPACE_END
