// SPDX-License-Identifier: MIT
/// \file
/// The program by which compile times and code sizes are judged: one forward pass of floats.
#include <fovea/attention/full.hpp>
#include <fovea/core/eigen.hpp>

using Tensor = Eigen::Tensor<float, 4, Eigen::RowMajor>;

void forward(const Tensor& q, const Tensor& k, const Tensor& v, Tensor& out);
void forward(const Tensor& q, const Tensor& k, const Tensor& v, Tensor& out) {
  fovea::FullAttention{}.forward({.q = q, .k = k, .v = v}, out);
}
