// SPDX-License-Identifier: MIT
/// \file
/// A modifier of logits without a derivative: forward passes compile, backward passes do not.
#include <fovea/attention/full.hpp>
#include <fovea/attention/modified.hpp>

struct Half {
  float value(float logit, fovea::ScorePair /*pair*/) const noexcept { return logit / 2; }
#ifdef WITH_DERIVATIVE
  float derivative(float /*logit*/, fovea::ScorePair /*pair*/) const noexcept { return 0.5f; }
#endif
};

void run(const fovea::View<const float>& x, const fovea::View<float>& y);
void run(const fovea::View<const float>& x, const fovea::View<float>& y) {
  const fovea::ModifiedAttention op(fovea::FullAttention{}, Half{});
  op.forward({x, x, x}, y, {.lse = y});
#ifdef BACKWARD
  op.backward({x, x, x}, x, {.lse = y}, x, {.q = y});
#endif
}
