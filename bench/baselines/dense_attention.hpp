// SPDX-License-Identifier: MIT
/// \file
/// Attention as a framework without fused kernels trains it: the N x N weights of every head are
/// written to memory, and kept for the backward pass. The measure of fovea_layers.
#pragma once

#include <Eigen/Core>
#include <memory>

#include "fovea/attention/attention.hpp"
#include "fovea/core/workspace.hpp"
#include "fovea/layers/activation.hpp"

namespace bench {

using fovea::AttentionShape;
using fovea::Index;
using fovea::View;

/// softmax(q k^T / sqrt(D)) v for float, by Eigen's matrix products; heads are tasks. One object
/// serves one layer: it holds the weights of the last forward pass.
class DenseAttention {
 public:
  template <class T>
  using Inputs = fovea::LinearInputs<T>;
  template <class T>
  using Saved = fovea::SoftmaxSaved<T>;
  template <class T>
  using Grads = fovea::LinearGrads<T>;
  using Shape = AttentionShape;

  static constexpr const char* name() { return "DenseAttention"; }

  template <class T>
  void check(const Inputs<T>& /*inputs*/, const View<T>& /*out*/,
             const Saved<T>& /*saved*/ = {}) const {}
  template <class T>
  void check_backward(const Inputs<T>& /*inputs*/, const View<const T>& /*out*/,
                      const Saved<T>& /*saved*/, const View<const T>& /*d_out*/,
                      const Grads<T>& /*grads*/) const {}

  template <class T>
  Index workspace_bytes(const AttentionShape& shape, Index /*workers*/) const {
    return shape.batch * shape.query_heads * shape.queries * shape.keys * Index{sizeof(T)};
  }
  Index visible_pairs(const AttentionShape& shape, Index /*head*/) const {
    return shape.queries * shape.keys;
  }

  template <class E>
  void forward(const Inputs<float>& in, const View<float>& out, const Saved<float>& /*saved*/,
               E&& executor) const {
    const AttentionShape shape = fovea::shape_of(in);
    resize(*weights_, workspace_bytes<float>(shape, 1));
    const float scale = 1 / std::sqrt(static_cast<float>(shape.width));
    fovea::for_each_task(executor, shape.batch * shape.query_heads, [&](Index task, Index) {
      const Index b = task / shape.query_heads;
      const Index h = task % shape.query_heads;
      Weights p = matrix(*weights_, shape, task);
      p.noalias() = scale * (head(in.q, b, h) * head(in.k, b, h).transpose());
      for (Index i = 0; i < p.rows(); ++i) {
        auto row = p.row(i).array();
        row = (row - row.maxCoeff()).exp();
        row /= row.sum();
      }
      head(out, b, h).noalias() = p * head(in.v, b, h);
    });
  }

  template <class E>
  void backward(const Inputs<float>& in, const View<const float>& out,
                const Saved<float>& /*saved*/, const View<const float>& d_out,
                const Grads<float>& grads, E&& executor) const {
    const AttentionShape shape = fovea::shape_of(in);
    fovea::Workspace gradients(workspace_bytes<float>(shape, 1));
    const float scale = 1 / std::sqrt(static_cast<float>(shape.width));
    fovea::for_each_task(executor, shape.batch * shape.query_heads, [&](Index task, Index) {
      const Index b = task / shape.query_heads;
      const Index h = task % shape.query_heads;
      const Weights p = matrix(*weights_, shape, task);
      Weights d = matrix(gradients, shape, task);
      const auto d_o = head(d_out, b, h);
      head(grads.v, b, h).noalias() = p.transpose() * d_o;
      d.noalias() = d_o * head(in.v, b, h).transpose();
      for (Index i = 0; i < p.rows(); ++i) {
        const float delta = d_o.row(i).dot(head(out, b, h).row(i));
        d.row(i).array() = (d.row(i).array() - delta) * p.row(i).array() * scale;
      }
      head(grads.q, b, h).noalias() = d * head(in.k, b, h);
      head(grads.k, b, h).noalias() = d.transpose() * head(in.q, b, h);
    });
  }

 private:
  using Weights = Eigen::Map<fovea::RowMatrix<float>, Eigen::Aligned64>;
  template <class T>
  using Rows = Eigen::Map<std::conditional_t<std::is_const_v<T>, const fovea::RowMatrix<float>,
                                             fovea::RowMatrix<float>>,
                          Eigen::Unaligned, Eigen::OuterStride<>>;

  static void resize(fovea::Workspace& memory, Index bytes) {
    if (memory.size_bytes() != bytes) memory = fovea::Workspace(bytes);
  }

  static Weights matrix(fovea::Workspace& memory, const AttentionShape& shape, Index task) {
    return {memory.data<float>() + task * shape.queries * shape.keys, shape.queries, shape.keys};
  }

  template <class T>
  static Rows<T> head(const View<T>& x, Index b, Index h) {
    return {&x(b, h, 0, 0), x.rows(), x.width(), Eigen::OuterStride<>(x.strides()[2])};
  }

  // Shared, since an operator can be copied.
  std::shared_ptr<fovea::Workspace> weights_ = std::make_shared<fovea::Workspace>();
};

}  // namespace bench
