// SPDX-License-Identifier: MIT
/// \file
/// Included by longformer.hpp, where it is documented.
#pragma once

#include <string>

#include "fovea/attention/call/check.hpp"
#include "fovea/attention/call/compiled.hpp"
#include "fovea/attention/longformer.hpp"
#include "fovea/attention/softmax/backward.hpp"
#include "fovea/attention/softmax/forward.hpp"
#include "fovea/attention/softmax/head_plans.hpp"

FOVEA_NAMESPACE_BEGIN

namespace detail {

/// Makes the rows of global positions read their separate projections.
template <class T>
struct GlobalRowProjections {
  const SoftmaxCall<T>& global;  // the call with their projections
  const GlobalTokens& tokens;
  View<T> out;

  template <class Args>
  void operator()(Index /*pass*/, const SequenceTask& task, Args& args) const {
    // A block has rows of one kind.
    if (!tokens.is_global(args.block.first + args.first_position)) return;
    const Args own = global.args(global.sequences()[task.sequence], task.head, out, {});
    args.q = own.q;
    args.k = own.k;
    args.v = own.v;
  }
};

}  // namespace detail

template <class T>
void LongformerAttention::check(const InputsOf<LongformerAttention, T>& inputs, const View<T>& out,
                                const SavedOf<LongformerAttention, T>& saved) const {
  check_tensors(inputs, out, saved);
  Base::check_sequences(inputs.shared());
}

template <class T>
void LongformerAttention::check_tensors(const LongformerInputs<T>& inputs, const View<T>& out,
                                        const SoftmaxSaved<T>& saved,
                                        const std::optional<Index>& sequence) const {
  Base::check_tensors(inputs.shared(), out, saved, sequence);
  check_global_tensors(inputs);
  check_outputs(name(), inputs, out, saved);
}

template <class T>
void LongformerAttention::check_backward(const InputsOf<LongformerAttention, T>& inputs,
                                         const View<const T>& out,
                                         const SavedOf<LongformerAttention, T>& saved,
                                         const View<const T>& d_out,
                                         const GradsOf<LongformerAttention, T>& grads) const {
  check_backward_tensors(inputs, out, saved, d_out, grads);
  Base::check_sequences(inputs.shared());
}

template <class T>
void LongformerAttention::check_backward_tensors(const Inputs<T>& inputs, const View<const T>& out,
                                                 const SavedOf<LongformerAttention, T>& saved,
                                                 const View<const T>& d_out, const Grads<T>& grads,
                                                 const std::optional<Index>& sequence) const {
  Base::check_backward_tensors(inputs.shared(), out, saved, d_out, grads.shared(), sequence);
  check_global_tensors(inputs);
  check_grads(name(), inputs, out, saved, d_out, grads);
  if (!inputs.has_global()) return;
  const auto refuse_gradient = [](const char* of) {
    refuse_given(name(), std::string("the gradient of ") + of, "it is not defined with global_q");
  };
  if (!grads.bias.empty()) refuse_gradient("bias");
  if (!grads.sink.empty()) refuse_gradient("sink");
}

template <class T>
void LongformerAttention::check_d_lse(const Inputs<T>& inputs, const View<const T>& d_lse,
                                      const Grads<T>& grads) {
  fovea::check_d_lse(name(), inputs, d_lse, grads);
}

template <class T>
void LongformerAttention::check_global_tensors(const Inputs<T>& in) {
  if (!in.has_global()) return;
  const auto check = [](const char* tensor, const View<const T>& x, const fovea::Shape& shape,
                        const char* whose) {
    if (x.empty() && shape != fovea::Shape{}) {
      refuse_missing(name(), tensor, "global_q, global_k and global_v belong together");
    }
    detail::check_extents(name(), tensor, x.shape(), shape, whose);
  };
  check("global_q", in.global_q, in.q.shape(), "the shape of q");
  check("global_k", in.global_k, in.k.shape(), "the shape of k");
  check("global_v", in.global_v, in.v.shape(), "the shape of v");
}

