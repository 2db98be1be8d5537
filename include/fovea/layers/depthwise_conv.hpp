// SPDX-License-Identifier: MIT
/// \file
/// A convolution along the sequence, for each channel on its own. It costs 2 taps flops per
/// element.
#pragma once

#include "fovea/layers/layer_calls.hpp"

FOVEA_NAMESPACE_BEGIN

/// Options of DepthwiseConv.
struct DepthwiseConvOptions {
  Index taps = 5;  ///< the number of taps, which is odd: as many on either side of the token
  const char* name = "depthwise";  ///< the first part of the name of its parameter
};

/// y[i, c] = sum_t w[t, c] x[i + t - taps / 2, c], without a bias. x counts as 0 before the
/// sequence and from its key length on. So y is that of the shorter sequence, and 0 from the key
/// length on. x and y are [B, 1, L, C] with dense rows. The bits are the same for any number of
/// threads.
template <class T>
class DepthwiseConv : public LayerCalls<DepthwiseConv<T>, T, Tokens<T>> {
 public:
  Parameter<T> weight;  ///< [taps, C]

  /// Nothing is kept, because backward reads x again.
  struct Saved {};

  /// A layer without sizes, which has yet to be assigned to.
  DepthwiseConv() = default;

  /// Draws the weights for activations of this width.
  /// \throws std::invalid_argument if a size is below 1 or the number of taps is even
  DepthwiseConv(Index width, Initialiser& initialiser, const DepthwiseConvOptions& options = {})
      : weight(std::string(options.name) + ".taps", options.taps, width) {
    check_size("DepthwiseConv", "the width of x", width);
    if (options.taps % 2 != 1) {
      refuse("DepthwiseConv", "taps", std::to_string(options.taps), "an odd number");
    }
    initialiser.draw(weight, Initialisation::glorot, options.taps, options.taps);
  }

  /// The number of channels of x and y.
  Index width() const { return weight.value.cols(); }

  /// Calls f for the one parameter.
  template <class F>
  void visit(F&& f) {
    f(weight);
  }

  using LayerCalls<DepthwiseConv<T>, T, Tokens<T>>::forward;
  /// Computes y.
  /// \throws std::invalid_argument with a message that names tensor, dimension, expected and got
  template <class E = Serial>
  void forward(const Tokens<T>& tokens, const View<T>& y, Saved& /*saved*/,
               E&& executor = {}) const {
    check_forward("DepthwiseConv", tokens.x, width(), y, width());
    check_lengths("DepthwiseConv", tokens);
    detail::for_each_row_block(
        as_executor(executor), y.batch(), y.rows(), [&](Index b, Index first, Index count) {
          detail::rows_of(y, b, first, count).setZero();
          for (Index t = 0; t < taps(); ++t) {
            add_tap(tokens.x, y, b, {first, first + count}, tokens.length(b), t, t - taps() / 2);
          }
        });
  }

  /// Adds to the gradient of the weights. If d_x is given, it is written or added to; from the key
  /// length on the gradient is 0.
  /// \throws as `forward`
  template <class E = Serial>
  void backward(const Tokens<T>& tokens, Saved& /*saved*/, const View<const T>& d_y,
                const View<T>& d_x, E&& executor = {}, Into into = Into::write) {
    check_backward("DepthwiseConv", tokens.x, width(), d_y, width(), d_x);
    check_lengths("DepthwiseConv", tokens);
    auto&& threads = as_executor(executor);
    detail::for_each_column_block(
        threads, width(), detail::kColumnsPerTask,
        [&](Index first, Index count) { add_weights(tokens, d_y, first, count); });
    if (d_x.is_none()) return;
    // This is the same convolution with the taps in reverse order.
    detail::for_each_row_block(
        threads, d_x.batch(), d_x.rows(), [&](Index b, Index first, Index count) {
          if (into == Into::write) detail::rows_of(d_x, b, first, count).setZero();
          for (Index t = 0; t < taps(); ++t) {
            add_tap(d_y, d_x, b, {first, first + count}, tokens.length(b), t, taps() / 2 - t);
          }
        });
  }

 private:
  struct Rows {
    Index begin;
    Index end;
  };

  Index taps() const { return weight.value.rows(); }

  /// y[i] += w[t] x[i + shift] for the given rows, where both positions are of the sequence.
  void add_tap(const View<const T>& x, const View<T>& y, Index b, Rows rows, Index length, Index t,
               Index shift) const {
    const Index begin = (std::max)(rows.begin, -shift);
    const Index end = (std::min)({rows.end, length, length - shift});
    const auto w = weight.value.row(t).array();
    for (Index i = begin; i < end; ++i) {
      detail::rows_of(y, b, i, 1).array() += detail::rows_of(x, b, i + shift, 1).array() * w;
    }
  }

  /// Adds to the gradient of some channels the sums over all tokens, in order.
  void add_weights(const Tokens<T>& tokens, const View<const T>& d_y, Index first, Index count) {
    for (Index b = 0; b < d_y.batch(); ++b) {
      const Index length = tokens.length(b);
      for (Index i = 0; i < length; ++i) {
        for (Index t = 0; t < taps(); ++t) {
          const Index from = i + t - taps() / 2;
          if (from < 0 || from >= length) continue;
          const T* const x = &tokens.x(b, 0, from, first);
          const T* const d = &d_y(b, 0, i, first);
          T* const sum = &weight.gradient(t, first);
          for (Index c = 0; c < count; ++c) sum[c] += d[c] * x[c];
        }
      }
    }
  }
};

FOVEA_NAMESPACE_END
