// SPDX-License-Identifier: MIT
/// \file
/// The tables of a document's sketch. They are a source of their own, since Eigen's solvers take
/// seconds to compile.
#pragma once

#include <Eigen/Core>
#include <cstddef>

namespace bench {

/// What queries [N, Hk D] and keys, heads side by side, are multiplied by: [Hk D, width] each.
struct SketchTables {
  Eigen::MatrixXd of_q, of_k;
};

/// \param q, k of document_sketch, the keys less their mean \param scale of the logits' mean
SketchTables sketch_tables(const Eigen::MatrixXd& q, const Eigen::MatrixXd& k, std::ptrdiff_t width,
                           double scale);

}  // namespace bench
