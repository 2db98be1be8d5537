// SPDX-License-Identifier: MIT
/// \file
/// Calls of `attend` and of an operator's constructor, each wrong in one way or, without the macro
/// that makes it so, right.
#include <fovea/attention.hpp>
#include <fovea/core/eigen.hpp>
#include <fovea/core/thread_pool.hpp>

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

/// An executor for a sequence with rows on other ranks.
struct Elsewhere : fovea::Serial {
  static constexpr bool kShardsRows = true;
};

int main() {
#if defined(ONE_BRACE)
  const fovea::FullAttention op{.causal = true};
#elif defined(OTHER_OPTION)
  const fovea::FullAttention op{{.causl = true}};
#else
  const fovea::FullAttention op{{.causal = true}};
#endif
#if defined(NO_VALUES)
  const auto out = attend(op, q, k);
#elif defined(NO_OPERATOR)
  const auto out = fovea::attend(q, k, v);
#elif defined(NO_EXECUTOR)
  const auto out = attend(op, q, k, v, 4);
#elif defined(SPREAD_ROWS_ATTEND)
  const auto out = attend(op, q, k, v, Elsewhere());
#elif defined(SPREAD_ROWS_ATTEND_INPUTS)
  const auto out = attend(op, {.q = q, .k = k, .v = v}, Elsewhere());
#elif defined(SPREAD_ROWS_FORWARD)
  fovea::Tensor4<float> out;
  op.forward({q, k, v}, out, Elsewhere());
#elif defined(SPREAD_ROWS_BACKWARD)
  fovea::Tensor4<float> out, d_q;
  op.backward({q, k, v}, out, {}, out, {.q = d_q}, Elsewhere());
#elif defined(SPREAD_ROWS_STEP)
  fovea::Tensor4<float> out;
  op.decoder<float>({}).step({.q = q}, out, Elsewhere());
#elif defined(SHORT_SINKHORN)
  fovea::Tensor4<Eigen::half> out;
  fovea::SinkhornAttention().forward(fovea::SinkhornInputs<Eigen::half>{}, out);
#elif defined(SHORT_REFORMER)
  fovea::Tensor4<Eigen::half> out;
  fovea::ReformerAttention().forward(fovea::ReformerInputs<Eigen::half>{}, out);
#elif defined(DISCARDED)
  attend(op, q, k, v);
  op.workspace_bytes<float>({});
  op.decoder<float>({}).fork();
  fovea::SmartBirdAttention().select({q, k}, 1);
#elif defined(OTHER_FAMILY)
  fovea::Tensor4<float> out;
  op.forward(fovea::SmartBirdInputs<float>{q, k, v}, out);
#elif defined(OTHER_FAMILY_TO_ATTEND)
  const auto out = attend(op, fovea::LinearInputs<float>{q, k, v});
#elif defined(OTHER_MEMBER)
  fovea::Tensor4<float> out;
  op.forward({.q = q, .k = k, .v = v, .beta = k}, out);
#elif defined(OTHER_GRADIENT)
  const fovea::Tensor4<float> out;
  fovea::Tensor4<float> d_beta;
  op.backward({q, k, v}, out, {}, out, {.beta = d_beta});
#elif defined(OTHER_SIZE)
  return static_cast<int>(op.workspace_bytes<float>({.queries = 4, .keys_per_row = 2}));
#elif defined(OTHER_TOKENS)
  op.decoder<float>({}).append({.k = k, .v = v, .beta = k});
#elif defined(INT_TENSOR) || defined(EXPRESSION) || defined(OTHER_SCALAR)
  const auto out = attend(op, q, k, v);
#else
  const auto out = attend(op, q, k, v);
  const fovea::ThreadPool pool;
  const auto biased = attend(op, {.q = q, .k = k, .v = v, .bias = k}, pool);
  const auto named = attend(op, fovea::SoftmaxInputs<float>{.q = q, .k = k, .v = v});
  const fovea::Tensor4<double> x;
  const auto wide = attend(op, fovea::SoftmaxInputs<double>{.q = x, .k = x, .v = x}, pool);
  fovea::Tensor4<float> to, d_bias;
  op.forward({q, k, v}, to);
  op.forward({.q = q, .k = k, .v = v, .bias = k}, to, {.lse = to}, pool);
  op.backward({.q = q, .k = k, .v = v, .bias = k}, to, {.lse = to}, to, {.bias = d_bias});
#endif
}
