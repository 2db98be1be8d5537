// SPDX-License-Identifier: MIT
/// \file
/// The linear map y = x W + b. It costs 2 In Out flops per token, and 4 In Out in the backward
/// pass.
#pragma once

#include "fovea/kernels/layers/table.hpp"
#include "fovea/layers/layer_calls.hpp"
#include "fovea/layers/token_sums.hpp"

FOVEA_NAMESPACE_BEGIN

/// Options of Linear.
struct LinearLayerOptions {
  bool bias = true;                                        ///< whether there is a bias b
  Initialisation initialisation = Initialisation::glorot;  ///< how W is drawn
  /// The number of outputs of each map, if several maps are concatenated in W, for the
  /// initialisation. If it is 0, all columns are one map.
  Index outputs_of_one = 0;
  const char* name = "linear";  ///< the first part of the names of its parameters
};

namespace detail {

/// The weights, or activations, as a kernel's matrix.
template <class W>
StoredMatrix<kStorage<W>> matrix_of(const RowMatrix<W>& weight) {
  return {weight.data(), weight.cols(), 1};
}
/// Rows of activations from row `first` of sequence b on.
template <class T>
Matrix<const T> matrix_of(const View<const T>& x, Index b, Index first) {
  return {row_at(x, b, first), x.strides()[2], 1};
}
/// The transposed matrix.
template <class M>
M transposed(const M& m) {
  return {m.data, m.column, m.row};
}

/// The rows of all sequences as one matrix [1, 1, B L, W], if they have a uniform stride; otherwise
/// x itself.
template <class T>
View<T> as_one_sequence(const View<T>& x) {
  const Shape& s = x.strides();
  const bool is_even = x.rows() == 1 || s[0] == x.rows() * s[2];
  if (x.batch() == 1 || x.size() == 0 || !is_even) return x;
  const Index row = x.rows() == 1 ? s[0] : s[2];
  return {x.data(), {1, 1, x.batch() * x.rows(), x.width()}, {0, 0, row, 1}};
}

/// Calls f(b, first, rows, column, columns) for each tile of a product, on the executor, or on the
/// calling thread if that is faster. If there are fewer blocks of rows than threads, as in a
/// decoder's step, threads share the columns. Results do not depend on the tiles.
/// \param products multiply-adds of a row
template <class F>
void for_each_product_tile(const ExecutorRef& executor, Index batch, Index rows, Index columns,
                           double products, F&& f) {
  constexpr Index line = 32;  // columns of a cache line of 16-bit weights
  const auto threads = for_work(
      executor, [&] { return products * static_cast<double>(batch) * static_cast<double>(rows); });
  const Index row_blocks = batch * blocks(rows, kRowsPerTask);
  Index width = columns;
  if (row_blocks > 0 && row_blocks < threads.concurrency()) {
    // One tile for each thread: parts of rows of weights are long, and of equal length.
    const Index tiles = blocks(threads.concurrency(), row_blocks);
    width = blocks(blocks(columns, tiles), line) * line;
  }
  const Index across = width == 0 ? 1 : blocks(columns, width);
  for_each_part(threads, batch, rows, across, [&](Index b, Index first, Index count, Index part) {
    const Index column = part * width;
    f(b, first, count, column, (std::min)(width, columns - column));
  });
}

/// y = x M for a matrix M of the weights, plus b if that is not empty; or y += x M.
/// \pre b is empty if products are added
template <class W, class T>
void multiply(const View<const T>& rows, const StoredMatrix<kStorage<W>>& matrix,
              const RowMatrix<T>& bias, const View<T>& to, OutputMode into,
              const ExecutorRef& executor) {
  View<const T> x = as_one_sequence(rows);
  View<T> y = as_one_sequence(to);
  if (x.shape()[2] != y.shape()[2]) {
    x = rows;
    y = to;
  }
  const ProductKernels<T, kStorage<W>> kernels;
  const Index steps = x.width();
  const auto products = static_cast<double>(steps) * static_cast<double>(y.width());
  executor.will_read(matrix.data, steps * y.width() * Index{sizeof(W)});
  for_each_product_tile(
      executor, x.batch(), x.rows(), y.width(), products,
      [&](Index b, Index first, Index count, Index column, Index columns) {
        const W* const weights = static_cast<const W*>(matrix.data) + column * matrix.column;
        kernels.multiply({.a = matrix_of(x, b, first),
                          .b = {weights, matrix.row, matrix.column},
                          .to = row_at(y, b, first) + column,
                          .to_row = y.strides()[2],
                          .rows = count,
                          .columns = columns,
                          .steps = steps,
                          .bias = bias.size() == 0 ? nullptr : bias.data() + column,
                          .add = into == OutputMode::add});
      });
}

/// y = x W, plus b if that is not empty; or y += x W.
/// \pre b is empty if products are added
template <class T, class W>
void multiply_rows(const View<const T>& x, const RowMatrix<W>& weight, const RowMatrix<T>& bias,
                   const View<T>& y, const ExecutorRef& executor,
                   OutputMode into = OutputMode::write) {
  multiply<W>(x, matrix_of(weight), bias, y, into, executor);
}

/// d_x = d_y W^T, or d_x += d_y W^T.
template <class T, class W>
void multiply_rows_transposed(const View<const T>& d_y, const RowMatrix<W>& weight,
                              const View<T>& d_x, OutputMode into, const ExecutorRef& executor) {
  multiply<W>(d_y, transposed(matrix_of(weight)), RowMatrix<T>(), d_x, into, executor);
}

/// The rows or columns of a tile: about half of an extent, so that threads share the work, a
/// multiple of cache lines, and at most 256. Smaller tiles pack the same rows repeatedly, and
/// larger ones exceed the cache.
constexpr Index tile_extent(Index extent) {
  return (std::min<Index>)(256, blocks(extent, 64) * 32);
}

/// Adds some tokens to rows of x^T d_y. Each tile is a task, which processes the tokens in order.
template <class T>
void add_outer_product(const View<const T>& x, const View<const T>& d_y, const SumRows<T>& sum,
                       const TokenRange& tokens, const ExecutorRef& executor) {
  const ProductKernels<T> kernels;
  const Index extent = sum.rows.end - sum.rows.begin;
  const Index steps = tokens.rows.end - tokens.rows.begin;
  const Index width = d_y.width();
  const Index tile_rows = tile_extent(extent);
  const Index tile_columns = tile_extent(width);
  const Index columns = blocks(width, tile_columns);
  const auto threads = for_work(executor, [&] {
    return static_cast<double>(extent * width) *
           static_cast<double>((tokens.sequences.end - tokens.sequences.begin) * steps);
  });
  for_each_task(threads, blocks(extent, tile_rows) * columns, [&](Index task, Index) {
    const Index i = task / columns * tile_rows;
    const Index j = task % columns * tile_columns;
    for (Index b = tokens.sequences.begin; b < tokens.sequences.end; ++b) {
      Matrix<const T> rows = transposed(matrix_of(x, b, tokens.rows.begin));
      rows.data += sum.rows.begin + i;
      Matrix<const T> products = matrix_of(d_y, b, tokens.rows.begin);
      products.data += j;
      kernels.multiply({.a = rows,
                        .b = stored(products),
                        .to = sum.data + i * width + j,
                        .to_row = width,
                        .rows = (std::min)(tile_rows, extent - i),
                        .columns = (std::min)(tile_columns, width - j),
                        .steps = steps,
                        .add = true});
    }
  });
}

/// sum += x^T d_y over all tokens, in reduction blocks of kReductionBlock tokens of a sequence.
template <class T, class E>
void add_outer_product(const View<const T>& x, const View<const T>& d_y, RowMatrix<T>& sum,
                       E&& executor) {
  constexpr Index least_rows = 128;  // fewer would pack the same rows of d_y repeatedly
  sum_over_tokens(x, sum, least_rows, executor,
                  [&](const SumRows<T>& rows, const TokenRange& tokens) {
                    add_outer_product(x, d_y, rows, tokens, executor);
                  });
}

/// sum += d_y over all tokens, in order.
template <class T, class E>
void add_rows(const View<const T>& d_y, RowMatrix<T>& sum, E&& executor) {
  constexpr double products = 4;  // an addition takes as long as that many products
  const LayerKernels<T> kernels;
  const auto all = static_cast<double>(d_y.batch() * d_y.rows());
  sum_over_tokens(d_y, sum, 1, executor, [&](const SumRows<T>& rows, const TokenRange& tokens) {
    for_each_column_block(executor, d_y.width(), kColumnsPerTask, products * all,
                          [&](Index first, Index count) {
                            for (Index b = tokens.sequences.begin; b < tokens.sequences.end; ++b) {
                              kernels.add_rows({.rows = row_at(d_y, b, tokens.rows.begin) + first,
                                                .row = d_y.strides()[2],
                                                .count = tokens.rows.end - tokens.rows.begin,
                                                .width = count,
                                                .to = rows.data + first});
                            }
                          });
  });
}

}  // namespace detail

