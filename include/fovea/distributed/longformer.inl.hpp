// SPDX-License-Identifier: MIT
/// \file
/// Included by longformer.hpp, which documents it.
#pragma once

#include <cstdint>
#include <exception>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "fovea/distributed/longformer.hpp"
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
template <class T, class Call, class Check>
void check_longformer(const Call& call, const Check& check_tensors) {
  const char* const name = call.op.name();
  check_call(call, [&](const LongformerInputs<T>& own) {
    check_tensors(own);
    if (!own.has_global()) return;
    check_own_rows(name, "global_q", own.global_q, call.rows);
    check_own_rows(name, "global_k", own.global_k, call.rows);
    check_own_rows(name, "global_v", own.global_v, call.rows);
  });
  call.op.check_pattern(whole_sequence(call.op, call.rows));
}

/// Describes the parts of a call that must be equal on all ranks.
template <class Call>
std::string longformer_text(const Call& call) {
  const char* const global = call.inputs.has_global() ? ", projections of global rows" : "";
  return call_text(call) + global;
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
CommStats forward(const ShardedForwardCall<LongformerAttention, T>& call) {
  using Pass = SoftmaxForwardPass<T>;
  const LongformerAttention& op = call.op;
  const LongformerInputs<T>& inputs = call.inputs;
  const auto check = [&] {
    detail::check_longformer<T>(call, [&](const LongformerInputs<T>& own) {
      op.check_tensors(own, call.out, call.saved, call.rows.count());
    });
  };
  const auto prepare = [&](const ExecutorRef& threads) -> std::unique_ptr<RankPass> {
    if (!inputs.has_global()) {
      auto pass = std::make_unique<Pass>(op, op.template score_modifier<Compute<T>, false>(),
                                         inputs.shared(), call.out, call.saved, call.rows);
      pass->reserve(threads);
      return pass;
    }
    const std::vector<Range> global = detail::global_rows(op, call.rows.count());
    const std::vector<Range> others = without({{0, call.rows.count()}}, global);
    const auto part = [&](GlobalRows which, const SoftmaxInputs<T>& in,
                          const std::vector<Range>& written) {
      return std::make_unique<Pass>(detail::LongformerPart(op, which),
                                    ScoreModifierArgs<Compute<T>>{}, in, call.out, call.saved,
                                    call.rows, written);
    };
    return std::make_unique<detail::LongformerPasses<Pass>>(
        part(GlobalRows::left_out, inputs.shared(), others),
        part(GlobalRows::alone, inputs.global(), global), threads);
  };
  return detail::run_call(
      call, op.options.alignment, detail::longformer_text(call), check,
      [&](const auto&... arguments) { op.forward(arguments...); }, prepare);
}

template <class T>
CommStats backward(const ShardedBackwardCall<LongformerAttention, T>& call) {
  using Pass = SoftmaxBackwardPass<T>;
  const LongformerAttention& op = call.op;
  const LongformerInputs<T>& inputs = call.inputs;
  const SoftmaxOutGrads<T>& d = call.d_out;
  const auto check = [&] {
    detail::check_longformer<T>(call, [&](const LongformerInputs<T>& own) {
      op.check_backward_tensors(own, call.out, call.saved, d.d_out, call.grads, call.rows.count());
      op.check_d_lse(own, d.d_lse, call.grads);
    });
  };
  const auto prepare = [&](const ExecutorRef& threads,
                           const detail::BroadcastLogits& one_row) -> std::unique_ptr<RankPass> {
    const auto pass = [&](const SoftmaxPatterns& of, const ScoreModifierArgs<T>& modifier,
                          const SoftmaxInputs<T>& in, const SoftmaxGrads<T>& grads) {
      return std::make_unique<Pass>(of, modifier, in, call.out, call.saved, d.d_out, grads,
                                    call.rows, one_row, d.d_lse);
    };
    if (!inputs.has_global()) {
      auto only =
          pass(op, op.template score_modifier<T, true>(), inputs.shared(), call.grads.shared());
      only->reserve(threads);
      return only;
    }
    return std::make_unique<detail::LongformerPasses<Pass>>(
        pass(detail::LongformerPart(op, GlobalRows::left_out), {}, inputs.shared(),
             call.grads.shared()),
        pass(detail::LongformerPart(op, GlobalRows::alone), {}, inputs.global(),
             call.grads.global()),
        threads);
  };
  return detail::run_backward_call(
      call, op.options.alignment,
      detail::longformer_text(call) + detail::grads_text<T>(d, call.grads.sink), check,
      [&](const auto&... arguments) { op.backward(arguments...); }, prepare);
}

FOVEA_RANKS_PASSES(FORWARD, LongformerAttention)
FOVEA_IN_SHORT_UNIT(FOVEA_RANKS_FORWARD, LongformerAttention)
FOVEA_RANKS_PASSES(BACKWARD, LongformerAttention)

}  // namespace distributed

FOVEA_NAMESPACE_END
