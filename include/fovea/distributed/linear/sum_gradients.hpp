// SPDX-License-Identifier: MIT
/// \file
/// The distributed gradients of sums. Causal: token states are passed up the ranges, and row states
/// down. Not causal: totals of tokens, then of rows.
#pragma once

#include <algorithm>
#include <exception>
#include <optional>
#include <vector>

#include "fovea/attention/linear/backward_call.hpp"
#include "fovea/attention/linear/segment_sums.hpp"
#include "fovea/distributed/linear/open_chunk.hpp"
#include "fovea/distributed/messages/pass.hpp"
#include "fovea/distributed/messages/pipelined_scan.hpp"
#include "fovea/distributed/segments/range_sums.hpp"
#include "fovea/distributed/segments/segment_rows.hpp"

FOVEA_NAMESPACE_BEGIN

namespace distributed {

/// The gradients of non-causal sums of one backward pass, with the tensors of SegmentRows.
template <class T, class Field>
class SumGradientsTotals final : public RankPass {
 public:
  /// The state that the parts of the pass share.
  using Call = LinearBackwardCall<T, Field>;

  /// Allocates all memory.
  /// \param call, segments must outlive this object   \param accumulate whether to add to the
  /// gradients
  /// \param wants_products whether `products` will be called
  /// \throws std::bad_alloc, and std::runtime_error if MPI fails
  SumGradientsTotals(const Call& call, const SegmentRows<T>& segments, const Communicator& ranks,
                     bool accumulate, bool wants_products, const ExecutorRef& executor)
      : call_(call),
        segments_(segments),
        accumulate_(accumulate),
        slot_(padded_row<T>(
            (std::max)(linear_grad_scratch<T>(call.far_field.features(call.shape.width),
                                              call.shape.value_width),
                       linear_sum_scratch<T>(call.far_field.linear_shape(call.shape))))),
        scratch_(memory_of(executor).take(worker_count(executor, count() * call.row_heads()),
                                          slot_ * Index{sizeof(T)})),
        of_keys_(ranks, segments.owners(), call.key_heads(), elements(call)),
        of_rows_(ranks, segments.owners(), call.row_heads(), elements(call), call.group()) {
    if (!wants_products) return;
    found_.resize(static_cast<std::size_t>(count() * call.row_heads()));
    sums_.emplace(ranks, segments.layout(), call.shape.query_heads, 1, call.sequences.count());
  }

  /// The sums over batch and rows of <weight d_out_i, far_i>, as in a single-process pass: [Hq].
  /// \pre run was called, and products were requested
  std::vector<double> products() {
    std::vector<double> sums;
    for (Index h = 0; h < call_.shape.query_heads; ++h) sums.push_back(*sums_->of(h));
    return sums;
  }

  /// Writes the gradients of the rows of this rank's segments.
  std::exception_ptr run(const ExecutorRef& executor) override {
    std::exception_ptr error = fovea::detail::caught([&] { sum_tokens(executor); });
    of_keys_.fold([&](Index n) {
      return SegmentSums<T>::segments(call_.seen(call_.sequences[n / call_.shape.key_heads]));
    });
    if (!error) error = fovea::detail::caught([&] { take_rows(executor); });
    of_rows_.fold(
        [&](Index n) { return SegmentSums<T>::segments(rows_seeing(n / call_.shape.key_heads)); });
    if (!error) error = fovea::detail::caught([&] { take_tokens(executor); });
    if (!sums_) return error;
    const std::exception_ptr later =
        sums_->run([&](const ScanStep& scan_step, Index head, double* sum,
                       Index /*worker*/) { add_products(scan_step, head, *sum); },
                   executor);
    return error ? error : later;
  }

 private:
  Index count() const { return static_cast<Index>(segments_.own().size()); }
  /// Elements of the sums of a segment.
  static Index elements(const Call& call) {
    return linear_sum_elements<T>(call.far_field.linear_shape(call.shape));
  }
  T* scratch(Index worker) { return scratch_.template data<T>() + worker * slot_; }

  /// The rows of a sequence that see tokens.
  Index rows_seeing(Index sequence) const {
    const Sequence s = call_.sequences[sequence];
    return call_.seen(s) == 0 ? 0 : s.queries;
  }

