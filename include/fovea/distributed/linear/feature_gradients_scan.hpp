// SPDX-License-Identifier: MIT
/// \file
/// The distributed gradients of causal random features: token states are passed up the ranges, and
/// row states down. A head's contribution to the projection's gradient is passed with its state.
#pragma once

#include <algorithm>
#include <exception>
#include <vector>

#include "fovea/attention/linear/feature_grad_stream.hpp"
#include "fovea/core/executor_ref.hpp"
#include "fovea/core/index_span.hpp"
#include "fovea/distributed/messages/pass.hpp"
#include "fovea/distributed/messages/pipelined_scan.hpp"
#include "fovea/distributed/segments/segment_rows.hpp"

FOVEA_NAMESPACE_BEGIN

namespace distributed {

/// The rows after a rank's segments that it also reads: those of row blocks after the last token
/// that begin in a segment (FeatureGradStream).
/// \param key_lengths of the sequences, or none
/// \param rows of each sequence
/// \param segments the rows of the rank's segments, as ascending ranges
inline std::vector<Range> rows_of_open_blocks(IndexSpan key_lengths, Index rows,
                                              const std::vector<Range>& segments) {
  std::vector<Range> found;
  for (const Range& range : segments) {
    Index end = range.end;
    for (const Index length : key_lengths) {
      if (length == 0 || length >= range.end) continue;
      const Index blocks = (range.end - length + kFeatureRows - 1) / kFeatureRows;
      end = (std::max)(end, (std::min)(length + blocks * kFeatureRows, rows));
    }
    if (end > range.end) found.push_back({range.end, end});
  }
  return found;
}

/// The gradients of causal random features of one backward pass, with the tensors of SegmentRows.
template <class T>
class FeatureGradientsScan final : public RankPass {
 public:
  /// The state that the parts of the pass share.
  using Call = PerformerBackwardCall<T>;

  /// Allocates all memory.
  /// \param call, segments must outlive this object; allocates the call's memory, too
  /// \throws std::bad_alloc, and std::runtime_error if MPI fails
  FeatureGradientsScan(Call& call, const SegmentRows<T>& segments, const Communicator& ranks,
                       const ExecutorRef& executor)
      : call_(call),
        stream_(call),
        scan_steps_(static_cast<Index>(segments.layout().of(ranks.rank()).size())),
        own_rows_(segments.layout().count(ranks.rank())),
        workers_(
            (std::max)(worker_count(executor, (std::max)(row_heads(), key_heads())), Index{1})),
        scratch_(memory_of(executor).take(workers_, slot() * Index{sizeof(T)})),
        saved_(memory_of(executor).take(key_heads() * records() * call.group(),
                                        Stream::kRecord * Index{sizeof(T)})),
        references_(memory_of(executor).take(key_heads() * blocks(), row() * Index{sizeof(T)})),
        sums_(memory_of(executor).take(1, part() * Index{sizeof(T)})),
        rows_(static_cast<std::size_t>(workers_ * call.group())),
        up_(ranks, segments.layout(), ScanDirection::up, row_heads(),
            (carried() + row() + part()) * Index{sizeof(T)}, workers_),
        down_(ranks, segments.layout(), ScanDirection::down, key_heads(),
              (carried() + part()) * Index{sizeof(T)}, workers_) {
    call.reserve(0, memory_of(executor));
  }

