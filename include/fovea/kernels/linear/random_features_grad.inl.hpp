// SPDX-License-Identifier: MIT
/// \file
/// From gradients of random features to those of rows and of the projection. With d_l_r = feature_r
/// d_feature_r, d_x = sum_r d_l_r w_r / D^(1/4), for keys less sum_r d_l_r x / D^(1/2), and d_w_r =
/// sum_i d_l_ir x_i / D^(1/4). References and maxima are constants: their effects cancel.

#if !defined(FOVEA_LEVEL)  // for editors
#pragma once
#include "fovea/kernels/linear/grad.inl.hpp"
#include "fovea/kernels/linear/grad_products.inl.hpp"
#include "fovea/kernels/linear/random_features.inl.hpp"
#endif

/// Adds rows to V vectors of columns of the gradient of a projection.
template <int V, class T>
struct ProjectionColumns {
  const T* d_logits;  // [count, row]
  Index row;
  const T* x;  // [count, x_row], from the group's first column on
  Index x_row;
  Index count;
  T* high;  // [R, x_row], likewise
  T* low;

  template <int R>
  FOVEA_INLINE void run(Index r) const {
    for (Index i = 0; i < count; i += kReductionBlock) {
      RegisterBlock<R, V, T> block;
      block.clear();
      block.multiply_add(d_logits + i * row + r, 1, row, x + i * x_row, x_row,
                         smaller(kReductionBlock, count - i));
      FOVEA_UNROLL
      for (int n = 0; n < R; ++n) {
        FOVEA_UNROLL
        for (int v = 0; v < V; ++v) {
          const Index at = (r + n) * x_row + v * kLanes<T>;
          Vec<T> sum = load(high + at);
          Vec<T> rest = load(low + at);
          add_to_double_word(sum, rest, block.at[n][v]);
          store(high + at, sum);
          store(low + at, rest);
        }
      }
    }
  }
};

/// The gradient of one row, written at once.
template <class T>
struct FeatureGradRow {
  const T* products;
  const T* x;  // packed; null: a query
  T minus;     // the factor of x

  FOVEA_INLINE Vec<T> operator()(Index c, Vec<T> /*before*/) const {
    return x == nullptr ? load(products + c) : fma(set1(minus), load(x + c), load(products + c));
  }
};

/// Propagates gradients of features to rows and to the projection.
template <class T>
void feature_grad(const FeatureGradArgs<T>& args) noexcept {
  constexpr Index w = kLanes<T>;
  const Index row = padded_row<T>(args.features);
  const Index x_row = padded_row<T>(args.width);
  alignas(kVecBytes) T sums[kFeatureRows];
  for (Index i = 0; i < args.count; ++i) {
    Vec<T> sum = zero<T>();
    for (Index c = 0; c < row; c += kSumLanes<T>) {
      Vec<T> part[kSumLanes<T> / w];
      FOVEA_UNROLL
      for (Index v = 0; v < kSumLanes<T> / w; ++v) {
        const Index at = i * row + c + v * w;
        part[v] = first_features(load(args.features_of + at) * load(args.d_rows + at), c + v * w,
                                 args.features);
        store(args.d_rows + at, part[v]);
      }
      if (args.norm_factor != 0) sum = sum + set1(total_of_lanes(part));
    }
    sums[i] = sum.raw[0];
  }
  T* const x = args.scratch + kFeatureRows * x_row;
  const bool is_key = args.norm_factor != 0;
  if (is_key || args.d_projection != nullptr) {
    pack_padded_rows(stored(args.x), args.count, args.width, x);
  }
  if (args.d_x.data != nullptr) {
    multiply_rows<ProductSteps::all, T>(
        {args.d_rows, row, 1, args.rows, x_row, args.scratch, x_row, args.features}, args.count,
        x_row);
    for (Index i = 0; i < args.count; ++i) {
      write_row(args.d_x.data + i * args.d_x.row, args.d_x.column, args.width, false,
                FeatureGradRow<T>{args.scratch + i * x_row, is_key ? x + i * x_row : nullptr,
                                  -2 * args.norm_factor * sums[i]});
    }
  }
  if (args.d_projection == nullptr) return;
  T* const high = args.d_projection;
  T* const low = high + args.features * x_row;
  for_register_blocks<T>(args.features, x_row, [&]<int V>(Index c) {
    return ProjectionColumns<V, T>{args.d_rows, row, x + c, x_row, args.count, high + c, low + c};
  });
}

/// Sums parts of the gradient of a projection, in order.
template <class T>
void projection_grad(const ProjectionGradArgs<T>& args) noexcept {
  const Index row = padded_row<T>(args.width);
  const Index elements = args.features * row;
  for (Index r = 0; r < args.features; ++r) {
    for (Index c = 0; c < args.width; c += kLanes<T>) {
      T* const sums = args.sums == nullptr ? nullptr : args.sums + r * row + c;
      Vec<T> sum = sums == nullptr ? zero<T>() : load(sums);
      Vec<T> rest = sums == nullptr ? zero<T>() : load(sums + elements);
      for (Index n = 0; n < args.count; ++n) {
        const T* const part = args.parts + 2 * n * elements + r * row + c;
        add_to_double_word(sum, rest, load(part));
        add_to_double_word(sum, rest, load(part + elements));
      }
      if (sums != nullptr) {
        store(sums, sum);
        store(sums + elements, rest);
      }
      const Matrix<T>& to = args.d_projection;
      if (to.data == nullptr) continue;
      store_columns(to.data + r * to.row, to.column, c, args.width, sum * set1(args.factor));
    }
  }
}

/// Multiplies the state of a causal step.
template <class T>
void scale_carried(const LinearGradScaleArgs<T>& args) noexcept {
  const GradWidths<T> widths(args.width, args.value_width);
  const Index rows = args.is_down ? args.width : args.value_width;
  const Index row = args.is_down ? widths.dv : widths.d;
  if (args.is_down) {
    scale_matrix_rows(args.carried, row, args.factors, rows);
    scale_matrix_rows(args.carried + rows * row, row, args.factors, rows);
  } else {
    scale_matrix_columns(args.carried, 2 * rows, row, args.factors);
  }
  scale_matrix_columns(args.carried + 2 * rows * row, 4, widths.d, args.factors);
}