  void sum_tokens(const ExecutorRef& executor) {
    for_each_segment(
        segments_.own(), call_.sequences.count(), call_.shape.key_heads, executor,
        [&](Index sequence) { return call_.seen(call_.sequences[sequence]); },
        [&](const SequenceTask& segment, Index n, Index head, Index worker) {
          LinearKernels<T>{}.sum(segment_sum_args(call_.inputs, call_.far_field,
                                                  call_.sequences[segment.sequence], segment,
                                                  of_keys_.sums(head, n), scratch(worker)));
        });
  }

  void take_rows(const ExecutorRef& executor) {
    for_each_segment(
        segments_.own(), call_.sequences.count(), call_.shape.query_heads, executor,
        [&](Index sequence) { return rows_seeing(sequence); },
        [&](const SequenceTask& segment, Index n, Index head, Index worker) {
          LinearGradRowsArgs<T> args = call_.row_args(segment, accumulate_);
          args.total = of_keys_.total(head / call_.group());
          args.sums = of_rows_.sums(head, n);
          args.scratch = scratch(worker);
          if (sums_) args.rows.d_out_times_out = &found_[static_cast<std::size_t>(place(head, n))];
          LinearGradKernels<T>{}.rows(args);
        });
  }

  /// The place of segment n's result for a query head (of all sequences).
  Index place(Index row_head, Index n) const { return row_head * count() + n; }

  /// Adds the results of a range's segments for a query head, in the round's sequence.
  void add_products(const ScanStep& scan_step, Index head, double& sum) const {
    const Index first =
        place(scan_step.round * call_.shape.query_heads + head, scan_step.first / kLinearSegment);
    const Index segments = SegmentSums<T>::segments(scan_step.rows.end - scan_step.rows.begin);
    for (Index n = first; n < first + segments; ++n) {
      sum += static_cast<double>(found_[static_cast<std::size_t>(n)]);
    }
  }

  void take_tokens(const ExecutorRef& executor) {
    for_each_segment(
        segments_.own(), call_.sequences.count(), call_.shape.key_heads, executor,
        [&](Index sequence) { return call_.seen(call_.sequences[sequence]); },
        [&](const SequenceTask& segment, Index, Index head, Index worker) {
          LinearGradKeysArgs<T> args = call_.key_args(segment, accumulate_);
          args.total = of_rows_.total(head);
          args.scratch = scratch(worker);
          LinearGradKernels<T>{}.keys(args);
        });
  }

  const Call& call_;
  const SegmentRows<T>& segments_;
  bool accumulate_;
  Index slot_;
  Workspace scratch_;  // [workers, slot_]
  SegmentTotals<T> of_keys_;
  SegmentTotals<T> of_rows_;
  std::vector<T> found_;                   // [row heads, own segments] products, or none
  std::optional<RangeSums<double>> sums_;  // [query heads] their sums, or none
};

/// The gradients of causal sums of one backward pass, with the tensors of SegmentRows.
template <class T, class Field>
class SumGradientsScan final : public RankPass {
 public:
  /// The state that the parts of the pass share.
  using Call = LinearBackwardCall<T, Field>;

  /// Allocates all memory.
  /// \param call, segments must outlive this object   \param accumulate whether to add to the
  /// gradients
  /// \param wants_products whether `products` will be called
  /// \throws std::bad_alloc, and std::runtime_error if MPI fails
  SumGradientsScan(const Call& call, const SegmentRows<T>& segments, const Communicator& ranks,
                   bool accumulate, bool wants_products, const ExecutorRef& executor)
      : call_(call),
        accumulate_(accumulate),
        width_(call.far_field.features(call.shape.width)),
        maps_(call.far_field.linear_maps(call.shape.width)),
        own_rows_(segments.layout().count(ranks.rank())),
        record_(linear_grad_saved<T>(1, width_, maps_)),
        workers_((std::max)(worker_count(executor, call.key_heads()), Index{1})),
        slot_(padded_row<T>(linear_grad_scratch<T>(width_, call.shape.value_width))),
        scratch_(memory_of(executor).take(workers_, slot_ * Index{sizeof(T)})),
        saved_(memory_of(executor).take(call.row_heads() * own_rows_, record_ * Index{sizeof(T)})),
        rows_(static_cast<std::size_t>(workers_ * call.group())),
        up_(ranks, segments.layout(), ScanDirection::up, call.key_heads(), state_bytes(), workers_),
        down_(ranks, segments.layout(), ScanDirection::down, call.key_heads(), state_bytes(),
              workers_) {
    if (wants_products) {
      found_.emplace(ranks, segments.layout(), call.row_heads(), 1, maps_.count);
    }
  }

