// SPDX-License-Identifier: MIT
/// \file
/// Every umbrella header twice, the second time in the other order, between Eigen with its thread
/// pool and Eigen's other modules; then calls for both scalars.
#define EIGEN_USE_THREADS
#include <unsupported/Eigen/CXX11/Tensor>
//
#include <fovea/attention.hpp>
#include <fovea/core.hpp>
#include <fovea/core/eigen.hpp>
#include <fovea/fovea.hpp>
#include <fovea/kernels.hpp>
#include <fovea/patterns.hpp>
#include <fovea/simd.hpp>
//
#include <fovea/simd.hpp>
//
#include <fovea/patterns.hpp>
//
#include <fovea/kernels.hpp>
//
#include <fovea/fovea.hpp>
//
#include <fovea/core/eigen.hpp>
//
#include <fovea/core.hpp>
//
#include <fovea/attention.hpp>
//
#include <Eigen/Dense>

template <class T>
void attend_with_everything() {
  fovea::Tensor4<T> q, k, v;
  Eigen::Matrix<T, Eigen::Dynamic, Eigen::Dynamic> matrix;
  fovea::ThreadPool pool(1);
  static_cast<void>(fovea::attend(fovea::FullAttention{}, q, k, v, pool));
  static_cast<void>(fovea::attend(fovea::LocalAttention{}, matrix, matrix, matrix));
}

int main() {
  attend_with_everything<float>();
  attend_with_everything<double>();
}
