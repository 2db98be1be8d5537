// SPDX-License-Identifier: MIT
/// \file
/// The backward pass of Performer attention over a sequence that is spread over ranks. What travels
/// is states and sums of a fixed size, and rows where ranges end within a segment of kLinearSegment
/// rows.
#pragma once

#include <concepts>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "fovea/distributed/linear/feature_gradients_chain.hpp"
#include "fovea/distributed/linear/feature_gradients_totals.hpp"
#include "fovea/distributed/performer_forward.hpp"

FOVEA_NAMESPACE_BEGIN

namespace distributed {

/// One backward pass.
template <class T>
class PerformerBackwardPass {
 public:
  /// Takes all memory.
  /// \param inputs, d_out, grads those of this rank, checked
  /// \throws std::bad_alloc, and std::runtime_error if MPI fails
  PerformerBackwardPass(const PerformerAttention& op, const PerformerInputs<T>& inputs,
                        const View<const T>& d_out, const PerformerGrads<T>& grads,
                        const Rows& rows, const ExecutorRef& executor)
      : inputs_(inputs),
        d_out_(d_out),
        grads_(grads),
        segments_(rows, inputs.q.batch(), sizes_read(inputs), sizes_made(inputs), false,
                  [&](const std::vector<Range>& summed) {
                    return op.options.causal
                               ? rows_of_open_blocks(inputs.key_lengths, rows.count(), summed)
                               : std::vector<Range>{};
                  }),
        whole_(whole_inputs()),
        call_(whole_, {op.options.causal, op.options.alignment}, segments_.read(kGradOfOut),
              whole_grads()) {
    if (op.options.causal) {
      chain_.emplace(call_, segments_, rows.ranks(), executor);
    } else {
      totals_.emplace(call_, segments_, rows.ranks(), executor);
    }
  }
  PerformerBackwardPass(const PerformerBackwardPass&) = delete;
  PerformerBackwardPass& operator=(const PerformerBackwardPass&) = delete;

  /// The messages of this rank.
  Traffic traffic() const {
    return segments_.traffic() + (chain_ ? chain_->traffic() : totals_->traffic());
  }

  /// Writes the gradients of this rank's rows, and that of the projection. All messages are
  /// exchanged even if computing throws. \returns what computing has thrown, or null
  std::exception_ptr run(const ExecutorRef& executor) {
    segments_.put(kQ, inputs_.q);
    segments_.put(kK, inputs_.k);
    segments_.put(kV, inputs_.v);
    segments_.put(kGradOfOut, d_out_);
    segments_.bring();
    const std::exception_ptr error = chain_ ? chain_->run(executor) : totals_->run(executor);
    segments_.bring_back();
    if (error) return error;
    segments_.take(kQ, grads_.q);
    segments_.take(kK, grads_.k);
    segments_.take(kV, grads_.v);
    return nullptr;
  }

 private:
  using Sizes = typename SegmentRows<T>::Sizes;
  /// The tensors that are read. The gradients that are made are those of the first three.
  enum : std::size_t { kQ, kK, kV, kGradOfOut };

  static Sizes sizes_made(const PerformerInputs<T>& in) {
    return {
        {in.q.heads(), in.q.width()}, {in.k.heads(), in.k.width()}, {in.v.heads(), in.v.width()}};
  }
  static Sizes sizes_read(const PerformerInputs<T>& in) {
    Sizes sizes = sizes_made(in);
    sizes.emplace_back(in.q.heads(), in.v.width());
    return sizes;
  }

  PerformerInputs<T> whole_inputs() const {
    PerformerInputs<T> whole = inputs_;
    whole.q = segments_.read(kQ);
    whole.k = segments_.read(kK);
    whole.v = segments_.read(kV);
    return whole;
  }
  PerformerGrads<T> whole_grads() const {
    PerformerGrads<T> whole;
    whole.q = segments_.made(kQ);
    whole.k = segments_.made(kK);
    whole.v = segments_.made(kV);
    whole.projection = grads_.projection;
    return whole;
  }

  PerformerInputs<T> inputs_;
  View<const T> d_out_;
  PerformerGrads<T> grads_;
  SegmentRows<T> segments_;
  PerformerInputs<T> whole_;  // of the rows of this rank's segments, and of those that they read
  PerformerBackwardCall<T> call_;
  std::optional<FeatureGradientsChain<T>> chain_;    // if causal
  std::optional<FeatureGradientsTotals<T>> totals_;  // if not
};

/// Computes the gradients of Performer attention over a sequence that is spread over ranks, on all
/// of them together. The bits are those of `op.backward` over the whole sequence.
/// \param op, inputs as in `forward`
/// \param out [B, Hq, own rows, Dv] as `forward` wrote it
/// \param d_out [B, Hq, own rows, Dv]: the gradient of the loss with respect to out
/// \param grads of q, k and v, of this rank's rows: those that have a tensor are written; the ranks
/// may want different ones. The gradient of the projection, which all or none want, is that of the
/// whole sequence
/// \param executor as in `forward`
/// \returns the messages of this rank
/// \throws as `forward`
///
/// Cost: that of the rank's rows. If causal, a state of about 2 R Dv numbers for each query head is
/// sent at each end of a range of rows, and then one for each key head back. If not, sums of the
/// rank's segments are sent and totals received, of tokens and then of rows. With the gradient of
/// the projection each state has 2 R D numbers more, and all ranks get the last ones; if not
/// causal, its sum goes over all ranges for each head. Rows of segments that lie on several ranks
/// travel to that of their first row, and their gradients back.
/// Memory: the rank's rows twice, and states or sums; for the gradient of the projection 2 R D
/// numbers for each head, or if not causal for each head and segment of the rank.
template <class Out, class D, class E = Serial, class T = Scalar<Out>>
requires std::floating_point<T> Traffic
backward(const PerformerAttention& op, const InputsOf<PerformerAttention, T>& inputs,
         const Out& out, const SavedOf<PerformerAttention, T>& saved, const D& d_out,
         const GradsOf<PerformerAttention, T>& grads, const Rows& rows, E&& executor = {}) {
  const View<const T> from(out);
  const View<const T> d_from(d_out);
  std::string text = detail::performer_text(".backward", inputs, rows);
  if (!grads.projection.is_none()) text.append(", gradient of the projection");
  const auto check = [&] {
    detail::check_call(op.name(), inputs, rows, [&](const PerformerInputs<T>& own) {
      op.check_backward(own, from, saved, d_from, grads);
    });
  };
  if (detail::are_rows_moved(inputs, op.options.alignment, rows)) {
    return detail::backward_whole(op, inputs, from, saved, d_from, grads, rows, text, check,
                                  executor);
  }
  return detail::run_call(rows, op, text, check, executor, [&](auto& threads) {
    return std::make_unique<PerformerBackwardPass<T>>(op, inputs, d_from, grads, rows, threads);
  });
}

}  // namespace distributed

FOVEA_NAMESPACE_END
