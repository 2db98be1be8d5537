// SPDX-License-Identifier: MIT
/// \file
/// What a layer learns for Sinkhorn attention: the network that makes sorting logits (Tay et al.
/// 2020, section 3.1). MultiHead<SinkhornAttention> needs this header.
#pragma once

#include "fovea/attention/sinkhorn.hpp"
#include "fovea/layers/learned_inputs.hpp"

FOVEA_NAMESPACE_BEGIN

/// R = s W + b, where row u of s [N / b, Dm] is the sum of the tokens of block u of the source, and
/// W has for each key head a column for each block of keys, of as many blocks as `sorted_blocks`
/// says. A shorter sequence has the first columns of each.
template <class T>
class LearnedInputs<SinkhornAttention, T> : public NothingLearned<T> {
 public:
  /// What is kept from forward to backward, and room for gradients.
  struct Saved {
    Buffer<T> sums;      ///< [B, 1, N / b, Dm] the sums of blocks
    Buffer<T> logits;    ///< [B, 1, N / b, Hk sorted_blocks] R of all heads, side by side
    Buffer<T> d_sums;    ///< [B, 1, N / b, Dm] the gradient of the sums
    Buffer<T> d_logits;  ///< [B, 1, N / b, Hk sorted_blocks] that of the logits
  };

  /// A network without sizes, which has yet to be assigned to.
  LearnedInputs() = default;
  /// Draws W.
  LearnedInputs(const SinkhornAttention& op, const HeadSizes& sizes, Initialiser& initialiser)
      : block_((std::max)(Index{1}, op.options.block)),
        heads_(sizes.key_heads),
        most_(sizes.sorted_blocks),
        sorting_(sizes.width, sizes.key_heads * sizes.sorted_blocks, initialiser,
                 {.outputs_of_one = sizes.sorted_blocks, .name = "sorting"}) {}

  /// Lists W and b.
  template <class Self, class F>
  static void each_part(Self& self, F&& f) {
    f(self.sorting_);
  }

  /// Computes the sorting logits.
  /// \throws std::invalid_argument if the source has more blocks than `sorted_blocks`
  template <class E>
  void compute(const SinkhornAttention& op, const Tokens<T>& source, Saved& saved,
               E&& executor) const {
    static_assert(
        !SpreadsRows<E>,
        "MultiHead<SinkhornAttention> does not go over ranks: the tokens of a block, whose "
        "sum makes its sorting logits, may be on several");
    const View<const T>& x = source.x;
    const Index blocks = x.rows() / block_;
    if (op.options.block != block_) {
      refuse(SinkhornAttention::name(), "block", std::to_string(op.options.block),
             std::to_string(block_) + ", that of the layer's making");
    }
    if (blocks > most_) {
      refuse(SinkhornAttention::name(), "the number of blocks of x", std::to_string(blocks),
             "at most " + std::to_string(most_) + ", the sorted_blocks of the layer");
    }
    const View<T> sums = saved.sums.resize(x.batch(), blocks, x.width());
    for (Index b = 0; b < x.batch(); ++b) {
      for (Index u = 0; u < blocks; ++u) sum_block(x, b, u, &sums(b, 0, u, 0));
    }
    sorting_.forward(View<const T>(sums), saved.logits.resize(x.batch(), blocks, sorting_.out()),
                     executor);
  }

  /// Gives the logits to the operator.
  template <class S>
  void attach(const Tokens<T>& /*source*/, Saved& saved, SinkhornInputs<T>& inputs,
              S& /*kept*/) const {
    inputs.sorting = of_key_heads(saved.logits.view());
  }

  /// Asks the operator for their gradient.
  void ask(const Tokens<T>& /*source*/, Saved& saved, SinkhornGrads<T>& grads) const {
    const View<T> logits = saved.logits.view();
    const View<T> d = saved.d_logits.resize(logits.batch(), logits.rows(), logits.width());
    std::fill_n(d.data(), d.size(), T{0});  // columns of blocks that there are not
    grads.sorting = of_key_heads(d);
  }

  /// Adds to the gradients of W and b and, if it is given, to d_source.
  template <class E>
  void finish(const Tokens<T>& source, Saved& saved, const View<T>& d_source, E&& executor) {
    const View<T> sums = saved.sums.view();
    const View<T> d_sums = d_source.is_none()
                               ? View<T>()
                               : saved.d_sums.resize(sums.batch(), sums.rows(), sums.width());
    typename Linear<T>::Saved nothing;
    sorting_.backward(View<const T>(sums), nothing, View<const T>(saved.d_logits.view()), d_sums,
                      executor);
    if (d_source.is_none()) return;
    for (Index b = 0; b < source.x.batch(); ++b) {
      for (Index n = 0; n < sums.rows() * block_; ++n) {
        for (Index c = 0; c < sums.width(); ++c) {
          d_source(b, 0, n, c) += d_sums(b, 0, n / block_, c);
        }
      }
    }
  }

 private:
  void sum_block(const View<const T>& x, Index b, Index u, T* to) const {
    std::fill_n(to, x.width(), T{0});
    for (Index n = u * block_; n < (u + 1) * block_; ++n) {
      const T* const row = &x(b, 0, n, 0);
      for (Index c = 0; c < x.width(); ++c) to[c] += row[c];
    }
  }

  /// Views [B, 1, N / b, Hk sorted_blocks] as [B, Hk, N / b, N / b].
  View<T> of_key_heads(const View<T>& x) const {
    return {
        x.data(), {x.batch(), heads_, x.rows(), x.rows()}, {x.strides()[0], most_, x.width(), 1}};
  }

  Index block_ = 1;
  Index heads_ = 1;
  Index most_ = 1;
  Linear<T> sorting_;
};

FOVEA_NAMESPACE_END
