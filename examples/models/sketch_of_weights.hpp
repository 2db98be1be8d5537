// SPDX-License-Identifier: MIT
/// \file
/// A sketch for a model that was trained without one. In Smart Bird (section 3.2) it is learned;
/// here it is computed from the model's weights.
#pragma once

#include <Eigen/QR>
#include <cmath>
#include <fovea/core/philox.hpp>
#include <string>
#include <vector>

#include "llama.hpp"

namespace models {

/// The matrix [width, 2 d] of a sketch whose logits <sq_i, sk_j> / sqrt(d) are nearest to the mean
/// of the heads' logits <q_i, k_j> / sqrt(D), without rotary positions: x_i M x_j^T with M the mean
/// of W_Q W_K^T / sqrt(D), of which d singular values are kept. They are found by iterating on a
/// subspace (Golub and Van Loan, section 8.2.4).
/// \param q [width, H D] \param k [width, Hk D]
inline fovea::RowMatrix<float> sketch_of(const fovea::RowMatrix<float>& q,
                                         const fovea::RowMatrix<float>& k, const LlamaSizes& sizes,
                                         Index d) {
  constexpr int iterations = 24;
  const Index group = sizes.heads / sizes.key_heads;
  const auto scale =
      1 / (static_cast<float>(sizes.heads) * std::sqrt(static_cast<float>(sizes.head_width)));
  Eigen::MatrixXf mean = Eigen::MatrixXf::Zero(sizes.width, sizes.width);
  for (Index h = 0; h < sizes.heads; ++h) {
    mean.noalias() += scale * q.middleCols(h * sizes.head_width, sizes.head_width) *
                      k.middleCols(h / group * sizes.head_width, sizes.head_width).transpose();
  }
  const auto basis_of = [&](const Eigen::MatrixXf& columns) -> Eigen::MatrixXf {
    return Eigen::HouseholderQR<Eigen::MatrixXf>(columns).householderQ() *
           Eigen::MatrixXf::Identity(columns.rows(), d);
  };
  Eigen::MatrixXf right(sizes.width, d);
  for (Index i = 0; i < sizes.width; ++i) {
    for (Index j = 0; j < d; ++j) right(i, j) = fovea::uniform_draw<float>(0, 0, 0, i, j) - 0.5F;
  }
  Eigen::MatrixXf left;
  for (int i = 0; i < iterations; ++i) {
    left = basis_of(mean * right);
    right = basis_of(mean.transpose() * left);
  }
  // mean is about left S right^T with S = left^T mean right: the queries take S with them.
  fovea::RowMatrix<float> sketch(sizes.width, 2 * d);
  sketch.leftCols(d) =
      std::sqrt(static_cast<float>(d)) * (left * (left.transpose() * mean * right));
  sketch.rightCols(d) = right;
  return sketch;
}

/// Adds to the tensors of a model the sketch of each block.
inline void add_sketches(const LlamaSizes& sizes, Index d, fovea::TensorSet& set) {
  const auto matrix_of = [&](const std::string& name, Index columns) {
    const fovea::StoredTensor& tensor = set.at(name);
    if (tensor.shape != std::vector<Index>{columns, sizes.width}) {
      fovea::refuse_file(set.origin, fovea::quoted_name(name) + " is " +
                                         fovea::shape_text(tensor.shape) + "; expected " +
                                         fovea::shape_text({columns, sizes.width}));
    }
    fovea::RowMatrix<float> rows(columns, sizes.width);
    tensor.read(rows.data());
    return fovea::RowMatrix<float>(rows.transpose());
  };
  for (Index i = 0; i < sizes.blocks; ++i) {
    const std::string block = "blk." + std::to_string(i) + ".";
    const auto q = matrix_of(block + "attn_q.weight", sizes.heads * sizes.head_width);
    const auto k = matrix_of(block + "attn_k.weight", sizes.key_heads * sizes.head_width);
    const auto sketch = std::make_shared<fovea::RowMatrix<float>>(sketch_of(q, k, sizes, d));
    const std::span<const float> all(sketch->data(), static_cast<std::size_t>(sketch->size()));
    set.tensors[block + "attention.sketch.weight"] = {
        .dtype = fovea::Dtype::f32, .shape = {sizes.width, 2 * d}, .bytes = std::as_bytes(all)};
    set.owners.push_back(sketch);
  }
}

}  // namespace models
