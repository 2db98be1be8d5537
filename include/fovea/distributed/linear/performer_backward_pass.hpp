// SPDX-License-Identifier: MIT
/// \file
/// The backward pass of Performer attention across ranks.
#pragma once

#include <exception>
#include <optional>
#include <vector>

#include "fovea/attention/linear/performer_passes.hpp"
#include "fovea/distributed/linear/feature_gradients_scan.hpp"
#include "fovea/distributed/linear/feature_gradients_totals.hpp"
#include "fovea/distributed/messages/pass.hpp"

FOVEA_NAMESPACE_BEGIN

namespace distributed {

/// One backward pass.
template <class T>
class PerformerBackwardPass final : public RankPass {
 public:
  /// Allocates all memory.
  /// \param inputs, d_out, grads this rank's, checked
  /// \throws std::bad_alloc, and std::runtime_error if MPI fails
  PerformerBackwardPass(const PerformerSettings& op, const PerformerInputs<T>& inputs,
                        const View<const T>& d_out, const PerformerGrads<T>& grads,
                        const Sharding& rows, const ExecutorRef& executor)
      : inputs_(inputs),
        d_out_(d_out),
        grads_(grads),
        segments_(rows, inputs.q.batch(), sizes_read(inputs), sizes_made(inputs), false,
                  [&](const std::vector<Range>& summed) {
                    return op.far_field.causal
                               ? rows_of_open_blocks(inputs.key_lengths, rows.count(), summed)
                               : std::vector<Range>{};
                  }),
        whole_(whole_inputs()),
        call_(whole_, op.far_field, segments_.read(kGradOfOut), whole_grads()) {
    if (op.far_field.causal) {
      scan_.emplace(call_, segments_, rows.ranks(), executor);
    } else {
      totals_.emplace(call_, segments_, rows.ranks(), executor);
    }
  }

  /// Writes the gradients of this rank's rows, and that of the projection.
  std::exception_ptr run(const ExecutorRef& executor) override {
    segments_.put(kQ, inputs_.q);
    segments_.put(kK, inputs_.k);
    segments_.put(kV, inputs_.v);
    segments_.put(kGradOfOut, d_out_);
    segments_.bring();
    const std::exception_ptr error = scan_ ? scan_->run(executor) : totals_->run(executor);
    segments_.bring_back();
    if (error) return error;
    segments_.take(kQ, grads_.q);
    segments_.take(kK, grads_.k);
    segments_.take(kV, grads_.v);
    return nullptr;
  }

 private:
  using Sizes = typename SegmentRows<T>::Sizes;
  /// The tensors read. Gradients are computed for the first three.
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
  PerformerInputs<T> whole_;  // of this rank's segments, and of the rows that they read
  PerformerBackwardCall<T> call_;
  std::optional<FeatureGradientsScan<T>> scan_;      // if causal
  std::optional<FeatureGradientsTotals<T>> totals_;  // if not
};

}  // namespace distributed

FOVEA_NAMESPACE_END