  /// The sums over batch and rows of <weight d_out_i, far_i>, as in a single-process pass: [Hq].
  /// \pre run was called, and products were requested
  std::vector<double> products() {
    const Index heads = call_.shape.query_heads;
    std::vector<double> sums(static_cast<std::size_t>(heads));
    for (Index n = 0; n < call_.row_heads(); ++n) {
      sums[static_cast<std::size_t>(n % heads)] += static_cast<double>(found_->of(n)->value());
    }
    return sums;
  }

  /// Writes the gradients of the rows of this rank's segments.
  std::exception_ptr run(const ExecutorRef& executor) override {
    std::exception_ptr error =
        up_.run(executor, [&](const ScanStep& scan_step, Index head, Index worker) {
          for_each_segment(scan_step, head, worker, up_,
                           [&](const Piece& piece) { add_tokens(piece); });
        });
    if (found_) {
      const std::exception_ptr sums = found_->run(
          [&](const ScanStep& scan_step, Index row_head, CompensatedSum<T>* sum, Index /*worker*/) {
            if (!error) add_products(scan_step, row_head, *sum);
          },
          executor);
      if (!error) error = sums;
    }
    const std::exception_ptr later =
        down_.run(executor, [&](const ScanStep& scan_step, Index head, Index worker) {
          if (error) return;
          for_each_segment(scan_step, head, worker, down_,
                           [&](const Piece& piece) { add_rows(piece); });
        });
    return error ? error : later;
  }

 private:
  /// A segment of a key head, and its working memory.
  struct Piece {
    Sequence sequence;
    Index key_head = 0;
    Range rows;  // those of the segment
    T* saved = nullptr;
    T* state = nullptr;
    T* scratch = nullptr;
    LinearGradRows<T>* query_rows = nullptr;  // [group]
  };

  Index carried() const { return linear_grad_carried<T>(width_, call_.shape.value_width); }
  Index state_bytes() const { return maps_.count * carried() * Index{sizeof(T)}; }

  /// Calls f(piece) for the segments of a range, upwards or downwards, if the head sees tokens.
  template <class F>
  void for_each_segment(const ScanStep& scan_step, Index head, Index worker, PipelinedScan& scan,
                        const F& f) {
    Piece piece;
    piece.sequence = call_.sequences[head / call_.shape.key_heads];
    piece.key_head = head % call_.shape.key_heads;
    piece.state = scan.template state<T>(head);
    piece.scratch = scratch_.template data<T>() + worker * slot_;
    piece.query_rows = rows_.data() + worker * call_.group();
    if (call_.seen(piece.sequence) == 0) return;
    const Index segments = SegmentSums<T>::segments(scan_step.rows.end - scan_step.rows.begin);
    for (Index n = 0; n < segments; ++n) {
      const Index number = &scan == &up_ ? n : segments - 1 - n;
      const Index begin = scan_step.rows.begin + number * kLinearSegment;
      piece.rows = {begin, (std::min)(begin + kLinearSegment, scan_step.rows.end)};
      piece.saved = saved_of(head, scan_step, begin);
      f(piece);
    }
  }

  /// The first step for a segment: its rows read the state, then its tokens are added to it.
  void add_tokens(const Piece& piece) {
    const Range open = open_chunk(piece.sequence.key_end);
    const Index closed = std::clamp(open.begin, piece.rows.begin, piece.rows.end);
    const bool is_first = piece.rows.begin == 0;
    for (Index map = 0; map < maps_.count; ++map) {
      const auto row_block = [&](const Range& rows, const Range& tokens) {
        return row_block_of(piece, map, rows, tokens);
      };
      if (closed > piece.rows.begin) {
        LinearGradBlockArgs<T> args =
            row_block({piece.rows.begin, closed}, {piece.rows.begin, closed});
        args.is_first = is_first;
        LinearGradKernels<T>{}.block_of_rows(args);
      }
      if (closed == piece.rows.end) continue;
      LinearGradBlockArgs<T> args = row_block({closed, piece.rows.end}, open);
      args.is_first = is_first && closed == 0;
      args.stays_open = true;
      LinearGradKernels<T>{}.block_of_rows(args);
    }
  }