template <class T>
void LongformerAttention::run(const Inputs<T>& inputs, const View<T>& out, const Saved<T>& saved,
                              const ExecutorRef& executor) const {
  if (!inputs.has_global()) return Base::template run<T>(inputs.shared(), out, saved, executor);
  const SoftmaxCall<T> call(inputs.shared(), softmax_options());
  const SoftmaxCall<T> global(inputs.global(), softmax_options());
  const HeadPlans plans(*this, call);
  const AttentionShape shape = call.shape();
  auto&& threads =
      for_work(executor, [&] { return plans.products(call, shape.width + shape.value_width); });
  const GlobalTokens tokens = this->tokens();
  SoftmaxForward(call, plans, out, saved, detail::GlobalRowProjections<T>{global, tokens, out})
      .run(threads);
}

template <class T>
void LongformerAttention::run_backward(const Inputs<T>& inputs, const View<const T>& out,
                                       const Saved<T>& saved, const View<const T>& d_out,
                                       const Grads<T>& grads, const ExecutorRef& executor,
                                       const View<const T>& d_lse) const {
  if (!inputs.has_global()) {
    return Base::template run_backward<T>(inputs.shared(), out, saved, d_out, grads.shared(),
                                          executor, d_lse);
  }
  const SoftmaxCall<T> call(inputs.shared(), softmax_options());
  const SoftmaxCall<T> global(inputs.global(), softmax_options());
  const HeadPlans plans(rows_alone(GlobalRows::left_out), call);
  const HeadPlans global_plans(rows_alone(GlobalRows::alone), global);
  const AttentionShape shape = call.shape();
  auto&& threads = for_work(executor, [&] {
    const Index of_pair = 3 * shape.width + 2 * shape.value_width;
    return plans.products(call, of_pair) + global_plans.products(global, of_pair);
  });
  SoftmaxBackward first(call, plans, out, saved, d_out, grads.shared(), d_lse);
  SoftmaxBackward second(global, global_plans, out, saved, d_out, grads.global(), d_lse);
  first.reserve(threads);
  second.reserve(threads);
  memory_of(threads).require();
  if (threads.only_counts()) return;
  first.compute(threads);
  second.compute(threads);
}

// The checks for a part of the rows are for distributed ranks; run_backward also takes d_lse.
#define FOVEA_LONGFORMER_FORWARD(Op, T)                                                          \
  template void Op::check<T>(const LongformerInputs<T>&, const View<T>&, const SoftmaxSaved<T>&) \
      const;                                                                                     \
  template void Op::check_tensors<T>(const LongformerInputs<T>&, const View<T>&,                 \
                                     const SoftmaxSaved<T>&, const std::optional<Index>&) const; \
  template void Op::run<T>(const LongformerInputs<T>&, const View<T>&, const SoftmaxSaved<T>&,   \
                           const ExecutorRef&) const;
#define FOVEA_LONGFORMER_BACKWARD(Op, T)                                                   \
  template void Op::check_backward<T>(const LongformerInputs<T>&, const View<const T>&,    \
                                      const SoftmaxSaved<T>&, const View<const T>&,        \
                                      const LongformerGrads<T>&) const;                    \
  template void Op::check_backward_tensors<T>(                                             \
      const LongformerInputs<T>&, const View<const T>&, const SoftmaxSaved<T>&,            \
      const View<const T>&, const LongformerGrads<T>&, const std::optional<Index>&) const; \
  template void Op::check_d_lse<T>(const LongformerInputs<T>&, const View<const T>&,       \
                                   const LongformerGrads<T>&);                             \
  template void Op::run_backward<T>(const LongformerInputs<T>&, const View<const T>&,      \
                                    const SoftmaxSaved<T>&, const View<const T>&,          \
                                    const LongformerGrads<T>&, const ExecutorRef&,         \
                                    const View<const T>&) const;

FOVEA_IN_FLOAT_UNIT(FOVEA_LONGFORMER_FORWARD, LongformerAttention)
FOVEA_IN_DOUBLE_UNIT(FOVEA_LONGFORMER_FORWARD, LongformerAttention)
FOVEA_IN_SHORT_UNIT(FOVEA_LONGFORMER_FORWARD, LongformerAttention)
FOVEA_IN_FLOAT_UNIT(FOVEA_LONGFORMER_BACKWARD, LongformerAttention)
FOVEA_IN_DOUBLE_UNIT(FOVEA_LONGFORMER_BACKWARD, LongformerAttention)

FOVEA_NAMESPACE_END
