// SPDX-License-Identifier: MIT
/// \file
/// The mean of the tokens of a sequence, as a classifier reads it.
#pragma once

#include "fovea/layers/layer_calls.hpp"

FOVEA_NAMESPACE_BEGIN

/// y[b] is the mean of x[b, i] over the tokens before the key length, or 0 if there are none. x is
/// [B, 1, L, C] and y [B, 1, 1, C], with dense rows. Sums are taken in the order of the tokens. The
/// layer learns nothing.
template <class T>
class MeanPool : public LayerCalls<MeanPool<T>, T, Tokens<T>> {
 public:
  /// Nothing is kept, because backward needs the lengths alone.
  struct Saved {};

  using LayerCalls<MeanPool<T>, T, Tokens<T>>::forward;
  /// Computes y.
  /// \throws std::invalid_argument with a message that names tensor, dimension, expected and got
  template <class E = Serial>
  void forward(const Tokens<T>& tokens, const View<T>& y, Saved& /*saved*/,
               E&& executor = {}) const {
    check(tokens, "y", y);
    check_written("MeanPool", "y", y, "x", tokens.x);
    for_each_task(as_executor(executor), y.batch(), [&](Index b, Index /*worker*/) {
      auto mean = detail::rows_of(y, b);
      mean.setZero();
      for (Index n = 0; n < tokens.length(b); ++n) mean += detail::rows_of(tokens.x, b, n, 1);
      mean *= share(tokens, b);
    });
  }

  /// Writes d_x, which is 0 from the key length on. \throws as `forward`
  template <class E = Serial>
  void backward(const Tokens<T>& tokens, Saved& /*saved*/, const View<const T>& d_y,
                const View<T>& d_x, E&& executor = {}) {
    check(tokens, "d_y", d_y);
    check_alike("MeanPool", "d_x", d_x, tokens.x.width(), tokens.x);
    check_written("MeanPool", "d_x", d_x, "d_y", d_y);
    for_each_task(as_executor(executor), d_y.batch(), [&](Index b, Index /*worker*/) {
      auto rows = detail::rows_of(d_x, b);
      rows.setZero();
      rows.topRows(tokens.length(b)).rowwise() = detail::rows_of(d_y, b).row(0) * share(tokens, b);
    });
  }

 private:
  static T share(const Tokens<T>& tokens, Index b) {
    return T{1} / static_cast<T>(std::max<Index>(1, tokens.length(b)));
  }

  template <class U>
  static void check(const Tokens<T>& tokens, const char* tensor, const View<U>& y) {
    check_activations("MeanPool", "x", tokens.x, tokens.x.width());
    check_lengths("MeanPool", tokens);
    check_activations("MeanPool", tensor, y, tokens.x.width());
    detail::check_extent("MeanPool", tensor, y.shape(), 0, tokens.x.batch(), "the batch of x");
    detail::check_extent("MeanPool", tensor, y.shape(), 2, 1, "the mean");
  }
};

FOVEA_NAMESPACE_END
