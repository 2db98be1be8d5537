// SPDX-License-Identifier: MIT
/// \file
/// The rows of a document's sketch. They are computed in a source of their own, since Eigen's
/// solvers and products take seconds to compile.
#pragma once

#include <Eigen/Core>
#include <cstddef>

namespace bench {

/// Row-major, [N, width].
struct SketchRows {
  using Matrix = Eigen::Matrix<double, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
  Matrix q, k;
};

/// \param q, k heads side by side, [N, Hk D], of document_sketch \param scale of the logits' mean
SketchRows sketch_rows(const Eigen::MatrixXd& q, const Eigen::MatrixXd& k, std::ptrdiff_t width,
                       double scale);

}  // namespace bench
