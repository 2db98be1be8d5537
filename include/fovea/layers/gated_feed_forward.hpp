// SPDX-License-Identifier: MIT
/// \file
/// Gated feed-forward networks (Shazeer 2020): SwiGLU and GEGLU.
#pragma once

#include "fovea/layers/linear.hpp"

FOVEA_NAMESPACE_BEGIN

/// Options of GatedFeedForward.
struct GatedFeedForwardOptions {
  GateKind gate = GateKind::silu;  ///< the function of the gate: silu is SwiGLU, GELU is GEGLU
  bool bias = false;               ///< whether the maps have a bias
};

/// y = (f(x W_g) * (x W_u)) W_d, where * is element-wise, for x and y [B, 1, L, C] with dense rows.
/// W_g and W_u are concatenated in one matrix [C, 2 Hidden], the gate first. It costs 6 C Hidden
/// flops per token, and twice that in the backward pass.
/// \tparam W the type of the weights, as in Linear
template <class T, class W = T>
class GatedFeedForward : public LayerCalls<GatedFeedForward<T, W>, T> {
 public:
  /// State saved for backward, and buffers for gradients.
  struct Saved {
    Buffer<T> projected;    ///< [B, 1, L, 2 Hidden] the gates and the gated values
    Buffer<T> hidden;       ///< [B, 1, L, Hidden] the input of W_d
    Buffer<T> d_projected;  ///< [B, 1, L, 2 Hidden] the gradient of projected
    Buffer<T> d_hidden;     ///< [B, 1, L, Hidden] the gradient of hidden
  };

  /// An empty layer; assign one before use.
  GatedFeedForward() = default;

  /// \param width channels C of x and y
  /// \param hidden channels between the maps
  /// \param initialiser draws the weights
  /// \param options gate and bias
  /// \throws std::invalid_argument if a size is below 1
  GatedFeedForward(Index width, Index hidden, Initialiser& initialiser,
                   const GatedFeedForwardOptions& options = {})
      : gate_(options.gate),
        in_(width, 2 * hidden, initialiser,
            {.bias = options.bias, .outputs_of_one = hidden, .name = "feed_forward.gate_up"}),
        out_(hidden, width, initialiser, {.bias = options.bias, .name = "feed_forward.down"}) {}

  /// The number of channels of x and y.
  Index width() const { return out_.out(); }

  /// Lists both maps.
  template <class Self, class F>
  static void each_part(Self& self, F&& f) {
    f(self.in_);
    f(self.out_);
  }

  using LayerCalls<GatedFeedForward<T, W>, T>::forward;
  /// Computes y, and saves what `backward` needs.
  /// \throws std::invalid_argument if a shape or layout is wrong
  /// \throws std::bad_alloc if allocation fails
  template <class E = Serial>
  void forward(const View<const T>& x, const View<T>& y, Saved& saved, E&& executor = {}) const {
    check_forward("GatedFeedForward", x, width(), y, width());
    auto&& threads = as_executor(executor);
    const View<T> projected = saved.projected.resize(x.batch(), x.rows(), in_.out());
    const View<T> hidden = saved.hidden.resize(x.batch(), x.rows(), out_.in());
    in_.forward(x, projected, threads);
    for_each_block(projected, threads,
                   [&](const LayerKernels<T>& kernels, GatedArgs<T> args, Index b, Index row) {
                     args.y = detail::row_at(hidden, b, row);
                     args.y_row = hidden.strides()[2];
                     kernels.gated(args);
                   });
    out_.forward(hidden, y, threads);
  }

  /// Adds to the gradients of the parameters. If given, d_x is written.
  /// \throws as `forward`
  template <class E = Serial>
  void backward(const View<const T>& x, Saved& saved, const View<const T>& d_y, const View<T>& d_x,
                E&& executor = {}) {
    check_backward("GatedFeedForward", x, width(), d_y, width(), d_x);
    check_saved("GatedFeedForward", saved.hidden.view(), x, out_.in());
    auto&& threads = as_executor(executor);
    const View<T> d_hidden = saved.d_hidden.resize(x.batch(), x.rows(), out_.in());
    const View<T> d_projected = saved.d_projected.resize(x.batch(), x.rows(), in_.out());
    typename Linear<T, W>::Saved nothing;
    out_.backward(saved.hidden.view(), nothing, d_y, d_hidden, threads);
    for_each_block(saved.projected.view(), threads,
                   [&](const LayerKernels<T>& kernels, GatedArgs<T> args, Index b, Index row) {
                     args.d_y = detail::row_at(d_hidden, b, row);
                     args.d_y_row = d_hidden.strides()[2];
                     args.d_gate = detail::row_at(d_projected, b, row);
                     args.d_up = args.d_gate + args.width;
                     args.d_gate_row = args.d_up_row = d_projected.strides()[2];
                     kernels.gated_grad(args);
                   });
    in_.backward(x, nothing, d_projected, d_x, threads);
  }

 private:
  /// Cost of one element, in multiply-adds.
  static constexpr double kProducts = 32;

  /// Calls f(kernels, args, b, row) for blocks of rows, with the gates and the gated values.
  template <class E, class F>
  void for_each_block(const View<T>& projected, E&& threads, F&& f) const {
    detail::add_to_collective_check(threads, "GatedFeedForward", gate_);
    const LayerKernels<T> kernels;
    const Index hidden = out_.in();
    detail::for_each_row_block(threads, projected.batch(), projected.rows(),
                               kProducts * static_cast<double>(hidden),
                               [&](Index b, Index row, Index count) {
                                 GatedArgs<T> args;
                                 args.gate = detail::row_at(projected, b, row);
                                 args.up = args.gate + hidden;
                                 args.gate_row = args.up_row = projected.strides()[2];
                                 args.rows = count;
                                 args.width = hidden;
                                 args.kind = gate_;
                                 f(kernels, args, b, row);
                               });
  }

  GateKind gate_ = GateKind::silu;
  Linear<T, W> in_;
  Linear<T, W> out_;
};

FOVEA_NAMESPACE_END
