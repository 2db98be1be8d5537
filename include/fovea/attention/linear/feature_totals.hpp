// SPDX-License-Identifier: MIT
/// \file
/// The totals of random features that all rows of non-causal Performer attention read.
#pragma once

#include "fovea/attention/linear/feature_segments.hpp"
#include "fovea/attention/linear/performer_visibility.hpp"
#include "fovea/attention/linear/segment_sums.hpp"

FOVEA_NAMESPACE_BEGIN

/// The feature sums of all visible keys of a sequence, for rows that see them all. A segment's sums
/// are relative to its largest logits, and are rescaled to the overall largest before folding.
template <class T>
class FeatureTotals {
 public:
  /// \param segments must outlive this object
  FeatureTotals(const PerformerShape& shape, const Sequences<T>& sequences,
                const PerformerVisibility& visibility, const FeatureSegments<T>& segments)
      : sequences_(sequences),
        visibility_(visibility),
        segments_(segments),
        shape_{1, shape.features, shape.value_width},
        sums_(
            sequences, shape.key_heads, 1, shape_, [&](Index s) { return sequences[s].keys; },
            padded_row<T>(shape.features)) {}

  /// The largest number of tasks of a step.
  Index most_tasks() const { return sums_.most_tasks(); }

  /// Allocates the memory.
  /// \throws std::bad_alloc
  template <class Memory>
  void reserve(Memory&& memory) {
    sums_.reserve(memory);
  }

  /// Computes all totals.
  /// \param scratch called as scratch(worker), returns FeatureSegments<T>::sum_scratch(...)
  /// elements
  template <class Scratch>
  void compute(const ExecutorRef& executor, const Scratch& scratch) {
    const auto seen = [&](Index s) { return visibility_.seen(sequences_[s]); };
    sums_.compute(
        executor, seen,
        [&](const SequenceTask& segment, T* sums, Index worker) {
          segments_.sum(sequences_[segment.sequence], segment, seen(segment.sequence), sums,
                        scratch(worker));
        },
        [&](T* sums, Index segments, Index elements) {
          JoinReferencesArgs<T> args;
          args.sums = sums;
          args.segments = segments;
          args.elements = elements;
          args.width = shape_.width;
          args.value_width = shape_.value_width;
          RandomFeatureKernels<T>{}.join(args);
        });
  }

  /// A key head's total, as linear attention's kernels read it.
  /// \pre a key is visible
  const T* total(Index sequence, Index key_head) const { return sums_.total(sequence, key_head); }
  /// The reference of the total, [R padded].
  T* reference(Index sequence, Index key_head) const {
    return const_cast<T*>(total(sequence, key_head)) + linear_sum_elements<T>(shape_);
  }

 private:
  const Sequences<T>& sequences_;
  PerformerVisibility visibility_;
  const FeatureSegments<T>& segments_;
  LinearShape shape_;
  SegmentSums<T> sums_;
};

FOVEA_NAMESPACE_END
