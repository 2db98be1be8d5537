// SPDX-License-Identifier: MIT
/// \file
/// Cases of Performer attention, with an oracle written from MATHS.md, section 7.
#pragma once

#include <string>

#include "attention/linear_case.hpp"
#include "support/oracle/performer.hpp"

namespace fovea_test {

/// \param features R, of the projection that each problem gets
template <class T>
Case<T> performer_case(const std::string& name, const fovea::PerformerOptions& options,
                       Index features = kBeyond) {
  const ReferenceMask reference_mask = linear_mask(options.causal, options.alignment);
  const fovea::PerformerAttention op(options);
  Case<T> made = make_case<T>(name, op, reference_mask, features);
  made.extras.features = features;
  made.has_decoder = made.has_decoder && options.causal;
  made.oracle = [reference_mask](const AllInputs<T>& in) {
    return Expected<T>{performer_oracle(in, reference_mask), {}};
  };
  made.grad_oracle = [reference_mask](const AllInputs<T>& in, const View<const T>& d_out) {
    return performer_grad_oracle(in, reference_mask, d_out);
  };
  return made;
}

}  // namespace fovea_test
