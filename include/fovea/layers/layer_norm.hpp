// SPDX-License-Identifier: MIT
/// \file
/// Layer normalisation over the channels of a token (Ba, Kiros and Hinton 2016). It costs a few
/// passes over a row in cache.
#pragma once

#include <array>
#include <cmath>

#include "fovea/layers/layer_calls.hpp"

FOVEA_NAMESPACE_BEGIN

/// Options of LayerNorm.
struct LayerNormOptions {
  double epsilon = 1e-5;      ///< added to the variance, more than 0
  const char* name = "norm";  ///< the first part of the names of its parameters
};

namespace detail {

/// The sum of f(i) for i in [0, count). Sixteen sums run side by side and are added at the end,
/// always in the same order.
template <class T, class F>
T lane_sum(Index count, F&& f) {
  constexpr Index lanes = 16;
  std::array<T, lanes> sums{};
  const Index whole = count - count % lanes;
  for (Index i = 0; i < whole; i += lanes) {
    for (Index l = 0; l < lanes; ++l) sums[static_cast<std::size_t>(l)] += f(i + l);
  }
  for (Index i = whole; i < count; ++i) sums[static_cast<std::size_t>(i - whole)] += f(i);
  for (std::size_t half = lanes / 2; half > 0; half /= 2) {
    for (std::size_t l = 0; l < half; ++l) sums[l] += sums[l + half];
  }
  return sums[0];
}

}  // namespace detail

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
    detail::for_each_row_block(as_executor(executor), x.batch(), x.rows(),
                               [&](Index b, Index first, Index count) {
                                 for (Index n = first; n < first + count; ++n) {
                                   normalise(&x(b, 0, n, 0), &y(b, 0, n, 0), &moments(b, 0, n, 0));
                                 }
                               });
  }

  /// Adds to the gradients of the parameters. If d_x is given, it is written; it may be d_y.
  /// \throws as `forward`
  template <class E = Serial>
  void backward(const View<const T>& x, Saved& saved, const View<const T>& d_y, const View<T>& d_x,
                E&& executor = {}) {
    const View<const T> moments = saved.moments.view();
    check_activations("LayerNorm", "x", x, width());
    check_alike("LayerNorm", "d_y", d_y, width(), x);
    check_saved("LayerNorm", moments, x);
    if (!d_x.is_none()) {
      check_alike("LayerNorm", "d_x", d_x, width(), x);
      check_written("LayerNorm", "d_x", d_x, "x", x);
    }
    auto&& threads = as_executor(executor);
    detail::for_each_column_block(
        threads, width(), detail::kColumnsPerTask,
        [&](Index first, Index count) { add_parameters(x, moments, d_y, first, count); });
    if (d_x.is_none()) return;
    detail::for_each_row_block(
        threads, x.batch(), x.rows(), [&](Index b, Index first, Index count) {
          for (Index n = first; n < first + count; ++n) {
            differentiate(&x(b, 0, n, 0), &moments(b, 0, n, 0), &d_y(b, 0, n, 0), &d_x(b, 0, n, 0));
          }
        });
  }

 private:
  void normalise(const T* x, T* y, T* moments) const {
    const Index width = this->width();
    const T* const scales = scale.value.data();
    const T* const shifts = shift.value.data();
    const T mean =
        detail::lane_sum<T>(width, [&](Index c) { return x[c]; }) / static_cast<T>(width);
    const T squares = detail::lane_sum<T>(width, [&](Index c) {
      const T centred = x[c] - mean;
      return centred * centred;
    });
    const T inverse = T{1} / std::sqrt(squares / static_cast<T>(width) + epsilon_);
    moments[0] = mean;
    moments[1] = inverse;
    for (Index c = 0; c < width; ++c) y[c] = (x[c] - mean) * inverse * scales[c] + shifts[c];
  }

  /// d_x = (g - mean(g) - xhat mean(g xhat)) / deviation, with g = d_y scale and
  /// xhat = (x - mean) / deviation.
  void differentiate(const T* x, const T* moments, const T* d_y, T* d_x) const {
    const Index width = this->width();
    const T* const scales = scale.value.data();
    const T mean = moments[0];
    const T inverse = moments[1];
    const auto size = static_cast<T>(width);
    const T of_g = detail::lane_sum<T>(width, [&](Index c) { return d_y[c] * scales[c]; }) / size;
    const T of_g_x =
        detail::lane_sum<T>(
            width, [&](Index c) { return d_y[c] * scales[c] * ((x[c] - mean) * inverse); }) /
        size;
    for (Index c = 0; c < width; ++c) {
      const T normal = (x[c] - mean) * inverse;
      d_x[c] = (d_y[c] * scales[c] - of_g - normal * of_g_x) * inverse;
    }
  }

  /// Adds to the gradients of some channels the sums over all tokens, in order.
  void add_parameters(const View<const T>& x, const View<const T>& moments,
                      const View<const T>& d_y, Index first, Index count) {
    T* const d_scale = scale.gradient.data() + first;
    T* const d_shift = shift.gradient.data() + first;
    for (Index b = 0; b < x.batch(); ++b) {
      for (Index n = 0; n < x.rows(); ++n) {
        const T* const from = &x(b, 0, n, first);
        const T* const d = &d_y(b, 0, n, first);
        const T mean = moments(b, 0, n, 0);
        const T inverse = moments(b, 0, n, 1);
        for (Index c = 0; c < count; ++c) {
          d_scale[c] += d[c] * ((from[c] - mean) * inverse);
          d_shift[c] += d[c];
        }
      }
    }
  }

  T epsilon_ = static_cast<T>(1e-5);
};

FOVEA_NAMESPACE_END
