// SPDX-License-Identifier: MIT
/// \file
/// What a layer learns for Longformer attention: projections of the rows of global positions
/// (Beltagy et al. 2020, section 3.1, "Linear projections for global attention").
#pragma once

#include "fovea/attention/longformer.hpp"
#include "fovea/layers/learned_inputs.hpp"

FOVEA_NAMESPACE_BEGIN

/// If `global_projections` is set, LongformerAttention has global_q, global_k and global_v of all
/// tokens from the layer: x W_G + b_G, where W_G is [Dm, (H + 2 Hk) D] with the columns of the
/// layer's "qkv". It is drawn anew; the authors begin with a copy of those, and so can a program.
/// The layer then keeps (H + 2 Hk) D numbers more per token, takes as many for gradients, and has
/// no decoder. Otherwise there is nothing to learn, and all rows read the same projections.
template <class T>
class LearnedInputs<LongformerAttention, T> : public NothingLearned<T> {
 public:
  /// What is kept from forward to backward, and room for gradients.
  struct Saved {
    Buffer<T> projected;    ///< [B, 1, L, (H + 2 Hk) D] global_q, global_k and global_v
    Buffer<T> d_projected;  ///< [B, 1, L, (H + 2 Hk) D] their gradients
  };

  /// Nothing to learn.
  LearnedInputs() = default;
  /// Draws W_G, if there is one.
  LearnedInputs(const LongformerAttention& /*op*/, const HeadSizes& sizes, Initialiser& initialiser)
      : sizes_(sizes) {
    if (!sizes.global_projections) return;
    projection_ =
        Linear<T>(sizes.width, (sizes.heads + 2 * sizes.key_heads) * sizes.head_width, initialiser,
                  {.bias = sizes.bias, .outputs_of_one = sizes.width, .name = "global_qkv"});
  }

  /// Lists W_G and b_G, if there are any.
  template <class Self, class F>
  static void each_part(Self& self, F&& f) {
    if (self.sizes_.global_projections) f(self.projection_);
  }

  /// \throws std::invalid_argument if there are projections of global rows
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
    projection_.forward(source.x, room(saved.projected, source), executor);
  }

  /// Gives the projections to the operator.
  void attach(const Tokens<T>& /*source*/, Saved& saved, LongformerInputs<T>& inputs,
              SoftmaxSaved<T>& /*kept*/) const {
    if (!sizes_.global_projections) return;
    hand_out(saved.projected.view(), inputs);
  }

  /// Asks the operator for their gradients.
  void ask(const Tokens<T>& source, Saved& saved, LongformerGrads<T>& grads) const {
    if (!sizes_.global_projections) return;
    hand_out(room(saved.d_projected, source), grads);
  }

  /// Adds to the gradients of W_G and b_G and, if it is given, to d_source.
  template <class E>
  void finish(const Tokens<T>& source, Saved& saved, const View<T>& d_source, E&& executor) {
    if (!sizes_.global_projections) return;
    typename Linear<T>::Saved nothing;
    projection_.backward(source.x, nothing, saved.d_projected.view(), d_source, executor,
                         Into::add);
  }

 private:
  View<T> room(Buffer<T>& buffer, const Tokens<T>& source) const {
    return buffer.resize(source.x.batch(), source.x.rows(), projection_.out());
  }

  /// Sets the three tensors to the heads of a matrix where they stand side by side.
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
