// SPDX-License-Identifier: MIT
/// \file
/// Compiled several times, each time with other flags and another FOVEA_UNIT.
#include "unit.hpp"

#include <fovea/attention.hpp>
#include <fovea/core/thread_pool.hpp>

int FOVEA_UNIT(int level, const float* q, const float* k, const float* v, float* full,
               float* band) {
  using namespace fovea;
  const Shape shape = {1, mixed::kHeads, mixed::kRows, mixed::kWidth};
  const SoftmaxInputs<float> inputs{View<const float>(q, shape), View<const float>(k, shape),
                                    View<const float>(v, shape)};
  cap_isa_level(static_cast<IsaLevel>(level));
  ThreadPool pool(2);
  FullAttention{{.causal = true}}.forward(inputs, View<float>(full, shape), pool);
  LocalAttention{{.left = 5, .right = 2}}.forward(inputs, View<float>(band, shape), pool);
  return static_cast<int>(isa_level());
}
