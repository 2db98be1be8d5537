// SPDX-License-Identifier: MIT
// Models of full, local and Smart Bird attention.
#include <fovea/attention/full.hpp>
#include <fovea/attention/local.hpp>
#include <fovea/attention/smart_bird.hpp>

#include "byte_model.hpp"

namespace models {

std::unique_ptr<ByteLearner> make_softmax_learner(const ByteSettings& settings,
                                                  const fovea::TensorSet* checkpoint) {
  const Index root = root_of(settings.length);
  if (settings.op == "full") {
    return learner_of(fovea::FullAttention{{.causal = true}}, settings, checkpoint);
  }
  if (settings.op == "local") {
    return learner_of(fovea::LocalAttention{{.left = 2 * root - 1}}, settings, checkpoint);
  }
  if (settings.op == "smart_bird") {
    // Its sketch has no gradient and stays as it was drawn: a random projection.
    return learner_of(
        fovea::SmartBirdAttention{
            {.keys_per_row = 2 * root, .seed = settings.seed, .causal = true}},
        settings, checkpoint);
  }
  return nullptr;
}

}  // namespace models
