// SPDX-License-Identifier: MIT
/// \file
/// Included by longformer.hpp, which documents it.
#pragma once

#include <cstdint>
#include <exception>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "fovea/distributed/longformer.hpp"
#include "fovea/distributed/messages/broadcast_logits.hpp"
#include "fovea/distributed/messages/whole_call.hpp"
#include "fovea/distributed/softmax/backward_pass.hpp"
#include "fovea/distributed/softmax/forward_pass.hpp"

FOVEA_NAMESPACE_BEGIN

namespace distributed {

namespace detail {

/// Longformer attention of one kind of row; other rows attend to nothing.
class LongformerPart {
 public:
  /// \param op outlives this object
  LongformerPart(const LongformerAttention& op, GlobalRows rows)
      : op_(op), seen_(op.rows_alone(rows)) {}

  /// The pattern of these rows.
  AnyPattern pattern(Index head, const SequenceShape& shape) const {
    return seen_.pattern(head, shape);
  }
  /// All heads have the same pattern.
  static Index pattern_period(Index heads) { return LongformerRows::pattern_period(heads); }
  /// The operator's options.
  auto softmax_options() const { return op_.softmax_options(); }
  /// The operator's.
  template <class C, bool kBackward>
  auto score_modifier() const {
    return op_.template score_modifier<C, kBackward>();
  }

 private:
  using LongformerRows = fovea::detail::LongformerRows;

  const LongformerAttention& op_;
  LongformerRows seen_;
};

/// Checks this rank's arguments.
/// \param check_tensors called with the inputs of this rank \throws std::invalid_argument
template <class T, class Check>
void check_longformer(const LongformerAttention& op, const LongformerInputs<T>& inputs,
                      const Sharding& rows, const Check& check_tensors) {
  check_call(op.name(), inputs, rows, [&](const LongformerInputs<T>& own) {
    check_tensors(own);
    if (!own.has_global()) return;
    check_own_rows(op.name(), "global_q", own.global_q, rows);
    check_own_rows(op.name(), "global_k", own.global_k, rows);
    check_own_rows(op.name(), "global_v", own.global_v, rows);
  });
  op.check_pattern(whole_sequence(op, rows));
}

/// Describes the parts of a call that must be equal on all ranks.
template <class T>
std::string longformer_text(const LongformerAttention& op, const char* pass,
                            const LongformerInputs<T>& in, const Sharding& rows) {
  const std::string call = call_text(op.name(), pass, in, rows);
  return in.has_global() ? call + ", projections of global rows" : call;
}

/// The passes of non-global and of global rows, in this order.
template <class Pass>
class LongformerPasses final : public RankPass {
 public:
  /// Allocates all memory. \param others, global the passes \param executor allocates their scratch
  LongformerPasses(std::unique_ptr<Pass> others, std::unique_ptr<Pass> global,
                   const ExecutorRef& executor)
      : others_(std::move(others)), global_(std::move(global)) {
    others_->reserve(executor);
    global_->reserve(executor);
  }

  /// As for softmax attention.
  std::uint64_t plan_number() const override {
    return others_->plan_number() + 3 * global_->plan_number();
  }

