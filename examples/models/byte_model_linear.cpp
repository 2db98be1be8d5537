// SPDX-License-Identifier: MIT
// Models of linear attention, the delta rule, and FMM attention.
#include <fovea/attention/delta_rule.hpp>
#include <fovea/attention/fmm.hpp>
#include <fovea/attention/linear.hpp>

#include "byte_model.hpp"

namespace models {

std::unique_ptr<ByteLearner> make_linear_learner(const ByteSettings& settings,
                                                 const fovea::TensorSet* checkpoint) {
  if (settings.op == "linear") {
    return learner_of(fovea::LinearAttention<fovea::EluPlusOne>{{.causal = true}}, settings,
                      checkpoint);
  }
  if (settings.op == "delta") {
    return learner_of(fovea::DeltaRuleAttention<fovea::EluPlusOne>{}, settings, checkpoint);
  }
  if (settings.op == "fmm") {
    return learner_of(
        fovea::FmmAttention<fovea::EluPlusOne, fovea::DeltaRule<fovea::EluPlusOne>>{
            {.band = {.left = 2 * root_of(settings.length) - 1}}},
        settings, checkpoint);
  }
  return nullptr;
}

}  // namespace models
