// SPDX-License-Identifier: MIT
/// \file
/// Checks of the inputs of operators with a far field, other than q, k and v.
#pragma once

#include <cmath>
#include <string>

#include "fovea/attention/call/check.hpp"
#include "fovea/attention/call/sequences.hpp"
#include "fovea/attention/linear/terms.hpp"

FOVEA_NAMESPACE_BEGIN

/// Checks the rates of the delta rule: [B, Hk, Nk, 1], finite and at least 0 where a token is
/// visible. Cost: O(B Hk Nk).
/// \pre check_inputs and check_packing passed
/// \throws std::invalid_argument
template <class T>
void check_beta(const char* op, const LinearFamilyInputs<T>& inputs) {
  const Shape expected = {inputs.k.batch(), inputs.k.heads(), inputs.k.rows(), 1};
  if (inputs.beta.empty()) {
    if (expected[0] * expected[1] * expected[2] == 0) return;
    refuse_missing(op, "beta", to_string(expected) + ", one rate for each token and key head");
  }
  for (std::size_t d = 0; d < 4; ++d) {
    detail::check_extent(op, "beta", inputs.beta.shape(), d, expected[d],
                         d == 3 ? "one rate for a token" : "as in k");
  }
  const Sequences<T> sequences(inputs);
  for (Index s = 0; s < sequences.count(); ++s) {
    const Sequence at = sequences[s];
    for (Index h = 0; h < expected[1]; ++h) {
      for (Index n = at.first_key; n < at.first_key + at.key_end; ++n) {
        const auto beta = inputs.beta(at.batch, h, n, 0);
        if (beta >= 0 && std::isfinite(beta)) continue;
        refuse(op,
               "beta[" + std::to_string(at.batch) + ", " + std::to_string(h) + ", " +
                   std::to_string(n) + "]",
               to_string(beta), "a finite number of at least 0");
      }
    }
  }
}

/// Checks the inputs common to all operators with a far field.
/// \param op the operator's LinearSettings or FmmSettings
/// \pre its options are checked
/// \throws std::invalid_argument
template <class Settings, class T>
void check_far_inputs(const Settings& op, const LinearFamilyInputs<T>& inputs) {
  check_inputs(op.name, inputs);
  check_packing(op.name, inputs);
  check_first_positions(op.name, inputs);
  check_alignment(op.name, inputs, op.far_field.alignment,
                  [&] { return op.far_field.causal || Settings::kHasNear; });
  if constexpr (Settings::Far::kHasDelta) check_beta(op.name, inputs);
}

/// Checks the logits of a blend: [1, Hq or 1, 1, Dv or 1], none of them NaN. Cost: O(Hq Dv).
/// \pre check_inputs passed
/// \throws std::invalid_argument
template <class T>
void check_blend_logits(const char* op, const char* tensor, const View<const Compute<T>>& x,
                        const LinearFamilyInputs<T>& inputs) {
  if (x.empty()) return;
  const Shape most = {1, inputs.q.heads(), 1, inputs.v.width()};
  const char* const whose[] = {"since all sequences share it", "the heads of q",
                               "since all rows share it", "the width of v"};
  for (std::size_t d = 0; d < 4; ++d) {
    if (x.shape()[d] == 1 || x.shape()[d] == most[d]) continue;
    refuse_extent(op, tensor, x.shape(), d,
                  (most[d] == 1 ? "1, " : "1 or " + std::to_string(most[d]) + ", ") + whose[d]);
  }
  for (Index h = 0; h < x.heads(); ++h) {
    for (Index c = 0; c < x.width(); ++c) {
      if (!std::isnan(x(0, h, 0, c))) continue;
      refuse(op, std::string(tensor) + "[" + std::to_string(h) + ", " + std::to_string(c) + "]",
             "nan", "a number");
    }
  }
}

FOVEA_NAMESPACE_END
