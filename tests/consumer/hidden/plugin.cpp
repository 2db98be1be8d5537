// SPDX-License-Identifier: MIT
/// \file
/// A plugin that is built with hidden visibility, exports one function, and links the kernels.
#include <fovea/attention.hpp>

/// Causal attention of one head [n, d].
extern "C" __attribute__((visibility("default"))) void plugin_attend(const float* q, const float* k,
                                                                     const float* v, float* out,
                                                                     fovea::Index n,
                                                                     fovea::Index d) {
  const fovea::Shape shape = {1, 1, n, d};
  const auto view = [&](const float* x) { return fovea::View<const float>(x, shape); };
  fovea::FullAttention{{.causal = true}}.forward(
      fovea::SoftmaxInputs<float>{view(q), view(k), view(v)}, fovea::View<float>(out, shape));
}