  /// Writes the gradients of the rows of this rank's segments, and on all ranks that of the
  /// projection.
  std::exception_ptr run(const ExecutorRef& executor) override {
    call_.prepare();
    std::fill_n(sums_.template data<T>(), part(), T(0));
    for (Index n = 0; n < row_heads(); ++n) clear_part(up_, n);
    for (Index n = 0; n < key_heads(); ++n) clear_part(down_, n);
    const std::exception_ptr error =
        up_.run(executor, [&](const ScanStep& scan_step, Index n, Index worker) {
          const Sequence s = call_.sequences[n / call_.shape.query_heads];
          if (call_.visibility.seen(s) == 0) return;
          typename Stream::Memory at = memory_at(up_, n, n / call_.group(), scan_step, worker);
          at.reference = at.carried + carried() + part();
          stream_.up(s, n % call_.shape.query_heads, scan_step.rows, at);
        });
    const std::exception_ptr later =
        down_.run(executor, [&](const ScanStep& scan_step, Index n, Index worker) {
          const Sequence s = call_.sequences[n / call_.shape.key_heads];
          if (error || call_.visibility.seen(s) == 0 || call_.group() == 0) return;
          typename Stream::Memory at = memory_at(down_, n, n, scan_step, worker);
          at.reference = at.scratch + Stream::scratch_elements(call_.shape);
          stream_.down(s, n % call_.shape.key_heads, scan_step.rows, at);
        });
    if (call_.wants_projection()) {
      add_parts(up_, row_heads());
      add_parts(down_, key_heads());
      if (!error && !later) call_.add_parts(nullptr, 0, sums_.template data<T>(), true);
    }
    return error ? error : later;
  }

 private:
  using Stream = FeatureGradStream<T>;

  /// Query heads, and key heads, of all sequences.
  Index row_heads() const { return call_.shape.batch * call_.shape.query_heads; }
  Index key_heads() const { return call_.shape.batch * call_.shape.key_heads; }
  Index row() const { return padded_row<T>(call_.shape.features); }
  Index carried() const { return Stream::carried_elements(call_.shape); }
  /// Elements of a state that belong to the projection's gradient; they follow the carried state.
  Index part() const { return call_.wants_projection() ? Call::part_elements(call_.shape) : 0; }
  /// Scratch elements per worker, and a reference.
  Index slot() const { return Stream::scratch_elements(call_.shape) + row(); }
  /// Rows of a query head with a record, including those after the ranges.
  Index records() const { return own_rows_ + scan_steps_ * kFeatureRows; }
  /// Blocks of this rank's rows; only the last range may end inside one.
  Index blocks() const { return (own_rows_ + kFeatureRows - 1) / kFeatureRows; }

  void clear_part(PipelinedScan& scan, Index head) const {
    std::fill_n(scan.template state<T>(head) + carried(), part(), T(0));
  }

  typename Stream::Memory memory_at(PipelinedScan& scan, Index head, Index key_head,
                                    const ScanStep& scan_step, Index worker) {
    const Index place = scan_step.first + scan_step.number * kFeatureRows;
    typename Stream::Memory at;
    at.carried = scan.template state<T>(head);
    at.part = call_.wants_projection() ? at.carried + carried() : nullptr;
    at.references = references_.template data<T>() +
                    (key_head * blocks() + scan_step.first / kFeatureRows) * row();
    at.saved = saved_.template data<T>() +
               (key_head * records() + place) * call_.group() * Stream::kRecord;
    at.scratch = scratch_.template data<T>() + worker * slot();
    at.rows = rows_.data() + worker * call_.group();
    return at;
  }

  /// Broadcasts the parts of some heads; every rank sums them.
  void add_parts(PipelinedScan& scan, Index heads) {
    scan.give_to_all();
    for (Index n = 0; n < heads; ++n) {
      call_.add_parts(scan.template state<T>(n) + carried(), 1, sums_.template data<T>(), false);
    }
  }

  Call& call_;
  Stream stream_;
  Index scan_steps_;  // ranges of this rank's segments
  Index own_rows_;    // of this rank's segments
  Index workers_;
  Workspace scratch_;                    // [workers, slot]
  Workspace saved_;                      // [key heads, records, group, kRecord], by row blocks
  Workspace references_;                 // [key heads, blocks, row]
  Workspace sums_;                       // [part] of the parts of all heads, in two words
  std::vector<LinearGradRows<T>> rows_;  // [workers, group]
  PipelinedScan up_;                     // [row heads, carried, part, row]
  PipelinedScan down_;                   // [key heads, carried, part]
};

}  // namespace distributed

FOVEA_NAMESPACE_END
