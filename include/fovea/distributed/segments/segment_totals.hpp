// SPDX-License-Identifier: MIT
/// \file
/// Totals of segment sums of a sharded sequence, folded in segment order: every rank folds a slice
/// of the elements, so nothing is folded twice.
#pragma once

#include <algorithm>
#include <utility>
#include <vector>

#include "fovea/attention/call/sequences.hpp"
#include "fovea/core/executor_ref.hpp"
#include "fovea/core/workspace.hpp"
#include "fovea/distributed/communicator.hpp"
#include "fovea/distributed/messages/mpi_type.hpp"
#include "fovea/distributed/row_layout.hpp"
#include "fovea/distributed/rows/row_set.hpp"
#include "fovea/kernels/linear/table.hpp"

FOVEA_NAMESPACE_BEGIN

namespace distributed {

/// The segments of a sequence: each is summed by the rank that holds its first row.
class SegmentOwners {
 public:
  /// The owners of the segments of a sequence. \param length the rows per segment, except the last
  explicit SegmentOwners(const RowLayout& layout, Index length = kLinearSegment)
      : rows_(layout.rows()), length_(length), of_ranks_(static_cast<std::size_t>(layout.ranks())) {
    for (int rank = 0; rank < layout.ranks(); ++rank) {
      for (const Range& range : layout.of(rank)) {
        const Index first = (range.begin + length - 1) / length;
        for (Index s = first; s * length < range.end; ++s) {
          of_ranks_[static_cast<std::size_t>(rank)].push_back(s);
        }
      }
    }
  }

  /// The number of segments.
  Index count() const { return (rows_ + length_ - 1) / length_; }
  /// The segments of a rank, ascending.
  const std::vector<Index>& of(int rank) const { return of_ranks_[static_cast<std::size_t>(rank)]; }
  /// The rows of a segment.
  Range rows(Index segment) const {
    return {segment * length_, (std::min)((segment + 1) * length_, rows_)};
  }
  /// The layout in which whole segments are on the ranks that sum them.
  RowLayout layout() const {
    std::vector<std::vector<Range>> of_ranks;
    for (const std::vector<Index>& segments : of_ranks_) {
      of_ranks.emplace_back();
      for (const Index s : segments) of_ranks.back().push_back(rows(s));
    }
    return RowLayout(std::move(of_ranks));
  }
  /// The rows of a rank's incomplete segments, as ascending ranges.
  std::vector<Range> broken_rows(const RowLayout& layout, int rank) const {
    std::vector<Range> ranges;
    for (const Index s : of(rank)) {
      const std::vector<Range> own = intersection(layout.of(rank), {rows(s)});
      if (own.size() != 1 || own[0] != rows(s)) ranges.push_back(rows(s));
    }
    return ranges;
  }
  /// The same for all ranks.
  std::vector<Range> all_broken_rows(const RowLayout& layout) const {
    RowSet broken(rows_);
    for (int rank = 0; rank < layout.ranks(); ++rank) {
      for (const Range& range : broken_rows(layout, rank)) broken.add(range);
    }
    return broken.ranges();
  }

 private:
  Index rows_;
  Index length_;
  std::vector<std::vector<Index>> of_ranks_;
};

/// Calls f(segment, its number among a rank's segments, number of the head, worker) for a rank's
/// segments of some heads of all sequences that begin before end(sequence).
/// \param own the segments   \param heads of a sequence
template <class End, class F>
void for_each_segment(const std::vector<Index>& own, Index sequences, Index heads,
                      const ExecutorRef& executor, const End& end, const F& f) {
  const auto count = static_cast<Index>(own.size());
  for_each_task(executor, sequences * heads * count, [&](Index task, Index worker) {
    const Index head = task / count;
    const Index n = task % count;
    const SequenceTask segment = {head / heads, head % heads, own[static_cast<std::size_t>(n)]};
    if (segment.part * kLinearSegment < end(segment.sequence)) f(segment, n, head, worker);
  });
}

/// The totals of all heads on all ranks.
/// \tparam T the type of the arithmetic
template <class T>
class SegmentTotals {
 public:
  /// Allocates all memory.
  /// \param heads heads of all sequences   \param elements of the sums of a segment
  /// \param group the number of neighbouring heads that share a total, with segments ordered by
  /// head \throws std::bad_alloc, and std::runtime_error if MPI fails
  SegmentTotals(const Communicator& ranks, const SegmentOwners& owners, Index heads, Index elements,
                Index group = 1)
      : ranks_(ranks),
        owners_(owners),
        heads_(heads),
        group_(group),
        totals_count_(heads / (std::max)(Index{1}, group)),
        elements_((elements + kUnit - 1) / kUnit * kUnit),
        unit_(detail::MpiType::row(ranks, kUnit * Index{sizeof(T)})),
        own_(own_segments() * heads, elements_ * Index{sizeof(T)}),
        sent_(own_segments() * heads, elements_ * Index{sizeof(T)}),
        received_(owners.count() * heads, slice(ranks.rank()) * Index{sizeof(T)}),
        folded_(group * owners.count(), slice(ranks.rank()) * Index{sizeof(T)}),
        parts_(totals_count_, elements_ * Index{sizeof(T)}),
        totals_(totals_count_, elements_ * Index{sizeof(T)}) {}

