// SPDX-License-Identifier: MIT
/// \file
/// Cases of operators that attend over lists of keys.
#pragma once

#include "attention/case.hpp"

namespace fovea_test {

/// A case whose calls make the lists, with the oracles of softmax attention over the pairs that the
/// reference mask shows. `op.options` has a scale and an alignment.
template <class T, class Op>
Case<T> list_case(const std::string& name, const Op& op, const ReferenceMask& reference_mask) {
  Case<T> made = make_case<T>(name, op, reference_mask);
  const fovea::SoftmaxOptions options{.scale = op.options.scale, .alignment = op.options.alignment};
  made.options = options;
  made.is_softmax = true;
  made.makes_lists = true;
  made.oracle = [options, reference_mask](const AllInputs<T>& in) {
    return softmax_oracle(in, OracleOperator<T>::of(options, reference_mask, in.q.width()));
  };
  made.grad_oracle = [options, reference_mask](const AllInputs<T>& in, const View<const T>& d_out) {
    return softmax_grad_oracle(in, OracleOperator<T>::of(options, reference_mask, in.q.width()),
                               d_out);
  };
  return made;
}

}  // namespace fovea_test
