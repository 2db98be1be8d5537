// SPDX-License-Identifier: MIT
/// \file
/// Reformer attention between projections; queries and keys share one (Kitaev et al. 2020, section
/// 2). Besides the operator it costs 6 Dm H D flops per token, twice that in the backward pass.
#pragma once

#include "fovea/attention/reformer.hpp"
#include "fovea/layers/attend.hpp"
#include "fovea/layers/linear.hpp"
#include "fovea/layers/multi_head.hpp"

FOVEA_NAMESPACE_BEGIN

/// Options of ReformerLayer.
struct ReformerLayerOptions {
  Index width = 0;                 ///< Dm, the channels of x and y; must be set
  Index heads = 1;                 ///< H, the number of heads
  Index head_width = 0;            ///< D, the width of a head; if 0, width / heads
  bool bias = false;               ///< whether the projections have a bias
  ReformerOptions attention = {};  ///< options of ReformerAttention
};

/// y = concat_h(Op(x W_QK^h, x W_V^h)) W_O, for x and y [B, 1, L, Dm] with dense rows, where the
/// chunk size divides L. W_QK and W_V are concatenated in one matrix [Dm, 2 H D]. The projections
/// for hashing are drawn when the layer is constructed, from the seed in the options; they are not
/// learned and are no parameters. Rows from a key length on are W_O applied to +0.
///
/// The layer saves 3 H D + H (rounds + 1) numbers per token and uses as many for gradients. The
/// bits are the same for any number of threads.
template <class T = float>
class ReformerLayer : public LayerCalls<ReformerLayer<T>, T, Tokens<T>> {
 public:
  /// State saved for backward, and buffers for gradients.
  struct Saved {
    Buffer<T> projected;    ///< [B, 1, L, 2 H D] qk and v, concatenated
    Buffer<T> d_projected;  ///< [B, 1, L, 2 H D] their gradients
    Buffer<T> out;          ///< [B, 1, L, H D] the outputs of the heads
    Buffer<T> d_out;        ///< [B, 1, L, H D] their gradient
    Buffer<T> round_lse;    ///< [B, H, L, rounds] of the operator
  };

  /// An empty layer; assign one before use.
  ReformerLayer() = default;

  /// Draws the weights and the projections for hashing.
  /// \throws std::invalid_argument if sizes are inconsistent
  ReformerLayer(const ReformerLayerOptions& options, Initialiser& initialiser)
      : op_(options.attention),
        sizes_(head_sizes(
            "ReformerLayer",
            {.width = options.width, .heads = options.heads, .head_width = options.head_width})),
        projection_(sizes_.width, 2 * columns(), initialiser,
                    {.bias = options.bias, .outputs_of_one = sizes_.width, .name = "qkv"}),
        out_(columns(), sizes_.width, initialiser, {.bias = options.bias, .name = "out"}) {
    const ReformerOptions& hashed = options.attention;
    const Index half = (std::max)(Index{0}, hashed.buckets / 2);
    hashes_.resize((std::max)(Index{0}, hashed.rounds) * sizes_.head_width, half);
    for (Index row = 0; row < hashes_.rows(); ++row) {
      for (Index c = 0; c < half; ++c) {
        hashes_(row, c) = static_cast<T>(
            reformer_projection(hashed.seed, row / sizes_.head_width, row % sizes_.head_width, c));
      }
    }
  }

  /// The operator.
  const ReformerAttention& op() const { return op_; }
  /// The sizes of the heads.
  const HeadSizes& sizes() const { return sizes_; }

  /// Lists the projections.
  template <class Self, class F>
  static void each_part(Self& self, F&& f) {
    f(self.projection_);
    f(self.out_);
  }

  using LayerCalls<ReformerLayer<T>, T, Tokens<T>>::forward;
  /// Computes y, and saves what `backward` needs.
  /// \throws std::invalid_argument as the operator, or if a shape or layout is wrong
  /// \throws std::bad_alloc if allocation fails
  template <class E = Serial>
  void forward(const Tokens<T>& tokens, const View<T>& y, Saved& saved, E&& executor = {}) const {
    fovea::check_forward("ReformerLayer", tokens.x, sizes_.width, y, sizes_.width);
    check_lengths("ReformerLayer", tokens, detail::rows_of_sequence(tokens.x, executor));
    check_no_terms("ReformerLayer", tokens, "the layer does not read it");
    const View<T> projected = saved.projected.resize(y.batch(), y.rows(), 2 * columns());
    const View<T> out = saved.out.resize(y.batch(), y.rows(), columns());
    saved.round_lse.resize(
        {y.batch(), sizes_.heads, y.rows(), (std::max)(Index{0}, op_.options.rounds)});
    projection_.forward(tokens.x, projected, executor);
    detail::attend<ReformerAttention, T>(op_, inputs(tokens, saved), heads_of(out, 0), kept(saved),
                                         executor);
    out_.forward(View<const T>(out), y, executor);
  }

  /// Adds to the gradients of the parameters. If given, d_x is written.
  /// \throws as `forward`
  template <class E = Serial>
  void backward(const Tokens<T>& tokens, Saved& saved, const View<const T>& d_y, const View<T>& d_x,
                E&& executor = {}) {
    fovea::check_backward("ReformerLayer", tokens.x, sizes_.width, d_y, sizes_.width, d_x);
    check_saved("ReformerLayer", saved.projected.view(), tokens.x, 2 * columns());
    check_lengths("ReformerLayer", tokens, detail::rows_of_sequence(tokens.x, executor));
    check_no_terms("ReformerLayer", tokens, "the layer does not read it");
    const View<T> d_projected = saved.d_projected.resize(d_y.batch(), d_y.rows(), 2 * columns());
    const View<T> d_out = saved.d_out.resize(d_y.batch(), d_y.rows(), columns());
    const View<const T> out(heads_of(saved.out.view(), 0));
    const View<const T> d_heads(heads_of(d_out, 0));
    const ReformerGrads<T> grads{heads_of(d_projected, 0), heads_of(d_projected, columns())};
    // A distributed pass checks its tensors itself.
    if constexpr (!ShardsRows<E>) {
      op_.check_backward(inputs(tokens, saved), out, kept(saved), d_heads, grads);
    }
    typename Linear<T>::Saved nothing;
    out_.backward(View<const T>(saved.out.view()), nothing, d_y, d_out, executor);
    detail::attend_backward<ReformerAttention, T>(op_, inputs(tokens, saved), out, kept(saved),
                                                  d_heads, grads, executor);
    projection_.backward(tokens.x, nothing, View<const T>(d_projected), d_x, executor);
  }

 private:
  Index columns() const { return sizes_.heads * sizes_.head_width; }
  View<T> heads_of(const View<T>& side_by_side, Index first) const {
    return as_heads(side_by_side, first, sizes_.heads, sizes_.head_width);
  }
  ReformerInputs<T> inputs(const Tokens<T>& tokens, Saved& saved) const {
    const View<T> projected = saved.projected.view();
    const Shape hashes = {1, op_.options.rounds, sizes_.head_width, hashes_.cols()};
    return {heads_of(projected, 0), heads_of(projected, columns()), tokens.key_lengths,
            View<const T>(hashes_.data(), hashes)};
  }
  static ReformerSaved<T> kept(Saved& saved) { return {{}, saved.round_lse.view()}; }

  ReformerAttention op_;
  HeadSizes sizes_;
  Linear<T> projection_;
  Linear<T> out_;
  RowMatrix<T> hashes_;  // [rounds D, buckets / 2]
};

FOVEA_NAMESPACE_END
