// SPDX-License-Identifier: MIT
/// \file
/// Layer normalisation over the channels of a token (Ba, Kiros and Hinton 2016). It costs a few
/// passes over a row in cache.
#pragma once

#include "fovea/kernels/layers/table.hpp"
#include "fovea/layers/layer_calls.hpp"

FOVEA_NAMESPACE_BEGIN

/// Options of LayerNorm.
struct LayerNormOptions {
  double epsilon = 1e-5;      ///< added to the variance, more than 0
  const char* name = "norm";  ///< the first part of the names of its parameters
};

/// y = (x - mean) / sqrt(variance + epsilon) * scale + shift, with the mean and variance of the C
/// channels of a token. A row of zeros gives exactly `shift`. x and y are [B, 1, L, C] with dense
/// rows. The bits are the same for any number of threads.
template <class T>
class LayerNorm : public LayerCalls<LayerNorm<T>, T> {
 public:
  Parameter<T> scale;  ///< [1, C], which begins as 1
  Parameter<T> shift;  ///< [1, C], which begins as 0

  /// What is kept from forward to backward.
  struct Saved {
    Buffer<T> moments;  ///< [B, 1, L, 2] of each row the mean, and 1 / sqrt(variance + epsilon)
  };

  /// A layer without sizes, which has yet to be assigned to.
  LayerNorm() = default;

  /// A normalisation of activations of this width.
  /// \throws std::invalid_argument if the width is below 1 or epsilon is not above 0
  explicit LayerNorm(Index width, const LayerNormOptions& options = {})
      : scale(std::string(options.name) + ".scale", 1, width, T{1}),
        shift(std::string(options.name) + ".shift", 1, width),
        epsilon_(static_cast<T>(options.epsilon)) {
    check_size("LayerNorm", "the width of x", width);
    if (!(epsilon_ > 0)) {
      refuse("LayerNorm", "epsilon", to_string(options.epsilon), "more than 0");
    }
  }

  /// The number of channels of x and y.
  Index width() const { return scale.value.cols(); }

  /// Calls f for the scale and for the shift.
  template <class F>
  void visit(F&& f) {
    f(scale);
    f(shift);
  }

  using LayerCalls<LayerNorm<T>, T>::forward;
  /// Computes y, and keeps what `backward` needs.
  /// \throws std::invalid_argument with a message that names tensor, dimension, expected and got
  /// \throws std::bad_alloc if there is no memory for what is kept
  template <class E = Serial>
  void forward(const View<const T>& x, const View<T>& y, Saved& saved, E&& executor = {}) const {
    check_forward("LayerNorm", x, width(), y, width());
    const View<T> moments = saved.moments.resize(x.batch(), x.rows(), 2);
    const LayerKernels<T> kernels;
    detail::for_each_row_block(as_executor(executor), x.batch(), x.rows(), products(),
                               [&](Index b, Index first, Index count) {
                                 NormArgs<T> args = arguments(x, moments, b, first, count);
                                 args.y = &y(b, 0, first, 0);
                                 args.y_row = y.strides()[2];
                                 kernels.normalise(args);
                               });
  }

  /// Adds to the gradients of the parameters. If d_x is given, it is written; it may be d_y.
  /// \throws as `forward`
  template <class E = Serial>
  void backward(const View<const T>& x, Saved& saved, const View<const T>& d_y, const View<T>& d_x,
                E&& executor = {}) {
    const View<T> moments = saved.moments.view();
    check_activations("LayerNorm", "x", x, width());
    check_alike("LayerNorm", "d_y", d_y, width(), x);
    check_saved("LayerNorm", moments, x);
    if (!d_x.is_none()) {
      check_alike("LayerNorm", "d_x", d_x, width(), x);
      check_written("LayerNorm", "d_x", d_x, "x", x);
    }
    auto&& threads = as_executor(executor);
    const auto tokens = static_cast<double>(x.batch() * x.rows());
    detail::for_each_column_block(
        threads, width(), detail::kColumnsPerTask, kProducts * tokens,
        [&](Index first, Index count) { add_parameters(x, moments, d_y, first, count); });
    if (d_x.is_none()) return;
    const LayerKernels<T> kernels;
    detail::for_each_row_block(threads, x.batch(), x.rows(), products(),
                               [&](Index b, Index first, Index count) {
                                 NormArgs<T> args = arguments(x, moments, b, first, count);
                                 args.d_y = &d_y(b, 0, first, 0);
                                 args.d_y_row = d_y.strides()[2];
                                 args.d_x = &d_x(b, 0, first, 0);
                                 args.d_x_row = d_x.strides()[2];
                                 kernels.norm_grad(args);
                               });
  }

 private:
  /// Multiply-adds that take as long as one element does.
  static constexpr double kProducts = 16;

  /// Of a row.
  double products() const { return kProducts * static_cast<double>(width()); }

  /// What all passes over rows read.
  NormArgs<T> arguments(const View<const T>& x, const View<T>& moments, Index b, Index first,
                        Index count) const {
    return {.x = &x(b, 0, first, 0),
            .x_row = x.strides()[2],
            .moments = &moments(b, 0, first, 0),
            .scale = scale.value.data(),
            .shift = shift.value.data(),
            .rows = count,
            .width = width(),
            .epsilon = epsilon_};
  }

  /// Adds to the gradients of some channels the sums over all tokens, in order.
  void add_parameters(const View<const T>& x, const View<T>& moments, const View<const T>& d_y,
                      Index first, Index count) {
    if (x.rows() == 0) return;
    const LayerKernels<T> kernels;
    for (Index b = 0; b < x.batch(); ++b) {
      NormArgs<T> args = arguments(x, moments, b, 0, x.rows());
      args.x += first;
      args.width = count;
      args.d_y = &d_y(b, 0, 0, first);
      args.d_y_row = d_y.strides()[2];
      args.d_scale = scale.gradient.data() + first;
      args.d_shift = shift.gradient.data() + first;
      kernels.norm_parameters(args);
    }
  }

  T epsilon_ = static_cast<T>(1e-5);
};

FOVEA_NAMESPACE_END
