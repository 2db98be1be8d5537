// SPDX-License-Identifier: MIT
/// \file
/// Longformer attention over a sequence that is spread over ranks. If the rows of global positions
/// have projections of their own, they are a second pass, with an exchange of its own.
#pragma once

#include <concepts>
#include <cstdint>
#include <exception>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "fovea/attention/longformer.hpp"
#include "fovea/distributed/messages/one_row_logits.hpp"
#include "fovea/distributed/messages/whole_call.hpp"
#include "fovea/distributed/softmax/backward_pass.hpp"
#include "fovea/distributed/softmax/forward_pass.hpp"
#include "fovea/distributed/softmax_backward.hpp"
#include "fovea/distributed/softmax_forward.hpp"

FOVEA_NAMESPACE_BEGIN

namespace distributed {

namespace detail {

/// Longformer attention of rows of one kind; other rows see nothing.
class LongformerPart {
 public:
  /// \param op outlives this object
  LongformerPart(const LongformerAttention& op, GlobalRows rows)
      : op_(op), seen_(op.rows_alone(rows)) {}

  /// What these rows see.
  AnyPattern pattern(Index head, const SequenceShape& shape) const {
    return seen_.pattern(head, shape);
  }
  /// All heads see the same.
  static Index pattern_period(Index heads) { return LongformerRows::pattern_period(heads); }
  /// The options of the operator.
  auto softmax_options() const { return op_.softmax_options(); }
  /// That of the operator.
  template <class C, bool kBackward>
  auto score_modifier() const {
    return op_.template score_modifier<C, kBackward>();
  }

 private:
  using LongformerRows = fovea::detail::LongformerRows;

  const LongformerAttention& op_;
  LongformerRows seen_;
};

/// Checks what this rank brings to a call.
/// \param check_tensors called with the inputs of this rank \throws std::invalid_argument
template <class T, class Check>
void check_longformer(const LongformerAttention& op, const LongformerInputs<T>& inputs,
                      const Rows& rows, const Check& check_tensors) {
  check_call(op.name(), inputs, rows, [&](const LongformerInputs<T>& own) {
    check_tensors(own);
    if (!own.has_global()) return;
    check_own_rows(op.name(), "global_q", own.global_q, rows);
    check_own_rows(op.name(), "global_k", own.global_k, rows);
    check_own_rows(op.name(), "global_v", own.global_v, rows);
  });
  op.check_pattern(whole_sequence(op, rows));
}

/// What is the same on all ranks of a call, in words.
template <class T>
std::string longformer_text(const LongformerAttention& op, const char* pass,
                            const LongformerInputs<T>& in, const Rows& rows) {
  const std::string call = call_text(op.name(), pass, in, rows);
  return in.has_global() ? call + ", projections of global rows" : call;
}

/// The passes of the rows that are not global and of those that are, one behind the other.
template <class Pass>
class LongformerPasses {
 public:
  /// Takes all memory. \param others, global the passes   \param executor takes their scratch
  LongformerPasses(std::unique_ptr<Pass> others, std::unique_ptr<Pass> global,
                   const ExecutorRef& executor)
      : others_(std::move(others)), global_(std::move(global)) {
    others_->reserve(executor);
    global_->reserve(executor);
  }

  /// The messages of this rank.
  Traffic traffic() const { return others_->traffic() + global_->traffic(); }

  /// As that of softmax attention.
  std::uint64_t plan_number() const { return others_->plan_number() + 3 * global_->plan_number(); }

  /// Runs both, whatever the first one throws, since other ranks wait for messages.
  /// \returns what computing has thrown, or null
  std::exception_ptr run(const ExecutorRef& executor) {
    const std::exception_ptr error = others_->run(executor);
    const std::exception_ptr later = global_->run(executor);
    return error ? error : later;
  }