  /// Runs both even if the first one throws, since other ranks wait for messages.
  /// \returns the exception that computing threw, or null
  std::exception_ptr run(const ExecutorRef& executor) override {
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

template <class T>
CommStats DistributedForward<LongformerAttention, T>::forward(
    const LongformerAttention& op, const LongformerInputs<T>& inputs, const View<T>& out,
    const SoftmaxSaved<T>& saved, const Sharding& rows, const detail::CollectiveCall& call) {
  const std::string text = detail::longformer_text(op, ".forward", inputs, rows);
  const auto check = [&] {
    detail::check_longformer(op, inputs, rows, [&](const LongformerInputs<T>& own) {
      op.check_tensors(own, out, saved, rows.count());
    });
  };
  if (detail::are_rows_moved(inputs, op.options.alignment, rows)) {
    return detail::run_whole_call(rows, call, text, check, std::tuple(inputs),
                                  std::tuple(out, saved),
                                  [&](const auto&... arguments) { op.forward(arguments...); });
  }
  if (!inputs.has_global()) {
    return detail::run_call(rows, call, text, check, [&](const ExecutorRef& threads) {
      auto pass = std::make_unique<SoftmaxForwardPass<T>>(
          op, op.template score_modifier<Compute<T>, false>(), inputs.shared(), out, saved, rows);
      pass->reserve(threads);
      return pass;
    });
  }
  return detail::run_call(rows, call, text, check, [&](const ExecutorRef& threads) {
    using Pass = SoftmaxForwardPass<T>;
    const std::vector<Range> global = detail::global_rows(op, rows.count());
    const std::vector<Range> others = without({{0, rows.count()}}, global);
    return std::make_unique<detail::LongformerPasses<Pass>>(
        std::make_unique<Pass>(detail::LongformerPart(op, GlobalRows::left_out),
                               ScoreModifierArgs<Compute<T>>{}, inputs.shared(), out, saved, rows,
                               others),
        std::make_unique<Pass>(detail::LongformerPart(op, GlobalRows::alone),
                               ScoreModifierArgs<Compute<T>>{}, inputs.global(), out, saved, rows,
                               global),
        threads);
  });
}

template <class T>
CommStats DistributedBackward<LongformerAttention, T>::backward(
    const LongformerAttention& op, const LongformerInputs<T>& inputs, const View<const T>& out,
    const SoftmaxSaved<T>& saved, const SoftmaxOutGrads<T>& d_out, const LongformerGrads<T>& grads,
    const Sharding& rows, const detail::CollectiveCall& call) {
  const std::string text = detail::longformer_text(op, ".backward", inputs, rows) +
                           detail::grads_text<T>(d_out, grads.sink);
  const auto check = [&] {
    detail::check_longformer(op, inputs, rows, [&](const LongformerInputs<T>& own) {
      op.check_backward_tensors(own, out, saved, d_out.d_out, grads, rows.count());
      op.check_d_lse(own, d_out.d_lse, grads);
    });
  };
  if (detail::are_rows_moved(inputs, op.options.alignment, rows)) {
    return detail::run_whole_call(rows, call, text, check, std::tuple(inputs, out, saved, d_out),
                                  std::tuple(grads),
                                  [&](const auto&... arguments) { op.backward(arguments...); });
  }
  const auto run = [&](const auto& prepare) {
    return detail::run_backward_call(rows, call, text, inputs, grads, check, prepare);
  };
  if (!inputs.has_global()) {
    return run([&](const ExecutorRef& threads, const detail::BroadcastLogits& one_row) {
      auto pass = std::make_unique<SoftmaxBackwardPass<T>>(
          op, op.template score_modifier<T, true>(), inputs.shared(), out, saved, d_out.d_out,
          grads.shared(), rows, one_row, d_out.d_lse);
      pass->reserve(threads);
      return pass;
    });
  }
  return run([&](const ExecutorRef& threads, const detail::BroadcastLogits& one_row) {
    using Pass = SoftmaxBackwardPass<T>;
    return std::make_unique<detail::LongformerPasses<Pass>>(
        std::make_unique<Pass>(detail::LongformerPart(op, GlobalRows::left_out),
                               ScoreModifierArgs<T>{}, inputs.shared(), out, saved, d_out.d_out,
                               grads.shared(), rows, one_row, d_out.d_lse),
        std::make_unique<Pass>(detail::LongformerPart(op, GlobalRows::alone),
                               ScoreModifierArgs<T>{}, inputs.global(), out, saved, d_out.d_out,
                               grads.global(), rows, one_row, d_out.d_lse),
        threads);
  });
}

FOVEA_RANKS_PASSES(FORWARD, LongformerAttention)
FOVEA_IN_SHORT_UNIT(FOVEA_RANKS_FORWARD, LongformerAttention)
FOVEA_RANKS_PASSES(BACKWARD, LongformerAttention)

}  // namespace distributed

FOVEA_NAMESPACE_END
