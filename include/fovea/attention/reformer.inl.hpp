// SPDX-License-Identifier: MIT
/// \file
/// Included by reformer.hpp, where it is documented.
#pragma once

#include <optional>

#include "fovea/attention/call/compiled.hpp"
#include "fovea/attention/reformer.hpp"
#include "fovea/attention/reformer/check.hpp"
#include "fovea/attention/reformer/passes.hpp"

FOVEA_NAMESPACE_BEGIN

template <class T>
void ReformerAttention::check_read(const ReformerInputs<T>& inputs) const {
  check_reformer_inputs(name(), options, inputs);
}

template <class T>
void ReformerAttention::check_buckets(const ReformerInputs<T>& inputs,
                                      const View<Index>& buckets) const {
  check_reformer_inputs(name(), options, inputs);
  check_output(name(), "buckets", buckets, inputs,
               {inputs.qk.batch(), inputs.qk.heads(), options.rounds, inputs.qk.rows()});
}

template <class T>
void ReformerAttention::write_buckets(const ReformerInputs<T>& inputs, const View<Index>& buckets,
                                      const ExecutorRef& executor) const {
  SortedRows<T> sorted(options, inputs);
  sorted.take_memory(executor);
  sorted.sort(executor);
  for (Index s = 0; s < sorted.sequences(); ++s) {
    for (Index r = 0; r < options.rounds; ++r) {
      for (Index n = 0; n < inputs.qk.rows(); ++n) {
        buckets(s / inputs.qk.heads(), s % inputs.qk.heads(), r, n) =
            n < sorted.length(s) ? Index{sorted.buckets(s, r)[n]} : Index{kNoBucket};
      }
    }
  }
}

template <class T>
void ReformerAttention::run(const Inputs<T>& inputs, const View<T>& out, const Saved<T>& saved,
                            const ExecutorRef& executor) const {
  const ReformerShape shape = shape_of(inputs);
  auto&& threads =
      for_work(executor, [&] { return products(shape, shape.width + shape.value_width); });
  SortedRows<T> sorted(options, inputs);
  ReformerForward<T> pass(options, inputs, sorted, out, saved);
  sorted.take_memory(threads);
  pass.take_memory(threads);
  if (threads.only_counts()) return;
  sorted.sort(threads);
  pass.compute(threads);
}

template <class T>
void ReformerAttention::run_backward(const Inputs<T>& inputs, const View<const T>& out,
                                     const Saved<T>& saved, const View<const T>& d_out,
                                     const Grads<T>& grads, const ExecutorRef& executor) const {
  const ReformerShape shape = shape_of(inputs);
  auto&& threads =
      for_work(executor, [&] { return products(shape, 3 * shape.width + 2 * shape.value_width); });
  SortedRows<T> sorted(options, inputs);
  sorted.take_memory(threads);
  View<T> round_lse = saved.round_lse;
  Workspace again;
  std::optional<ReformerForward<T>> rounds;
  if (round_lse.empty()) {
    const fovea::Shape numbers = detail::row_shape(inputs, options.rounds);
    again = memory_of(threads).take(numbers[0] * numbers[1] * numbers[2] * numbers[3],
                                    Index{sizeof(T)});
    round_lse = View<T>(again.data<T>(), numbers);
    rounds.emplace(options, inputs, sorted, View<T>(), ReformerSaved<T>{{}, round_lse});
    rounds->take_memory(threads);
  }
  ReformerBackward<T> pass(options, inputs, sorted, out, d_out, grads);
  pass.take_memory(threads);
  if (threads.only_counts()) return;
  sorted.sort(threads);
  if (rounds) rounds->compute(threads);
  pass.compute(View<const T>(round_lse), threads);
}

#define FOVEA_REFORMER_BUCKETS(Op, T)                                                     \
  template void Op::check_buckets<T>(const ReformerInputs<T>&, const View<Index>&) const; \
  template void Op::write_buckets<T>(const ReformerInputs<T>&, const View<Index>&,        \
                                     const ExecutorRef&) const;

FOVEA_COMPILED_FLOAT_AND_DOUBLE_FORWARD(ReformerAttention)
FOVEA_COMPILED_BACKWARD(ReformerAttention)
FOVEA_IN_FLOAT_UNIT(FOVEA_REFORMER_BUCKETS, ReformerAttention)
FOVEA_IN_DOUBLE_UNIT(FOVEA_REFORMER_BUCKETS, ReformerAttention)

FOVEA_NAMESPACE_END