 private:
  std::unique_ptr<Pass> others_;
  std::unique_ptr<Pass> global_;
};

/// The global rows of a sequence.
inline std::vector<Range> global_rows(const LongformerAttention& op, Index rows) {
  const GlobalTokens tokens = op.tokens();
  return intersection({tokens.runs().begin(), tokens.runs().end()}, {{0, rows}});
}

}  // namespace detail

/// Computes Longformer attention over a sequence that is spread over ranks, on all of them
/// together; every rank calls it with its own rows. The bits are those of `op.forward` over the
/// whole sequence, for any number of ranks and any layout.
/// \param inputs those of this rank's rows, in ascending order; global positions are positions in
/// the sequence; key lengths, bias and mask are as in `forward` over softmax operators
/// \param out [B, Hq, own rows, Dv], written   \param saved lse of the rank's rows
/// \param executor as in `forward` of the operator
/// \returns the messages of this rank
/// \throws as `forward` over softmax operators
///
/// Cost: that of the rank's rows; those of global positions see every key. Keys and values that the
/// rank's rows see are received; a rank that holds global rows receives all, of global_k and
/// global_v if they are given. Memory: as `forward` over softmax operators, twice if global_q is
/// given.
template <class Out, class E = Serial, class T = Scalar<Out>>
Traffic forward(const LongformerAttention& op, const InputsOf<LongformerAttention, T>& inputs,
                Out&& out, const SavedOf<LongformerAttention, T>& saved, const Rows& rows,
                E&& executor = {}) {
  const View<T> to(out);
  const std::string text = detail::longformer_text(op, ".forward", inputs, rows);
  const auto check = [&] {
    detail::check_longformer(op, inputs, rows, [&](const LongformerInputs<T>& own) {
      op.check_tensors(own, to, saved, rows.count());
    });
  };
  if (detail::are_rows_moved(inputs, op.options.alignment, rows)) {
    return detail::forward_whole(op, inputs, to, saved, rows, text, check, executor);
  }
  const auto call = [&](const auto& prepare) {
    return detail::run_call(rows, op, text, check, executor, prepare);
  };
  if (!inputs.has_global()) {
    return call([&](auto& threads) {
      auto pass = std::make_unique<SoftmaxForwardPass<T>>(
          op, op.template score_modifier<Compute<T>, false>(), inputs.shared(), to, saved, rows);
      pass->reserve(threads);
      return pass;
    });
  }
  return call([&](auto& threads) {
    using Pass = SoftmaxForwardPass<T>;
    const std::vector<Range> global = detail::global_rows(op, rows.count());
    const std::vector<Range> others = without({{0, rows.count()}}, global);
    return std::make_unique<detail::LongformerPasses<Pass>>(
        std::make_unique<Pass>(detail::LongformerPart(op, GlobalRows::left_out),
                               ScoreModifierArgs<Compute<T>>{}, inputs.shared(), to, saved, rows,
                               others),
        std::make_unique<Pass>(detail::LongformerPart(op, GlobalRows::alone),
                               ScoreModifierArgs<Compute<T>>{}, inputs.global(), to, saved, rows,
                               global),
        threads);
  });
}

/// The same, where nothing is saved.
template <class Out, class E = Serial, class T = Scalar<Out>>
Traffic forward(const LongformerAttention& op, const InputsOf<LongformerAttention, T>& inputs,
                Out&& out, const Rows& rows, E&& executor = {}) {
  return forward(op, inputs, View<T>(out), SoftmaxSaved<T>{}, rows, executor);
}

/// Computes the gradients of Longformer attention over a sequence that is spread over ranks, on all
/// of them together. The bits are those of `op.backward` over the whole sequence.
/// \param inputs as in `forward`   \param out, saved as `forward` wrote them, with lse
/// \param d_out [B, Hq, own rows, Dv]: the gradient of the loss with respect to out; or with d_lse,
/// as in `backward` over softmax operators
/// \param grads of this rank's rows: those that have a tensor are written; the ranks may want
/// different ones. sink is as in `backward` over softmax operators
/// \param executor as in `forward`   \returns the messages of this rank
/// \throws as `backward` over softmax operators, and as `op.backward` does
///
/// Cost, memory: as `backward` over softmax operators, for each set of projections.
template <class Out, class T = Scalar<Out>, class D = SoftmaxOutGrads<T>, class E = Serial>
requires std::floating_point<T> Traffic
backward(const LongformerAttention& op, const InputsOf<LongformerAttention, T>& inputs,
         const Out& out, const SavedOf<LongformerAttention, T>& saved, const D& d_out,
         const GradsOf<LongformerAttention, T>& grads, const Rows& rows, E&& executor = {}) {
  const View<const T> from(out);
  const SoftmaxOutGrads<T> d = detail::out_grads<T>(d_out);
  const std::string text =
      detail::longformer_text(op, ".backward", inputs, rows) + detail::grads_text<T>(d, grads.sink);
  const auto check = [&] {
    detail::check_longformer(op, inputs, rows, [&](const LongformerInputs<T>& own) {
      op.check_backward_tensors(own, from, saved, d.d_out, grads, rows.count());
      op.check_d_lse(own, d.d_lse, grads);
    });
  };
  if (detail::are_rows_moved(inputs, op.options.alignment, rows)) {
    return detail::backward_whole(op, inputs, from, saved, d, grads, rows, text, check, executor);
  }
  const auto call = [&](const auto& prepare) {
    return detail::run_backward_call(rows, detail::RanksCall(op, executor), text, inputs, grads,
                                     check, prepare);
  };
  if (!inputs.has_global()) {
    return call([&](auto& threads, const detail::OneRowLogits& one_row) {
      auto pass = std::make_unique<SoftmaxBackwardPass<T>>(
          op, op.template score_modifier<T, true>(), inputs.shared(), from, saved, d.d_out,
          grads.shared(), rows, one_row, d.d_lse);
      pass->reserve(threads);
      return pass;
    });
  }
  return call([&](auto& threads, const detail::OneRowLogits& one_row) {
    using Pass = SoftmaxBackwardPass<T>;
    return std::make_unique<detail::LongformerPasses<Pass>>(
        std::make_unique<Pass>(detail::LongformerPart(op, GlobalRows::left_out),
                               ScoreModifierArgs<T>{}, inputs.shared(), from, saved, d.d_out,
                               grads.shared(), rows, one_row, d.d_lse),
        std::make_unique<Pass>(detail::LongformerPart(op, GlobalRows::alone),
                               ScoreModifierArgs<T>{}, inputs.global(), from, saved, d.d_out,
                               grads.global(), rows, one_row, d.d_lse),
        threads);
  });
}

}  // namespace distributed

FOVEA_NAMESPACE_END
