// SPDX-License-Identifier: MIT
/// \file
/// One head as Eigen matrices: rows are tokens. Blocks of a larger matrix are used in place.
#include <cstdio>
#include <fovea/fovea.hpp>

int main() {
  using Matrix = Eigen::Matrix<double, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
  const Eigen::Index n = 200, d = 16;
  // Queries, keys and values side by side, as one projection leaves them.
  const Matrix qkv = Matrix::Random(n, 3 * d);  // [N, 3 D]
  const auto q = qkv.leftCols(d), k = qkv.middleCols(d, d), v = qkv.rightCols(d);

  const auto out = fovea::attend(fovea::FullAttention{}, q, k, v);  // a matrix [N, D]

  // The same in plain Eigen, with an N x N matrix in memory.
  Matrix weights = (q * k.transpose() / std::sqrt(double(d))).array().exp();
  weights.array().colwise() /= weights.rowwise().sum().array().eval();
  const double difference = (out - weights * v).cwiseAbs().maxCoeff();
  std::printf("%td x %td, agrees with plain Eigen: %s\n", out.rows(), out.cols(),
              difference < 1e-13 ? "yes" : "no");
  return difference < 1e-13 ? 0 : 1;
}
