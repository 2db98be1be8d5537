// SPDX-License-Identifier: MIT
/// \file
/// The forward pass of linear, delta-rule and FMM attention over a sequence that is spread over
/// ranks. Rows stay where they are; what travels is states of a fixed size, and for a near field
/// the margins of the rows.
#pragma once

#include <concepts>
#include <exception>
#include <memory>
#include <optional>
#include <string>

#include "fovea/attention/fmm.hpp"
#include "fovea/attention/fmm/near_field.hpp"
#include "fovea/attention/linear/operator.hpp"
#include "fovea/distributed/linear/far_field.hpp"
#include "fovea/distributed/messages/whole_call.hpp"
#include "fovea/distributed/softmax/forward_pass.hpp"

FOVEA_NAMESPACE_BEGIN

namespace distributed {

/// An operator with a far field.
template <class Op, class T>
concept FarFieldAttention = std::derived_from<Op, LinearOperator<Op>> && std::floating_point<T>;

/// One forward pass: the near field, if there is one, writes rows to which the far field adds.
template <class Op, class T>
class LinearForwardPass {
 public:
  /// Takes all memory.
  /// \param inputs, out, saved those of this rank, checked
  /// \throws std::bad_alloc, and std::runtime_error if MPI fails
  LinearForwardPass(const Op& op, const LinearFamilyInputs<T>& inputs, const View<T>& out,
                    const SavedOf<Op, T>& saved, const Rows& rows, const ExecutorRef& executor)
      : out_(out), saved_(saved), weights_(op.template settings<T>().weights(inputs)) {
    const Field far = op.template far<T>();
    if constexpr (Op::kHasNear) {
      near_.emplace(op.near(), ScoreModifierArgs<Compute<T>>{}, NearBlocks<T>::only_rows(inputs),
                    out, SoftmaxSaved<T>{saved.near_lse}, rows);
      near_->reserve(executor);
    }
    far_.emplace(inputs, far, weights_, Op::kHasNear, out, rows, executor);
  }
  LinearForwardPass(const LinearForwardPass&) = delete;
  LinearForwardPass& operator=(const LinearForwardPass&) = delete;

  /// Computes this rank's rows. All messages are exchanged even if computing throws.
  /// \returns what computing has thrown, or null
  std::exception_ptr run(const ExecutorRef& executor) {
    std::exception_ptr error;
    if constexpr (Op::kHasNear) {
      error = near_->run(executor);
      if (!error) keep_near_out();
    }
    const std::exception_ptr later = far_->run(executor);
    return error ? error : later;
  }

  /// The messages of this rank.
  Traffic traffic() const {
    Traffic all = far_->traffic();
    if constexpr (Op::kHasNear) all = all + near_->traffic();
    return all;
  }

 private:
  using Field = std::remove_cvref_t<decltype(std::declval<const Op&>().template far<T>())>;
  /// Stands for a pass that the operator does not have.
  struct None {};

  /// Copies the near field to the tensor that is to keep it, if there is one.
  void keep_near_out() const {
    const View<T>& to = saved_.near_out;
    for (Index b = 0; b < to.batch(); ++b) {
      for (Index h = 0; h < to.heads(); ++h) {
        for (Index n = 0; n < to.rows(); ++n) {
          for (Index c = 0; c < to.width(); ++c) to(b, h, n, c) = out_(b, h, n, c);
        }
      }
    }
  }

  View<T> out_;
  SavedOf<Op, T> saved_;
  FarWeights<T> weights_;
  std::optional<std::conditional_t<Op::kHasNear, SoftmaxForwardPass<T>, None>> near_;
  std::optional<FarField<T, Field>> far_;
};

/// Computes linear, delta-rule or FMM attention over a sequence that is spread over ranks, on all
/// of them together; every rank calls it with its own rows. The bits are those of `op.forward` over
/// the whole sequence, for any number of ranks and any layout.
/// \param op LinearAttention, DeltaRuleAttention or FmmAttention
/// \param inputs q, k, v (and beta) of this rank's rows, [B, H, own rows, D] in ascending order;
/// key lengths count keys of the whole sequence
/// \param out [B, Hq, own rows, Dv], written
/// \param saved what `op` saves, of the rank's rows
/// \param executor as in `forward` of the operator
/// \returns the messages of this rank
/// \throws as `forward` over softmax operators
///
/// Cost: that of the rank's rows. If causal, a state for each key head is sent at each end of a
/// range of rows, and ranks wait for each other unless there are at least as many key heads. If
/// not, the sums of the rank's segments of kLinearSegment tokens are sent, and totals received. A
/// near field costs the rows of its margins.
/// Memory: states or sums; with a near field, what `forward` over softmax operators takes.
template <class Op, class Out, class E = Serial, class T = Scalar<Out>>
requires FarFieldAttention<Op, T> Traffic forward(const Op& op, const InputsOf<Op, T>& inputs,
                                                  Out&& out, const SavedOf<Op, T>& saved,
                                                  const Rows& rows, E&& executor = {}) {
  const View<T> to(out);
  const std::string call = detail::call_text(Op::name(), ".forward", inputs, rows);
  const auto check = [&] {
    detail::check_call(Op::name(), inputs, rows,
                       [&](const InputsOf<Op, T>& own) { op.check(own, to, saved); });
  };
  if (detail::are_rows_moved(inputs, op.options.alignment, rows)) {
    return detail::forward_whole(op, inputs, to, saved, rows, call, check, executor);
  }
  return detail::run_call(rows, op, call, check, executor, [&](auto& threads) {
    return std::make_unique<LinearForwardPass<Op, T>>(
        op, fovea::detail::inputs_as<LinearFamilyInputs<T>>(inputs), to, saved, rows, threads);
  });
}

/// The same, where nothing is saved.
template <class Op, class Out, class E = Serial, class T = Scalar<Out>>
requires FarFieldAttention<Op, T> Traffic forward(const Op& op, const InputsOf<Op, T>& inputs,
                                                  Out&& out, const Rows& rows, E&& executor = {}) {
  return forward<Op>(op, inputs, View<T>(out), SavedOf<Op, T>{}, rows, executor);
}

}  // namespace distributed

FOVEA_NAMESPACE_END
