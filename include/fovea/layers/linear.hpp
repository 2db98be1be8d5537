// SPDX-License-Identifier: MIT
/// \file
/// y = x W + b. Cost 2 In Out flops per token forward, 4 In Out backward.
#pragma once

#include "fovea/layers/layer_calls.hpp"

FOVEA_NAMESPACE_BEGIN

/// Options of Linear.
struct LinearLayerOptions {
  bool bias = true;
  Initialisation initialisation = Initialisation::glorot;
  /// Outputs of one map, where the matrix is several of them side by side; 0: all columns.
  Index outputs_of_one = 0;
  const char* name = "linear";
};

namespace detail {

/// y = x W, + b if it is given.
template <class T, class E>
void multiply_rows(const View<const T>& x, const RowMatrix<T>& weight, const RowMatrix<T>& bias,
                   const View<T>& y, E&& executor) {
  for_each_row_block(executor, x.batch(), x.rows(), [&](Index b, Index first, Index count) {
    auto out = rows_of(y, b, first, count);
    out.noalias() = rows_of(x, b, first, count) * weight;
    if (bias.size() != 0) out.rowwise() += bias.row(0);
  });
}

/// d_x = d_y W^T, or that added to it.
template <class T, class E>
void multiply_rows_transposed(const View<const T>& d_y, const RowMatrix<T>& weight,
                              const View<T>& d_x, Into into, E&& executor) {
  for_each_row_block(executor, d_y.batch(), d_y.rows(), [&](Index b, Index first, Index count) {
    auto out = rows_of(d_x, b, first, count);
    const auto from = rows_of(d_y, b, first, count);
    if (into == Into::write) {
      out.noalias() = from * weight.transpose();
    } else {
      out.noalias() += from * weight.transpose();
    }
  });
}

/// Rows or columns of a tile: half of them, so that threads share the work, in whole cache lines;
/// small tiles pack the same rows again and again, larger ones than 256 leave the cache.
constexpr Index tile_extent(Index extent) {
  return (std::min<Index>)(256, blocks(extent, 64) * 32);
}

/// sum += x^T d_y over all tokens: tiles of it are tasks, each of which goes through all tokens in
/// order.
template <class T, class E>
void add_outer_product(const View<const T>& x, const View<const T>& d_y, RowMatrix<T>& sum,
                       E&& executor) {
  const Index tile_rows = tile_extent(sum.rows());
  const Index tile_columns = tile_extent(sum.cols());
  const Index columns = blocks(sum.cols(), tile_columns);
  const Index tasks = blocks(sum.rows(), tile_rows) * columns;
  for_each_task(executor, tasks, [&](Index task, Index /*worker*/) {
    const Index i = task / columns * tile_rows;
    const Index j = task % columns * tile_columns;
    const Index height = (std::min)(tile_rows, sum.rows() - i);
    const Index width = (std::min)(tile_columns, sum.cols() - j);
    for (Index b = 0; b < x.batch(); ++b) {
      sum.block(i, j, height, width).noalias() +=
          rows_of(x, b).middleCols(i, height).transpose() * rows_of(d_y, b).middleCols(j, width);
    }
  });
}

/// sum += d_y over all tokens, in order.
template <class T, class E>
void add_rows(const View<const T>& d_y, RowMatrix<T>& sum, E&& executor) {
  for_each_column_block(executor, d_y.width(), kColumnsPerTask, [&](Index first, Index count) {
    for (Index b = 0; b < d_y.batch(); ++b) {
      const auto rows = rows_of(d_y, b);
      for (Index n = 0; n < rows.rows(); ++n) {
        sum.row(0).segment(first, count) += rows.row(n).segment(first, count);
      }
    }
  });
}

}  // namespace detail

/// y = x W + b for x [B, 1, L, In], y [B, 1, L, Out]: views whose rows are dense (unit stride of
/// columns), any stride from row to row. Several maps of one x may stand side by side in W.
/// Threads split the rows, and in the gradient of W its tiles: the bits are the same for any number
/// of them (with Eigen's own threads off, as without OpenMP).
/// Memory: none but Eigen's packing of a block.
template <class T>
class Linear : public LayerCalls<Linear<T>, T> {
 public:
  Parameter<T> weight;  ///< [In, Out]
  Parameter<T> bias;    ///< [1, Out], or [1, 0] if there is none

  /// Nothing: backward reads x again.
  struct Saved {};

  /// A layer of no sizes, to be assigned to.
  Linear() = default;

  /// \throws std::invalid_argument a size below 1
  Linear(Index in, Index out, Initialiser& initialiser, const LinearLayerOptions& options = {})
      : weight(std::string(options.name) + ".weight", in, out),
        bias(std::string(options.name) + ".bias", 1, options.bias ? out : 0) {
    check_size("Linear", "the width of x", in);
    check_size("Linear", "the width of y", out);
    const Index one = options.outputs_of_one == 0 ? out : options.outputs_of_one;
    initialiser.draw(weight, options.initialisation, in, one);
  }

  Index in() const { return weight.value.rows(); }
  Index out() const { return weight.value.cols(); }

  template <class F>
  void visit(F&& f) {
    f(weight);
    if (bias.value.size() != 0) f(bias);
  }

  using LayerCalls<Linear<T>, T>::forward;
  /// \throws std::invalid_argument naming tensor, dimension, expected and got
  template <class E = Serial>
  void forward(const View<const T>& x, const View<T>& y, Saved& /*saved*/,
               E&& executor = {}) const {
    check_forward("Linear", x, in(), y, out());
    detail::multiply_rows(x, weight.value, bias.value, y, as_executor(executor));
  }

  /// Adds to the gradients of the parameters; writes d_x, or adds to it, if it is given.
  /// \param d_y gradient of the loss with respect to y
  template <class E = Serial>
  void backward(const View<const T>& x, Saved& /*saved*/, const View<const T>& d_y,
                const View<T>& d_x, E&& executor = {}, Into into = Into::write) {
    check_backward("Linear", x, in(), d_y, out(), d_x);
    auto&& threads = as_executor(executor);
    detail::add_outer_product(x, d_y, weight.gradient, threads);
    if (bias.value.size() != 0) detail::add_rows(d_y, bias.gradient, threads);
    if (d_x.is_none()) return;
    detail::multiply_rows_transposed(d_y, weight.value, d_x, into, threads);
  }
};

FOVEA_NAMESPACE_END
