// SPDX-License-Identifier: MIT
/// \file
/// A depthwise convolution along the sequence. It costs 2 taps flops per element.
#pragma once

#include <vector>

#include "fovea/kernels/layers/table.hpp"
#include "fovea/layers/layer_calls.hpp"
#include "fovea/layers/token_sums.hpp"

FOVEA_NAMESPACE_BEGIN

/// Options of DepthwiseConv.
struct DepthwiseConvOptions {
  Index taps = 5;                  ///< the number of taps, odd, centred on the token
  const char* name = "depthwise";  ///< the prefix of its parameter's name
};

/// y[i, c] = sum_t w[t, c] x[i + t - taps / 2, c], without a bias. x is taken as 0 before the
/// sequence and from its key length on; y is 0 from the key length on. x and y are [B, 1, L, C]
/// with dense rows.
///
/// Across ranks, x (and d_y in the backward pass) is copied together with the remote rows that the
/// taps reach; either all ranks pass d_x or none.
template <class T>
class DepthwiseConv : public LayerCalls<DepthwiseConv<T>, T, Tokens<T>> {
 public:
  Parameter<T> weight;  ///< [taps, C]

  /// Empty: backward reads x again.
  struct Saved {};

  /// An empty layer; assign one before use.
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
  /// \throws std::invalid_argument if a shape or layout is wrong
  template <class E = Serial>
  void forward(const Tokens<T>& tokens, const View<T>& y, Saved& /*saved*/,
               E&& executor = {}) const {
    check_forward(kName, tokens.x, width(), y, width());
    auto&& threads = as_executor(executor);
    const Index rows = detail::rows_of_sequence(tokens.x, threads);
    check_lengths(kName, tokens, rows);
    convolve(tokens, rows, tokens.x, y, false, OutputMode::write, threads);
  }

  /// Adds to the gradient of the weights. If given, d_x is written or added to; from the key length
  /// on the gradient is 0.
  /// \throws as `forward`
  template <class E = Serial>
  void backward(const Tokens<T>& tokens, Saved& /*saved*/, const View<const T>& d_y,
                const View<T>& d_x, E&& executor = {}, OutputMode into = OutputMode::write) {
    check_backward(kName, tokens.x, width(), d_y, width(), d_x);
    auto&& threads = as_executor(executor);
    const Index rows = detail::rows_of_sequence(tokens.x, threads);
    check_lengths(kName, tokens, rows);
    with_neighbours(tokens.x, threads, [&](const View<const T>& x) {
      const Products all{tokens, x, d_y, rows};
      if constexpr (ShardsRows<E>) {
        add_weights_over_ranks(all, threads);
      } else {
        add_weights(all, detail::all_tokens(d_y), weight.gradient_sum(), 0, threads);
      }
    });
    // The same convolution with the taps reversed.
    if (!d_x.empty()) convolve(tokens, rows, d_y, d_x, true, into, threads);
  }

 private:
  static constexpr const char* kName = "DepthwiseConv";
  /// Cost of one tap, in multiply-adds of a matrix product.
  static constexpr double kProducts = 4;

  /// The terms of the gradient of the weights.
  struct Products {
    const Tokens<T>& tokens;
    View<const T> x;    // [B, 1, rows, C], valid in the rows that d_y needs
    View<const T> d_y;  // [B, 1, L, C] of the local tokens
    Index rows;         // of the sequence
  };

  Index taps() const { return weight.value.rows(); }

  /// Calls f(all) with x at its position in the sequence, with the rows that the taps reach.
  template <class E, class F>
  void with_neighbours(const View<const T>& x, E& threads, const F& f) const {
    const auto needs = [half = taps() / 2](const std::vector<Range>& held) {
      std::vector<Range> rows;
      for (const Range& range : held) rows.push_back({range.begin - half, range.end + half});
      return rows;
    };
    detail::with_rows_of_others(kName, x, 1, threads, needs, f);
  }

  /// Writes the convolution of x to y, or adds it. \param rows of the sequence
  template <class E>
  void convolve(const Tokens<T>& tokens, Index rows, const View<const T>& x, const View<T>& y,
                bool reversed, OutputMode into, E& threads) const {
    const LayerKernels<T> kernels;
    const double products = kProducts * static_cast<double>(weight.value.size());
    with_neighbours(x, threads, [&](const View<const T>& all) {
      detail::for_each_range(x, threads, [&](Index place, const Range& here) {
        const auto convolve_some = [&](Index b, Index first, Index count) {
          kernels.convolve({.x = detail::row_at(all, b, 0),
                            .x_row = all.strides()[2],
                            .length = tokens.length(b, rows),
                            .weights = weight.value.data(),
                            .weights_row = width(),
                            .taps = taps(),
                            .reversed = reversed,
                            .to = detail::row_at(y, b, place) - here.begin * y.strides()[2],
                            .to_row = y.strides()[2],
                            .begin = here.begin + first,
                            .end = here.begin + first + count,
                            .add = into == OutputMode::add,
                            .width = width()});
        };
        detail::for_each_row_block(threads, y.batch(), here.end - here.begin, products,
                                   convolve_some);
      });
    });
  }

  /// Adds the sums over some tokens, in order, to the gradients of some channels.
  /// \param to [taps, channels] \param channel the first of them
  template <class E>
  void add_weights(const Products& all, const detail::TokenRange& some, RowMatrix<T>& to,
                   Index channel, E& threads) const {
    const LayerKernels<T> kernels;
    const Index begin = detail::row_of_sequence(threads, some.rows.begin);
    const Index count = some.rows.end - some.rows.begin;
    const Index sequences = some.sequences.end - some.sequences.begin;
    const auto products = kProducts * static_cast<double>(taps() * sequences * count);
    detail::for_each_column_block(
        threads, to.cols(), detail::kColumnsPerTask, products, [&](Index first, Index width) {
          for (Index b = some.sequences.begin; b < some.sequences.end; ++b) {
            const T* const d = detail::row_at(all.d_y, b, some.rows.begin);
            kernels.convolution_weights({.x = detail::row_at(all.x, b, 0) + channel + first,
                                         .x_row = all.x.strides()[2],
                                         .length = all.tokens.length(b, all.rows),
                                         .taps = taps(),
                                         .begin = begin,
                                         .end = begin + count,
                                         .d = d - begin * all.d_y.strides()[2] + channel + first,
                                         .d_row = all.d_y.strides()[2],
                                         .d_weights = to.data() + first,
                                         .d_weights_row = to.cols(),
                                         .width = width});
          }
        });
  }

  /// The same for all tokens of a sharded sequence. Channels are the rows of the sum, so that each
  /// rank works on some of them.
  template <class E>
  void add_weights_over_ranks(const Products& all, E& over) {
    RowMatrix<T>& gradient = weight.gradient_sum();
    RowMatrix<T> sums = gradient.transpose();  // [C, taps]
    detail::sum_over_tokens(all.d_y, sums, detail::kColumnsPerTask, over,
                            [&](const detail::SumRows<T>& part, const detail::TokenRange& some) {
                              Eigen::Map<RowMatrix<T>> channels(
                                  part.data, part.rows.end - part.rows.begin, taps());
                              RowMatrix<T> by_tap = channels.transpose();
                              add_weights(all, some, by_tap, part.rows.begin, over);
                              channels = by_tap.transpose();
                            });
    gradient = sums.transpose();
  }
};

FOVEA_NAMESPACE_END
