// SPDX-License-Identifier: MIT
/// \file
/// The common base of LayerNorm and RmsNorm: each token's channels are normalised and scaled. It
/// costs a few passes over a row in cache.
#pragma once

#include "fovea/kernels/layers/table.hpp"
#include "fovea/layers/layer_calls.hpp"
#include "fovea/layers/token_sums.hpp"

FOVEA_NAMESPACE_BEGIN

/// The passes of a normalisation `Layer`, which has `name()` and kIsCentred: whether a row's mean
/// is subtracted and its member `shift` added. x and y are [B, 1, L, C] with dense rows. The sum of
/// a row's squares must not overflow: in float its elements are below 1.8e19 / sqrt(C), in double
/// below 1.3e154 / sqrt(C).
template <class Layer, class T>
class RowNorm : public LayerCalls<Layer, T> {
 public:
  Parameter<T> scale;  ///< [1, C], initially 1

  /// State saved for backward.
  struct Saved {
    Buffer<T> moments;  ///< [B, 1, L, n] per row; see norm_moments
  };

  /// The number of channels of x and y.
  Index width() const { return scale.value.cols(); }

  using LayerCalls<Layer, T>::forward;
  /// Computes y, and saves what `backward` needs.
  /// \throws std::invalid_argument if a shape or layout is wrong
  /// \throws std::bad_alloc if allocation fails
  template <class E = Serial>
  void forward(const View<const T>& x, const View<T>& y, Saved& saved, E&& executor = {}) const {
    check_forward(Layer::name(), x, width(), y, width());
    detail::add_to_collective_check(executor, Layer::name(), epsilon_);
    const View<T> moments =
        saved.moments.resize(x.batch(), x.rows(), norm_moments(Layer::kIsCentred));
    const LayerKernels<T> kernels;
    detail::for_each_row_block(as_executor(executor), x.batch(), x.rows(), products(),
                               [&](Index b, Index first, Index count) {
                                 NormArgs<T> args = arguments(x, moments, b, first, count);
                                 args.y = &y(b, 0, first, 0);
                                 args.y_row = y.strides()[2];
                                 kernels.normalise(args);
                               });
  }

  /// Adds to the gradients of the parameters. If given, d_x is written; it may be d_y.
  /// \throws as `forward`
  template <class E = Serial>
  void backward(const View<const T>& x, Saved& saved, const View<const T>& d_y, const View<T>& d_x,
                E&& executor = {}) {
    constexpr const char* name = Layer::name();
    const View<T> moments = saved.moments.view();
    check_activations(name, "x", x, width());
    check_alike(name, "d_y", d_y, width(), x);
    check_saved(name, moments, x, norm_moments(Layer::kIsCentred));
    if (!d_x.empty()) {
      check_alike(name, "d_x", d_x, width(), x);
      check_written(name, "d_x", d_x, "x", x);
      check_in_place(name, d_x, d_y);
    }
    auto&& threads = as_executor(executor);
    detail::add_to_collective_check(threads, name, epsilon_);
    const LayerKernels<T> kernels;
    add_parameters(x, moments, d_y, threads);
    if (d_x.empty()) return;
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

 protected:
  /// An empty layer; assign one before use.
  RowNorm() = default;

  /// Normalises activations of this width.
  /// \param parameters the prefix of its parameters' names
  /// \throws std::invalid_argument if the width is below 1 or epsilon is not above 0
  RowNorm(Index width, double epsilon, const char* parameters)
      : scale(std::string(parameters) + ".scale", 1, width, T{1}),
        epsilon_(static_cast<T>(epsilon)) {
    check_size(Layer::name(), "the width of x", width);
    if (!(epsilon_ > 0)) {
      refuse(Layer::name(), "epsilon", to_string(epsilon), "more than 0");
    }
  }
  ~RowNorm() = default;

 private:
  /// Cost of one element, in multiply-adds.
  static constexpr double kProducts = 16;

  /// The cost of a row.
  double products() const { return kProducts * static_cast<double>(width()); }

  /// Adds to the gradients of scale and shift.
  template <class E>
  void add_parameters(const View<const T>& x, const View<T>& moments, const View<const T>& d_y,
                      E&& threads) {
    RowMatrix<T>& d_scale = scale.gradient_sum();
    RowMatrix<T>* d_shift = nullptr;
    if constexpr (Layer::kIsCentred) d_shift = &static_cast<Layer&>(*this).shift.gradient_sum();
    const auto add = [&](T* of_scale, T* of_shift, const detail::TokenRange& tokens) {
      add_tokens(x, moments, d_y, of_scale, of_shift, tokens, threads);
    };
    if constexpr (ShardsRows<E>) {
      // Both are sent together.
      RowMatrix<T> both(1, (Layer::kIsCentred ? 2 : 1) * width());
      both.leftCols(width()) = d_scale;
      if (d_shift != nullptr) both.rightCols(width()) = *d_shift;
      detail::sum_over_tokens(x, both, 1, threads,
                              [&](const detail::SumRows<T>& sum, const detail::TokenRange& tokens) {
                                add(sum.data, d_shift == nullptr ? nullptr : sum.data + width(),
                                    tokens);
                              });
      d_scale = both.leftCols(width());
      if (d_shift != nullptr) *d_shift = both.rightCols(width());
    } else {
      add(d_scale.data(), d_shift == nullptr ? nullptr : d_shift->data(), detail::all_tokens(x));
    }
  }

  /// Adds the contribution of some tokens. \param d_shift [C], or null without a shift
  template <class E>
  void add_tokens(const View<const T>& x, const View<T>& moments, const View<const T>& d_y,
                  T* d_scale, T* d_shift, const detail::TokenRange& tokens, E&& threads) const {
    const Index begin = tokens.rows.begin;
    const Index rows = tokens.rows.end - begin;
    if (rows == 0) return;
    const LayerKernels<T> kernels;
    const auto products = kProducts * static_cast<double>(x.batch() * rows);
    detail::for_each_column_block(
        threads, width(), detail::kColumnsPerTask, products, [&](Index first, Index count) {
          for (Index b = tokens.sequences.begin; b < tokens.sequences.end; ++b) {
            NormArgs<T> args = arguments(x, moments, b, begin, rows);
            args.x += first;
            args.width = count;
            args.d_y = &d_y(b, 0, begin, first);
            args.d_y_row = d_y.strides()[2];
            args.d_scale = d_scale + first;
            if (d_shift != nullptr) args.d_shift = d_shift + first;
            kernels.norm_parameters(args);
          }
        });
  }

  /// The arguments of all passes over rows.
  NormArgs<T> arguments(const View<const T>& x, const View<T>& moments, Index b, Index first,
                        Index count) const {
    NormArgs<T> args{.x = &x(b, 0, first, 0),
                     .x_row = x.strides()[2],
                     .moments = &moments(b, 0, first, 0),
                     .scale = scale.value.data(),
                     .rows = count,
                     .width = width(),
                     .epsilon = epsilon_,
                     .is_centred = Layer::kIsCentred};
    if constexpr (Layer::kIsCentred) {
      args.shift = static_cast<const Layer&>(*this).shift.value.data();
    }
    return args;
  }

  T epsilon_{};
};

FOVEA_NAMESPACE_END
