// SPDX-License-Identifier: MIT
/// \file
/// Mean pooling over the tokens of a sequence.
#pragma once

#include "fovea/layers/layer_calls.hpp"
#include "fovea/layers/token_sums.hpp"

FOVEA_NAMESPACE_BEGIN

/// y[b] is the mean of x[b, i] over the tokens before the key length, or 0 if there are none. x is
/// [B, 1, L, C] and y [B, 1, 1, C], with dense rows. Sums are taken in token order. It has no
/// parameters.
template <class T>
class MeanPool : public LayerCalls<MeanPool<T>, T, Tokens<T>> {
 public:
  /// Empty: backward needs only the lengths.
  struct Saved {};

  using LayerCalls<MeanPool<T>, T, Tokens<T>>::forward;
  /// Computes y.
  /// \throws std::invalid_argument if a shape or layout is wrong
  template <class E = Serial>
  void forward(const Tokens<T>& tokens, const View<T>& y, Saved& /*saved*/,
               E&& executor = {}) const {
    auto&& threads = as_executor(executor);
    const Index rows = detail::rows_of_sequence(tokens.x, threads);
    check(tokens, "y", y, rows);
    check_written("MeanPool", "y", y, "x", tokens.x);
    if constexpr (ShardsRows<E>) {
      mean_over_ranks(tokens, y, rows, threads);
    } else {
      for_each_task(threads, y.batch(), [&](Index b, Index /*worker*/) {
        auto mean = detail::rows_of(y, b);
        mean.setZero();
        for (Index n = 0; n < tokens.length(b, rows); ++n) {
          mean += detail::rows_of(tokens.x, b, n, 1);
        }
        mean *= share(tokens, b, rows);
      });
    }
  }

  /// Writes d_x, which is 0 from the key length on. \throws as `forward`
  template <class E = Serial>
  void backward(const Tokens<T>& tokens, Saved& /*saved*/, const View<const T>& d_y,
                const View<T>& d_x, E&& executor = {}) {
    auto&& threads = as_executor(executor);
    const Index all = detail::rows_of_sequence(tokens.x, threads);
    check(tokens, "d_y", d_y, all);
    check_alike("MeanPool", "d_x", d_x, tokens.x.width(), tokens.x);
    check_written("MeanPool", "d_x", d_x, "d_y", d_y);
    detail::check_apart("MeanPool", "d_x", d_x, "x", tokens.x);
    for_each_task(threads, d_y.batch(), [&](Index b, Index /*worker*/) {
      Index counted = 0;  // local rows before the length; they come first
      while (counted < d_x.rows() &&
             detail::row_of_sequence(threads, counted) < tokens.length(b, all)) {
        ++counted;
      }
      auto rows = detail::rows_of(d_x, b);
      rows.setZero();
      rows.topRows(counted).rowwise() = detail::rows_of(d_y, b).row(0) * share(tokens, b, all);
    });
  }

 private:
  static T share(const Tokens<T>& tokens, Index b, Index rows) {
    return T{1} / static_cast<T>(std::max<Index>(1, tokens.length(b, rows)));
  }

  /// The mean of all rows across ranks, on every rank.
  template <class E>
  static void mean_over_ranks(const Tokens<T>& tokens, const View<T>& y, Index rows, E& over) {
    RowMatrix<T> sums = RowMatrix<T>::Zero(y.batch(), y.width());
    detail::sum_over_tokens(tokens.x, sums, y.batch(), over,
                            [&](const detail::SumRows<T>& sum, const detail::TokenRange& some) {
                              const Index b = some.sequences.begin;
                              Eigen::Map<RowMatrix<T>> to(sum.data + b * y.width(), 1, y.width());
                              for (Index n = some.rows.begin; n < some.rows.end; ++n) {
                                if (over.row_of_sequence(n) >= tokens.length(b, rows)) return;
                                to += detail::rows_of(tokens.x, b, n, 1);
                              }
                            });
    for (Index b = 0; b < y.batch(); ++b) {
      detail::rows_of(y, b) = sums.row(b) * share(tokens, b, rows);
    }
  }

  template <class U>
  static void check(const Tokens<T>& tokens, const char* tensor, const View<U>& y, Index rows) {
    check_activations("MeanPool", "x", tokens.x, tokens.x.width());
    check_lengths("MeanPool", tokens, rows);
    check_activations("MeanPool", tensor, y, tokens.x.width());
    detail::check_extent("MeanPool", tensor, y.shape(), 0, tokens.x.batch(), "the batch of x");
    detail::check_extent("MeanPool", tensor, y.shape(), 2, 1, "one mean for each sequence");
  }
};

FOVEA_NAMESPACE_END
