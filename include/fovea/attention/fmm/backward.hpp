// SPDX-License-Identifier: MIT
/// \file
/// The backward pass of FMM attention: near field, far field, and the logits of the blend.
#pragma once

#include <optional>
#include <vector>

#include "fovea/attention/call/scratch_tensor.hpp"
#include "fovea/attention/fmm/blend.hpp"
#include "fovea/attention/fmm/near_field.hpp"
#include "fovea/attention/linear/backward.hpp"
#include "fovea/attention/linear/forward.hpp"
#include "fovea/attention/softmax/backward.hpp"
#include "fovea/attention/softmax/forward.hpp"
#include "fovea/core/rounded.hpp"

FOVEA_NAMESPACE_BEGIN

/// One backward pass. The near field's softmax needs its own output, which is recomputed if it was
/// not saved. The far field's gradients are added to those of the near field. Memory: at most three
/// tensors of `out`'s shape, one number for each row, and the scratch of all four passes, which is
/// taken before gradients are written.
/// \tparam Field a LinearTerms of T
template <class T, class Field>
class FmmBackward {
 public:
  /// \param near_field, blend must outlive this object
  FmmBackward(const LinearFamilyInputs<T>& inputs, const Field& far_field,
              const LocalAttention& near_field, const FmmBlend<T>& blend, const FmmSaved<T>& saved,
              const View<const T>& d_out, const LinearFamilyGrads<T>& grads)
      : inputs_(inputs),
        shape_(shape_of(inputs)),
        far_(far_field),
        near_(near_field),
        blend_(blend),
        weights_(blend.weights()),
        saved_(saved),
        d_out_(d_out),
        grads_(grads) {}

  /// Writes the gradients.
  /// \throws std::bad_alloc before anything is written
  void run(const ExecutorRef& executor) {
    const bool wants_logits = !grads_.near_logits.empty() || !grads_.far_logits.empty();
    std::vector<double> of_near(wants_logits ? columns() : 0);
    std::vector<double> of_far(wants_logits ? columns() : 0);
    const bool wants_near =
        wants_logits || !(grads_.q.empty() && grads_.k.empty() && grads_.v.empty());
    auto&& memory = memory_of(executor);
    std::optional<Near> near_field;
    if (wants_near) near_field.emplace(*this, memory).reserve(executor);
    Far far_field(*this, wants_logits, memory);
    far_field.reserve(executor);
    if (executor.only_counts()) return;
    if (near_field) near_field->prepare(executor);
    if (near_field) near_field->compute(wants_logits ? &of_near : nullptr, executor);
    far_field.compute(wants_logits ? &of_far : nullptr, executor);
    if (wants_logits) blend_.write_gradients(of_near, of_far, grads_);
  }

 private:
  /// The passes of the near field: forward, if it was not saved, and backward from d_out times the
  /// near field's weights.
  class Near {
   public:
    template <class Memory>
    Near(const FmmBackward& all, Memory&& memory)
        : all_(all),
          is_saved_(!all.saved_.near_out.empty() && !all.saved_.near_lse.empty()),
          own_out_(is_saved_ ? Shape{} : all.out_shape(), memory),
          own_lse_(is_saved_ ? Shape{} : all.row_shape(), memory),
          out_(is_saved_ ? View<T>(all.saved_.near_out) : own_out_.view()),
          lse_(is_saved_ ? View<T>(all.saved_.near_lse) : own_lse_.view()),
          d_out_(all.weights_.are_given() ? all.out_shape() : Shape{}, memory),
          call_(NearBlocks<T>::only_rows(all.inputs_), all.near_.softmax_options()),
          plans_(all.near_, call_),
          backward_(call_, plans_, View<const T>(out_), {lse_},
                    all.weights_.are_given() ? View<const T>(d_out_.view()) : all.d_out_,
                    {all.grads_.q, all.grads_.k, all.grads_.v}) {
      if (!is_saved_) forward_.emplace(call_, plans_, out_, SoftmaxSaved<T>{lse_});
    }

    /// Takes the memory for both passes. \throws std::bad_alloc
    void reserve(const ExecutorRef& executor) {
      if (forward_) forward_->reserve(executor);
      backward_.take_scratch(executor);
    }

    /// Runs the forward pass, whose lse may require more memory. No output is written.
    /// \throws std::bad_alloc
    void prepare(const ExecutorRef& executor) {
      if (forward_) forward_->compute(executor);
      forward_.reset();
      backward_.look_at_lse(executor);
    }

    /// \param products [Hq, Dv] as add_columns writes it, or null
    void compute(std::vector<double>* products, const ExecutorRef& executor) {
      if (products != nullptr) all_.add_columns(out_, 0, *products, executor);
      if (all_.weights_.are_given()) {
        const Index heads = all_.shape_.query_heads;
        for_each_task(executor, all_.shape_.batch * heads, [&](Index task, Index) {
          all_.weigh(task / heads, task % heads, d_out_.view());
        });
      }
      backward_.compute(executor);
    }

