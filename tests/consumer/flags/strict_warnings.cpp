// SPDX-License-Identifier: MIT
/// \file
/// Everything instantiated, for both scalars.
#include <fovea/fovea.hpp>

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
