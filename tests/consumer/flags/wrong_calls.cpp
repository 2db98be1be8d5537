// SPDX-License-Identifier: MIT
/// \file
/// Calls of `attend` and of an operator's constructor, each wrong in one way or, without the macro
/// that makes it so, right.
#include <fovea/attention.hpp>
#include <fovea/core/eigen.hpp>

namespace {

#if defined(INT_TENSOR)
Eigen::Tensor<int, 4> q;
#elif defined(EXPRESSION)
const Eigen::Tensor<float, 4> x;
const auto q = x + x;
#else
const fovea::View<const float> q;
#endif
const fovea::Tensor4<float> k;
#if defined(OTHER_SCALAR)
const fovea::Tensor4<double> v;
#else
const fovea::Tensor4<float> v;
#endif

}  // namespace

int main() {
#if defined(ONE_BRACE)
  const fovea::FullAttention op{.causal = true};
#else
  const fovea::FullAttention op{{.causal = true}};
#endif
#if defined(NO_VALUES)
  const auto out = attend(op, q, k);
#elif defined(NO_OPERATOR)
  const auto out = fovea::attend(q, k, v);
#elif defined(NO_EXECUTOR)
  const auto out = attend(op, q, k, v, 4);
#elif defined(DISCARDED)
  attend(op, q, k, v);
  op.workspace_bytes<float>({});
  op.decoder<float>({}).fork();
  fovea::SmartBirdAttention().select(fovea::Inputs<float>{q}, 1);
#else
  const auto out = attend(op, q, k, v);
#endif
}
