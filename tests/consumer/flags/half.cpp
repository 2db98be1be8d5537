// SPDX-License-Identifier: MIT
/// \file
/// Tensors of 16 bits with no header of the library but the operators'.
#include <Eigen/Core>
#include <fovea/attention.hpp>

void attend_16_bits(const Eigen::half* q, Eigen::half* out, const Eigen::bfloat16* b,
                    Eigen::bfloat16* b_out) {
  const fovea::Shape shape = {1, 1, 2, 3};
  const fovea::View<const Eigen::half> x(q, shape);
  const fovea::View<const Eigen::bfloat16> y(b, shape);
  const fovea::FullAttention op;
  op.forward({x, x, x}, fovea::View<Eigen::half>(out, shape));
  op.forward({y, y, y}, fovea::View<Eigen::bfloat16>(b_out, shape));
}
