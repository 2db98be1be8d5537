// SPDX-License-Identifier: MIT
/// \file
/// A convolution along the sequence, for each channel on its own. It costs 2 taps flops per
/// element.
#pragma once

#include "fovea/kernels/layers/table.hpp"
#include "fovea/layers/layer_calls.hpp"
#include "fovea/layers/token_sums.hpp"

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

  /// Lists the one parameter.
  template <class Self, class F>
  static void each_part(Self& self, F&& f) {
    f(self.weight);
  }

  using LayerCalls<DepthwiseConv<T>, T, Tokens<T>>::forward;
  /// Computes y.
  /// \throws std::invalid_argument with a message that names tensor, dimension, expected and got
  template <class E = Serial>
  void forward(const Tokens<T>& tokens, const View<T>& y, Saved& /*saved*/,
               E&& executor = {}) const {
    check_forward("DepthwiseConv", tokens.x, width(), y, width());
    check_lengths("DepthwiseConv", tokens);
    detail::check_is_whole("DepthwiseConv", executor);
    convolve(tokens, tokens.x, y, false, Into::write, as_executor(executor));
  }

  /// Adds to the gradient of the weights. If d_x is given, it is written or added to; from the key
  /// length on the gradient is 0.
  /// \throws as `forward`
  template <class E = Serial>
  void backward(const Tokens<T>& tokens, Saved& /*saved*/, const View<const T>& d_y,
                const View<T>& d_x, E&& executor = {}, Into into = Into::write) {
    check_backward("DepthwiseConv", tokens.x, width(), d_y, width(), d_x);
    check_lengths("DepthwiseConv", tokens);
    detail::check_is_whole("DepthwiseConv", executor);
    auto&& threads = as_executor(executor);
    const auto rows = static_cast<double>(taps() * d_y.batch() * d_y.rows());
    T* const d_weights = weight.gradient_sum().data();
    detail::for_each_column_block(threads, width(), detail::kColumnsPerTask, kProducts * rows,
                                  [&](Index first, Index count) {
                                    add_weights(tokens, d_y, d_weights + first, first, count);
                                  });
    // This is the same convolution with the taps in reverse order.
    if (!d_x.is_none()) convolve(tokens, d_y, d_x, true, into, threads);
  }

 private:
  /// Multiply-adds of a product that take as long as one of a tap does.
  static constexpr double kProducts = 4;

  Index taps() const { return weight.value.rows(); }

  /// y = the convolution of x, or what is added to y.
  template <class E>
  void convolve(const Tokens<T>& tokens, const View<const T>& x, const View<T>& y, bool reversed,
                Into into, E&& threads) const {
    const LayerKernels<T> kernels;
    const double products = kProducts * static_cast<double>(weight.value.size());
    detail::for_each_row_block(threads, y.batch(), y.rows(), products,
                               [&](Index b, Index first, Index count) {
                                 kernels.convolve({.x = detail::row_at(x, b, 0),
                                                   .x_row = x.strides()[2],
                                                   .length = tokens.length(b),
                                                   .weights = weight.value.data(),
                                                   .weights_row = width(),
                                                   .taps = taps(),
                                                   .reversed = reversed,
                                                   .to = detail::row_at(y, b, 0),
                                                   .to_row = y.strides()[2],
                                                   .begin = first,
                                                   .end = first + count,
                                                   .add = into == Into::add,
                                                   .width = width()});
                               });
  }

  /// Adds to the gradient of some channels the sums over all tokens, in order.
  void add_weights(const Tokens<T>& tokens, const View<const T>& d_y, T* d_weights, Index first,
                   Index count) const {
    const LayerKernels<T> kernels;
    for (Index b = 0; b < d_y.batch(); ++b) {
      kernels.convolution_weights({.x = detail::row_at(tokens.x, b, 0) + first,
                                   .x_row = tokens.x.strides()[2],
                                   .length = tokens.length(b),
                                   .taps = taps(),
                                   .d = detail::row_at(d_y, b, 0) + first,
                                   .d_row = d_y.strides()[2],
                                   .d_weights = d_weights,
                                   .d_weights_row = width(),
                                   .width = count});
    }
  }
};

FOVEA_NAMESPACE_END
