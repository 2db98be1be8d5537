// SPDX-License-Identifier: MIT
/// \file
/// The backward pass of FMM attention: the near field's, the far field's, and the logits'.
#pragma once

#include "fovea/attention/far_backward.hpp"
#include "fovea/attention/far_forward.hpp"
#include "fovea/attention/fmm_blend.hpp"

FOVEA_NAMESPACE_BEGIN

/// One backward pass. The near field is computed again, since its softmax needs its own output;
/// the far field's gradients are added to the near field's.
template <class T>
class FmmBackward {
 public:
  FmmBackward(const Inputs<T>& inputs, const FarField<T>& far, const LocalAttention& near,
              const FmmBlend<T>& blend, const View<const T>& d_out, const Grads<T>& grads)
      : inputs_(inputs),
        shape_(shape_of(inputs)),
        far_(far),
        near_(near),
        blend_(blend),
        weights_(blend.weights()),
        d_out_(d_out),
        grads_(grads) {}

  /// Bytes of scratch with that many workers: three tensors like `out` at most, a number per row,
  /// and what near and far field take one after the other.
  static Index workspace_bytes(const AttentionShape& shape, const FarField<T>& far,
                               const LocalAttention& near, Index workers) {
    const Index rows = shape.batch * shape.query_heads * shape.queries;
    const Index passes = (std::max)(near.template backward_workspace_bytes<T>(shape, workers),
                                    FarBackward<T>::workspace_bytes(shape, far, workers));
    return rows * (3 * shape.value_width + 1) * Index{sizeof(T)} + passes;
  }

  /// \throws std::bad_alloc
  template <class E>
  void run(E&& executor) {
    const bool wants_logits = !grads_.near_logits.is_none() || !grads_.far_logits.is_none();
    std::vector<double> of_near(wants_logits ? columns() : 0);
    std::vector<double> of_far(wants_logits ? columns() : 0);
    run_near(wants_logits ? &of_near : nullptr, executor);
    run_far(wants_logits ? &of_far : nullptr, executor);
    if (wants_logits) blend_.write_gradients(of_near, of_far, grads_);
  }

 private:
  std::size_t columns() const {
    return static_cast<std::size_t>(shape_.query_heads * shape_.value_width);
  }
  Shape out_shape() const {
    return {shape_.batch, shape_.query_heads, shape_.queries, shape_.value_width};
  }
  Workspace tensor(const Shape& shape) const {
    return Workspace(shape[0] * shape[1] * shape[2] * shape[3], Index{sizeof(T)});
  }

  template <class E>
  void run_near(std::vector<double>* products, E&& executor) {
    const Grads<T> grads = {grads_.q, grads_.k, grads_.v};
    if (products == nullptr && grads.q.is_none() && grads.k.is_none() && grads.v.is_none()) return;
    const Shape rows = {shape_.batch, shape_.query_heads, shape_.queries, 1};
    Workspace out_memory = tensor(out_shape());
    Workspace lse_memory = tensor(rows);
    const View<T> out(out_memory.template data<T>(), out_shape());
    const Saved<T> saved{View<T>(lse_memory.template data<T>(), rows)};
    const Inputs<T> inputs = NearBlocks<T>::only_rows(inputs_);
    near_.forward(inputs, out, saved, executor);
    if (products != nullptr) add_columns(out, 0, *products, executor);
    if (!weights_.are_given()) {
      near_.backward(inputs, out, saved, d_out_, grads, executor);
      return;
    }
    Workspace d_memory = tensor(out_shape());
    const View<T> d_near(d_memory.template data<T>(), out_shape());
    for_each_task(executor, shape_.batch * shape_.query_heads, [&](Index task, Index) {
      weigh(task / shape_.query_heads, task % shape_.query_heads, d_near);
    });
    near_.backward(inputs, out, saved, d_near, grads, executor);
  }

  /// d_near = a1 d_out, of one head.
  void weigh(Index b, Index h, const View<T>& d_near) const {
    const T* const weight = weights_.near(h);
    for (Index n = 0; n < shape_.queries; ++n) {
      for (Index c = 0; c < shape_.value_width; ++c) {
        d_near(b, h, n, c) = weight[c] * d_out_(b, h, n, c);
      }
    }
  }

  /// products[h, c] = w (sum over batch and rows of d_out x), w = w1 or w2.
  template <class E>
  void add_columns(const View<T>& x, int which, std::vector<double>& products, E&& executor) const {
    for_each_task(executor, shape_.query_heads, [&](Index h, Index) {
      double* const sums = products.data() + h * shape_.value_width;
      for (Index b = 0; b < shape_.batch; ++b) {
        for (Index n = 0; n < shape_.queries; ++n) {
          for (Index c = 0; c < shape_.value_width; ++c) {
            sums[c] += static_cast<double>(d_out_(b, h, n, c)) * static_cast<double>(x(b, h, n, c));
          }
        }
      }
      for (Index c = 0; c < shape_.value_width; ++c) {
        const auto [w1, w2] = blend_.at(h, c);
        sums[c] *= which == 0 ? w1 : w2;
      }
    });
  }

  template <class E>
  void run_far(std::vector<double>* products, E&& executor) {
    FarBackward<T> pass(inputs_, far_, weights_, d_out_, grads_, true);
    if (products == nullptr) return pass.run(nullptr, executor);
    if (!blend_.is_same_for_columns()) {
      Workspace memory = tensor(out_shape());
      const View<T> out(memory.template data<T>(), out_shape());
      const FarWeights<T> none;
      FarForward<T>(inputs_, far_, nullptr, none, out).run(executor);
      add_columns(out, 1, *products, executor);
      return pass.run(nullptr, executor);
    }
    // The pass finds the sums with the weights w2 / normaliser.
    std::vector<double> sums(static_cast<std::size_t>(shape_.query_heads));
    pass.run(sums.data(), executor);
    if (shape_.value_width == 0) return;
    for (Index h = 0; h < shape_.query_heads; ++h) {
      (*products)[static_cast<std::size_t>(h * shape_.value_width)] =
          sums[static_cast<std::size_t>(h)] * blend_.normaliser(h, 0);
    }
  }

  Inputs<T> inputs_;
  AttentionShape shape_;
  FarField<T> far_;
  const LocalAttention& near_;
  const FmmBlend<T>& blend_;
  FarWeights<T> weights_;
  View<const T> d_out_;
  Grads<T> grads_;
};

FOVEA_NAMESPACE_END