   private:
    const FmmBackward& all_;
    bool is_saved_;
    ScratchTensor<T> own_out_;  // empty if it was saved
    ScratchTensor<T> own_lse_;  // likewise
    View<T> out_;
    View<T> lse_;
    ScratchTensor<T> d_out_;  // empty if all weights are 1
    SoftmaxCall<T> call_;
    HeadPlans plans_;
    std::optional<SoftmaxForward<T>> forward_;  // none if it was saved
    SoftmaxBackward<T> backward_;
  };

  /// The passes of the far field: backward, and also forward if the gradients of the logits need
  /// it.
  class Far {
   public:
    template <class Memory>
    Far(const FmmBackward& all, bool wants_logits, Memory&& memory)
        : all_(all),
          wants_sums_(wants_logits && all.blend_.is_same_for_columns()),
          wants_out_(wants_logits && !wants_sums_),
          out_(wants_out_ ? all.out_shape() : Shape{}, memory),
          sums_(static_cast<std::size_t>(wants_sums_ ? all.shape_.query_heads : 0)),
          backward_(all.inputs_, all.far_, all.weights_, all.d_out_, all.grads_, true) {
      if (wants_out_) forward_.emplace(all.inputs_, all.far_, none_, out_.view());
    }

    void reserve(const ExecutorRef& executor) {
      if (forward_) forward_->reserve(executor);
      backward_.reserve(wants_sums_, executor);
    }

    /// \param products [Hq, Dv] as FmmBlend::write_gradients takes it, or null
    void compute(std::vector<double>* products, const ExecutorRef& executor) {
      if (forward_) {
        forward_->compute(executor);
        all_.add_columns(out_.view(), 1, *products, executor);
      }
      backward_.compute(wants_sums_ ? sums_.data() : nullptr, executor);
      if (!wants_sums_ || all_.shape_.value_width == 0) return;
      // The pass computed the sums with the weights w2 / normaliser, so multiply the normaliser
      // back in.
      for (std::size_t h = 0; h < sums_.size(); ++h) {
        (*products)[h * static_cast<std::size_t>(all_.shape_.value_width)] =
            sums_[h] * all_.blend_.normaliser(static_cast<Index>(h), 0);
      }
    }

   private:
    const FmmBackward& all_;
    bool wants_sums_;
    bool wants_out_;
    ScratchTensor<T> out_;
    std::vector<double> sums_;  // [Hq]
    FarWeights<T> none_;
    std::optional<LinearForward<T, Field>> forward_;
    LinearBackward<T, Field> backward_;
  };

  std::size_t columns() const {
    return static_cast<std::size_t>(shape_.query_heads * shape_.value_width);
  }
  Shape row_shape() const { return {shape_.batch, shape_.query_heads, shape_.queries, 1}; }
  Shape out_shape() const {
    return {shape_.batch, shape_.query_heads, shape_.queries, shape_.value_width};
  }

  /// Writes d_near = a1 d_out for one head.
  void weigh(Index b, Index h, const View<T>& d_near) const {
    const T* const weight = weights_.near_field(h);
    for (Index n = 0; n < shape_.queries; ++n) {
      for (Index c = 0; c < shape_.value_width; ++c) {
        d_near(b, h, n, c) = weight[c] * d_out_(b, h, n, c);
      }
    }
  }

  /// Writes products[h, c] = w (sum over batch and rows of d_out x), where w is w1 or w2.
  /// \param which 0 for w1, 1 for w2
  void add_columns(const View<T>& x, int which, std::vector<double>& products,
                   const ExecutorRef& executor) const {
    for_each_task(executor, shape_.query_heads, [&](Index h, Index) {
      double* const sums = products.data() + h * shape_.value_width;
      for (Index b = 0; b < shape_.batch; ++b) {
        for (Index n = 0; n < shape_.queries; ++n) {
          for (Index c = 0; c < shape_.value_width; ++c) {
            sums[c] += rounded(static_cast<double>(d_out_(b, h, n, c)) *
                               static_cast<double>(x(b, h, n, c)));
          }
        }
      }
      for (Index c = 0; c < shape_.value_width; ++c) {
        const auto [w1, w2] = blend_.at(h, c);
        sums[c] *= which == 0 ? w1 : w2 * blend_.share();
      }
    });
  }

  LinearFamilyInputs<T> inputs_;
  AttentionShape shape_;
  Field far_;
  const LocalAttention& near_;
  const FmmBlend<T>& blend_;
  FarWeights<T> weights_;
  FmmSaved<T> saved_;
  View<const T> d_out_;
  LinearFamilyGrads<T> grads_;
};

FOVEA_NAMESPACE_END
