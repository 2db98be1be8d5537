// SPDX-License-Identifier: MIT
// Models of strided, fixed and BigBird attention.
#include <fovea/attention/big_bird.hpp>
#include <fovea/attention/fixed.hpp>
#include <fovea/attention/strided.hpp>

#include "byte_model.hpp"

namespace models {

std::unique_ptr<ByteLearner> make_sparse_learner(const ByteSettings& settings,
                                                 const fovea::TensorSet* checkpoint) {
  const Index root = root_of(settings.length);
  if (settings.op == "strided") {
    return learner_of(fovea::StridedAttention{{.stride = root}}, settings, checkpoint);
  }
  if (settings.op == "fixed") {
    return learner_of(fovea::FixedAttention{{.stride = root, .summary = root / 4}}, settings,
                      checkpoint);
  }
  if (settings.op == "bigbird") {
    return learner_of(fovea::BigBirdAttention{{.block = root / 2,
                                               .window_blocks = 2,
                                               .global_blocks = 1,
                                               .random_blocks = 1,
                                               .seed = settings.seed,
                                               .causal = true}},
                      settings, checkpoint);
  }
  return nullptr;
}

}  // namespace models