/// y = x W + b, for x [B, 1, L, In] and y [B, 1, L, Out]: views with dense rows (columns have unit
/// stride) and any row stride. Several maps of the same x may be concatenated in W.
///
/// Threads share the rows, or the columns of y if there are few rows, and the tiles of the gradient
/// of W; the bits are the same for any number of threads. It needs no memory except 70 KB of stack.
/// \tparam W the type of the weights: T, or a 16-bit type, to which weights are rounded when they
/// are loaded; such a layer has no backward pass
template <class T, class W = T>
class Linear : public LayerCalls<Linear<T, W>, T> {
 public:
  Parameter<W> weight;  ///< [In, Out] W
  Parameter<T> bias;    ///< [1, Out] b, or [1, 0] if there is none

  /// Nothing is saved, because backward reads x again.
  struct Saved {};

  /// An empty layer; assign one before use.
  Linear() = default;

  /// \param in, out channels of x and of y
  /// \param initialiser draws W
  /// \param options bias, initialisation and name
  /// \throws std::invalid_argument if a size is below 1
  Linear(Index in, Index out, Initialiser& initialiser, const LinearLayerOptions& options = {})
      : weight(std::string(options.name) + ".weight", in, out),
        bias(std::string(options.name) + ".bias", 1, options.bias ? out : 0) {
    check_size("Linear", "the width of x", in);
    check_size("Linear", "the width of y", out);
    const Index one = options.outputs_of_one == 0 ? out : options.outputs_of_one;
    initialiser.draw(weight, options.initialisation, in, one);
  }