  /// Adds the products kept by a range's rows for the map of the link's round.
  void add_products(const ScanStep& scan_step, Index row_head, CompensatedSum<T>& sum) {
    const Index head = row_head / call_.group();
    if (call_.seen(call_.sequences[head / call_.shape.key_heads]) == 0) return;
    const Index record = linear_grad_record<T>(width_, maps_.policy);
    for (Index begin = scan_step.rows.begin; begin < scan_step.rows.end; begin += kLinearSegment) {
      const Index rows = (std::min)(kLinearSegment, scan_step.rows.end - begin);
      const Index of_group = row_head % call_.group() * maps_.count + scan_step.round;
      const T* at =
          saved_of(head, scan_step, begin) + of_group * rows * record + kGradRecordProduct;
      for (Index i = 0; i < rows; ++i, at += record) sum.add(*at);
    }
  }

  /// The record of a segment's rows, for the query heads of a key head.
  T* saved_of(Index head, const ScanStep& scan_step, Index begin) {
    const Index before = head * own_rows_ + scan_step.first + begin - scan_step.rows.begin;
    return saved_.template data<T>() + before * call_.group() * record_;
  }

  /// The second step: its tokens read the state, then its rows are added to it.
  void add_rows(const Piece& piece) {
    const Range tokens = {piece.rows.begin,
                          std::clamp(piece.sequence.key_end, piece.rows.begin, piece.rows.end)};
    for (Index map = 0; map < maps_.count; ++map) {
      LinearGradBlockArgs<T> args = row_block_of(piece, map, piece.rows, tokens);
      args.is_first = piece.rows.end == piece.sequence.queries;
      LinearGradKernels<T>{}.block_of_keys(args);
    }
  }

  /// Rows of a segment, and tokens that begin at or before them.
  LinearGradBlockArgs<T> row_block_of(const Piece& piece, Index map, const Range& rows,
                                      const Range& tokens) const {
    LinearGradBlockArgs<T> args;
    args.map = map;
    args.carried = piece.state + map * carried();
    args.of.tokens =
        call_.tokens_of(piece.sequence, piece.key_head, tokens.begin, tokens.end - tokens.begin);
    args.of.width = width_;
    args.of.value_width = call_.shape.value_width;
    args.of.maps = maps_;
    args.of.rows = piece.query_rows;
    args.of.heads = call_.group();
    args.of.row_count = rows.end - rows.begin;
    args.of.first_position = rows.begin - tokens.begin;
    args.of.accumulate = accumulate_;
    args.of.saved_rows = piece.rows.end - piece.rows.begin;
    const Index record = linear_grad_record<T>(width_, maps_.policy);
    args.of.saved = piece.saved + (rows.begin - piece.rows.begin) * record;
    args.of.scratch = piece.scratch;
    for (Index g = 0; g < call_.group(); ++g) {
      piece.query_rows[g] =
          call_.rows_of(piece.sequence, piece.key_head * call_.group() + g, rows.begin);
    }
    return args;
  }

  const Call& call_;
  bool accumulate_;
  Index width_;
  LinearMaps<T> maps_;
  Index own_rows_;  // of this rank's segments
  Index record_;    // elements kept per row, for all maps
  Index workers_;
  Index slot_;
  Workspace scratch_;                    // [workers, slot_]
  Workspace saved_;                      // [key heads, own_rows_, group, record_], by segments
  std::vector<LinearGradRows<T>> rows_;  // [workers, group]
  PipelinedScan up_;
  PipelinedScan down_;
  std::optional<RangeSums<CompensatedSum<T>>> found_;  // [row heads] the sums of products
};

}  // namespace distributed

FOVEA_NAMESPACE_END
