// SPDX-License-Identifier: MIT
/// \file
/// Included by smart_bird.hpp, where it is documented.
#pragma once

#include <optional>

#include "fovea/attention/call/compiled.hpp"
#include "fovea/attention/indexed/backward.hpp"
#include "fovea/attention/smart_bird.hpp"
#include "fovea/attention/smart_bird/check.hpp"
#include "fovea/attention/smart_bird/rows.hpp"
#include "fovea/attention/smart_bird/selection.hpp"

FOVEA_NAMESPACE_BEGIN

namespace detail {

/// The cost of a pass in multiply-adds; most of it is the choice of keys.
template <class T>
double smart_bird_products(SamplingPolicy policy, const SmartBirdInputs<T>& inputs) {
  return selection_products(policy, inputs.sketch_q, inputs.k.rows(), inputs.q.heads());
}

}  // namespace detail

template <class T>
void SmartBirdAttention::check_select(const SketchInputs<T>& inputs,
                                      const View<Index>& indices) const {
  check_smart_bird_options<T>(name(), options);
  check_sketch(name(), options, inputs, indices.heads());
  check_output(
      name(), "indices", indices, inputs,
      {inputs.sketch_q.batch(), indices.heads(), inputs.sketch_q.rows(), options.keys_per_row});
}

template <class T>
void SmartBirdAttention::run_select(const SketchInputs<T>& inputs, const View<Index>& indices,
                                    const ExecutorRef& executor) const {
  auto&& threads = for_work(executor, [&] {
    return selection_products(options.policy, inputs.sketch_q, inputs.sketch_k.rows(),
                              indices.heads());
  });
  select_keys(options, inputs, indices, nullptr, threads);
}

template <class T>
IndexTensor SmartBirdAttention::select(const SketchInputs<T>& inputs, Index heads,
                                       const ExecutorRef& executor) const {
  check_smart_bird_options<T>(name(), options);
  check_sketch(name(), options, inputs, heads);
  IndexTensor indices(
      {inputs.sketch_q.batch(), heads, inputs.sketch_q.rows(), options.keys_per_row});
  select<T>(inputs, indices.view(), executor);
  return indices;
}

template <class T>
void SmartBirdAttention::check_read(const Inputs<T>& inputs) const {
  check_smart_bird_options<Compute<T>>(name(), options);
  check_smart_bird_inputs(name(), options, inputs);
}

template <class T>
void SmartBirdAttention::check_saved(const Inputs<T>& inputs, const Saved<T>& saved) const {
  if (!saved.indices.empty()) check_indices(name(), with_indices(inputs, saved.indices));
}

template <class T>
void SmartBirdAttention::run_backward(const Inputs<T>& inputs, const View<const T>& out,
                                      const Saved<T>& saved, const View<const T>& d_out,
                                      const Grads<T>& grads, const ExecutorRef& executor) const {
  auto&& threads =
      for_work(executor, [&] { return detail::smart_bird_products(options.policy, inputs); });
  std::optional<ChosenKeys> again;
  View<const Index> indices = saved.indices;
  if (saved.indices.empty()) {
    const Index places = options.places(inputs.k.rows());
    again.emplace(fovea::Shape{inputs.q.batch(), inputs.q.heads(), inputs.q.rows(), places},
                  View<Index>(), memory_of(threads));
    indices = again->indices();
  }
  const TensorLists lists(indices, inputs.k.rows(), {.scale = options.scale});
  IndexedBackward<T> pass(with_indices(inputs, indices), lists, out, {saved.lse}, d_out, grads);
  pass.reserve(threads);
  if (again) select_keys(options, detail::sketch_of(inputs), again->indices(), nullptr, threads);
  if (!threads.only_counts()) pass.compute(threads);
}

template <class T>
void SmartBirdAttention::run(const Inputs<T>& inputs, const View<T>& out, const Saved<T>& saved,
                             const ExecutorRef& executor) const {
  auto&& threads =
      for_work(executor, [&] { return detail::smart_bird_products(options.policy, inputs); });
  SmartBirdRows<T> rows(options, with_indices(inputs, {}), out, saved, memory_of(threads));
  rows.take_scratch(threads);
  select_keys(options, detail::sketch_of(inputs), rows.indices(), rows.is_number(), threads);
  if (!threads.only_counts()) rows.compute(threads);
}

FOVEA_COMPILED_FORWARD(SmartBirdAttention)
FOVEA_COMPILED_BACKWARD(SmartBirdAttention)

#define FOVEA_SMART_BIRD_MEMBERS(Op, T)                                                           \
  template void Op::check_select<T>(const SketchInputs<T>&, const View<Index>&) const;            \
  template void Op::run_select<T>(const SketchInputs<T>&, const View<Index>&, const ExecutorRef&) \
      const;                                                                                      \
  template IndexTensor Op::select<T>(const SketchInputs<T>&, Index, const ExecutorRef&) const;
FOVEA_IN_FLOAT_UNIT(FOVEA_SMART_BIRD_MEMBERS, SmartBirdAttention)
FOVEA_IN_DOUBLE_UNIT(FOVEA_SMART_BIRD_MEMBERS, SmartBirdAttention)

FOVEA_NAMESPACE_END