  /// The number of channels of x.
  Index in() const { return weight.value.rows(); }
  /// The number of channels of y.
  Index out() const { return weight.value.cols(); }

  /// Lists W, and b if there is one.
  template <class Self, class F>
  static void each_part(Self& self, F&& f) {
    f(self.weight);
    if (self.bias.value.size() != 0) f(self.bias);
  }

  using LayerCalls<Linear<T, W>, T>::forward;
  /// Computes y.
  /// \throws std::invalid_argument if a shape or layout is wrong
  template <class E = Serial>
  void forward(const View<const T>& x, const View<T>& y, Saved& /*saved*/,
               E&& executor = {}) const {
    check_forward("Linear", x, in(), y, out());
    detail::multiply_rows(x, weight.value, bias.value, y, as_executor(executor));
  }

  /// Adds to the gradients of the parameters. If d_x is given, it is written or added to.
  /// \param d_y the gradient of the loss with respect to y
  /// \throws as `forward`
  template <class E = Serial>
  void backward(const View<const T>& x, Saved& /*saved*/, const View<const T>& d_y,
                const View<T>& d_x, E&& executor = {}, OutputMode into = OutputMode::write) {
    static_assert(std::same_as<T, W>, "16-bit weights are for inference only");
    check_backward("Linear", x, in(), d_y, out(), d_x);
    auto&& threads = as_executor(executor);
    detail::add_outer_product(x, d_y, weight.gradient_sum(), threads);
    if (bias.value.size() != 0) detail::add_rows(d_y, bias.gradient_sum(), threads);
    if (d_x.empty()) return;
    detail::multiply_rows_transposed(d_y, weight.value, d_x, into, threads);
  }
};

FOVEA_NAMESPACE_END
