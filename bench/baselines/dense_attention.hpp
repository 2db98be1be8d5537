// SPDX-License-Identifier: MIT
/// \file
/// Attention as a framework without fused kernels trains it: the N x N weights of every head are
/// written to memory, and kept for the backward pass. The measure of fovea_layers.
#pragma once

#include <memory>

#include "bench/baselines/eigen_heads.hpp"
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
  Index attended_pairs(const AttentionShape& shape, Index /*head*/) const {
    return shape.queries * shape.keys;
  }

  template <class E>
  void forward(const Inputs<float>& in, const View<float>& out, const Saved<float>& /*saved*/,
               E&& executor) const {
    const AttentionShape shape = fovea::shape_of(in);
    resize(*weights_, workspace_bytes<float>(shape, 1));
    fovea::for_each_task(executor, shape.batch * shape.query_heads, [&](Index task, Index) {
      const auto head = [&](const auto& x) { return head_rows(x, shape, task); };
      dense_head_forward(sizes(shape), head(in.q), head(in.k), head(in.v), head(out),
                         matrix(*weights_, shape, task));
    });
  }

  template <class E>
  void backward(const Inputs<float>& in, const View<const float>& out,
                const Saved<float>& /*saved*/, const View<const float>& d_out,
                const Grads<float>& grads, E&& executor) const {
    const AttentionShape shape = fovea::shape_of(in);
    fovea::Workspace gradients(workspace_bytes<float>(shape, 1));
    fovea::for_each_task(executor, shape.batch * shape.query_heads, [&](Index task, Index) {
      const auto head = [&](const auto& x) { return head_rows(x, shape, task); };
      dense_head_backward(sizes(shape), head(in.q), head(in.k), head(in.v), head(out), head(d_out),
                          matrix(*weights_, shape, task), matrix(gradients, shape, task),
                          head(grads.q), head(grads.k), head(grads.v));
    });
  }

 private:
  static HeadSizes sizes(const AttentionShape& s) {
    return {s.queries, s.keys, s.width, s.value_width};
  }

  static void resize(fovea::Workspace& memory, Index bytes) {
    if (memory.size_bytes() != bytes) memory = fovea::Workspace(bytes);
  }

  static float* matrix(fovea::Workspace& memory, const AttentionShape& shape, Index task) {
    return memory.data<float>() + task * shape.queries * shape.keys;
  }

  /// The head of a task.
  template <class T>
  static HeadRows<T> head_rows(const View<T>& x, const AttentionShape& shape, Index task) {
    return {&x(task / shape.query_heads, task % shape.query_heads, 0, 0), x.strides()[2]};
  }

  // Shared, since an operator can be copied.
  std::shared_ptr<fovea::Workspace> weights_ = std::make_shared<fovea::Workspace>();
};

}  // namespace bench
