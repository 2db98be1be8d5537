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
  made.options = {.scale = op.options.scale, .alignment = op.options.alignment};
  made.is_softmax = true;
  made.makes_lists = true;
  made.take_softmax_oracles(made.options);
  return made;
}

}  // namespace fovea_test
