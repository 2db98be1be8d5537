// SPDX-License-Identifier: MIT
/// \file
/// The forward pass of Performer attention across ranks.
#pragma once

#include <algorithm>
#include <exception>
#include <memory>

#include "fovea/attention/linear/feature_stream.hpp"
#include "fovea/attention/linear/performer_passes.hpp"
#include "fovea/distributed/linear/causal_scan.hpp"
#include "fovea/distributed/linear/forward_pass.hpp"
#include "fovea/distributed/linear/sharded_feature_totals.hpp"
#include "fovea/distributed/messages/pass.hpp"
#include "fovea/distributed/segments/segment_keys.hpp"

FOVEA_NAMESPACE_BEGIN

namespace distributed {

/// The tensors of both forward passes of Performer attention.
template <class T>
struct PerformerOwnRows {
  PerformerInputs<T> inputs;   ///< of this rank's rows
  PerformerShape shape;        ///< their sizes
  RandomFeatures<T> features;  ///< the projection, packed
  View<T> out;                 ///< of this rank's rows

  /// The query heads of a key head.
  Index group() const { return fovea::detail::group_size(shape.query_heads, shape.key_heads); }
};

/// The non-causal forward pass: segment sums are folded on all ranks, and rows read their total.
template <class T>
class FeatureReads final : public RankPass {
 public:
  /// Allocates all memory.
  /// \param own must outlive this object
  /// \throws std::bad_alloc, and std::runtime_error if MPI fails
  FeatureReads(const PerformerOwnRows<T>& own, const Sharding& rows, const ExecutorRef& executor)
      : own_(own),
        rows_(rows),
        keys_(own.inputs.k, own.inputs.v, rows),
        brought_(brought_inputs()),
        slot_((std::max)(FeatureSegments<T>::sum_scratch(own.shape),
                         FeatureSegments<T>::read_scratch(own.shape))),
        scratch_(memory_of(executor).take(worker_count(executor, most_tasks()),
                                          slot_ * Index{sizeof(T)})),
        totals_(rows.ranks(), keys_.owners(), own.shape) {}

  /// Computes this rank's rows.
  std::exception_ptr run(const ExecutorRef& executor) override {
    std::exception_ptr error = keys_.bring([&] { sum_segments(executor); });
    const std::exception_ptr later = totals_.fold(
        executor, [&](Index head) { return used_segments(head / own_.shape.key_heads); });
    if (!error) error = later;
    if (!error) error = fovea::detail::caught([&] { read_rows(executor); });
    return error;
  }

 private:
  using Segments = FeatureSegments<T>;

  Index read_blocks() const { return (own_.shape.queries + kFeatureRows - 1) / kFeatureRows; }
  Index key_heads() const { return own_.shape.batch * own_.shape.key_heads; }
  Index most_tasks() const {
    return (std::max)(static_cast<Index>(keys_.own().size()) * key_heads(),
                      own_.shape.batch * own_.shape.query_heads * read_blocks());
  }
  Index key_end(Index batch) const {
    return own_.inputs.key_lengths.value_or(batch, rows_.count());
  }
  Index used_segments(Index batch) const { return SegmentSums<T>::segments(key_end(batch)); }
  T* scratch(Index worker) { return scratch_.template data<T>() + worker * slot_; }

  PerformerInputs<T> brought_inputs() const {
    PerformerInputs<T> brought = own_.inputs;
    brought.k = keys_.k();
    brought.v = keys_.v();
    return brought;
  }

  void sum_segments(const ExecutorRef& executor) {
    const Segments held(own_.inputs, own_.features);
    const Segments brought(brought_, own_.features);
    for_each_segment(
        keys_.own(), own_.shape.batch, own_.shape.key_heads, executor,
        [&](Index b) { return key_end(b); },
        [&](const SequenceTask& segment, Index n, Index head, Index worker) {
          const Index b = segment.sequence;
          const Sequence s = {
              b, b, 0, rows_.count(), keys_.first_row(segment.part), rows_.count(), key_end(b)};
          const Segments& segments = keys_.is_brought(segment.part) ? brought : held;
          segments.sum(s, segment, key_end(b), totals_.sums(head, n), scratch(worker));
        });
  }

  void read_rows(const ExecutorRef& executor) {
    const Segments segments(own_.inputs, own_.features);
    const Index blocks = read_blocks();
    for_each_task(executor, own_.shape.batch * own_.shape.query_heads * blocks,
                  [&](Index task, Index worker) {
                    const Index first = task % blocks * kFeatureRows;
                    const Index left = own_.shape.queries - first;
                    const Index count = (std::min)(kFeatureRows, left);
                    const Index head = task / blocks % own_.shape.query_heads;
                    const Index b = task / blocks / own_.shape.query_heads;
                    const typename Segments::Rows rows = {b, head, first, count, left - count};
                    if (key_end(b) == 0) return Segments::clear(rows, own_.out);
                    const Index key_head = b * own_.shape.key_heads + head / own_.group();
                    segments.read(rows, totals_.total(key_head), totals_.reference(key_head),
                                  own_.out, scratch(worker));
                  });
  }

  const PerformerOwnRows<T>& own_;
  const Sharding& rows_;
  SegmentKeys<T> keys_;
  PerformerInputs<T> brought_;
  Index slot_;         // scratch elements per worker
  Workspace scratch_;  // [workers, slot_]
  ShardedFeatureTotals<T> totals_;
};

/// One forward pass.
template <class T>
class LinearForwardPass<PerformerPasses<T>> final : public RankPass {
 public:
  /// Allocates all memory.
  /// \param call the FarFieldForwardCall, checked
  /// \throws std::bad_alloc, and std::runtime_error if MPI fails
  template <class Call>
  LinearForwardPass(const Call& call, const ExecutorRef& executor)
      : own_{call.inputs, shape_of(call.inputs), {}, call.out},
        projection_(memory_of(executor).take(
            1, RandomFeatures<T>::elements(own_.shape.features, own_.shape.width, false) *
                   Index{sizeof(T)})) {
    if (!call.op.far_field.causal) {
      pass_ = std::make_unique<FeatureReads<T>>(own_, call.rows, executor);
      return;
    }
    using Stream = FeatureStream<T>;
    const PerformerShape& s = own_.shape;
    pass_ = causal_scan<T>(
        Stream(own_.inputs, s, own_.features, own_.out),
        [](T* state, T* scratch, LinearRows<T>* of_group) -> typename Stream::Memory {
          return {state, scratch, of_group};
        },
        {s.batch, s.key_heads, own_.group(), Stream::state_elements(s.features, s.value_width),
         Stream::scratch_elements(s.features, s.width, s.value_width, own_.group())},
        own_.inputs.key_lengths, call.rows, executor);
  }

  /// Computes this rank's rows.
  std::exception_ptr run(const ExecutorRef& executor) override {
    if (!own_.inputs.projection.empty()) {
      own_.features.pack(own_.inputs.projection, false, projection_.template data<T>());
    }
    return pass_->run(executor);
  }

 private:
  PerformerOwnRows<T> own_;
  Workspace projection_;
  std::unique_ptr<RankPass> pass_;  // of the states of ranges if causal, otherwise of totals
};

}  // namespace distributed

FOVEA_NAMESPACE_END
