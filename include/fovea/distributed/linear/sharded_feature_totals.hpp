// SPDX-License-Identifier: MIT
/// \file
/// The totals of random features across ranks: segment sums are rescaled to the largest reference
/// of all ranks, then folded in segment order.
#pragma once

#include <algorithm>
#include <exception>
#include <limits>
#include <type_traits>
#include <vector>

#include "fovea/attention/linear/feature_segments.hpp"
#include "fovea/attention/linear/segment_sums.hpp"
#include "fovea/core/executor_ref.hpp"
#include "fovea/distributed/segments/segment_totals.hpp"

FOVEA_NAMESPACE_BEGIN

namespace distributed {

/// The totals of the key heads of a call on all ranks.
template <class T>
class ShardedFeatureTotals {
 public:
  /// Allocates all memory.
  /// \param owners must outlive this object
  /// \throws std::bad_alloc, and std::runtime_error if MPI fails
  ShardedFeatureTotals(const Communicator& ranks, const SegmentOwners& owners,
                       const PerformerShape& shape)
      : ranks_(ranks),
        owners_(owners),
        shape_(shape),
        largest_(heads(), row() * Index{sizeof(T)}),
        totals_(ranks, owners, heads(), FeatureSegments<T>::sum_elements(shape) + row()) {}
  ShardedFeatureTotals(const ShardedFeatureTotals&) = delete;
  ShardedFeatureTotals& operator=(const ShardedFeatureTotals&) = delete;

  /// Where FeatureSegments writes a head's sums of this rank's segment n.
  T* sums(Index head, Index n) { return totals_.sums(head, n); }

  /// Rescales all ranks' sums to one reference, and folds them. All messages are exchanged even if
  /// computing throws.
  /// \param used used(head) is the number of segments used of a key head
  /// \returns the exception that computing threw, or null
  template <class Used>
  std::exception_ptr fold(const ExecutorRef& executor, const Used& used) {
    for (Index head = 0; head < heads(); ++head) find_largest(head, used(head));
    // As if each rank sent its largest references to every other.
    ranks_.add_sent(heads() * row() * Index{sizeof(T)} * (ranks_.size() - 1));
    ranks_.wait([&] {
      for (Index head = 0; head < heads(); ++head) {
        ranks_.check(
            MPI_Allreduce(MPI_IN_PLACE, reference(head), static_cast<int>(row()),
                          std::is_same_v<T, float> ? MPI_FLOAT : MPI_DOUBLE, MPI_MAX, ranks_.mpi()),
            "MPI_Allreduce");
      }
    });
    const std::exception_ptr error = fovea::detail::caught([&] {
      for_each_task(executor, heads(), [&](Index head, Index) { join(head, used(head)); });
    });
    totals_.fold(used);
    return error;
  }

  /// The total of a key head. \pre fold was called, and segments are used
  const T* total(Index head) const { return totals_.total(head); }
  /// Its reference, [R padded].
  T* reference(Index head) { return largest_.template data<T>() + head * row(); }

 private:
  /// Key heads of all sequences.
  Index heads() const { return shape_.batch * shape_.key_heads; }
  Index row() const { return padded_row<T>(shape_.features); }
  /// The number of this rank's used segments.
  Index own_used(Index used) const {
    const std::vector<Index>& own = owners_.of(ranks_.rank());
    return static_cast<Index>(std::lower_bound(own.begin(), own.end(), used) - own.begin());
  }

  /// No reference is NaN, so their maximum is independent of order.
  void find_largest(Index head, Index used) {
    T* const largest = reference(head);
    std::fill_n(largest, row(), -std::numeric_limits<T>::infinity());
    for (Index n = 0; n < own_used(used); ++n) {
      const T* const other = sums(head, n) + FeatureSegments<T>::sum_elements(shape_);
      for (Index c = 0; c < row(); ++c) largest[c] = (std::max)(largest[c], other[c]);
    }
  }

  void join(Index head, Index used) {
    const Index count = own_used(used);
    if (count == 0) return;
    JoinReferencesArgs<T> args;
    args.sums = sums(head, 0);
    args.segments = count;
    args.elements = totals_.elements();
    args.width = shape_.features;
    args.value_width = shape_.value_width;
    args.largest = reference(head);
    RandomFeatureKernels<T>{}.join(args);
  }

  const Communicator& ranks_;
  const SegmentOwners& owners_;
  PerformerShape shape_;
  Workspace largest_;  // [key heads, R padded]
  SegmentTotals<T> totals_;
};

}  // namespace distributed

FOVEA_NAMESPACE_END
