// SPDX-License-Identifier: MIT
/// \file
/// Applies an element-wise function to activations.
#pragma once

#include "fovea/kernels/layers/table.hpp"
#include "fovea/layers/layer_calls.hpp"

FOVEA_NAMESPACE_BEGIN

namespace detail {

/// Cost of a function of one element with an exponential, in multiply-adds.
inline constexpr double kElementProducts = 32;

/// to = f(x, d) for activations, on the executor. `to` may be x or d.
/// \param d empty for a function of x alone
/// \param factor of a sigmoid
/// \tparam kFunction f, a member of LayerKernels<T>
template <auto kFunction, class T>
void map_activations(const View<const T>& x, const View<const T>& d, const View<T>& to,
                     const ExecutorRef& executor, T factor = 1) {
  const LayerKernels<T> kernels;
  const double products = kElementProducts * static_cast<double>(x.width());
  for_each_row_block(executor, x.batch(), x.rows(), products,
                     [&](Index b, Index first, Index count) {
                       ElementArgs<T> args{.x = row_at(x, b, first),
                                           .x_row = x.strides()[2],
                                           .to = row_at(to, b, first),
                                           .to_row = to.strides()[2],
                                           .rows = count,
                                           .width = x.width(),
                                           .factor = factor};
                       if (!d.empty()) {
                         args.d = row_at(d, b, first);
                         args.d_row = d.strides()[2];
                       }
                       (kernels.*kFunction)(args);
                     });
}

/// Cost of adding or copying one element, in multiply-adds.
inline constexpr double kProductsOfElement = 8;

/// z = x + y for activations.
template <class T>
void add_activations(const View<const T>& x, const View<const T>& y, const View<T>& z,
                     const ExecutorRef& executor) {
  const double of_row = kProductsOfElement * static_cast<double>(x.width());
  for_each_row_block(executor, x.batch(), x.rows(), of_row, [&](Index b, Index first, Index count) {
    rows_of(z, b, first, count) = rows_of(x, b, first, count) + rows_of(y, b, first, count);
  });
}

/// y = x for activations.
template <class T>
void copy_activations(const View<const T>& x, const View<T>& y, const ExecutorRef& executor) {
  const double of_row = kProductsOfElement * static_cast<double>(x.width());
  for_each_row_block(executor, x.batch(), x.rows(), of_row, [&](Index b, Index first, Index count) {
    rows_of(y, b, first, count) = rows_of(x, b, first, count);
  });
}

}  // namespace detail

FOVEA_NAMESPACE_END
