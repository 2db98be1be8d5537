// SPDX-License-Identifier: MIT
/// \file
/// The far field of a distributed forward pass: a scan if causal, otherwise totals.
#pragma once

#include <memory>

#include "fovea/attention/linear/stream.hpp"
#include "fovea/distributed/linear/causal_scan.hpp"
#include "fovea/distributed/linear/far_field_totals.hpp"

FOVEA_NAMESPACE_BEGIN

namespace distributed {

/// Creates the far field of one forward pass, with all memory allocated. \tparam Field a
/// LinearTerms of T
/// \param inputs of this rank's rows, checked   \param weights must outlive the pass, and so must
/// the inputs
/// \param has_near whether to add to `out` instead of writing it
/// \throws std::bad_alloc, and std::runtime_error if MPI fails
template <class T, class Field>
std::unique_ptr<RankPass> far_field_pass(const LinearFamilyInputs<T>& inputs,
                                         const Field& far_field, const FarWeights<T>& weights,
                                         bool has_near, const View<T>& out, const Sharding& rows,
                                         const ExecutorRef& executor) {
  using Stream = CausalStream<T, Field>;
  if constexpr (!Field::kHasDelta) {  // the delta rule is causal
    if (!far_field.causal) {
      return std::make_unique<FarFieldTotals<T, Field>>(inputs, far_field, weights, has_near, out,
                                                        rows, executor);
    }
  }
  const LinearShape sizes = far_field.linear_shape(shape_of(inputs));
  const Index group = fovea::detail::group_size(inputs.q.heads(), inputs.k.heads());
  const Index sums = Stream::state_elements(sizes);
  return causal_scan<T>(
      Stream(inputs, group, far_field, weights, has_near, out),
      [sums](T* state, T* scratch, LinearRows<T>* of_group) ->
      typename Stream::Memory { return {state, state + sums, nullptr, 0, scratch, of_group}; },
      {inputs.q.batch(), inputs.k.heads(), group, sums + Stream::delta_elements(sizes),
       Stream::scratch_elements(sizes)},
      inputs.key_lengths, rows, executor);
}

}  // namespace distributed

FOVEA_NAMESPACE_END
