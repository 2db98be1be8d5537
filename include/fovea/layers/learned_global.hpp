// SPDX-License-Identifier: MIT
/// \file
/// A layer's learned inputs for Longformer attention: projections of the rows of global positions
/// (Beltagy et al. 2020, section 3.1, "Linear projections for global attention").
#pragma once

#include "fovea/attention/longformer.hpp"
#include "fovea/layers/learned_inputs.hpp"

FOVEA_NAMESPACE_BEGIN

/// If `global_projections` is set, the layer computes global_q, global_k and global_v of all
/// tokens: x W_G + b_G, where W_G is [Dm, (H + 2 Hk) D], with columns as in the layer's "qkv". W_G
/// is initialised independently; the authors start from a copy of those weights. The layer then
/// saves (H + 2 Hk) D more numbers per token, uses as many for gradients, and has no decoder.
/// Otherwise all rows read the same projections.
template <class T>
class LearnedInputs<LongformerAttention, T> : public NoLearnedInputs<T> {
 public:
  /// State saved for backward, and buffers for gradients.
  struct Saved {
    Buffer<T> projected;    ///< [B, 1, L, (H + 2 Hk) D] global_q, global_k and global_v
    Buffer<T> d_projected;  ///< [B, 1, L, (H + 2 Hk) D] their gradients
  };

  /// No learned inputs.
  LearnedInputs() = default;
  /// Draws W_G, if used.
  LearnedInputs(const LongformerAttention& /*op*/, const HeadSizes& sizes, Initialiser& initialiser)
      : sizes_(sizes) {
    if (!sizes.global_projections) return;
    projection_ =
        Linear<T>(sizes.width, (sizes.heads + 2 * sizes.key_heads) * sizes.head_width, initialiser,
                  {.bias = sizes.bias, .outputs_of_one = sizes.width, .name = "global_qkv"});
  }

  /// Lists W_G and b_G, if used.
  template <class Self, class F>
  static void each_part(Self& self, F&& f) {
    if (self.sizes_.global_projections) f(self.projection_);
  }

  /// \throws std::invalid_argument if global rows have their own projections
  void check_decoder() const {
    if (!sizes_.global_projections) return;
    refuse(LongformerAttention::name(), "global_projections", "true",
           "false: a decoder keeps one set of keys and values");
  }

  /// Projects the source's tokens.
  template <class E>
  void compute(const LongformerAttention& /*op*/, const Tokens<T>& source, Saved& saved,
               E&& executor) const {
    if (!sizes_.global_projections) return;
    projection_.forward(source.x, scratch(saved.projected, source), executor);
  }

  /// Passes the projections to the operator.
  void attach(const Tokens<T>& /*source*/, Saved& saved, LongformerInputs<T>& inputs,
              SoftmaxSaved<T>& /*kept*/) const {
    if (!sizes_.global_projections) return;
    hand_out(saved.projected.view(), inputs);
  }

  /// Requests their gradients from the operator.
  void request_grads(const Tokens<T>& source, Saved& saved, LongformerGrads<T>& grads) const {
    if (!sizes_.global_projections) return;
    hand_out(scratch(saved.d_projected, source), grads);
  }

  /// Adds to the gradients of W_G and b_G and, if given, to d_source.
  template <class E>
  void finish(const Tokens<T>& source, Saved& saved, const View<T>& d_source, E&& executor) {
    if (!sizes_.global_projections) return;
    typename Linear<T>::Saved nothing;
    projection_.backward(source.x, nothing, saved.d_projected.view(), d_source, executor,
                         OutputMode::add);
  }

 private:
  View<T> scratch(Buffer<T>& buffer, const Tokens<T>& source) const {
    return buffer.resize(source.x.batch(), source.x.rows(), projection_.out());
  }

  /// Sets the three tensors to the concatenated heads of a matrix.
  template <class To>
  void hand_out(const View<T>& from, To& to) const {
    const Index heads = sizes_.heads;
    const Index key_heads = sizes_.key_heads;
    const Index width = sizes_.head_width;
    to.global_q = as_heads(from, 0, heads, width);
    to.global_k = as_heads(from, heads * width, key_heads, width);
    to.global_v = as_heads(from, (heads + key_heads) * width, key_heads, width);
  }

  HeadSizes sizes_;
  Linear<T> projection_;
};

FOVEA_NAMESPACE_END
