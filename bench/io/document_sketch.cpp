// SPDX-License-Identifier: MIT
#include "bench/io/document_sketch.hpp"

#include <Eigen/Eigenvalues>
#include <algorithm>
#include <cmath>
#include <utility>

namespace bench {

namespace {

using RowMatrix = Eigen::Matrix<double, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;

/// [N, groups D]: heads side by side, those of a group added up.
template <class T>
Eigen::MatrixXd side_by_side(const View<const T>& x, Index groups) {
  Eigen::MatrixXd all = Eigen::MatrixXd::Zero(x.rows(), groups * x.width());
  for (Index h = 0; h < x.heads(); ++h) {
    const Index first = h / (x.heads() / groups) * x.width();
    for (Index c = 0; c < x.width(); ++c) {
      for (Index n = 0; n < x.rows(); ++n) all(n, first + c) += static_cast<double>(x(0, h, n, c));
    }
  }
  return all;
}

/// x^T x.
Eigen::MatrixXd gram(const Eigen::MatrixXd& x) {
  Eigen::MatrixXd products = Eigen::MatrixXd::Zero(x.cols(), x.cols());
  products.selfadjointView<Eigen::Lower>().rankUpdate(x.transpose());
  return products.selfadjointView<Eigen::Lower>();
}

/// Queries and keys of the sketch, [N, width].
/// \param q, all_keys heads side by side   \param scale of the logits' mean
std::pair<RowMatrix, RowMatrix> sketch_rows(const Eigen::MatrixXd& q,
                                            const Eigen::MatrixXd& all_keys, Index width,
                                            double scale) {
  const Eigen::RowVectorXd mean = all_keys.colwise().mean();
  const Eigen::MatrixXd k = all_keys.rowwise() - mean;
  const Eigen::SelfAdjointEigenSolver<Eigen::MatrixXd> keys(gram(k));
  const Index columns = k.cols();
  // What queries and keys are multiplied by.
  Eigen::MatrixXd of_q = Eigen::MatrixXd::Zero(columns, width);
  Eigen::MatrixXd of_k = of_q;
  const double least = 1e-12 * std::max(keys.eigenvalues()(columns - 1), 0.0);
  Index kept = 0;  // eigenvalues ascend; the first ones may be roundings of 0
  while (kept < columns && keys.eigenvalues()(columns - 1 - kept) > least) ++kept;
  if (kept == 0) return {Eigen::MatrixXd(q * of_q), Eigen::MatrixXd(k * of_k)};
  const Eigen::MatrixXd v = keys.eigenvectors().rightCols(kept);
  const Eigen::VectorXd root = keys.eigenvalues().tail(kept).cwiseSqrt();
  const Eigen::MatrixXd a = v * root.asDiagonal();  // [Hk D, kept]
  const Eigen::SelfAdjointEigenSolver<Eigen::MatrixXd> best(
      Eigen::MatrixXd(a.transpose() * gram(q) * a));
  for (Index n = 0; n < std::min(width, kept); ++n) {
    const auto w = best.eigenvectors().col(kept - 1 - n);
    const double sigma = std::sqrt(std::max(best.eigenvalues()(kept - 1 - n), 0.0));
    if (sigma == 0) break;
    // Queries and keys share the singular value, and the scale.
    of_q.col(n) = a * w * std::sqrt(scale / sigma);
    of_k.col(n) = v * (w.array() / root.array()).matrix() * std::sqrt(scale * sigma);
  }
  return {Eigen::MatrixXd(q * of_q), Eigen::MatrixXd(k * of_k)};
}

}  // namespace

template <class T>
Sketch<T> document_sketch(const AllInputs<T>& in, Index width) {
  const Index groups = in.k.heads();
  const double scale = std::sqrt(static_cast<double>(width) / static_cast<double>(in.q.width())) /
                       static_cast<double>(in.q.heads());
  const auto [q, k] =
      sketch_rows(side_by_side(in.q, groups), side_by_side(in.k, groups), width, scale);
  const auto narrowed = [](const RowMatrix& x) {
    return std::vector<T>(x.data(), x.data() + x.size());
  };
  return {{1, 1, q.rows(), width}, {1, 1, k.rows(), width}, narrowed(q), narrowed(k)};
}

template Sketch<float> document_sketch(const AllInputs<float>&, Index);
template Sketch<double> document_sketch(const AllInputs<double>&, Index);

}  // namespace bench