  /// The granularity of slices in elements: the widest register.
  static constexpr Index kUnit = 16;

  /// The number of segments that this rank sums.
  Index own_segments() const { return static_cast<Index>(owners_.of(ranks_.rank()).size()); }
  /// The distance between the sums of a head's segments, in elements.
  Index elements() const { return elements_; }
  /// Where to write a head's sums of this rank's segment n.
  T* sums(Index head, Index n) {
    return own_.template data<T>() + (head * own_segments() + n) * elements_;
  }

  /// Folds the sums of all ranks.
  /// \param used used(n) is the number of segments used of each head of total n
  template <class Used>
  void fold(const Used& used) {
    const Index own = slice(ranks_.rank());
    const Index gathered = totals_count_ * (ranks_.size() - 1) * own;
    ranks_.add_sent((heads_ * own_segments() * (elements_ - own) + gathered) * Index{sizeof(T)});
    ranks_.wait([&] { scatter_slices(); });
    for (Index n = 0; n < totals_count_; ++n) fold_slice(n, used(n));
    ranks_.wait([&] { gather_totals(); });
  }

  /// The total of a head, or of a group of heads. \pre fold was called, and segments are used
  const T* total(Index n) const { return totals_.template data<T>() + n * elements_; }

 private:
  Index units() const { return elements_ / kUnit; }
  /// The begin of a rank's slice.
  Index begin(int rank) const { return units() * rank / ranks_.size() * kUnit; }
  Index slice(int rank) const { return begin(rank + 1) - begin(rank); }
  Index segments_of(int rank) const { return static_cast<Index>(owners_.of(rank).size()); }

  /// Counts and displacements of all ranks' messages, in units.
  struct Messages {
    std::vector<int> counts;
    std::vector<int> places;

    void add(Index elements) {
      places.push_back(counts.empty() ? 0 : places.back() + counts.back());
      counts.push_back(static_cast<int>(elements / kUnit));
    }
  };

  /// Sends every rank its slice of this rank's sums.
  void scatter_slices() {
    Messages out;
    Messages in;
    T* to = sent_.template data<T>();
    for (int rank = 0; rank < ranks_.size(); ++rank) {
      for (Index row = 0; row < heads_ * own_segments(); ++row) {
        const T* const from = own_.template data<T>() + row * elements_ + begin(rank);
        to = std::copy_n(from, slice(rank), to);
      }
      out.add(heads_ * own_segments() * slice(rank));
      in.add(heads_ * segments_of(rank) * slice(ranks_.rank()));
    }
    ranks_.check(MPI_Alltoallv(sent_.template data<T>(), out.counts.data(), out.places.data(),
                               unit_.get(), received_.template data<T>(), in.counts.data(),
                               in.places.data(), unit_.get(), ranks_.mpi()),
                 "MPI_Alltoallv");
  }

  /// Reorders the received slices of a group of heads by segment, and folds them.
  void fold_slice(Index total, Index used) {
    const Index width = slice(ranks_.rank());
    if (width == 0 || used == 0) return;
    T* const all = folded_.template data<T>();
    for (Index g = 0; g < group_; ++g) {
      put_in_order(total * group_ + g, used, all + g * used * width);
    }
    T* const totals = parts_.template data<T>() + totals_count_ * begin(ranks_.rank());
    LinearKernels<T>{}.fold({all, group_ * used, width, totals + total * width});
  }
  void put_in_order(Index head, Index used, T* to) const {
    const Index width = slice(ranks_.rank());
    const T* from = received_.template data<T>();
    for (int rank = 0; rank < ranks_.size(); ++rank) {
      const std::vector<Index>& segments = owners_.of(rank);
      const T* const of_head = from + head * segments_of(rank) * width;
      for (std::size_t n = 0; n < segments.size() && segments[n] < used; ++n) {
        std::copy_n(of_head + static_cast<Index>(n) * width, width, to + segments[n] * width);
      }
      from += heads_ * segments_of(rank) * width;
    }
  }

  /// Gathers all totals on all ranks.
  void gather_totals() {
    Messages in;
    for (int rank = 0; rank < ranks_.size(); ++rank) in.add(totals_count_ * slice(rank));
    ranks_.check(MPI_Allgatherv(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, parts_.template data<T>(),
                                in.counts.data(), in.places.data(), unit_.get(), ranks_.mpi()),
                 "MPI_Allgatherv");
    const T* from = parts_.template data<T>();
    for (int rank = 0; rank < ranks_.size(); ++rank) {
      for (Index n = 0; n < totals_count_; ++n) {
        std::copy_n(from, slice(rank), totals_.template data<T>() + n * elements_ + begin(rank));
        from += slice(rank);
      }
    }
  }

  const Communicator& ranks_;
  const SegmentOwners& owners_;
  Index heads_;
  Index group_;
  Index totals_count_;
  Index elements_;
  detail::MpiType unit_;
  Workspace own_;       // [heads, own segments, elements]
  Workspace sent_;      // [ranks, heads, own segments, slice of the rank]
  Workspace received_;  // [ranks, heads, segments of the rank, slice]
  Workspace folded_;    // [group, segments, slice] of one total at a time
  Workspace parts_;     // [ranks, totals, slice of the rank]
  Workspace totals_;    // [totals, elements]
};

}  // namespace distributed

FOVEA_NAMESPACE_END
